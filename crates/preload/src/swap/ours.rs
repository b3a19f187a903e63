//! The locks of ours that take the place of pthread's.

use core::time::Duration;

use lock_api::{RawRwLockRecursive, RawRwLockTimed};
use lockmeter_locks::{RawMutex, RawPercpuRwSem, RawRwSem, RawSpin};

use super::arena::{Arena, Slots, ZeroIsFree};
use super::choice::Swap;

/// Our reader-writer semaphore.
pub(super) type RwSem = RawRwSem;
/// The same under a bias towards readers.
pub(super) type PercpuRwSem = RawPercpuRwSem<RawRwSem>;

/// A reader-writer lock of ours.
pub(super) trait Shared:
    RawRwLockRecursive + RawRwLockTimed<Duration = Duration> + ZeroIsFree + Sized + Sync + 'static
{
    /// What became of a lock that was replaced by one of these.
    const SWAP: Swap;

    /// Where they lie.
    fn arena() -> &'static impl Slots<Self>;
}

// SAFETY: all of its words are 0 while it is free and was never used.
unsafe impl ZeroIsFree for RawMutex {}
// SAFETY: all of its words are 0 while it is free and was never used.
unsafe impl ZeroIsFree for RawSpin {}
// SAFETY: all of its words are 0 while it is free and was never used.
unsafe impl ZeroIsFree for RwSem {}
// SAFETY: all of its words are 0 and its pointers null while it is free and was never used.
unsafe impl ZeroIsFree for PercpuRwSem {}

/// As many can be swapped at a time: 64 or 128 bytes of address space each.
const CAPACITY: usize = 1 << 18;

impl Shared for RwSem {
    const SWAP: Swap = Swap::RwlockToRwsem;

    #[inline(always)]
    fn arena() -> &'static impl Slots<Self> {
        static ARENA: Arena<RwSem, CAPACITY> = Arena::new();
        &ARENA
    }
}

impl Shared for PercpuRwSem {
    const SWAP: Swap = Swap::RwlockToPercpuRwsem;

    #[inline(always)]
    fn arena() -> &'static impl Slots<Self> {
        static ARENA: Arena<PercpuRwSem, CAPACITY> = Arena::new();
        &ARENA
    }
}
