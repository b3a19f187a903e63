//! What one thread recorded.

use core::sync::atomic::{AtomicI32, AtomicU16, AtomicU32, AtomicU64};

use super::PAGE;
use super::samples::Slot;
use super::stacks::CachedStack;

/// Samples of a thread that are kept apart; a power of two.
pub const SLOTS: usize = 1024;
/// Locks that a thread can hold at a time with their holds followed.
pub const HELD: usize = 32;
/// Places in the program where a thread has released locks before; a power of two.
pub const RELEASE_CACHE: usize = 512;
/// Stacks that a thread has followed before; a power of two.
pub const STACK_CACHE: usize = 16;
/// Samples on a page.
pub const SLOTS_OF_A_PAGE: usize = PAGE / size_of::<Slot>();
/// The first page of them is used before the others: most threads have few samples.
pub const FIRST_SLOTS: usize = SLOTS_OF_A_PAGE;
/// Stacks on a page.
pub const STACK_CACHE_OF_A_PAGE: usize = PAGE / size_of::<CachedStack>();
/// Groups of locks (by address) of which a thread decides together how many holds it times; a power of two.
pub const CELLS: usize = 64;

/// A lock that a thread holds.
#[repr(C)]
pub struct HeldLock {
    /// Its address.
    pub lock: AtomicU64,
    /// The return address of its acquisition.
    pub site: AtomicU64,
    /// Kind, mode, whether the hold is timed, and how often the lock was taken again or the recorder's tick, as [`pack_held`] and
    /// [`pack_untimed`] put them.
    pub how: AtomicU64,
    /// Since when, by the writer's clock. Of a hold that is timed; else it says nothing.
    pub since: AtomicU64,
}

/// How many holds of a group of locks a thread times.
#[repr(C)]
pub struct Cell {
    /// One of this many is timed: a power of two.
    pub stride: AtomicU32,
    /// This many were timed since the thread last looked.
    pub timed: AtomicU32,
}

/// What one thread recorded. A table outlives its thread and serves the next one of the same process.
#[repr(C, align(4096))]
pub struct Thread {
    /// Thread id of the owner; 0: free.
    pub owner: AtomicU32,
    /// Not 0 while the owner changes this table.
    pub busy: AtomicU32,
    /// Rises with each change but those of holds that are not timed, each of which `until_timed` shows.
    pub changes: AtomicU64,
    /// Zero: where a [`CountedSlot`](super::CountedSlot) has its site, for `release_cache` leads here where there is none.
    pub no_site: AtomicU64,
    /// Place of the owner's name, from 1.
    pub comm: AtomicU16,
    /// Slots in use.
    pub used: AtomicU16,
    /// Of the waits that are [kept](Self::past_wait) as one, how long the last was, in 1,024 ticks.
    pub last_of_past_wait: AtomicU32,
    /// How many of `held` count: never more than there are.
    pub held_count: AtomicU32,
    /// The next in the list of free tables.
    pub next_free: AtomicU32,
    /// What the thread waits for now: the lock's address, or 0; and since when, in ticks.
    pub waiting: [AtomicU64; 2],
    /// Of the sequence that draws which holds are timed.
    pub random: AtomicU32,
    /// This many more are timed before the thread looks how many it times.
    pub until_look: AtomicU32,
    /// When it last looked, in ticks.
    pub looked_at: AtomicU64,
    /// What `switches` of the process was then.
    pub switches: AtomicU32,
    /// What `switches` of the process was when the first of `held` was acquired, or later.
    pub held_switches: AtomicU32,
    /// When this thread last read the clock while it held no lock, by that clock.
    pub clock_read: AtomicU64,
    /// A wait of the thread's that has ended, or several: from when to when, in ticks, and who had most of it, as
    /// [`pack_release`](super::pack_release) puts it.
    pub past_wait: [AtomicU64; 3],
    /// Waits of the thread's for a condition that timed out one after the other, until somebody signals it: from when to when, in ticks;
    /// the condition's place, from 1; and the site.
    pub timed_out: [AtomicU64; 4],
    /// By group of locks: this many more holds that are not timed end before one is timed.
    pub until_timed: [AtomicU32; CELLS],
    /// By group of locks.
    pub cells: [Cell; CELLS],
    /// Zero: what entries written in assembly read in place of the last of `held` where there is none.
    pub none_held: HeldLock,
    /// Locks that the thread holds, oldest first.
    pub held: [HeldLock; HELD],
    /// Pages of stacks that were followed recently.
    pub stack_cache: [AtomicU32; STACK_CACHE / STACK_CACHE_OF_A_PAGE],
    /// Pages of samples. The first sample is never used: its number stands for none.
    pub slots: [AtomicU32; SLOTS / SLOTS_OF_A_PAGE],
    /// By caller, or by caller and lock: the sample of its holds that are not timed, a [`CountedSlot`](super::CountedSlot); 0: none. Its
    /// distance from this table, in sizes of a sample.
    pub release_cache: [AtomicI32; RELEASE_CACHE],
}

const _: () = assert!(size_of::<Thread>() == PAGE, "a thread takes one page");

/// What [`HeldLock::how`] holds of a hold that is timed.
pub const fn pack_held(kind: u8, mode: u8, again: u32) -> u64 {
    kind as u64 | (mode as u64) << 8 | (again as u64) << 32
}

/// In [`HeldLock::how`]: the hold is not timed.
pub const HELD_UNTIMED: u64 = 1 << 16;

/// In [`HeldLock::how`]: the lock is a robust mutex, and if the thread ends without a release, so does the hold.
pub const HELD_ROBUST: u64 = 1 << 17;

/// What [`HeldLock::how`] holds of a hold that is not timed, which began at this tick of the recorder's.
pub const fn pack_untimed(kind: u8, mode: u8, tick: u32) -> u64 {
    pack_held(kind, mode, tick) | HELD_UNTIMED
}
