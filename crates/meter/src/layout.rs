//! The shared segment of one process, as both sides see it.
//!
//! A segment is a sparse file: only what is written takes memory. All numbers are of the machine's own byte order, for a
//! segment never leaves the machine. Every count only ever grows; a collector keeps what it saw last and takes the
//! difference, so that it never stops or resets a writer.

use core::mem::size_of;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// First eight bytes of a segment.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"LKMTSEG\0");
/// Version of this layout; a reader refuses others.
pub const VERSION: u32 = 9;

/// Names the directory of the segments to the preloaded library.
pub const DIRECTORY_VARIABLE: &str = "LOCKMETER_DIR";
/// Tells the preloaded library how to meter: a [`Session`].
pub const SESSION_VARIABLE: &str = "LOCKMETER_SESSION";
/// Tells the preloaded library which locks to swap: `kind=variant`, with commas between.
pub const SWAP_VARIABLE: &str = "LOCKMETER_SWAP";
/// The file in that directory that holds what new processes are told: a [`Session`].
pub const SESSION_FILE: &str = "session";
/// Segments are called this, the process id, and a number that tells its programs apart.
pub const SEGMENT_PREFIX: &str = "segment-";
/// An empty file with such a name, and the same behind it, is left by a process that could make no segment.
pub const UNMETERED_PREFIX: &str = "unmetered-";

/// Modules (program and libraries) of a process that are kept.
pub const MODULES: usize = 256;
/// Thread names that are kept.
pub const COMMS: usize = 256;
/// Locks are kept in sets of this many; which set follows from the address.
pub const WAYS: usize = 8;
/// Sets of locks; a power of two.
pub const LOCK_SETS: usize = 4096;
/// Places of single locks: those of classes come after them.
pub const LOCK_PLACES: usize = LOCK_SETS * WAYS;
/// Classes of locks; a power of two.
pub const CLASSES: usize = 1024;
/// As many locks made at one site are told apart; those that come after share the place of their class. A program may make
/// one lock for each of its objects, and no table holds them all.
pub const LOCKS_OF_A_CLASS: u32 = 8;
/// Stacks that are kept; a power of two.
pub const STACKS: usize = 4096;
/// Frames of a stack that are kept.
pub const FRAMES: usize = 30;
/// Threads that can record at a time.
pub const THREADS: usize = 1024;
/// Samples of a thread that are kept apart; a power of two.
pub const SLOTS: usize = 1024;
/// Locks that a thread can hold at a time with their holds timed.
pub const HELD: usize = 32;
/// Places in the program where a thread has released locks before; a power of two.
pub const NEAR: usize = 512;
/// Stacks that a thread has followed before; a power of two.
pub const WALKS: usize = 16;
/// Words of the stack that following one can depend on: of each frame the return address, and the saved frame pointer.
pub const WALK_WORDS: usize = 2 * FRAMES;
/// Groups of locks (by address) of which a thread decides together how many holds it times; a power of two.
pub const CELLS: usize = 64;
/// Longest path of a module, with its NUL.
pub const PATH_BYTES: usize = 448;

/// Longest build id that is kept: linkers make 16 to 32 bytes.
pub const BUILD_ID_BYTES: usize = 32;

/// Metering is off.
pub const OFF: u32 = 0;
/// Waits are metered.
pub const WAIT: u32 = 1;
/// Waits are metered, acquisitions counted and holds timed.
pub const HOLD: u32 = 2;

/// A site that is a place in the stack table rather than an address has this bit.
pub const SITE_IS_STACK: u64 = 1 << 63;

/// Ways of losing data, as indices into [`Header::losses`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Lost {
    /// No room for another thread: its events are not counted.
    Threads = 0,
    /// A thread's samples were full: counted under the lock, without site and blocker.
    Site,
    /// A thread's samples were full even for that: not counted.
    Sample,
    /// The table of stacks was full: the return address alone is kept.
    Stack,
    /// A stack had more frames than are kept.
    Deep,
    /// A stack could not be followed to its end.
    Unwind,
    /// The table of locks was full: counted under "other locks".
    Lock,
    /// An event in a signal handler that interrupted the recorder: not counted.
    Interrupted,
    /// A thread held more locks at a time than are kept: that hold is not timed.
    Held,
    /// A release whose acquisition was not seen.
    Unmatched,
    /// The table of modules was full.
    Module,
    /// A forked child that could make no segment of its own counts here, in its parent's, and so does a program that was
    /// executed where it can make none.
    Child,
}

