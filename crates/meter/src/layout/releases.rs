//! The last releases of each lock that somebody waited for: by them a wait is divided among those who had the lock meanwhile.

use core::sync::atomic::{AtomicU32, AtomicU64};

use super::{LOCK_PLACES, PAGE, STACKS};

/// Releases that are kept of a lock. A wait during which there were more is divided from the first of these on.
pub const RELEASES: usize = 15;
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
    /// It had the lock as a writer: nobody else makes a reader wait.
    pub is_writer: bool,
}

/// In one word, so that nobody reads the one of this release and the other of that.
pub const fn pack_release(releaser: Releaser) -> u64 {
    let stack = releaser.stack as u64 & ((1 << STACK_BITS) - 1);
    let lock = releaser.lock as u64 & ((1 << LOCK_BITS) - 1);
    stack
        | lock << STACK_BITS
        | (releaser.comm as u64) << (STACK_BITS + LOCK_BITS)
        | (releaser.is_writer as u64) << (STACK_BITS + LOCK_BITS + COMM_BITS)
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

#[cfg(test)]
mod tests {
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
}
