//! When a lock is reserved for a thread that waits, so that no thread starves.
//!
//! A thread that has waited for [`HANDOFF_AFTER_NS`], was woken, and did not get the lock has it reserved. A lock is reserved at most once
//! in that time: a lock that is always handed over runs at the speed of the scheduler. So of n threads that wait, each gets the lock after n
//! times that time at most, and the length of the sections.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::sync::now_ns;

/// Twice the average of parking_lot's `RawMutex`.
const HANDOFF_AFTER_NS: u64 = 1_000_000;

/// When the lock was last reserved: the low bits of the clock in microseconds. They come round every 71 minutes, and then err once.
#[derive(Debug)]
pub(crate) struct LastHandoff(AtomicU32);

/// How long a thread has waited.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct WaitStart {
    /// When it first went to sleep.
    first_sleep_ns: Option<u64>,
}

impl LastHandoff {
    pub(crate) const fn never() -> Self {
        LastHandoff(AtomicU32::new(0))
    }

    /// Whether the lock should be reserved for a thread with this wait, which is about to sleep.
    pub(crate) fn is_due(&self, wait: &mut WaitStart) -> bool {
        #[cfg(shuttle)]
        if crate::sync::is_handoff_due() {
            return true;
        }
        let now = now_ns();
        let since = *wait.first_sleep_ns.get_or_insert(now);
        let last = u64::from(micros(now).wrapping_sub(self.0.load(Relaxed))) * 1_000;
        now.saturating_sub(since) > HANDOFF_AFTER_NS && last > HANDOFF_AFTER_NS
    }

    /// The lock is reserved now.
    pub(crate) fn reserved_now(&self) {
        self.0.store(micros(now_ns()), Relaxed);
    }
}

fn micros(ns: u64) -> u32 {
    (ns / 1_000) as u32
}