/// Number of [`Lost`] causes.
pub const LOSSES: usize = 12;

/// What became of a lock of a program whose locks are swapped, as indices into [`Header::swaps`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Swap {
    /// A mutex became ours.
    Mutex = 0,
    /// A reader-writer lock became our reader-writer semaphore.
    RwlockToRwsem,
    /// A reader-writer lock became our per-CPU reader-writer semaphore.
    RwlockToPercpuRwsem,
    /// A spin lock became ours.
    Spin,
    /// Left alone: shared between processes.
    LeftShared,
    /// Left alone: robust.
    LeftRobust,
    /// Left alone: inherits priorities.
    LeftInheriting,
    /// Left alone: has a priority ceiling.
    LeftProtecting,
    /// Left alone: not one of those that were asked for.
    LeftNotChosen,
    /// Left alone: in use by a way round the preloaded library.
    LeftInUse,
    /// Left alone: the table of swapped locks was full.
    LeftNoRoom,
}

/// Number of [`Swap`] outcomes.
pub const SWAPS: usize = 11;

/// Where [`SWAP_VARIABLE`] applies to some locks only: the file in the session's directory that says which.
pub const SWAP_FILTER_FILE: &str = "swap-only";
/// Names that file to the preloaded library.
pub const SWAP_FILTER_VARIABLE: &str = "LOCKMETER_SWAP_ONLY";

/// Modules with names that match.
pub const SWAP_MODULES: usize = 64;
/// Names that match.
pub const SWAP_RANGES: usize = 8192;
/// Longest path of such a module, with its NUL.
pub const SWAP_PATH_BYTES: usize = 256;

/// Addresses of a module's file that a name stands for.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct SwapRange {
    /// The first.
    pub start: u64,
    /// The first beyond.
    pub end: u64,
    /// Place of the module.
    pub module: u32,
    /// 1: a function, that makes a lock or first takes it; 0: a lock.
    pub is_code: u32,
}

/// Which locks are to be swapped; the file is the begin of this.
#[derive(Debug)]
#[repr(C)]
pub struct SwapFilter {
    /// How many there are.
    pub modules: u32,
    /// How many there are.
    pub ranges: u32,
    /// As the loader names them, up to a NUL; the program itself by the path of its file.
    pub paths: [[u8; SWAP_PATH_BYTES]; SWAP_MODULES],
    /// What matches.
    pub range: [SwapRange; SWAP_RANGES],
}

impl SwapFilter {
    /// Nothing.
    pub const EMPTY: Self = Self {
        modules: 0,
        ranges: 0,
        paths: [[0; SWAP_PATH_BYTES]; SWAP_MODULES],
        range: [SwapRange { start: 0, end: 0, module: 0, is_code: 0 }; SWAP_RANGES],
    };
}

#[cfg(feature = "reader")]
impl SwapFilter {
    /// The file's bytes; `None` if that is more than fits.
    pub fn encode<'a>(paths: impl ExactSizeIterator<Item = &'a [u8]>, ranges: &[SwapRange]) -> Option<Vec<u8>> {
        if paths.len() > SWAP_MODULES || ranges.len() > SWAP_RANGES {
            return None;
        }
        let mut bytes = Vec::new();
        bytes.extend(u32::try_from(paths.len()).ok()?.to_ne_bytes());
        bytes.extend(u32::try_from(ranges.len()).ok()?.to_ne_bytes());
        for path in paths {
            let padding = SWAP_PATH_BYTES.checked_sub(path.len()).filter(|padding| *padding > 0)?;
            bytes.extend(path);
            bytes.extend(std::iter::repeat_n(0, padding));
        }
        bytes.resize(core::mem::offset_of!(Self, range), 0);
        for range in ranges {
            bytes.extend(range.start.to_ne_bytes());
            bytes.extend(range.end.to_ne_bytes());
            bytes.extend(range.module.to_ne_bytes());
            bytes.extend(range.is_code.to_ne_bytes());
        }
        Some(bytes)
    }
}

