//! The times until which pthread's functions wait.

use core::ffi::c_int;
use core::time::Duration;

use libc::{CLOCK_REALTIME, timespec};

/// A wait until a time of the real clock looks at it again after this long: somebody may set it.
const LONGEST_SLICE: Duration = Duration::from_secs(1);

const NS_PER_S: i64 = 1_000_000_000;

/// A point on one of the two clocks that pthread knows.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    clock: c_int,
    at: timespec,
}

impl Deadline {
    /// `None` for a time with an impossible number of nanoseconds.
    ///
    /// # Safety
    /// `at` is readable.
    pub(super) unsafe fn read(clock: usize, at: *const timespec) -> Option<Self> {
        // SAFETY: the caller's obligation.
        let at = unsafe { at.read() };
        (0..NS_PER_S).contains(&at.tv_nsec).then_some(Self { clock: clock as c_int, at })
    }

    /// How long it is until then; `None` when it has passed.
    fn left(self) -> Option<Duration> {
        let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes one timespec, which is ours; both clocks exist.
        unsafe { libc::clock_gettime(self.clock, &raw mut now) };
        let mut seconds = self.at.tv_sec.saturating_sub(now.tv_sec);
        let mut ns = self.at.tv_nsec - now.tv_nsec;
        if ns < 0 {
            ns += NS_PER_S;
            seconds -= 1;
        }
        let left = Duration::new(u64::try_from(seconds).ok()?, ns as u32);
        (!left.is_zero()).then_some(left)
    }

    /// Tries until the time is up; whether a try succeeded.
    pub(super) fn wait(self, mut attempt: impl FnMut(Duration) -> bool) -> bool {
        while let Some(left) = self.left() {
            let slice = if self.clock == CLOCK_REALTIME { left.min(LONGEST_SLICE) } else { left };
            if attempt(slice) {
                return true;
            }
        }
        false
    }
}
