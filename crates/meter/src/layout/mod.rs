//! What metered programs write and the recorder reads, as both sides see it.
//!
//! A segment is the pages that one process has taken of its session's memory. All numbers are of the machine's own byte order, for
//! they never leave the machine. Every count only ever grows; a collector keeps what it saw last and takes the difference, so that
//! it never stops or resets a writer.

mod locks;
mod losses;
mod names;
mod pages;
mod process;
mod releases;
mod samples;
mod session;
mod shared_locks;
mod stacks;
mod swaps;
mod thread;

pub use locks::{
    CLASSES, Class, ENTRY_INIT, ENTRY_NUMBER_SHIFT, ENTRY_SHARED, ENTRY_STACK, LOCK_PLACES, LOCK_SETS,
    LOCKS_OF_A_CLASS, LockEntry, TAG_ADDRESS, TAG_CLASS_SHIFT, TAG_USED, Tags, WAYS,
};
pub use losses::{LOSSES, Lost};
pub use names::{BUILD_ID_BYTES, COMMS, Comm, MODULES, Module, PATH_BYTES};
pub use pages::{
    AWAITED, AWAITED_PAGE, Awaited, FIRST_PAGE, GROUP, PAGE, PAGES, PageKind, RECYCLED, RECYCLED_PAGE, RUN,
    RUNS_OF_A_PAGE, RUNS_PAGE, RUNS_PAGES, Recycled, Runs, SESSION_PAGE, SessionHead, TICK_NS, TICK_TIMES, UNMETERED,
    Unmetered, pack_run, tick_code, tick_number, unpack_run,
};
pub use process::{Process, SHARED_SLOTS, STOPS, Stop, THREAD_IDS, thread_id_slot};
pub use releases::{
    RELEASES, RELEASES_PAGES, RELEASES_PLACES, Release, Releaser, Releases, pack_part, pack_release, unpack_part,
    unpack_release,
};
pub use samples::{CountedSlot, Meta, ROW_COUNT_SHIFT, Slot, blocked, happened, kind, mode};
pub use session::{DIRECTORY_VARIABLE, HOLD, MEMORY_FILE, OFF, SESSION_FILE, SESSION_VARIABLE, Session, WAIT};
pub use shared_locks::{
    ELSEWHERE_IS_WRITER, ReleaseElsewhere, SHARED_LOCKS, SHARED_LOCKS_PAGE, SHARED_LOCKS_PAGES, SITE_IS_ELSEWHERE,
    SharedLock, pack_elsewhere, unpack_elsewhere,
};
pub use stacks::{
    CACHED_WORDS, CachedStack, FRAMES, MOVE_BITS, SITE_IS_RELEASE, SITE_IS_STACK, SITE_IS_THREAD, STACKS, Stack,
};
pub use swaps::{
    SWAP_FILTER_FILE, SWAP_FILTER_VARIABLE, SWAP_MODULES, SWAP_PATH_BYTES, SWAP_RANGES, SWAP_VARIABLE, SWAPS, Swap,
    SwapFilter, SwapRange,
};
pub use thread::{
    CELLS, Cell, FIRST_SLOTS, HELD, HELD_ROBUST, HELD_UNTIMED, HeldLock, RELEASE_CACHE, SLOTS, SLOTS_OF_A_PAGE,
    STACK_CACHE, STACK_CACHE_OF_A_PAGE, Thread, pack_held, pack_untimed,
};

/// First eight bytes of a session's head.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"LKMTSES\0");
/// Version of this layout; a reader refuses others.
pub const VERSION: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_tags_are_one_cache_line_each() {
        assert_eq!(size_of::<Slot>(), 64);
        assert_eq!(size_of::<Tags>(), 64);
        assert_eq!(size_of::<LockEntry>(), 64);
        assert_eq!(PAGE % size_of::<SharedLock>(), 0);
        assert_eq!(PAGE % size_of::<Releases>(), 0);
        assert_eq!(size_of::<CountedSlot>(), 64);
        assert_eq!(core::mem::offset_of!(CountedSlot, count), core::mem::offset_of!(Slot, count));
        assert_eq!(core::mem::offset_of!(CountedSlot, site), core::mem::offset_of!(Slot, site));
        assert_eq!(size_of::<Thread>(), PAGE);
        assert_eq!(size_of::<SessionHead>(), PAGE);
        assert_eq!(core::mem::offset_of!(SessionHead, tick) % 64, 0);
        assert_eq!(core::mem::offset_of!(SessionHead, tick_times) % 64, 0);
        assert_eq!(
            core::mem::offset_of!(Thread, held) - core::mem::offset_of!(Thread, none_held),
            size_of::<HeldLock>()
        );
        assert_eq!(PAGE % size_of::<Module>(), 0);
        assert_eq!(PAGE % size_of::<Class>(), 0);
    }
}