/// How new processes are to meter. They find it in their environment, as text: opening a file would cost each of them 10 µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// [`OFF`], [`WAIT`] or [`HOLD`].
    pub level: u32,
    /// Nanoseconds a tick of the time stamp counter, times 2^32; 0 where only `clock_gettime` will do.
    pub tick_ns_shifted: u64,
    /// Holds that each thread times for a second of its CPU time; 0: all of them.
    pub timed_holds: u32,
}

impl Session {
    /// As text: [`VERSION`] and the fields, with spaces between.
    #[cfg(feature = "reader")]
    pub fn to_text(self) -> String {
        format!("{VERSION} {} {} {}", self.level, self.tick_ns_shifted, self.timed_holds)
    }

    /// From that text; `None` if it is of another version or none.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut numbers = text.split(|byte| *byte == b' ').map(number);
        let mut next = || numbers.next().flatten();
        if next()? != u64::from(VERSION) {
            return None;
        }
        let session = Self {
            level: u32::try_from(next()?).ok()?,
            tick_ns_shifted: next()?,
            timed_holds: u32::try_from(next()?).ok()?,
        };
        numbers.next().is_none().then_some(session)
    }
}

/// A decimal number.
fn number(text: &[u8]) -> Option<u64> {
    let add = |number: u64, digit: &u8| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    };
    if text.is_empty() { None } else { text.iter().try_fold(0, add) }
}

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

/// A program or library.
#[repr(C)]
pub struct Module {
    /// First address, written last; 0 while it is not valid.
    pub start: AtomicU64,
    /// First address beyond.
    pub end: AtomicU64,
    /// What to take off an address to get that of the file.
    pub bias: AtomicU64,
    /// What the linker signed the file with, as it stands in memory.
    pub build_id: [AtomicU8; BUILD_ID_BYTES],
    /// Its length; 0 if it is not known.
    pub build_id_bytes: AtomicU8,
    /// Zero.
    pub spare: [u8; 7],
    /// The file, up to a NUL; empty for what has none.
    pub path: [AtomicU8; PATH_BYTES],
}

/// A thread's name.
#[repr(C)]
pub struct Comm {
    /// The sixteen bytes, 0 while not valid.
    pub text: [AtomicU64; 2],
}

/// Which locks are in one set, a cache line: all that is read on each release.
#[repr(C, align(64))]
pub struct Tags {
    /// A lock's address ([`TAG_ADDRESS`]), from bit [`TAG_CLASS_SHIFT`] the place of its class (from 1) if it is not told
    /// apart, and [`TAG_USED`]; 0: free.
    pub tag: [AtomicU64; WAYS],
}

/// The address in a tag. Programs use no more bits unless they ask for it.
pub const TAG_ADDRESS: u64 = (1 << TAG_CLASS_SHIFT) - 1;
/// Where the class is in a tag.
pub const TAG_CLASS_SHIFT: u32 = 48;
/// A sample points to this lock.
pub const TAG_USED: u64 = 1 << 63;

/// What is known of a lock.
#[repr(C, align(64))]
pub struct LockEntry {
    /// Its address, also when it is gone.
    pub address: AtomicU64,
    /// Where it was made, else first waited for or released, as a site.
    pub made_at: AtomicU64,
    /// The site that last released it while somebody waited.
    pub releaser: AtomicU64,
    /// When that was, in ticks of the writer's clock.
    pub released_at: AtomicU64,
    /// The name of the thread that did it; from bit 16 that of the writer below.
    pub releaser_comm: AtomicU32,
    /// [`ENTRY_INIT`], and its kind from bit 8.
    pub flags: AtomicU32,
    /// As `releaser`, of the last writer: nobody else makes a reader wait.
    pub writer: AtomicU64,
    /// When that was.
    pub writer_at: AtomicU64,
    /// The thread that held it last, if that hold is watched. Whoever has the lock next looks whether it is another.
    pub watched: AtomicU32,
    /// Zero.
    pub spare: AtomicU32,
}

