//! Giving up the CPU now and then, where threads that use locks share one.
//!
//! Where there are more threads than CPUs, the kernel takes a thread off its CPU after some milliseconds, and the thread waits until all others of
//! that CPU have had as much: that is the longest wait for a lock there is. So a waiter that has had its CPU for [`YIELD_EVERY_US`] yields it
//! before it watches the lock. All turns are shorter then, and end while a thread waits anyhow.
//!
//! Who yields gives up what is left of its share of the CPU: no loss among threads that all do, but a program that never yields gets it. So a
//! thread looks, after each rest, whether others have looked at a lock on this CPU meanwhile. After a few rests without such company it rests
//! only where another has looked at a lock here of late, and more and more rarely. And after a yield that lasted longer than its company takes
//! it naps for a while instead: whoever sleeps for a moment keeps its share.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::spinning::ticks_in_us;
use crate::sync::{const_unless_model, nap, ticks, yield_now};
use crate::threads::{Record, Slot, neighbours, record};

/// An eighth of what the kernel leaves a thread its CPU for, where it looks 250 times a second. Half of it made longest waits shorter still and
/// the threads' shares less even.
const YIELD_EVERY_US: u64 = 500;

/// A nap costs an interrupt more than a yield: every millisecond they took 1 % of the throughput.
const NAP_EVERY_US: u64 = 2_000;

/// The turns of threads that yield are seldom longer, and those of others seldom shorter, where the kernel looks 250 times a second.
const LONGEST_TURN_US: u64 = 2_500;

/// After a yield to somebody who does not yield: naps for an eighth of a second or more, as most who do so go on.
const NAPS_AFTER_A_LONG_YIELD: u32 = 64;

/// Who has looked at a lock on this CPU within this time may still want it: as long as a turn is where threads do not rest.
const OF_LATE_US: u64 = 4_000;

/// So many rests a thread takes to find out whether it has company.
const RESTS_TO_FIND_OUT: u32 = 4;
/// From there on each rest without company doubles the time to the next, up to 128 times.
const MOST_DOUBLINGS: u32 = 7;

/// Whether a waiter may rest before it watches a lock.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) enum Rest {
    /// It has a deadline, or a signal may end its wait.
    #[default]
    None,
    /// It has just slept, or rested.
    Had,
    /// It waits for as long as it takes.
    Allowed,
}

/// When a thread rests, and how. Only the thread itself writes it.
#[derive(Debug)]
pub(crate) struct Rests {
    /// In ticks; 0: it has not waited yet.
    due_at: AtomicU64,
    /// Rests in a row without company, as far as they are counted.
    alone: AtomicU32,
    /// Before it yields again.
    naps_left: AtomicU32,
}

/// The times above, in ticks.
struct Pace {
    yield_every: u64,
    nap_every: u64,
    longest_turn: u64,
}

impl Pace {
    fn of_this_processor() -> Self {
        Pace {
            yield_every: ticks_in_us(YIELD_EVERY_US),
            nap_every: ticks_in_us(NAP_EVERY_US),
            longest_turn: ticks_in_us(LONGEST_TURN_US),
        }
    }
}

impl Rests {
    const_unless_model! {
        pub(crate) const fn new() -> Self {
            Rests { due_at: AtomicU64::new(0), alone: AtomicU32::new(0), naps_left: AtomicU32::new(0) }
        }
    }

    /// Its thread is another from now on.
    #[cfg(any(feature = "std", feature = "preload", loom, shuttle))]
    pub(crate) fn forget(&self) {
        self.due_at.store(0, Relaxed);
        for count in [&self.alone, &self.naps_left] {
            count.store(0, Relaxed);
        }
    }

    /// As a wait begins, at `now`: rests, if it is time to.
    #[inline]
    pub(crate) fn rest(&self, rest: Rest, own: Slot, now: u64) -> bool {
        match rest {
            Rest::None => false,
            Rest::Had => {
                self.put_off(now, self.every(&Pace::of_this_processor()));
                false
            }
            Rest::Allowed => self.is_due(now) && self.rest_if_in_company(own, now),
        }
    }

    #[cold]
    #[inline(never)]
    fn rest_if_in_company(&self, own: Slot, now: u64) -> bool {
        let pace = Pace::of_this_processor();
        let here = || record(own).cpu();
        if !self.pays(now, &pace, || company(own, here(), now.wrapping_sub(ticks_in_us(OF_LATE_US))).next().is_some()) {
            return false;
        }
        let here = here();
        if self.yields() {
            yield_now()
        } else {
            nap()
        }
        self.rested(now, ticks(), &pace, company(own, here, now).count());
        true
    }

    fn is_due(&self, now: u64) -> bool {
        now.wrapping_sub(self.due_at.load(Relaxed)).cast_signed() >= 0
    }

    fn put_off(&self, now: u64, ticks: u64) {
        // 0 has another meaning.
        self.due_at.store(now.wrapping_add(ticks).max(1), Relaxed);
    }

    fn yields(&self) -> bool {
        self.naps_left.load(Relaxed) == 0
    }

    fn every(&self, pace: &Pace) -> u64 {
        if self.yields() { pace.yield_every } else { pace.nap_every }
    }

