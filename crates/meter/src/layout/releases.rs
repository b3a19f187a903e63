//! The last releases of each lock that somebody waited for: by them a wait is divided among those who had the lock meanwhile.

use core::sync::atomic::{AtomicU32, AtomicU64};

use super::{LOCK_PLACES, PAGE, SITE_IS_STACK, STACKS, unpack_elsewhere};

/// Releases that are kept of a lock. A wait during which there were more is divided from the first of these on.
pub const RELEASES: usize = 12;
/// Pages of [`Releases`]: those of a page of page numbers.
pub const RELEASES_PAGES: usize = 64;
/// Locks whose releases are kept; a power of two. Of two that fall on one place the last one released has it.
pub const RELEASES_PLACES: usize = RELEASES_PAGES * (PAGE / size_of::<Releases>());

/// A release while somebody waited.
#[repr(C)]
pub struct Release {
    /// When, in ticks of the writer's clock; 0: there was none. Written last.
    pub at: AtomicU64,
    /// By whom, as [`pack_release`] puts it.
    pub by: AtomicU64,
    /// What the releaser's [past wait](super::Thread::past_wait) was then.
    pub past_wait: [AtomicU64; 3],
}

/// The last releases of a lock.
#[repr(C, align(64))]
pub struct Releases {
    /// How many there were.
    pub count: AtomicU32,
    /// Zero.
    pub spare: [u32; 3],
    /// The last ones: each in the place of its number.
    pub releases: [Release; RELEASES],
}

const STACK_BITS: u32 = STACKS.ilog2() + 1;
const LOCK_BITS: u32 = LOCK_PLACES.ilog2() + 1;
const COMM_BITS: u32 = u16::BITS;

/// Who released which lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Releaser {
    /// The place of its stack, from 1; 0: not known.
    pub stack: u32,
    /// The place of the thread's name, from 1; 0: not known.
    pub comm: u16,
    /// The place of the lock, from 1.
    pub lock: u32,
    /// It had the lock as a writer, or alone.
    pub is_writer: bool,
}

/// In one word, so that nobody reads the one of this release and the other of that.
pub const fn pack_release(releaser: Releaser) -> u64 {
    let stack = releaser.stack as u64 & ((1 << STACK_BITS) - 1);
    let lock = releaser.lock as u64 & ((1 << LOCK_BITS) - 1);
    let comm = (releaser.comm as u64) << (STACK_BITS + LOCK_BITS);
    stack | lock << STACK_BITS | comm | (releaser.is_writer as u64) << (STACK_BITS + LOCK_BITS + COMM_BITS)
}

/// What was packed.
pub const fn unpack_release(packed: u64) -> Releaser {
    Releaser {
        stack: packed as u32 & ((1 << STACK_BITS) - 1),
        lock: (packed >> STACK_BITS) as u32 & ((1 << LOCK_BITS) - 1),
        comm: (packed >> (STACK_BITS + LOCK_BITS)) as u16,
        is_writer: packed >> (STACK_BITS + LOCK_BITS + COMM_BITS) & 1 == 1,
    }
}

/// What a part of a wait is counted by: what stands in `lock` of a [`Slot`](super::Slot) above the place of the lock, and in its
/// `blocker`. The root is whom the holder waited for itself.
pub const fn pack_part(by: Releaser, root: Option<Releaser>) -> (u64, u64) {
    let names = (by.comm as u64) << 32;
    let site = if by.stack == 0 { 0 } else { SITE_IS_STACK | (by.stack - 1) as u64 };
    match root {
        Some(root) if site != 0 => (
            names | (root.comm as u64) << 48,
            site | (root.stack as u64) << ROOT_STACK_SHIFT | (root.lock as u64) << 32,
        ),
        _ => (names, site),
    }
}

const ROOT_STACK_SHIFT: u32 = 16;
const _: () = assert!(STACK_BITS <= ROOT_STACK_SHIFT && LOCK_BITS <= 16, "they have room beside each other");

/// The blocker, and the root, of what was packed.
pub const fn unpack_part(lock: u64, blocker: u64) -> (u64, Option<Releaser>) {
    const STACK: u64 = SITE_IS_STACK | ((1 << ROOT_STACK_SHIFT) - 1);
    if blocker & SITE_IS_STACK == 0 || unpack_elsewhere(blocker).is_some() {
        return (blocker, None);
    }
    let root = Releaser {
        stack: (blocker >> ROOT_STACK_SHIFT) as u32 & 0xffff,
        comm: (lock >> 48) as u16,
        lock: (blocker >> 32) as u32 & 0xffff,
        is_writer: false,
    };
    (blocker & STACK, if root.lock == 0 { None } else { Some(root) })
}

#[cfg(test)]
mod tests {
    use super::super::pack_elsewhere;
    use super::*;

    #[test]
    fn a_releaser_comes_out_as_it_was_packed() {
        for releaser in [
            Releaser { stack: 0, comm: 0, lock: 1, is_writer: false },
            Releaser { stack: STACKS as u32, comm: u16::MAX, lock: LOCK_PLACES as u32, is_writer: true },
            Releaser { stack: 7, comm: 3, lock: 4711, is_writer: false },
        ] {
            assert_eq!(unpack_release(pack_release(releaser)), releaser);
        }
    }

    #[test]
    fn a_part_says_who_had_it_and_whom_that_one_waited_for() {
        let by = Releaser { stack: STACKS as u32, comm: 7, lock: 1, is_writer: true };
        let root = Releaser { stack: 5, comm: u16::MAX, lock: LOCK_PLACES as u32, is_writer: false };
        let site = SITE_IS_STACK | (STACKS as u64 - 1);
        let (lock, blocker) = pack_part(by, Some(root));
        assert_eq!((lock >> 32) as u16, 7);
        assert_eq!(unpack_part(lock, blocker), (site, Some(root)));
        let (lock, blocker) = pack_part(by, None);
        assert_eq!(unpack_part(lock, blocker), (site, None));
        let elsewhere = pack_elsewhere(u32::MAX, 7, 3);
        assert_eq!(unpack_part(0, elsewhere), (elsewhere, None));
        assert_eq!(unpack_part(0, pack_part(Releaser { stack: 0, ..by }, Some(root)).1), (0, None));
    }
}
