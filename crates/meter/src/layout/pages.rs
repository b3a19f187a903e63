//! The memory of a session: one file of pages, which the recorder makes and reserves, and which every metered program maps.
//!
//! The recorder alone makes the file longer, and writes zeros to what it adds: a program never touches a page that no memory stands
//! behind. A program takes pages in runs; a table that all programs see says whose each run is.

use core::sync::atomic::{AtomicU32, AtomicU64};

use super::{SHARED_LOCKS_PAGE, SHARED_LOCKS_PAGES};

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Pages by which the file grows, and of which the kernel keeps the addresses on one page.
pub const GROUP: usize = 512;
/// Pages that a session has at most: 4 GB.
pub const PAGES: usize = 1 << 20;

/// Pages that a program takes at once, the first of them with a number that this divides: as many as the kernel maps together when one of
/// them is read. What the first event of a process touches fits.
pub const RUN: usize = 16;

/// The page with the [`SessionHead`].
pub const SESSION_PAGE: usize = 1;
/// The page with the [`Recycled`] ones.
pub const RECYCLED_PAGE: usize = 2;
/// The page with the [`Awaited`] programs.
pub const AWAITED_PAGE: usize = 3;
/// The first page of [`Runs`]. As many of these as fit lie beside the session's head, where they cost a process no page fault of their
/// own.
pub const RUNS_PAGE: usize = AWAITED_PAGE + 1;
/// Pages of them.
pub const RUNS_PAGES: usize = PAGES / RUN / RUNS_OF_A_PAGE;
/// Runs that a page of them describes.
pub const RUNS_OF_A_PAGE: usize = PAGE / size_of::<AtomicU64>();
/// The first page that programs take.
pub const FIRST_PAGE: usize = (SHARED_LOCKS_PAGE + SHARED_LOCKS_PAGES).next_multiple_of(RUN);

/// What all programs of a session share.
#[repr(C, align(4096))]
pub struct SessionHead {
    /// [`MAGIC`](super::MAGIC), written last.
    pub magic: AtomicU64,
    /// [`VERSION`](super::VERSION).
    pub version: AtomicU32,
    /// Pages that the file has memory for. The recorder alone writes it.
    pub reserved: AtomicU32,
    /// Raised by the recorder when there are more pages to take.
    pub refills: AtomicU32,
    /// Of [`Recycled`] runs this many were on offer when the recorder last looked, or offered more.
    pub offered: AtomicU32,
    /// What programs write lies in another cache line.
    pub spare: [u32; 10],
    /// The first page of the run to take next; beyond `reserved` there is none.
    pub taken: AtomicU32,
    /// Numbers given to processes so far, from 1.
    pub processes: AtomicU32,
    /// Processes without a segment, by [`Unmetered`].
    pub unmetered: [AtomicU64; UNMETERED],
    /// Not 0 once a program does not time every hold: from then on the recorder ticks.
    pub ticks_wanted: AtomicU32,
    /// Raised when a process begins to use a lock that processes may share.
    pub shared_locks: AtomicU32,
    /// What every release reads lies in a cache line of its own.
    pub spare_before_tick: [u32; 4],
    /// The number of the recorder's last tick, as [`tick_code`] puts it; 0: there was none.
    pub tick: AtomicU32,
    /// Zero.
    pub spare_behind_tick: [u32; 15],
    /// When the last ticks were, by the writers' clock: each in the place of its number.
    pub tick_times: [AtomicU64; TICK_TIMES],
}

/// Ticks of which it is kept when they were.
pub const TICK_TIMES: usize = 256;

/// Two ticks of the recorder's are no closer than this.
pub const TICK_NS: u64 = 1_000_000;

/// The number of a tick as programs see it: of two numbers that follow each other only one byte differs (a modular Gray code), for the
/// recorder writes to memory that it does not map, byte by byte.
pub const fn tick_code(number: u32) -> u32 {
    let [a, b, c, d] = number.to_le_bytes();
    u32::from_le_bytes([a.wrapping_sub(b), b.wrapping_sub(c), c.wrapping_sub(d), d])
}

/// The number of the tick with this code.
pub const fn tick_number(code: u32) -> u32 {
    let [a, b, c, d] = code.to_le_bytes();
    let c = c.wrapping_add(d);
    let b = b.wrapping_add(c);
    u32::from_le_bytes([a.wrapping_add(b), b, c, d])
}

