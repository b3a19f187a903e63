//! Giving up the CPU now and then, where threads that use locks share one.
//!
//! Where there are more threads than CPUs, the kernel takes a thread off its CPU after some milliseconds, and the thread waits until all others of
//! that CPU have had as much: that is the longest wait for a lock there is. So a waiter that has had its CPU for [`NAP_EVERY_US`] naps for a
//! moment before it watches the lock. All turns are shorter then, and end while a thread waits anyhow.
//!
//! A nap is lost time where nobody else wants the CPU. So a thread looks, after each nap, whether another has looked at a lock on this CPU
//! meanwhile. After a few naps without company it naps only where another has looked at a lock here of late, and more and more rarely.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::spinning::ticks_in_us;
use crate::sync::{const_unless_model, nap, ticks};
use crate::threads::{Slot, neighbours, record};

/// Half of what the kernel leaves a thread its CPU for, where it looks 250 times a second; and so much longer than a nap that naps cost no
/// throughput: every millisecond they took 1 % of it.
const NAP_EVERY_US: u64 = 2_000;

/// Who has looked at a lock on this CPU within this time may still want it: as long as a turn is where threads do not nap.
const OF_LATE_US: u64 = 4_000;

/// So many naps a thread takes to find out whether it has company.
const NAPS_TO_FIND_OUT: u32 = 4;
/// From there on each nap without company doubles the time to the next, up to 128 ms.
const MOST_DOUBLINGS: u32 = 7;

/// Whether a waiter may nap before it watches a lock.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) enum Rest {
    /// It has a deadline, or a signal may end its wait.
    #[default]
    None,
    /// It has just slept, or napped.
    Had,
    /// It waits for as long as it takes.
    Allowed,
}

/// When a thread naps. Only the thread itself writes it.
#[derive(Debug)]
pub(crate) struct Naps {
    /// In ticks; 0: it has not waited yet.
    due_at: AtomicU64,
    /// Naps in a row without company, as far as they are counted.
    alone: AtomicU32,
}

impl Naps {
    const_unless_model! {
        pub(crate) const fn new() -> Self {
            Naps { due_at: AtomicU64::new(0), alone: AtomicU32::new(0) }
        }
    }

    /// Its thread is another from now on.
    #[cfg(any(feature = "std", feature = "preload", loom, shuttle))]
    pub(crate) fn forget(&self) {
        self.due_at.store(0, Relaxed);
        self.alone.store(0, Relaxed);
    }

    /// As a wait begins, at `now`: naps, if it is time to.
    #[inline]
    pub(crate) fn rest(&self, rest: Rest, own: Slot, now: u64) -> bool {
        match rest {
            Rest::None => false,
            Rest::Had => {
                self.put_off(now, ticks_in_us(NAP_EVERY_US));
                false
            }
            Rest::Allowed => self.is_due(now) && self.rest_if_in_company(own, now),
        }
    }

    #[cold]
    #[inline(never)]
    fn rest_if_in_company(&self, own: Slot, now: u64) -> bool {
        let every = ticks_in_us(NAP_EVERY_US);
        let here = || record(own).cpu();
        if !self.pays(now, every, || has_company(own, here(), now.wrapping_sub(ticks_in_us(OF_LATE_US)))) {
            return false;
        }
        let here = here();
        nap();
        self.napped(ticks(), every, has_company(own, here, now));
        true
    }

    fn is_due(&self, now: u64) -> bool {
        now.wrapping_sub(self.due_at.load(Relaxed)).cast_signed() >= 0
    }

    fn put_off(&self, now: u64, ticks: u64) {
        // 0 has another meaning.
        self.due_at.store(now.wrapping_add(ticks).max(1), Relaxed);
    }

    /// Whether to nap, now that it is due; if not, it is due again in `every` ticks.
    fn pays(&self, now: u64, every: u64, has_had_company: impl FnOnce() -> bool) -> bool {
        let is_first_wait = self.due_at.load(Relaxed) == 0;
        self.put_off(now, every);
        !is_first_wait && (self.alone.load(Relaxed) < NAPS_TO_FIND_OUT || has_had_company())
    }

    /// After a nap that ended `now`.
    fn napped(&self, now: u64, every: u64, had_company: bool) {
        let alone = if had_company { 0 } else { self.alone.load(Relaxed) + 1 };
        let doublings = alone.saturating_sub(NAPS_TO_FIND_OUT).min(MOST_DOUBLINGS);
        self.alone.store(alone.min(NAPS_TO_FIND_OUT + MOST_DOUBLINGS), Relaxed);
        self.put_off(now, every << doublings);
    }
}

/// Whether another thread has looked at a lock on this CPU since then, as far as those are asked whose numbers are next to this one's.
fn has_company(own: Slot, here: Option<u32>, since: u64) -> bool {
    here.is_some() && neighbours(own).any(|other| other.sections.has_looked_since(since) && other.cpu() == here)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const EVERY: u64 = 1_000;

    /// A thread that waits all the time, and its naps.
    struct Waiter {
        naps: Naps,
        now: u64,
    }

    impl Waiter {
        fn new() -> Self {
            Waiter { naps: Naps::new(), now: 1 << 40 }
        }

        /// How often it naps in so many ticks, if it has company while it does, and has had of late.
        fn naps_in(&mut self, ticks: u64, company: bool, of_late: bool) -> u64 {
            let end = self.now + ticks;
            let mut naps = 0;
            while self.now < end {
                if self.naps.is_due(self.now) && self.naps.pays(self.now, EVERY, || of_late) {
                    naps += 1;
                    self.naps.napped(self.now, EVERY, company);
                }
                self.now += 10;
            }
            naps
        }
    }

    #[test]
    fn a_first_wait_begins_without_a_nap() {
        assert_eq!(Waiter::new().naps_in(EVERY, true, true), 0);
    }

    #[test]
    fn who_has_company_naps_again_and_again() {
        let mut waiter = Waiter::new();
        assert_eq!(waiter.naps_in(100 * EVERY, true, true), 99);
        // However seldom it met company before.
        assert_eq!(waiter.naps_in(3 * EVERY, false, true), 3);
        assert_eq!(waiter.naps_in(100 * EVERY, true, false), 100);
    }

    #[test]
    fn who_is_alone_naps_until_that_is_found_out() {
        let mut waiter = Waiter::new();
        assert_eq!(waiter.naps_in(1_000 * EVERY, false, false), u64::from(NAPS_TO_FIND_OUT));
        // Somebody comes.
        assert_eq!(waiter.naps_in(10 * EVERY, true, true), 10);
    }

    #[test]
    fn who_only_seems_to_have_company_naps_more_and_more_rarely() {
        let mut waiter = Waiter::new();
        let naps = waiter.naps_in(256 * EVERY, false, true);
        assert!((u64::from(NAPS_TO_FIND_OUT + MOST_DOUBLINGS)..16).contains(&naps), "{naps}");
        let naps = waiter.naps_in(1_280 * EVERY, false, true);
        assert!((9..=10).contains(&naps), "{naps}");
    }
}
