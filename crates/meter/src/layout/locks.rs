//! What is known of each lock.

use core::sync::atomic::{AtomicU32, AtomicU64};

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
    /// [`ENTRY_INIT`], [`ENTRY_SHARED`] and [`ENTRY_STACK`], its kind from bit 8, and above [`ENTRY_NUMBER_SHIFT`] a number, from 1, if
    /// the recorder knows the lock as one of the session's [`SharedLock`](super::SharedLock)s.
    pub flags: AtomicU32,
    /// As `releaser`, of the last writer: nobody else makes a reader wait.
    pub writer: AtomicU64,
    /// When that was.
    pub writer_at: AtomicU64,
    /// The thread that held it last, if that hold is watched. The one that has the lock next looks whether it is another.
    pub watched: AtomicU32,
    /// The call that made it, as the writer numbers them; 0: not known.
    pub maker: AtomicU32,
}

/// Its maker called an init function.
pub const ENTRY_INIT: u32 = 2;
/// It says itself that processes may share it.
pub const ENTRY_SHARED: u32 = 1;
/// It lies on the stack of the thread that was the first to wait for it or to release it.
pub const ENTRY_STACK: u32 = 4;
/// Where the number of a shared lock is in the flags: the recorder writes these two bytes.
pub const ENTRY_NUMBER_SHIFT: u32 = 16;

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
    /// Zero.
    pub spare: AtomicU64,
}