/// Why a process has no segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Unmetered {
    /// It found no page, or was executed where it cannot reach the session.
    OutOfReach = 0,
    /// It was executed and must not have the library: see [`incompatible`](crate::incompatible).
    Incompatible,
    /// It was executed, and is linked statically: see [`incompatible`](crate::incompatible). Others into which the library is not loaded
    /// stay [`Awaited`].
    NotPreloaded,
    /// It was executed with an environment that does not name the library.
    OwnEnvironment,
}

/// Number of [`Unmetered`] causes.
pub const UNMETERED: usize = 4;

/// Runs that ended processes had, for others to take; 0 where there is none. The recorder writes where there is none, and programs take by
/// writing 0.
#[repr(C, align(4096))]
pub struct Recycled {
    /// Numbers of their first pages.
    pub runs: [AtomicU32; RECYCLED],
}

/// Recycled runs that are offered at a time.
pub const RECYCLED: usize = PAGE / size_of::<AtomicU32>();

/// Programs that were executed and are to load the library, and have not begun with it so far, by a hash of the path that they were executed
/// by. Whatever keeps the library from one (its loader, the system's policy, its own end), it stays counted here.
#[repr(C, align(4096))]
pub struct Awaited {
    /// How many.
    pub programs: [AtomicU32; AWAITED],
}

/// Hashes that are told apart.
pub const AWAITED: usize = PAGE / size_of::<AtomicU32>();

/// Whose runs are, and for what: [`pack_run`] with [`PageKind::of_page`] of each of its pages; 0: nobody's.
#[repr(C, align(4096))]
pub struct Runs {
    /// In order.
    pub runs: [AtomicU64; RUNS_OF_A_PAGE],
}

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Part of a table of a process or thread, which says where it is; or nothing so far.
    Table = 0,
    /// A [`Process`](super::Process), complete.
    Process,
    /// A [`Process`](super::Process) that is being made, or was not needed.
    NewProcess,
    /// A [`Thread`](super::Thread).
    Thread,
}

impl PageKind {
    const ALL: [Self; 4] = [Self::Table, Self::Process, Self::NewProcess, Self::Thread];
    /// Below the number of the process, that all pages of a run have theirs.
    const BITS: u32 = 2;

    /// This, in those bits of the word of its run that are this page's.
    pub const fn of_page(self, page: u32) -> u64 {
        (self as u64) << (page % RUN as u32 * Self::BITS)
    }
}

/// A run of the process with this number, which holds nothing so far.
pub const fn pack_run(process: u32) -> u64 {
    (process as u64) << 32
}

/// Whose a run is, and what its pages hold; `None` if it is nobody's.
pub fn unpack_run(run: u64) -> Option<(u32, [PageKind; RUN])> {
    let process = (run >> 32) as u32;
    let kind = |page: usize| PageKind::ALL[(run >> (page as u32 * PageKind::BITS)) as usize % PageKind::ALL.len()];
    (process != 0).then(|| (process, core::array::from_fn(kind)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pages_of_a_run_have_kinds_of_their_own() {
        let run = pack_run(u32::MAX) | PageKind::Thread.of_page(32) | PageKind::NewProcess.of_page(RUN as u32 - 1);
        let (process, kinds) = unpack_run(run).unwrap();
        assert_eq!((process, kinds[0], kinds[RUN - 1]), (u32::MAX, PageKind::Thread, PageKind::NewProcess));
        assert!(kinds[1..RUN - 1].iter().all(|kind| *kind == PageKind::Table));
        assert_eq!(unpack_run(PageKind::Thread.of_page(1)), None);
    }

    proptest! {
        #[test]
        fn a_tick_differs_from_the_one_before_in_one_byte_and_is_told_from_all_others(number in any::<u32>()) {
            prop_assert_eq!(tick_number(tick_code(number)), number);
            let (before, now) = (tick_code(number).to_le_bytes(), tick_code(number.wrapping_add(1)).to_le_bytes());
            prop_assert_eq!(before.iter().zip(now).filter(|(before, now)| *before != now).count(), 1);
        }
    }
}
