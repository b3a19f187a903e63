//! Programs that are executed and are to load the library: each is awaited by the path that it is executed by, which the kernel tells it as
//! well. One that never begins was not metered, whatever the reason.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Relaxed},
};

use super::pages;
use crate::layout::AWAITED;

/// A hash of a path, given in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Path(usize);

impl Path {
    /// FNV-1a.
    pub(super) fn of(parts: &[&[u8]]) -> Self {
        let bytes = parts.iter().flat_map(|part| part.iter());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self((hash ^ hash >> 32) as usize % AWAITED)
    }

    fn programs(self) -> Option<&'static AtomicU32> {
        pages::awaited()?.programs.get(self.0)
    }
}

/// A program is about to be executed by this path.
pub(super) fn expect(path: Path) {
    if let Some(programs) = path.programs() {
        programs.fetch_add(1, Relaxed);
    }
}

/// It has begun, or could not be executed. One that nobody awaits (`system` executes without a word) is none.
pub(super) fn came(path: Path) {
    if let Some(programs) = path.programs() {
        let _ = programs.fetch_update(AcqRel, Relaxed, |programs| programs.checked_sub(1));
    }
}

/// This program has begun.
pub(super) fn begun() {
    // SAFETY: reads what the kernel gave the process.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const c_char;
    if !path.is_null() {
        // SAFETY: the kernel puts the path, with its NUL, at the upper end of the stack.
        came(Path::of(&[unsafe { CStr::from_ptr(path) }.to_bytes()]));
    }
}
