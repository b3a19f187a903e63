//! What can have happened in a program in a given time. A program may write anything into its segment, by mistake or not.

use super::segment::Delta;
use crate::layout::{HELD, happened};

/// A thread needs longer for anything that is counted: an uncontended pair of a bare mutex takes eight nanoseconds.
const SHORTEST_EVENT_NS: u64 = 1;

/// One acquisition may be counted as a hold that was not timed, as one that was watched, and as one that came from another thread; a
/// wait and a hold are two events.
const COUNTED_TIMES: u64 = 4;

/// A thread's holds overlap: this many can be timed at once. Waits do, too, in signal handlers.
const OVERLAPPING: u64 = HELD as u64 + 1;

/// The clocks of writer and reader may differ, and the session began before its reader.
const SLACK_NS: u64 = 1_000_000_000;

/// The time since a session began, as a bound on what its programs can have done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    elapsed_ns: u64,
}

impl Bounds {
    pub(super) const fn since(begun_ns: u64, now_ns: u64) -> Self {
        let elapsed_ns = now_ns.saturating_sub(begun_ns);
        // A tick of the time stamp counter is known to a few hundred thousandths.
        Self { elapsed_ns: elapsed_ns.saturating_add(elapsed_ns / 100).saturating_add(SLACK_NS) }
    }

    /// Whether a counter that all threads share can have grown so far.
    pub(super) const fn allow_counter(self, count: u64) -> bool {
        count <= self.elapsed_ns / SHORTEST_EVENT_NS
    }
}

/// What one thread's table has counted since the begin.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ThreadSums {
    count: u64,
    total_ns: u64,
}

impl ThreadSums {
    /// Adds what this many threads counted together; `false` if they cannot have done all that.
    #[must_use]
    pub(super) const fn add(&mut self, delta: &Delta, bounds: Bounds, threads: u64) -> bool {
        let elapsed_ns = bounds.elapsed_ns;
        self.count = self.count.saturating_add(delta.count);
        self.total_ns = self.total_ns.saturating_add(delta.total_ns);
        let is_timed = matches!(
            delta.meta.happened,
            happened::WAIT | happened::TIMED_OUT | happened::HOLD | happened::LONG_HOLD | happened::IDLE
        );
        // A bucket's lower bound: the longest is only known to lie above.
        let shortest_ns = if is_timed && delta.meta.bucket > 0 { 1_u64 << (delta.meta.bucket & 63) } else { 0 };
        self.count <= elapsed_ns.saturating_mul(COUNTED_TIMES).saturating_mul(threads) / SHORTEST_EVENT_NS
            && self.total_ns <= elapsed_ns.saturating_mul(OVERLAPPING).saturating_mul(threads)
            && shortest_ns <= elapsed_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Meta;

    const SECOND_NS: u64 = 1_000_000_000;

    fn delta(happened: u8, bucket: u8, count: u64) -> Delta {
        let meta = Meta { bucket, ..Meta::of(happened) };
        let total_ns = count.saturating_mul(1 << bucket);
        Delta {
            meta,
            lock: 1,
            releaser_comm: 0,
            owner: 0,
            site: 0,
            blocker: 0,
            root: None,
            count,
            total_ns,
            max_ns: 1 << bucket,
        }
    }

    fn allowed(elapsed_ns: u64, deltas: &[Delta]) -> bool {
        let mut sums = ThreadSums::default();
        deltas.iter().all(|delta| sums.add(delta, Bounds::since(0, elapsed_ns), 1))
    }

    #[test]
    fn a_busy_thread_is_believed_and_one_that_is_faster_than_any_processor_is_not() {
        let busy = [
            delta(happened::UNTIMED, 0, 120_000_000),
            delta(happened::WATCHED, 0, 60_000_000),
            delta(happened::HOLD, 5, 25_000),
            delta(happened::WAIT, 29, 1),
        ];
        assert!(allowed(SECOND_NS, &busy));
        assert!(!allowed(SECOND_NS, &[delta(happened::UNTIMED, 0, 5_900_000_000_000_000_000)]));
        assert!(!allowed(SECOND_NS, &[delta(happened::UNTIMED, 0, 9_000_000_000)]));
    }

    #[test]
    fn nothing_lasts_longer_than_the_session() {
        assert!(allowed(60 * SECOND_NS, &[delta(happened::HOLD, 35, 1)]), "34 s");
        assert!(!allowed(10 * SECOND_NS, &[delta(happened::WAIT, 35, 1)]));
        assert!(!allowed(10 * SECOND_NS, &[delta(happened::HOLD, 63, 1)]));
        assert!(!allowed(10 * SECOND_NS, &[delta(happened::LONG_HOLD, 35, 1)]));
    }

    #[test]
    fn holds_may_overlap_but_no_more_than_a_thread_can_have() {
        let nested: Vec<Delta> = (0..HELD).map(|_| delta(happened::HOLD, 33, 1)).collect();
        assert!(allowed(9 * SECOND_NS, &nested));
        let many: Vec<Delta> = (0..2 * HELD).map(|_| delta(happened::HOLD, 33, 1)).collect();
        assert!(!allowed(9 * SECOND_NS, &many));
    }
}
