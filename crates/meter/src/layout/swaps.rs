//! Locks of programs that are swapped: which are to be, and what became of them.

/// Tells the preloaded library which locks to swap: `kind=variant`, with commas between.
pub const SWAP_VARIABLE: &str = "LOCKMETER_SWAP";

/// What became of a lock of a program whose locks are swapped, as indices into [`Process::swaps`](super::Process::swaps).
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
    /// Left alone: used by code that the preloaded library does not see.
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
