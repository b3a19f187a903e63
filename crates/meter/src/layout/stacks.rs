//! Stacks, and how a thread knows one again.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Stacks that are kept; a power of two.
pub const STACKS: usize = 4096;
/// Frames of a stack that are kept.
pub const FRAMES: usize = 30;
/// Words of the stack that following one can depend on: of each frame the return address, and the saved frame pointer.
pub const CACHED_WORDS: usize = 2 * FRAMES;
/// A site that is a place in the stack table rather than an address has this bit.
pub const SITE_IS_STACK: u64 = 1 << 63;
/// A site of a hold that is the return address of its release, for its acquisition was not seen, has this bit.
pub const SITE_IS_RELEASE: u64 = 1 << 62;
/// What stands for the site of a blocker of which only its id is known, by which the lock names it, has this bit.
pub const SITE_IS_THREAD: u64 = 1 << 62;

/// Addresses of a library that was unloaded have the number of its move from here on: below are all that programs use.
pub const MOVE_BITS: u32 = 48;

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

/// A stack that a thread has followed: where the same words lie at the same places, it is the same again.
///
/// The owning thread alone writes and reads it.
#[repr(C, align(64))]
pub struct CachedStack {
    /// Where the stack pointer stood; 0: none.
    pub stack_pointer: AtomicU64,
    /// The return address that it pointed to.
    pub return_address: AtomicU64,
    /// Where the lock was acquired that is released; 0 of other stacks.
    pub acquired: AtomicU64,
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
    /// What following it lost: a [`Lost`](super::Lost), or [`LOSSES`](super::LOSSES) for nothing.
    pub lost: AtomicU32,
    /// How far above the stack pointer a word lay, and what it was.
    pub cached_words: [[AtomicU64; 2]; CACHED_WORDS],
}
