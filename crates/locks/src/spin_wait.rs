//! How long a waiter spins.
//!
//! Spinning pays while the owner runs on another CPU. User space is not told when the kernel takes a thread off its CPU; what
//! it can know is where the kernel last let a thread run (rseq's `cpu_id`, which [`thread_record`](crate::thread_record) reads through a
//! guarded pointer). A thread whose last CPU is *ours* cannot run now, because we do: then spinning stops. Otherwise
//! it probably runs, and spinning is bounded by time, so that a mistake costs no more than the sleep it was to save.

use crate::current_thread;
use crate::sync::{now_ns, spin_loop, usable_cpus};
use crate::thread_number::ThreadNumber;
use crate::thread_record::record;

/// About what it takes to put a thread to sleep and to wake it, on both sides together.
pub const SPIN_NS: u64 = 20_000;

/// The clock and the owner's CPU are read once in this many polls of the lock, because reading them takes as long as a few polls.
const POLLS_PER_CHECK: u32 = 32;

/// One thread's spinning for one lock.
pub(crate) struct SpinWait {
    own: Option<ThreadNumber>,
    polls: u32,
    /// 0: before the first check.
    until_ns: u64,
}

impl SpinWait {
    /// `None` where spinning cannot pay: the owner does not run while this thread does.
    pub(crate) fn begin() -> Option<Self> {
        (usable_cpus() > 1).then(|| SpinWait { own: current_thread::own_number(), polls: 0, until_ns: 0 })
    }

    /// Pauses between two polls. False when it is time to stop, because `owner` (a thread's number) does not run, or because the time is up.
    #[inline]
    pub(crate) fn pause(&mut self, owner: u32) -> bool {
        spin_loop();
        self.polls += 1;
        if cfg!(any(loom, shuttle)) {
            return self.polls < 3;
        }
        !self.polls.is_multiple_of(POLLS_PER_CHECK) || self.still_pays(owner)
    }

    #[cold]
    fn still_pays(&mut self, owner: u32) -> bool {
        let now = now_ns();
        if self.until_ns == 0 {
            self.until_ns = now + SPIN_NS;
        }
        now < self.until_ns && !self.is_off_cpu(owner)
    }

    /// Whether a thread is known not to run: its last CPU is the one on which we run.
    fn is_off_cpu(&self, thread: u32) -> bool {
        let (Some(own), Some(other)) = (self.own, ThreadNumber::new(thread)) else { return false };
        own != other && record(own).cpu().is_some_and(|here| record(other).cpu() == Some(here))
    }
}
