//! What addresses and threads are named by.

use core::sync::atomic::{AtomicU8, AtomicU64};

/// Modules (program and libraries) of a process that are kept.
pub const MODULES: usize = 256;
/// Thread names that are kept: a page of them.
pub const COMMS: usize = 256;
/// Longest path of a module, with its NUL.
pub const PATH_BYTES: usize = 448;
/// Longest build id that is kept: linkers make 16 to 32 bytes.
pub const BUILD_ID_BYTES: usize = 32;

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
    /// 1 for the program itself.
    pub is_program: AtomicU8,
    /// Zero.
    pub spare: [u8; 6],
    /// The file, up to a NUL; empty for what has none.
    pub path: [AtomicU8; PATH_BYTES],
}

/// A thread's name.
#[repr(C)]
pub struct Comm {
    /// The sixteen bytes, 0 while not valid.
    pub text: [AtomicU64; 2],
}