/// Its maker called an init function.
pub const ENTRY_INIT: u32 = 2;

/// Locks that were made at one site.
#[repr(C)]
pub struct Class {
    /// Where; 0: free.
    pub site: AtomicU64,
    /// The first of them, whether or not it is gone.
    pub address: AtomicU64,
    /// How many were made.
    pub locks: AtomicU32,
    /// As in [`LockEntry`], of the first of them.
    pub flags: AtomicU32,
}

/// A stack.
#[repr(C)]
pub struct Stack {
    /// Hash of the frames; 0: free.
    pub hash: AtomicU64,
    /// How many frames there are, written last; 0 while it is not valid.
    pub depth: AtomicU64,
    /// Return addresses, innermost first.
    pub frames: [AtomicU64; FRAMES],
}

/// A lock that a thread holds.
#[repr(C)]
pub struct HeldLock {
    /// Its address.
    pub lock: AtomicU64,
    /// Since when, in ticks.
    pub since: AtomicU64,
    /// Kind, mode and how often it was taken again, as [`pack_held`] puts them.
    pub how: AtomicU64,
    /// The return address of its acquisition.
    pub site: AtomicU64,
}

/// A stack that a thread has followed: where the same words lie at the same places, it is the same again.
///
/// The owning thread alone writes and reads it.
#[repr(C, align(64))]
pub struct Walk {
    /// Where the stack pointer stood; 0: none.
    pub stack_pointer: AtomicU64,
    /// The return address that it pointed to.
    pub return_address: AtomicU64,
    /// What was in the frame pointer.
    pub frame_pointer: AtomicU64,
    /// The stack, as a site.
    pub site: AtomicU64,
    /// How many of the words below count.
    pub words: AtomicU32,
    /// How often code had gone when this was followed.
    pub changes: AtomicU32,
    /// Not 0 if the frame pointer mattered.
    pub needs_frame_pointer: AtomicU32,
    /// What following it lost: a [`Lost`], or [`LOSSES`] for nothing.
    pub lost: AtomicU32,
    /// How far above the stack pointer a word lay, and what it was.
    pub seen: [[AtomicU64; 2]; WALK_WORDS],
}

/// How many holds of a group of locks a thread times.
#[repr(C)]
pub struct Cell {
    /// One of so many is timed.
    pub stride: AtomicU32,
    /// So many were timed since the thread last looked.
    pub timed: AtomicU32,
}

/// What a thread counted of one kind of event.
///
/// The owning thread alone writes. `count` is written after `total_ns`, so a reader that sees an event counted sees its time.
#[repr(C, align(64))]
pub struct Slot {
    /// What, as [`Meta`] packs it; 0: free. Written last.
    pub meta: AtomicU64,
    /// Place of the lock, and from bit 32 the releaser's thread name.
    pub lock: AtomicU64,
    /// Return address, or place of a stack with [`SITE_IS_STACK`]; 0: not kept.
    pub site: AtomicU64,
    /// The blocker's site in the same manner; 0: not known.
    pub blocker: AtomicU64,
    /// How many.
    pub count: AtomicU64,
    /// How long together.
    pub total_ns: AtomicU64,
    /// The longest since `epoch`.
    pub max_ns: AtomicU64,
    /// The collector's epoch of `max_ns`.
    pub epoch: AtomicU64,
}

