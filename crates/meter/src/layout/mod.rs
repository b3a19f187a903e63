//! The shared segment of one process, as both sides see it.
//!
//! A segment is a sparse file: only what is written takes memory. All numbers are of the machine's own byte order, for a
//! segment never leaves the machine. Every count only ever grows; a collector keeps what it saw last and takes the
//! difference, so that it never stops or resets a writer.

mod locks;
mod losses;
mod names;
mod samples;
mod session;
mod stacks;
mod swaps;
mod thread;

use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64};

pub use locks::{
    CLASSES, Class, ENTRY_INIT, LOCK_PLACES, LOCK_SETS, LOCKS_OF_A_CLASS, LockEntry, TAG_ADDRESS, TAG_CLASS_SHIFT,
    TAG_USED, Tags, WAYS,
};
pub use losses::{LOSSES, Lost};
pub use names::{BUILD_ID_BYTES, COMMS, Comm, MODULES, Module, PATH_BYTES};
pub use samples::{CountedSlot, Meta, ROW_COUNT_SHIFT, Slot, blocked, happened, kind, mode};
pub use session::{
    DIRECTORY_VARIABLE, HOLD, OFF, SEGMENT_PREFIX, SESSION_FILE, SESSION_VARIABLE, Session, UNMETERED_PREFIX, WAIT,
};
pub use stacks::{FRAMES, SITE_IS_STACK, STACKS, Stack, WALK_WORDS, Walk};
pub use swaps::{
    SWAP_FILTER_FILE, SWAP_FILTER_VARIABLE, SWAP_MODULES, SWAP_PATH_BYTES, SWAP_RANGES, SWAP_VARIABLE, SWAPS, Swap,
    SwapFilter, SwapRange,
};
pub use thread::{CELLS, Cell, HELD, HeldLock, NEAR, SLOTS, THREADS, Thread, WALKS, pack_held};

/// First eight bytes of a segment.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"LKMTSEG\0");
/// Version of this layout; a reader refuses others.
pub const VERSION: u32 = 10;

/// Head of a segment.
#[repr(C, align(4096))]
pub struct Header {
    /// [`MAGIC`], written last.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The process.
    pub pid: AtomicU32,
    /// When the segment was made, as the writer's clock tells it.
    pub start_ns: AtomicU64,
    /// As in [`Session`].
    pub tick_ns_shifted: AtomicU64,
    /// The control word: [`OFF`], [`WAIT`] or [`HOLD`]. The collector writes it.
    pub level: AtomicU32,
    /// Raised by the collector at each drain: from then on maxima are those of a new interval.
    pub epoch: AtomicU32,
    /// Thread tables that were ever used.
    pub threads: AtomicU32,
    /// Modules that were ever begun.
    pub modules: AtomicU32,
    /// Thread names that were ever begun.
    pub comms: AtomicU32,
    /// As in [`Session`]. The collector may change it.
    pub timed_holds: AtomicU32,
    /// What `level` was when the segment was made: [`OFF`] in a child forked while its parent was switched off.
    pub level_at_start: AtomicU32,
    /// What was lost, by [`Lost`].
    pub losses: [AtomicU64; LOSSES],
    /// What became of locks that were to be swapped, by [`Swap`].
    pub swaps: [AtomicU64; SWAPS],
    /// Raised by the collector when it has changed `level` or `timed_holds`.
    pub switches: AtomicU32,
}

/// A whole segment.
#[repr(C)]
pub struct Segment {
    /// Head.
    pub header: Header,
    /// Programs and libraries.
    pub modules: [Module; MODULES],
    /// Thread names.
    pub comms: [Comm; COMMS],
    /// Where which lock is.
    pub tags: [Tags; LOCK_SETS],
    /// What is known of it.
    pub locks: [LockEntry; LOCK_PLACES],
    /// Those that there are too many of.
    pub classes: [Class; CLASSES],
    /// Stacks.
    pub stacks: [Stack; STACKS],
    /// Samples.
    pub threads: [Thread; THREADS],
}

/// Size of a segment; most of it is never written to.
pub const SEGMENT_BYTES: usize = size_of::<Segment>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_tags_are_one_cache_line_each() {
        assert_eq!(size_of::<Slot>(), 64);
        assert_eq!(size_of::<Tags>(), 64);
        assert_eq!(size_of::<LockEntry>(), 64);
        assert_eq!(size_of::<CountedSlot>(), 64);
        assert_eq!(core::mem::offset_of!(CountedSlot, count), core::mem::offset_of!(Slot, count));
        assert_eq!(core::mem::offset_of!(CountedSlot, site), core::mem::offset_of!(Slot, site));
        assert_eq!(size_of::<Thread>() % 4096, 0);
    }
}
