//! Holds that were counted and not timed: their share of the time, in proportion to the timed holds of the same lock and caller.
//!
//! Counts stay what they are, to the last one. Times become estimates, and what they rest on goes along.

use std::collections::HashMap;

use lockmeter_profile::{Bucket, Lengths};

use super::segment::Delta;
use crate::layout::{Meta, blocked, happened};

/// This many timed holds of this reading are enough to go by; with fewer, all since the begin are asked.
const ENOUGH_TIMED: u64 = 64;

/// As a power of two: a timed hold stands for no more than this.
const MOST_DRAWN_OF: u8 = 20;

/// What tells holds apart, but for their length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct HoldKey {
    lock: u32,
    kind: u8,
    mode: u8,
    comm: u16,
    site: u64,
}

impl HoldKey {
    const fn of(delta: &Delta) -> Self {
        let Meta { kind, mode, comm, .. } = delta.meta;
        Self { lock: delta.lock, kind, mode, comm, site: delta.site }
    }

    /// All callers and threads together.
    const fn of_lock(self) -> Self {
        Self { site: 0, comm: 0, ..self }
    }
}

/// Timed holds since the begin.
#[derive(Debug, Default)]
pub(super) struct TimedHolds {
    known: HashMap<HoldKey, Lengths>,
}

fn add(lengths: &mut Lengths, delta: &Delta) {
    // More than a stride can be is nothing that a writer writes.
    let others = (1_u64 << delta.meta.blocked.min(MOST_DRAWN_OF)) - 1;
    lengths.add(Bucket(delta.meta.bucket), delta.count, delta.total_ns, others);
}

impl TimedHolds {
    /// Gives the holds that were not timed a length, as samples of their own; takes out, and returns, what is counted beside
    /// times, with the variance of that length, in square nanoseconds. `reading_ns` of each timed hold are the meter's own.
    pub(super) fn share_out(&mut self, deltas: &mut Vec<Delta>, reading_ns: u64) -> Vec<(Delta, f64)> {
        let (counted, kept): (Vec<Delta>, Vec<Delta>) = deltas
            .drain(..)
            .partition(|delta| matches!(delta.meta.happened, happened::UNTIMED | happened::MOVED | happened::WATCHED));
        // Long holds are all there: they say nothing of the others, and need no weight.
        let (long, mut kept): (Vec<Delta>, Vec<Delta>) =
            kept.into_iter().partition(|delta| delta.meta.happened == happened::LONG_HOLD);
        let mut now = HashMap::<HoldKey, Lengths>::new();
        for delta in kept.iter_mut().filter(|delta| delta.meta.happened == happened::HOLD) {
            shorten(delta, reading_ns);
            let key = HoldKey::of(delta);
            add(now.entry(key).or_default(), delta);
            add(self.known.entry(key).or_default(), delta);
            if key != key.of_lock() {
                add(self.known.entry(key.of_lock()).or_default(), delta);
            }
            delta.meta.blocked = blocked::UNKNOWN;
        }
        let nothing = Lengths::default();
        let mut give_length = |counted: Delta| {
            if counted.meta.happened != happened::UNTIMED {
                return (counted, 0.0);
            }
            let key = HoldKey::of(&counted);
            let lengths = now
                .get(&key)
                .filter(|lengths| lengths.count() >= ENOUGH_TIMED && lengths.others() > 0)
                .or_else(|| self.known.get(&key).filter(|lengths| lengths.others() > 0))
                .or_else(|| self.known.get(&key.of_lock()))
                .unwrap_or(&nothing);
            give_lengths(&counted, lengths, &mut kept);
            (counted, lengths.variance_of_others(counted.count))
        };
        let counted = counted.into_iter().map(&mut give_length).collect();
        kept.extend(
            long.into_iter().map(|delta| Delta { meta: Meta { happened: happened::HOLD, ..delta.meta }, ..delta }),
        );
        *deltas = kept;
        counted
    }
}

/// Takes so much off each hold of a sample. All of them go to the bucket of their mean: of so short ones more is not told.
fn shorten(delta: &mut Delta, by_ns: u64) {
    let count = delta.count.max(1);
    delta.total_ns = delta.total_ns.saturating_sub(count.saturating_mul(by_ns));
    delta.max_ns = delta.max_ns.saturating_sub(by_ns).max(delta.total_ns.div_ceil(count));
    delta.meta.bucket = Bucket::of(delta.total_ns / count).0;
}