/// A [`Slot`] of holds that are not timed. It needs no blocker and no times: in their place it has the addresses of the locks
/// that it stands for, so that a release that is only counted reads and writes this line alone. The first fields and `count`
/// are those of [`Slot`].
#[repr(C, align(64))]
pub struct CountedSlot {
    /// As in [`Slot`].
    pub meta: AtomicU64,
    /// As in [`Slot`].
    pub lock: AtomicU64,
    /// As in [`Slot`].
    pub site: AtomicU64,
    /// The first address.
    pub base: AtomicU64,
    /// As in [`Slot`].
    pub count: AtomicU64,
    /// Inverse of the odd factor of the distance from one address to the next.
    pub inverse: AtomicU64,
    /// What comes out too large for all other addresses: they less the base, times the inverse. 0 where that does not tell.
    pub limit: AtomicU32,
    /// The power of two in that distance, and from bit [`ROW_COUNT_SHIFT`] how many addresses.
    pub row: AtomicU32,
    /// How often addresses had come to mean other locks, when these were found.
    pub changes: AtomicU32,
    /// The sample that the last timed hold of the same lock and caller was counted to; 0: none.
    pub timed: AtomicU16,
    /// The sample that counts for how many of its holds it was seen who came next; 0: none.
    pub watched: AtomicU16,
}

/// Where the number of addresses is in [`CountedSlot::row`].
pub const ROW_COUNT_SHIFT: u32 = 6;

impl CountedSlot {
    /// How many addresses it stands for.
    #[inline(always)]
    pub fn addresses(&self) -> u32 {
        self.row.load(Relaxed) >> ROW_COUNT_SHIFT
    }
}

impl Slot {
    /// Itself, if it is one of holds that are not timed.
    #[inline(always)]
    pub const fn counted(&self) -> &CountedSlot {
        // SAFETY: both are atomics alone, of one size and alignment; any bytes are valid.
        unsafe { &*core::ptr::from_ref(self).cast::<CountedSlot>() }
    }
}

/// What one thread recorded. A table outlives its thread and serves the next one.
#[repr(C, align(4096))]
pub struct Thread {
    /// Thread id of the owner; 0: free.
    pub owner: AtomicU32,
    /// Not 0 while the owner changes this table.
    pub busy: AtomicU32,
    /// Rises with each change but those of holds that are not timed, each of which `until_timed` shows.
    pub changes: AtomicU64,
    /// Place of the owner's name, from 1.
    pub comm: AtomicU32,
    /// Slots in use.
    pub used: AtomicU32,
    /// How many of `held` count.
    pub held_count: AtomicU32,
    /// Place of this table, from 1.
    pub place: AtomicU32,
    /// What the thread waits for now: the lock's address, or 0; and since when, in ticks.
    pub waiting: [AtomicU64; 2],
    /// Of the sequence that draws which holds are timed.
    pub random: AtomicU32,
    /// When the thread last looked how many holds it times, in ticks.
    pub looked_at: AtomicU64,
    /// How long it had run on CPUs by then; 0 until its first look.
    pub looked_at_cpu_ns: AtomicU64,
    /// So many more are timed before it looks again.
    pub until_look: AtomicU32,
    /// What `switches` in the header was then.
    pub switches: AtomicU32,
    /// By group of locks: so many more holds that are not timed end before one is timed.
    pub until_timed: [AtomicU32; CELLS],
    /// By group of locks.
    pub cells: [Cell; CELLS],
    /// Locks the thread holds with their holds timed, oldest first.
    pub held: [HeldLock; HELD],
    /// By caller, or by caller and lock: the sample of its holds that are not timed, a [`CountedSlot`]; 0: none. How
    /// many bytes from the first.
    pub near: [AtomicU16; NEAR],
    /// Stacks that were followed lately.
    pub walks: [Walk; WALKS],
    /// The samples. The first is never used.
    pub slots: [Slot; SLOTS],
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

/// What happened, as a sample's key has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// Code of `Happened` in the data model.
    pub happened: u8,
    /// One of [`kind`].
    pub kind: u8,
    /// Code of `Mode` in the data model.
    pub mode: u8,
    /// Power-of-two bucket of the duration.
    pub bucket: u8,
    /// How the blocker is known: one of [`blocked`].
    pub blocked: u8,
    /// Place of the thread's name, from 1.
    pub comm: u16,
}

