//! Locks that are larger than the object they stand for: a table of them, bounded, on pages that the kernel gives when they
//! are touched.
//!
//! Nothing here waits or allocates, and nothing is half done when a thread is interrupted or the process forks: a place is
//! taken by one exchange of the list of free ones, and it belongs to an object from the exchange that wrote it there.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// A place in an arena, from 1.
pub(super) type Place = u32;

/// A lock whose bytes are all zero when it is free.
///
/// # Safety
/// Zeroed memory is a free lock.
pub(super) unsafe trait ZeroIsFree {}

#[repr(C, align(64))]
struct Entry<T> {
    /// The object that it stands for; 0: nobody's. An object that was copied does not own the place it names.
    owner: AtomicUsize,
    /// The next free place.
    next: AtomicU32,
    lock: UnsafeCell<T>,
}

/// `CAPACITY` locks.
pub(super) struct Arena<T, const CAPACITY: usize> {
    entries: AtomicPtr<Entry<T>>,
    /// Places that were ever used.
    used: AtomicU32,
    /// The first free place, and above it a number that tells one list from another with the same head.
    free: AtomicU64,
    holds: PhantomData<T>,
}

// SAFETY: entries are shared between threads as `T` allows; all else is atomic.
unsafe impl<T: Sync, const CAPACITY: usize> Sync for Arena<T, CAPACITY> {}

const PLACE: u64 = 0xffff_ffff;
const NEXT_LIST: u64 = 1 << 32;

/// An arena of whatever size.
pub(super) trait Places<T> {
    /// The lock at this place, if it is that of this object.
    fn get(&self, place: Place, owner: usize) -> Option<&T>;

    /// Makes sure that an object's word names a lock of its own; false when all are taken. Several threads may do so at once.
    fn place(&self, word: &AtomicU32, owner: usize) -> bool;

    /// Gives a lock back that nobody uses any more, if it is that of this object.
    fn give_back(&self, place: Place, owner: usize);
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
    fn entry(&self, place: Place) -> Option<&Entry<T>> {
        let place = (place as usize).wrapping_sub(1);
        if place >= CAPACITY {
            return None;
        }
        let entries = self.entries.load(Acquire);
        if entries.is_null() {
            return None;
        }
        // SAFETY: below the capacity, in a mapping that is never unmapped; zeroed entries are valid.
        Some(unsafe { &*entries.add(place) })
    }

    /// A free lock for this object; `None` when all are taken.
    fn take(&self, owner: usize) -> Option<Place> {
        if self.entries.load(Acquire).is_null() {
            self.map()?;
        }
        let place = self.pop().or_else(|| self.unused())?;
        self.entry(place)?.owner.store(owner, Release);
        Some(place)
    }

    fn pop(&self) -> Option<Place> {
        let mut free = self.free.load(Acquire);
        loop {
            let place = (free & PLACE) as u32;
            let next = self.entry(place)?.next.load(Relaxed);
            let list = (free & !PLACE).wrapping_add(NEXT_LIST) | u64::from(next);
            match self.free.compare_exchange_weak(free, list, Acquire, Acquire) {
                Ok(_) => return Some(place),
                Err(now) => free = now,
            }
        }
    }

    fn unused(&self) -> Option<Place> {
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

impl<T: ZeroIsFree, const CAPACITY: usize> Places<T> for Arena<T, CAPACITY> {
    #[inline(always)]
    fn get(&self, place: Place, owner: usize) -> Option<&T> {
        let entry = self.entry(place)?;
        if entry.owner.load(Relaxed) != owner {
            return None;
        }
        // SAFETY: only ever shared while it has an owner.
        Some(unsafe { &*entry.lock.get() })
    }

    fn place(&self, word: &AtomicU32, owner: usize) -> bool {
        let before = word.load(Acquire);
        if self.get(before, owner).is_some() {
            return true;
        }
        let Some(place) = self.take(owner) else { return false };
        if word.compare_exchange(before, place, Release, Relaxed).is_err() {
            // Another thread did the same: its place counts.
            self.give_back(place, owner);
        }
        true
    }

    fn give_back(&self, place: Place, owner: usize) {
        let Some(entry) = self.entry(place) else { return };
        if entry.owner.compare_exchange(owner, 0, AcqRel, Relaxed).is_err() {
            return;
        }
        // SAFETY: it has no owner, and is not yet in the list of free ones: nobody else looks at it. Zeroed it is free again.
        unsafe {
            ptr::drop_in_place(entry.lock.get());
            ptr::write_bytes(entry.lock.get(), 0, 1);
        }
        let mut free = self.free.load(Relaxed);
        loop {
            entry.next.store((free & PLACE) as u32, Relaxed);
            let list = (free & !PLACE).wrapping_add(NEXT_LIST) | u64::from(place);
            match self.free.compare_exchange_weak(free, list, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => free = now,
            }
        }
    }
}
