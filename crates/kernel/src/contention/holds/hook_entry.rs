//! What entering a hook takes on this machine.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::Instant;

use crate::clock::nanoseconds;

/// What entering a trampoline takes where it cannot be measured.
pub(super) const TRAMPOLINE_NS: u64 = 60;

/// The same of a kprobe, which saves and restores all registers and looks itself up.
pub(super) const PROBE_NS: u64 = 250;

/// Asking for a position in this file takes a mutex and releases it: two descriptors share it.
pub(super) struct SharedFile {
    file: File,
    _other: File,
}

impl SharedFile {
    pub(super) fn open() -> Option<Self> {
        // SAFETY: the name is a string that ends with a zero; the result is a new descriptor or -1.
        let fd = unsafe { libc::memfd_create(c"lockmeter".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return None;
        }
        // SAFETY: a descriptor just opened, owned by nobody else.
        let file = unsafe { File::from_raw_fd(fd) };
        let other = file.try_clone().ok()?;
        Some(Self { file, _other: other })
    }

    /// What asking takes: of a few hundred, in the quickest of a few rounds.
    pub(super) fn ask_ns(&self) -> u64 {
        const ROUNDS: usize = 20;
        const ASKS: u32 = 256;
        let round = |_| {
            let begun = Instant::now();
            for _ in 0..ASKS {
                // SAFETY: moves nothing in a file of our own.
                unsafe { libc::lseek(self.file.as_raw_fd(), 0, libc::SEEK_CUR) };
            }
            nanoseconds(begun.elapsed()) / u64::from(ASKS)
        };
        (0..ROUNDS).map(round).min().unwrap_or(0)
    }
}

/// What entering one hook takes, from what asking took before the functions of mutexes were hooked and after; `None` if these times say
/// nothing of it.
pub(super) fn measured(before_ns: u64, after_ns: u64) -> Option<u64> {
    /// One to acquire and one to release.
    const HOOKS: u64 = 2;
    /// No entry is shorter; then the functions are not hooked.
    const SHORTEST_NS: u64 = 5;
    /// Nor so long: then something else happened.
    const LONGEST_NS: u64 = 20_000;
    let entry_ns = after_ns.saturating_sub(before_ns) / HOOKS;
    (SHORTEST_NS..LONGEST_NS).contains(&entry_ns).then_some(entry_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_for_a_position_takes_as_long_as_a_system_call() {
        let file = SharedFile::open().expect("a file in memory");
        assert!((10..1_000_000).contains(&file.ask_ns()));
    }

    #[test]
    fn entering_is_half_of_what_a_mutex_takes_longer() {
        assert_eq!(measured(200, 320), Some(60));
        assert_eq!(measured(320, 200), None);
        assert_eq!(measured(200, 203), None);
        assert_eq!(measured(200, 1_000_000), None);
    }
}