impl Meta {
    /// This happened, and nothing else is known.
    pub const fn of(happened: u8) -> Self {
        Self { happened, kind: 0, mode: 0, bucket: 0, blocked: 0, comm: 0 }
    }

    /// Packed, and never 0.
    pub const fn pack(self) -> u64 {
        1 | (self.happened as u64) << 8
            | (self.kind as u64) << 16
            | (self.mode as u64) << 24
            | (self.bucket as u64) << 32
            | (self.blocked as u64) << 40
            | (self.comm as u64) << 48
    }

    /// What was packed.
    pub const fn unpack(packed: u64) -> Self {
        Self {
            happened: (packed >> 8) as u8,
            kind: (packed >> 16) as u8,
            mode: (packed >> 24) as u8,
            bucket: (packed >> 32) as u8,
            blocked: (packed >> 40) as u8,
            comm: (packed >> 48) as u16,
        }
    }
}

/// Codes of `Happened` in the data model.
pub mod happened {
    /// A wait.
    pub const WAIT: u8 = 1;
    /// A hold.
    pub const HOLD: u8 = 2;
    /// A wait for a condition or a barrier.
    pub const IDLE: u8 = 4;
    /// A hold that was not timed: such a sample is a [`CountedSlot`](super::CountedSlot). Not in the data model.
    pub const UNTIMED: u8 = 0x40;
    /// An acquisition by another thread than that of the last hold, which was watched: a count only. Not in the data model.
    pub const MOVED: u8 = 0x41;
    /// An acquisition after a watched hold, by the same thread or another: a count only. Not in the data model.
    pub const WATCHED: u8 = 0x42;
}

/// Codes of `Mode` in the data model.
pub mod mode {
    /// The lock knows no readers.
    pub const EXCLUSIVE: u8 = 1;
    /// As a reader.
    pub const READ: u8 = 2;
    /// As a writer.
    pub const WRITE: u8 = 3;
}

/// Kinds of locks, as codes of `Kind` in the data model.
pub mod kind {
    /// `pthread_spinlock_t`.
    pub const SPIN: u8 = 1;
    /// `pthread_rwlock_t`.
    pub const RWLOCK: u8 = 2;
    /// `pthread_mutex_t`.
    pub const MUTEX: u8 = 3;
    /// `sem_t`.
    pub const SEMAPHORE: u8 = 7;
    /// `pthread_cond_t`.
    pub const CONDVAR: u8 = 9;
    /// `pthread_barrier_t`.
    pub const BARRIER: u8 = 10;
}

/// How a blocker is known.
pub mod blocked {
    /// It is not.
    pub const UNKNOWN: u8 = 0;
    /// It released the lock while we waited.
    pub const RELEASER: u8 = 1;
    /// It had acquired the lock when we came; its release was not seen.
    pub const HOLDER: u8 = 2;
}

/// What [`HeldLock::how`] holds.
pub const fn pack_held(kind: u8, mode: u8, again: u32) -> u64 {
    kind as u64 | (mode as u64) << 8 | (again as u64) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        let meta = Meta { happened: 2, kind: 10, mode: 3, bucket: 63, blocked: 2, comm: 65535 };
        assert_eq!(Meta::unpack(meta.pack()), meta);
        assert_ne!(Meta { happened: 0, kind: 0, mode: 0, bucket: 0, blocked: 0, comm: 0 }.pack(), 0);
    }

    #[cfg(feature = "reader")]
    #[test]
    fn a_process_is_told_how_to_meter_and_takes_nothing_else_for_it() {
        let session = Session { level: HOLD, tick_ns_shifted: u64::MAX, timed_holds: 25_000 };
        let text = session.to_text();
        assert_eq!(Session::parse(text.as_bytes()), Some(session));
        let of_another_version = text.replacen(&VERSION.to_string(), &(VERSION + 1).to_string(), 1);
        for wrong in
            [&*of_another_version, &format!("{text} 1"), &format!("{text}0000000"), &text[..text.len() - 6], "", "x"]
        {
            assert_eq!(Session::parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

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
