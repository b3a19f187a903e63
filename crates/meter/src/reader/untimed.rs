//! Holds that were counted and not timed: their share of the time, in proportion to the timed holds of the same lock and caller.
//!
//! Counts stay what they are, to the last one. Times become estimates, and what they rest on goes along.

use std::collections::HashMap;

use lockmeter_profile::{Bucket, Lengths};

use super::segment::Delta;
use crate::layout::{Meta, happened};

/// So many timed holds of this reading are enough to go by; with fewer, all since the begin are asked.
const ENOUGH_TIMED: u64 = 64;

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
    lengths.add(Bucket(delta.meta.bucket), delta.count, delta.total_ns);
}

impl TimedHolds {
    /// Gives the holds that were not timed a length, as samples of their own; takes out, and returns, what is counted beside
    /// times.
    pub(super) fn share_out(&mut self, deltas: &mut Vec<Delta>) -> Vec<Delta> {
        let (counted, mut kept): (Vec<Delta>, Vec<Delta>) = deltas
            .drain(..)
            .partition(|delta| matches!(delta.meta.happened, happened::UNTIMED | happened::MOVED | happened::WATCHED));
        let mut now = HashMap::<HoldKey, Lengths>::new();
        for delta in kept.iter().filter(|delta| delta.meta.happened == happened::HOLD) {
            let key = HoldKey::of(delta);
            add(now.entry(key).or_default(), delta);
            add(self.known.entry(key).or_default(), delta);
            if key != key.of_lock() {
                add(self.known.entry(key.of_lock()).or_default(), delta);
            }
        }
        for untimed in counted.iter().filter(|delta| delta.meta.happened == happened::UNTIMED) {
            let key = HoldKey::of(untimed);
            let lengths = now
                .get(&key)
                .filter(|lengths| lengths.count() >= ENOUGH_TIMED)
                .or_else(|| self.known.get(&key))
                .or_else(|| self.known.get(&key.of_lock()));
            give_lengths(untimed, lengths, &mut kept);
        }
        *deltas = kept;
        counted
    }
}

/// The holds of one sample as if they had been as long as others were; of no length at all if nothing is known.
fn give_lengths(untimed: &Delta, lengths: Option<&Lengths>, deltas: &mut Vec<Delta>) {
    let nothing = Lengths::default();
    for (bucket, count, total_ns) in lengths.unwrap_or(&nothing).of_others(untimed.count) {
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
        Delta { meta, lock: 7, releaser_comm: 0, owner: 0, site: 0x1000, blocker: 0, count, total_ns, max_ns: total_ns }
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
        let counted = TimedHolds::default().share_out(&mut deltas);
        assert_eq!(counted.len(), 2);
        assert_eq!(sums(&deltas), (1000, 900 * 20 + 100 * 1500));
        assert!(deltas.iter().all(|delta| delta.meta.happened == happened::HOLD));
    }

    #[test]
    fn with_few_timed_now_those_before_are_asked_and_with_none_at_all_holds_have_a_count_only() {
        let mut holds = TimedHolds::default();
        let mut none = vec![delta(happened::UNTIMED, 0, 10, 0)];
        holds.share_out(&mut none);
        assert_eq!(sums(&none), (10, 0));
        holds.share_out(&mut vec![delta(happened::HOLD, 6, 1000, 100_000)]);
        let mut later = vec![delta(happened::UNTIMED, 0, 10, 0)];
        holds.share_out(&mut later);
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
            TimedHolds::default().share_out(&mut deltas);
            let given: u128 = deltas[before..].iter().map(|delta| u128::from(delta.count)).sum();
            let all: u128 = timed.iter().map(|(_, count, _)| u128::from(*count)).sum();
            // Counts that do not fit 64 bits are no counts of a writer's.
            prop_assert!(given == untimed.into() || all > u64::MAX.into());
        }
    }
}
