//! What one process recorded: a page that says where the pages of its tables are.

use core::sync::atomic::{AtomicU32, AtomicU64};

use super::{
    COMMS, Class, Comm, LOCK_PLACES, LOCK_SETS, LOSSES, LockEntry, MODULES, Module, PAGE, STACKS, SWAPS, Slot, Stack,
    Tags,
};

/// Pages of a table with this many entries of this type.
const fn pages_of<T>(entries: usize) -> usize {
    entries.div_ceil(PAGE / size_of::<T>())
}

/// Pages of the index of threads by their id: as many as leave the [`Process`] a page.
pub const THREAD_ID_PAGES: usize = 62;
/// Threads that a page of that index holds.
pub const THREAD_IDS: usize = PAGE / size_of::<AtomicU32>();
/// Pages with the samples that threads share which have no table of their own.
pub const SHARED_PAGES: usize = 4;
/// Such samples.
pub const SHARED_SLOTS: usize = SHARED_PAGES * (PAGE / size_of::<Slot>());

/// Stops of a process that are kept; later ones take the place of the first.
pub const STOPS: usize = 4;

/// A time in which the process was stopped (`SIGSTOP`), by the monotonic clock: from when the recorder first saw it so until it last did.
#[derive(Debug)]
#[repr(C)]
pub struct Stop {
    /// In nanoseconds.
    pub since_ns: AtomicU64,
    /// In nanoseconds; grows while the process is stopped.
    pub until_ns: AtomicU64,
}

/// Head of a process's tables: a page. Tables are given by the numbers of their pages, 0 for those that were not needed so far.
#[repr(C, align(64))]
pub struct Process {
    /// The process, as it knows itself.
    pub pid: AtomicU32,
    /// The control word: [`OFF`](super::OFF), [`WAIT`](super::WAIT) or [`HOLD`](super::HOLD). The collector writes it.
    pub level: AtomicU32,
    /// When this was made, as the writer's clock says.
    pub start_ns: AtomicU64,
    /// As in [`Session`](super::Session).
    pub tick_ns_shifted: AtomicU64,
    /// Raised by the collector at each drain: from then on maxima are those of a new interval.
    pub epoch: AtomicU32,
    /// As in [`Session`](super::Session). The collector may change it.
    pub timed_holds: AtomicU32,
    /// What `level` was when this was made: [`OFF`](super::OFF) in a child forked while its parent was switched off.
    pub level_at_start: AtomicU32,
    /// Raised by the collector when it has changed `level` or `timed_holds`.
    pub switches: AtomicU32,
    /// How much of the clock's time a thread that takes locks runs on a CPU, in thousandths: the mean of the process's, which the
    /// collector writes; 0 until then.
    pub running_per_mille: AtomicU32,
    /// Modules that were ever begun.
    pub module_count: AtomicU32,
    /// Thread names that were ever begun.
    pub comm_count: AtomicU32,
    /// The number of this process in its session.
    pub number: AtomicU32,
    /// Stops seen so far; that with this number, from 0, is in its place of `stops`. The recorder writes both.
    pub stop_count: AtomicU32,
    /// Locks in use that processes may share.
    pub shared_locks: AtomicU32,
    /// The number of the process that forked this one; 0: none that is metered.
    pub parent: AtomicU32,
    /// Raised by the collector when it has changed numbers of such locks.
    pub shared_changes: AtomicU32,
    /// Where the stack of the process's first thread ends, or a little before.
    pub stack_end: AtomicU64,
    /// When the process was stopped.
    pub stops: [Stop; STOPS],
    /// What is left of the run that this process took last: the next page, and above bit 32 the first page beyond it.
    pub left: AtomicU64,
    /// Tables of threads that ended: the page of the first, and above bit 32 a number that changes each time.
    pub free_threads: AtomicU64,
    /// What was lost, by [`Lost`](super::Lost).
    pub losses: [AtomicU64; LOSSES],
    /// What became of locks that were to be swapped, by [`Swap`](super::Swap).
    pub swaps: [AtomicU64; SWAPS],
    /// [`Comm`]: thread names, the process's own first.
    pub comms: [AtomicU32; pages_of::<Comm>(COMMS)],
    /// [`Module`]: programs and libraries.
    pub modules: [AtomicU32; pages_of::<Module>(MODULES)],
    /// [`Tags`]: where which lock is.
    pub tags: [AtomicU32; pages_of::<Tags>(LOCK_SETS)],
    /// [`LockEntry`]: what is known of it.
    pub locks: [AtomicU32; pages_of::<LockEntry>(LOCK_PLACES)],
    /// [`Class`]: locks that there are too many of.
    pub classes: [AtomicU32; pages_of::<Class>(super::CLASSES)],
    /// [`Stack`].
    pub stacks: [AtomicU32; pages_of::<Stack>(STACKS)],
    /// Pages of threads' tables, by a hash of the thread's id.
    pub thread_ids: [AtomicU32; THREAD_ID_PAGES],
    /// [`Slot`]: what threads without a table of their own counted together.
    pub shared: [AtomicU32; SHARED_PAGES],
    /// A page with the numbers of the pages of [`Releases`](super::Releases).
    pub releases: AtomicU32,
}

/// Where a thread is in the index by id: the page, and the first place in it.
pub const fn thread_id_slot(id: u32) -> (usize, usize) {
    let mixed = id.wrapping_mul(0x9e37_79b1);
    ((mixed >> 16) as usize % THREAD_ID_PAGES, (mixed >> 22) as usize % THREAD_IDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_process_is_one_page() {
        assert_eq!(size_of::<Process>(), PAGE);
    }
}
