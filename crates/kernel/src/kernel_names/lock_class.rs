//! Classes of locks, as the programs code them.

use lockmeter_profile::{Lock, Naming};
use lockmeter_symbols::Identity;

/// Where a class word says what it is; the constants of `lock_class.bpf.h`.
const CLASS_TAG_SHIFT: u32 = 60;
const CLASS_SLAB: u64 = 1;
const CLASS_PAGE: u64 = 2;
const CLASS_MMAP_LOCK: u64 = 3;

/// The lock of an address space.
pub const MMAP_LOCK: &str = "mm_struct.mmap_lock";

/// What a class says of its lock. `caches`: the slab caches that the programs met, by their numbers.
pub fn identity(class: u64, caches: &[u64]) -> Identity {
    match class >> CLASS_TAG_SHIFT {
        CLASS_SLAB => {
            let index = (class >> 32) as usize & 0xff_ffff;
            Identity::Slab { cache: caches.get(index).copied().unwrap_or(0), offset: class as u32 }
        }
        CLASS_PAGE => Identity::PageStruct { offset: class as u32 },
        _ => Identity::Address(class),
    }
}

/// Whether a class is that of a lock in a slab object.
pub const fn is_of_slab(class: u64) -> bool {
    class >> CLASS_TAG_SHIFT == CLASS_SLAB
}

/// The lock of a class whose tracepoints say which it is: that of an address space.
pub fn told_by_tracepoint(class: u64) -> Option<Lock> {
    (class >> CLASS_TAG_SHIFT == CLASS_MMAP_LOCK).then(|| Lock {
        name: MMAP_LOCK.to_owned(),
        object: Some("mm_struct".to_owned()),
        naming: Naming::SlabField,
        detail: "as its tracepoints say".to_owned(),
    })
}
