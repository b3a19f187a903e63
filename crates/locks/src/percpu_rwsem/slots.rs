//! The memory behind per-CPU counters: as the kernel's per-CPU allocator does it, each CPU has an area of its own, and a lock's
//! counters lie at the same place in all of them.
//!
//! A chunk is one reservation of address space with an area for each CPU that the machine may ever have. The pages of an area
//! are the kernel's to give when they are first written, so a chunk costs what is used of it: 8 bytes a lock and CPU.

use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

/// From one CPU's counter to the next CPU's, as a power of two: 64 KiB.
pub(super) const AREA_SHIFT: u32 = 16;
const AREA_BYTES: usize = 1 << AREA_SHIFT;
/// Counters in an area.
const SLOTS: usize = AREA_BYTES / size_of::<AtomicU64>();
/// Words of the map of used slots, which takes the place of the first slots of the first CPU.
const MAP_WORDS: usize = SLOTS / 64;
/// With all chunks full (half a million biased locks) further locks stay without counters.
#[cfg(not(miri))]
const CHUNKS: usize = 64;
#[cfg(miri)]
const CHUNKS: usize = 1;
/// A machine with more CPUs than this uses the counters of these only.
pub(super) const MOST_CPUS: u32 = 4096;

static CHUNK: [AtomicPtr<AtomicU64>; CHUNKS] = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];

/// A lock's counters: that of CPU 0; the others lie whole areas behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(NonNull<AtomicU64>);

impl Slot {
    /// Counters that nobody else has, all 0. `None`: no memory, or no room.
    pub(super) fn allocate() -> Option<Slot> {
        (0..CHUNKS).find_map(|at| take_from(chunk(at)?))
    }

    /// Gives the counters back.
    ///
    /// # Safety
    ///
    /// Nobody uses them any more.
    pub(super) unsafe fn free(self) {
        for counter in self.counters() {
            counter.store(0, Relaxed);
        }
        let address = self.0.as_ptr().addr();
        let home = CHUNK
            .iter()
            .map(|chunk| chunk.load(Acquire))
            .find(|base| !base.is_null() && (base.addr()..base.addr() + AREA_BYTES).contains(&address));
        let Some(base) = home else { return };
        let slot = (address - base.addr()) / size_of::<AtomicU64>();
        // SAFETY: the map stands at the start of its chunk, which is never unmapped.
        let word = unsafe { &*base.add(slot / 64) };
        word.fetch_and(!(1 << (slot % 64)), Release);
    }

    pub(super) fn as_ptr(self) -> *mut AtomicU64 {
        self.0.as_ptr()
    }

    /// # Safety
    ///
    /// `counter` came from [`Slot::as_ptr`] of a slot that has not been freed.
    pub(super) unsafe fn from_ptr(counter: *mut AtomicU64) -> Option<Slot> {
        NonNull::new(counter).map(Slot)
    }

    /// The counter of one CPU.
    pub(super) fn counter(&self, cpu: u32) -> &AtomicU64 {
        debug_assert!(cpu < cpus());
        // SAFETY: the chunk has an area for each of `cpus()`, and is never unmapped.
        unsafe { self.0.byte_add((cpu as usize) << AREA_SHIFT).as_ref() }
    }

    /// Those of all CPUs.
    pub(super) fn counters(&self) -> impl Iterator<Item = &AtomicU64> {
        (0..cpus()).map(|cpu| self.counter(cpu))
    }
}

/// A free slot of the chunk at `base`.
fn take_from(base: NonNull<AtomicU64>) -> Option<Slot> {
    for at in 0..MAP_WORDS {
        // SAFETY: the map stands at the start of the chunk.
        let word = unsafe { base.add(at).as_ref() };
        let mut used = word.load(Relaxed);
        while used != u64::MAX {
            let bit = used.trailing_ones() as usize;
            match word.compare_exchange_weak(used, used | 1 << bit, Acquire, Relaxed) {
                // SAFETY: a place in the chunk's first area.
                Ok(_) => return Some(Slot(unsafe { base.add(at * 64 + bit) })),
                Err(now) => used = now,
            }
        }
    }
    None
}

/// The chunk in this place; reserved now, if it is not there yet.
fn chunk(at: usize) -> Option<NonNull<AtomicU64>> {
    let there = CHUNK[at].load(Acquire);
    if let Some(there) = NonNull::new(there) {
        return Some(there);
    }
    let bytes = cpus() as usize * AREA_BYTES;
    let new = reserve(bytes)?;
    for word in 0..MAP_WORDS.div_ceil(64) {
        // The slots that the map itself takes.
        // SAFETY: in the new chunk, which nobody else knows yet.
        unsafe { new.add(word).as_ref() }.store(u64::MAX, Relaxed);
    }
    match CHUNK[at].compare_exchange(ptr::null_mut(), new.as_ptr(), AcqRel, Acquire) {
        Ok(_) => Some(new),
        Err(there) => {
            // SAFETY: mapped above, and nobody knows of it.
            unsafe { libc::munmap(new.as_ptr().cast(), bytes) };
            NonNull::new(there)
        }
    }
}

/// Address space whose pages read as 0.
fn reserve(bytes: usize) -> Option<NonNull<AtomicU64>> {
    #[cfg(not(miri))]
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    #[cfg(miri)]
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at a place of the kernel's choice.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if at == libc::MAP_FAILED { None } else { NonNull::new(at.cast()) }
}

/// How many CPUs have an area: all that the machine may ever have.
pub(super) fn cpus() -> u32 {
    /// 0: not asked yet.
    static CPUS: AtomicU32 = AtomicU32::new(0);
    let known = CPUS.load(Relaxed);
    if known != 0 {
        return known;
    }
    let cpus = highest_possible_cpu().map_or(MOST_CPUS, |highest| (highest + 1).min(MOST_CPUS));
    // The first answer stays, so that no two chunks differ.
    CPUS.compare_exchange(0, cpus, Relaxed, Relaxed).map_or_else(|first| first, |_| cpus)
}

#[cfg(miri)]
fn highest_possible_cpu() -> Option<u32> {
    Some(1)
}

/// The last number in the kernel's list, such as `0-7` or `0,2-5`. `None` where there is no list.
#[cfg(not(miri))]
fn highest_possible_cpu() -> Option<u32> {
    let mut text = [0_u8; 256];
    // SAFETY: a C string; `text` is as long as it says; the descriptor is this function's own.
    let length = unsafe {
        let file = libc::open(c"/sys/devices/system/cpu/possible".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        usize::try_from(length).ok()?
    };
    let list = core::str::from_utf8(text.get(..length)?).ok()?;
    list.trim_end().rsplit(['-', ',']).next()?.parse().ok()
}
