//! Locks that are larger than the object they stand for: a table of them, bounded, on pages that the kernel gives when they
//! are touched.
//!
//! Nothing here waits or allocates, and nothing is half done when a thread is interrupted or the process forks: a slot is
//! taken by one exchange of the list of free ones, and it belongs to an object from the exchange that wrote it there.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// A slot in an arena, from 1.
pub(super) type Slot = u32;

/// A lock whose bytes are all zero when it is free.
///
/// # Safety
/// Zeroed memory is a free lock.
pub(super) unsafe trait ZeroIsFree {}

#[repr(C, align(64))]
struct Entry<T> {
    /// The object that it stands for; 0: nobody's. An object that was copied does not own the slot it names.
    owner: AtomicUsize,
    /// The next free slot.
    next: AtomicU32,
    lock: UnsafeCell<T>,
}

/// `CAPACITY` locks.
pub(super) struct Arena<T, const CAPACITY: usize> {
    entries: AtomicPtr<Entry<T>>,
    /// Slots that were ever used.
    used: AtomicU32,
    /// The first free slot, and above it a number that tells one list from another with the same head.
    free: AtomicU64,
    holds: PhantomData<T>,
}

// SAFETY: entries are shared between threads as `T` allows; all else is atomic.
unsafe impl<T: Sync, const CAPACITY: usize> Sync for Arena<T, CAPACITY> {}

const SLOT: u64 = 0xffff_ffff;
const NEXT_LIST: u64 = 1 << 32;

/// An arena of whatever size.
pub(super) trait Slots<T> {
    /// The lock at this slot, if it is that of this object.
    fn get(&self, slot: Slot, owner: usize) -> Option<&T>;

    /// Makes sure that an object's word names a lock of its own; false when all are taken. Several threads may do so at once.
    fn assign(&self, word: &AtomicU32, owner: usize) -> bool;

    /// Gives a lock back that nobody uses any more, if it is that of this object.
    fn give_back(&self, slot: Slot, owner: usize);
}

impl<T: ZeroIsFree, const CAPACITY: usize> Arena<T, CAPACITY> {
    pub(super) const fn new() -> Self {
        Self {
            entries: AtomicPtr::new(ptr::null_mut()),
            used: AtomicU32::new(0),
            free: AtomicU64::new(0),
            holds: PhantomData,
        }
    }

    #[inline(always)]
    fn entry(&self, slot: Slot) -> Option<&Entry<T>> {
        let slot = (slot as usize).wrapping_sub(1);
        if slot >= CAPACITY {
            return None;
        }
        let entries = self.entries.load(Acquire);
        if entries.is_null() {
            return None;
        }
        // SAFETY: below the capacity, in a mapping that is never unmapped; zeroed entries are valid.
        Some(unsafe { &*entries.add(slot) })
    }

    /// A free lock for this object; `None` when all are taken.
    fn take(&self, owner: usize) -> Option<Slot> {
        if self.entries.load(Acquire).is_null() {
            self.map()?;
        }
        let slot = self.pop().or_else(|| self.unused())?;
        self.entry(slot)?.owner.store(owner, Release);
        Some(slot)
    }

    fn pop(&self) -> Option<Slot> {
        let mut free = self.free.load(Acquire);
        loop {
            let slot = (free & SLOT) as u32;
            let next = self.entry(slot)?.next.load(Relaxed);
            let list = (free & !SLOT).wrapping_add(NEXT_LIST) | u64::from(next);
            match self.free.compare_exchange_weak(free, list, Acquire, Acquire) {
                Ok(_) => return Some(slot),
                Err(now) => free = now,
            }
        }
    }

    fn unused(&self) -> Option<Slot> {
        let used = self.used.fetch_update(Relaxed, Relaxed, |used| ((used as usize) < CAPACITY).then_some(used + 1));
        used.ok().map(|used| used + 1)
    }

    fn map(&self) -> Option<()> {
        let bytes = size_of::<Entry<T>>() * CAPACITY;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return None;
        }
        if self.entries.compare_exchange(ptr::null_mut(), mapped.cast(), AcqRel, Acquire).is_err() {
            // SAFETY: just mapped, and seen by nobody: another thread was faster.
            unsafe { libc::munmap(mapped, bytes) };
        }
        Some(())
    }
}

impl<T: ZeroIsFree, const CAPACITY: usize> Slots<T> for Arena<T, CAPACITY> {
    #[inline(always)]
    fn get(&self, slot: Slot, owner: usize) -> Option<&T> {
        let entry = self.entry(slot)?;
        if entry.owner.load(Relaxed) != owner {
            return None;
        }
        // SAFETY: only ever shared while it has an owner.
        Some(unsafe { &*entry.lock.get() })
    }

    fn assign(&self, word: &AtomicU32, owner: usize) -> bool {
        let before = word.load(Acquire);
        if self.get(before, owner).is_some() {
            return true;
        }
        let Some(slot) = self.take(owner) else { return false };
        if word.compare_exchange(before, slot, Release, Relaxed).is_err() {
            // Another thread did the same: its slot counts.
            self.give_back(slot, owner);
        }
        true
    }

    fn give_back(&self, slot: Slot, owner: usize) {
        let Some(entry) = self.entry(slot) else { return };
        if entry.owner.compare_exchange(owner, 0, AcqRel, Relaxed).is_err() {
            return;
        }
        // SAFETY: it has no owner, and is not yet in the list of free ones: no other thread reads it. Zeroed it is free again.
        unsafe {
            ptr::drop_in_place(entry.lock.get());
            ptr::write_bytes(entry.lock.get(), 0, 1);
        }
        let mut free = self.free.load(Relaxed);
        loop {
            entry.next.store((free & SLOT) as u32, Relaxed);
            let list = (free & !SLOT).wrapping_add(NEXT_LIST) | u64::from(slot);
            match self.free.compare_exchange_weak(free, list, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => free = now,
            }
        }
    }
}