/// The holds of one sample as if they had been as long as others were; of no length at all if nothing is known.
fn give_lengths(untimed: &Delta, lengths: &Lengths, deltas: &mut Vec<Delta>) {
    for (bucket, count, total_ns) in lengths.of_others(untimed.count) {
        let meta = Meta { happened: happened::HOLD, bucket: bucket.0, ..untimed.meta };
        deltas.push(Delta { meta, count, total_ns, max_ns: total_ns.div_ceil(count.max(1)), ..*untimed });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn delta(happened: u8, bucket: u8, count: u64, total_ns: u64) -> Delta {
        let meta = Meta { happened, kind: 3, mode: 1, bucket, blocked: 0, comm: 1 };
        Delta {
            meta,
            lock: 7,
            releaser_comm: 0,
            owner: 0,
            site: 0x1000,
            blocker: 0,
            root: None,
            count,
            total_ns,
            max_ns: total_ns,
        }
    }

    fn sums(deltas: &[Delta]) -> (u64, u64) {
        deltas.iter().fold((0, 0), |(count, ns), delta| (count + delta.count, ns + delta.total_ns))
    }

    #[test]
    fn untimed_holds_are_as_long_as_the_timed_ones_of_the_same_lock_and_caller() {
        let mut deltas = vec![
            delta(happened::HOLD, 4, 90, 90 * 20),
            delta(happened::HOLD, 10, 10, 10 * 1500),
            delta(happened::UNTIMED, 0, 900, 0),
            delta(happened::MOVED, 0, 5, 0),
        ];
        let counted = TimedHolds::default().share_out(&mut deltas, 0);
        assert_eq!(counted.len(), 2);
        assert_eq!(sums(&deltas), (1000, 900 * 20 + 100 * 1500));
        assert!(deltas.iter().all(|delta| delta.meta.happened == happened::HOLD));
    }

    /// Regression: one hold of 16 ms among a million of 20 ns was lost, or became thousands, as the draw had it.
    #[test]
    fn a_long_hold_counts_once_and_says_nothing_of_the_others() {
        let mut deltas = vec![
            delta(happened::HOLD, 4, 1000, 1000 * 20),
            delta(happened::LONG_HOLD, 24, 1, 16_777_216),
            delta(happened::UNTIMED, 0, 999_000, 0),
        ];
        TimedHolds::default().share_out(&mut deltas, 0);
        assert_eq!(sums(&deltas), (1_000_001, 1_000_000 * 20 + 16_777_216));
        assert!(deltas.iter().all(|delta| delta.meta.happened == happened::HOLD));
    }

    #[test]
    fn what_the_meter_itself_takes_is_no_part_of_a_hold() {
        let mut deltas = vec![delta(happened::HOLD, 4, 10, 10 * 20), delta(happened::HOLD, 3, 1, 9)];
        TimedHolds::default().share_out(&mut deltas, 12);
        assert_eq!(sums(&deltas), (11, 10 * 8));
        assert_eq!(deltas.iter().map(|delta| delta.meta.bucket).collect::<Vec<_>>(), [3, 0]);
    }

    #[test]
    fn with_few_timed_now_those_before_are_asked_and_with_none_at_all_holds_have_a_count_only() {
        let mut holds = TimedHolds::default();
        let mut none = vec![delta(happened::UNTIMED, 0, 10, 0)];
        holds.share_out(&mut none, 0);
        assert_eq!(sums(&none), (10, 0));
        holds.share_out(&mut vec![delta(happened::HOLD, 6, 1000, 100_000)], 0);
        let mut later = vec![delta(happened::UNTIMED, 0, 10, 0)];
        holds.share_out(&mut later, 0);
        assert_eq!(sums(&later), (10, 1000));
    }

    proptest! {
        #[test]
        fn no_acquisition_is_lost_or_made_up(
            timed in prop::collection::vec((0_u8..64, any::<u64>(), any::<u64>()), 0..8), untimed in any::<u64>(),
        ) {
            let mut deltas: Vec<Delta> =
                timed.iter().map(|(bucket, count, ns)| delta(happened::HOLD, *bucket, *count, *ns)).collect();
            let before = deltas.len();
            deltas.push(delta(happened::UNTIMED, 0, untimed, 0));
            TimedHolds::default().share_out(&mut deltas, 0);
            let given: u128 = deltas[before..].iter().map(|delta| u128::from(delta.count)).sum();
            let all: u128 = timed.iter().map(|(_, count, _)| u128::from(*count)).sum();
            // Counts that do not fit 64 bits are no counts of a writer's.
            prop_assert!(given == untimed.into() || all > u64::MAX.into());
        }
    }
}