    /// Whether to rest, now that it is due; if not, it is due again after the usual time.
    fn pays(&self, now: u64, pace: &Pace, has_had_company: impl FnOnce() -> bool) -> bool {
        let is_first_wait = self.due_at.load(Relaxed) == 0;
        self.put_off(now, self.every(pace));
        !is_first_wait && (self.alone.load(Relaxed) < RESTS_TO_FIND_OUT || has_had_company())
    }

    /// After a rest from `begun` until `now`, in which so many others have looked at a lock on this CPU.
    fn rested(&self, begun: u64, now: u64, pace: &Pace, company: usize) {
        let turns = pace.longest_turn * company.max(1) as u64;
        let naps_left = match self.naps_left.load(Relaxed) {
            0 if now.wrapping_sub(begun) > turns => NAPS_AFTER_A_LONG_YIELD,
            left => left.saturating_sub(1),
        };
        self.naps_left.store(naps_left, Relaxed);
        let alone = if company > 0 { 0 } else { self.alone.load(Relaxed) + 1 };
        let doublings = alone.saturating_sub(RESTS_TO_FIND_OUT).min(MOST_DOUBLINGS);
        self.alone.store(alone.min(RESTS_TO_FIND_OUT + MOST_DOUBLINGS), Relaxed);
        self.put_off(now, self.every(pace) << doublings);
    }
}

/// The threads that have looked at a lock on this CPU since then, of those whose numbers are next to this one's.
fn company(own: Slot, here: Option<u32>, since: u64) -> impl Iterator<Item = &'static Record> {
    neighbours(own).filter(move |other| here.is_some() && other.sections.has_looked_since(since) && other.cpu() == here)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const EVERY: u64 = 1_000;
    const PACE: Pace = Pace { yield_every: EVERY, nap_every: 4 * EVERY, longest_turn: 5 * EVERY };

    /// A thread that waits all the time, and its rests.
    struct Waiter {
        rests: Rests,
        now: u64,
    }

    impl Waiter {
        fn new() -> Self {
            Waiter { rests: Rests::new(), now: 1 << 40 }
        }

        /// How often it rests in so many ticks, if it has company while it does, and has had of late.
        fn rests_in(&mut self, ticks: u64, company: bool, of_late: bool) -> u64 {
            let end = self.now + ticks;
            let mut rests = 0;
            while self.now < end {
                if self.rests.is_due(self.now) && self.rests.pays(self.now, &PACE, || of_late) {
                    rests += 1;
                    self.rests.rested(self.now, self.now, &PACE, usize::from(company));
                }
                self.now += 10;
            }
            rests
        }

        /// It yields for so many ticks, to so many others.
        fn yields_for(&mut self, ticks: u64, company: usize) {
            assert!(self.rests.yields());
            let begun = self.now;
            self.now += ticks;
            self.rests.rested(begun, self.now, &PACE, company);
        }
    }

    #[test]
    fn a_first_wait_begins_without_a_rest() {
        assert_eq!(Waiter::new().rests_in(EVERY, true, true), 0);
    }

    #[test]
    fn who_has_company_rests_again_and_again() {
        let mut waiter = Waiter::new();
        assert_eq!(waiter.rests_in(100 * EVERY, true, true), 99);
        // However seldom it met company before.
        assert_eq!(waiter.rests_in(3 * EVERY, false, true), 3);
        assert_eq!(waiter.rests_in(100 * EVERY, true, false), 100);
    }

    #[test]
    fn who_is_alone_rests_until_that_is_found_out() {
        let mut waiter = Waiter::new();
        assert_eq!(waiter.rests_in(1_000 * EVERY, false, false), u64::from(RESTS_TO_FIND_OUT));
        // Somebody comes.
        assert_eq!(waiter.rests_in(10 * EVERY, true, true), 10);
    }

    #[test]
    fn who_only_seems_to_have_company_rests_more_and_more_rarely() {
        let mut waiter = Waiter::new();
        let rests = waiter.rests_in(256 * EVERY, false, true);
        assert!((u64::from(RESTS_TO_FIND_OUT + MOST_DOUBLINGS)..16).contains(&rests), "{rests}");
        let rests = waiter.rests_in(1_280 * EVERY, false, true);
        assert!((9..=10).contains(&rests), "{rests}");
    }

    #[test]
    fn who_yields_to_a_program_that_does_not_naps_for_a_while() {
        let mut waiter = Waiter::new();
        let longest = PACE.longest_turn;
        waiter.yields_for(longest, 0);
        // Three others may have had a turn each.
        waiter.yields_for(3 * longest, 3);
        waiter.yields_for(longest + 1, 1);
        assert!(!waiter.rests.yields());
        let naps = u64::from(NAPS_AFTER_A_LONG_YIELD);
        assert_eq!(waiter.rests_in(naps * PACE.nap_every, true, true), naps - 1);
        assert!(!waiter.rests.yields());
        assert_eq!(waiter.rests_in(PACE.nap_every, true, true), 1 + 3);
        assert!(waiter.rests.yields());
        // Not a nap that lasts.
        waiter.yields_for(longest + 1, 1);
        let begun = waiter.now;
        waiter.now += 100 * EVERY;
        waiter.rests.rested(begun, waiter.now, &PACE, 1);
        assert_eq!(waiter.rests.naps_left.load(Relaxed), NAPS_AFTER_A_LONG_YIELD - 1);
    }
}
