//! Locks that several processes use, in memory that they share: what each of them leaves word of for the others.
//!
//! A program knows such a lock by its address alone, which may be another in each process. The recorder sees which file or memory is
//! mapped there: it numbers the locks of a session, and writes the number to the lock's entry in each process, above
//! [`ENTRY_NUMBER_SHIFT`](super::ENTRY_NUMBER_SHIFT).

use core::sync::atomic::{AtomicU32, AtomicU64};

use super::{COMMS, PAGE, RELEASES, RUNS_PAGE, RUNS_PAGES, SITE_IS_STACK, STACKS};

/// The first page of [`SharedLock`]s.
pub const SHARED_LOCKS_PAGE: usize = RUNS_PAGE + RUNS_PAGES;
/// Pages of them.
pub const SHARED_LOCKS_PAGES: usize = 64;
/// Such locks that a session tells apart. Of others it is not known who has them in another process.
pub const SHARED_LOCKS: usize = SHARED_LOCKS_PAGES * (PAGE / size_of::<SharedLock>());

/// What all processes know of a lock that they share. Places in a program are given as [`pack_elsewhere`] puts them.
#[repr(C, align(64))]
pub struct SharedLock {
    /// As in [`LockEntry`](super::LockEntry).
    pub releaser: AtomicU64,
    /// As in [`LockEntry`](super::LockEntry).
    pub released_at: AtomicU64,
    /// As in [`LockEntry`](super::LockEntry).
    pub writer: AtomicU64,
    /// As in [`LockEntry`](super::LockEntry).
    pub writer_at: AtomicU64,
    /// Where it was acquired by the one that has it, no reader; 0: nobody has, as far as is known.
    pub holder: AtomicU64,
    /// The thread that this was, by the id that it knows itself by.
    pub holder_thread: AtomicU32,
    /// Threads that wait. One that is killed meanwhile stays counted: releases are then noted for nobody.
    pub waiting: AtomicU32,
    /// The thread that held it last, if that hold is watched: the page of its table, and below bit 32 its id. 0: none.
    pub watched: AtomicU64,
    /// Releases while somebody waited.
    pub release_count: AtomicU64,
    /// The last of these, each in the place of its number.
    pub releases: [ReleaseElsewhere; RELEASES],
}

/// A release of a lock that processes share, while somebody waited.
#[repr(C)]
pub struct ReleaseElsewhere {
    /// As in [`Release`](super::Release).
    pub at: AtomicU64,
    /// By whom, as [`pack_elsewhere`] puts it, with [`ELSEWHERE_IS_WRITER`].
    pub by: AtomicU64,
}

/// The releaser had the lock as a writer, or alone: a bit that [`pack_elsewhere`] leaves free.
pub const ELSEWHERE_IS_WRITER: u64 = 1 << 60;

/// A site that is a place in the stack table of this process of the session, and the thread's name there, has this bit beside
/// [`SITE_IS_STACK`].
pub const SITE_IS_ELSEWHERE: u64 = 1 << 61;

const STACK_BITS: u32 = STACKS.ilog2();
const COMM_BITS: u32 = COMMS.ilog2() + 1;

/// A site that every process of the session understands: the place of a stack in the table of the process with this number, and the place
/// (from 1) of a name in its table of those. In one word, so that nobody reads the one of this process and the other of that.
pub const fn pack_elsewhere(process: u32, stack: u32, comm: u32) -> u64 {
    let stack = stack as u64 & ((1 << STACK_BITS) - 1);
    let comm = comm as u64 & ((1 << COMM_BITS) - 1);
    SITE_IS_STACK | SITE_IS_ELSEWHERE | stack | comm << STACK_BITS | (process as u64) << (STACK_BITS + COMM_BITS)
}

/// The process, the stack and the name that were packed; `None` of another site.
pub const fn unpack_elsewhere(site: u64) -> Option<(u32, u32, u32)> {
    const MARKS: u64 = SITE_IS_STACK | SITE_IS_ELSEWHERE;
    if site & MARKS != MARKS {
        return None;
    }
    let stack = site as u32 & ((1 << STACK_BITS) - 1);
    let comm = (site >> STACK_BITS) as u32 & ((1 << COMM_BITS) - 1);
    Some(((site >> (STACK_BITS + COMM_BITS)) as u32, stack, comm))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_of_another_process_keeps_its_process_stack_and_name() {
        for site in [(1, 0, 0), (u32::MAX, STACKS as u32 - 1, COMMS as u32), (77, 4000, 12)] {
            let (process, stack, comm) = site;
            assert_eq!(unpack_elsewhere(pack_elsewhere(process, stack, comm)), Some(site));
        }
        assert_eq!(pack_elsewhere(u32::MAX, STACKS as u32 - 1, COMMS as u32) & ELSEWHERE_IS_WRITER, 0);
        assert_eq!(unpack_elsewhere(SITE_IS_STACK | 5), None);
        assert_eq!(unpack_elsewhere(0x7f00_1234_5678), None);
    }
}
