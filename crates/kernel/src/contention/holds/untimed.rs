//! Holds that were counted and not timed are given the lengths of timed ones, of which each stands for some of them.

use std::collections::HashMap;

use lockmeter_profile::{Bucket, Happened, HoldBasis, Lengths};

use crate::contention::tables::{Counted, Drained, TotalKey, Untimed};

/// What totals are made of that are no part of the data model, in the numbers of `enum happened` in `tables.h`.
const UNTIMED: u8 = 32;
const STOOD_FOR: u8 = 33;

/// The codes that the loader makes holds of.
#[cfg(test)]
pub(crate) const NOT_IN_THE_MODEL: [u8; 2] = [UNTIMED, STOOD_FOR];

/// A lock, its kind and the mode.
type LockAndMode = (u64, u16);

/// As in `meta`.
type KindAndMode = u16;

/// How long the holds were that timed ones stood for, for those of tasks of which none was timed.
#[derive(Debug, Default)]
pub struct HoldLengths {
    /// By all tasks since the begin.
    known: HashMap<LockAndMode, Lengths>,
    /// Of all locks of a kind, for those of which none was timed.
    of_kind: HashMap<KindAndMode, Lengths>,
}

impl HoldLengths {
    /// Makes holds of those that were not timed.
    pub fn give(&mut self, drained: &mut Drained) {
        let mut lengths: HashMap<TotalKey, Lengths> = HashMap::new();
        for (key, stood_for) in drained.totals.extract_if(|key, _| key.happened() == STOOD_FOR) {
            let Counted { count, total_ns, spin_ns: squares, .. } = stood_for;
            let own = lengths.entry(hold(&key)).or_default();
            let of_lock = self.known.entry(lock_and_mode(&key)).or_default();
            let of_kind = self.of_kind.entry(kind_and_mode(&key)).or_default();
            for lengths in [own, of_lock, of_kind] {
                lengths.add_others(key.bucket(), count, total_ns, squares);
            }
        }
        let untimed: Vec<_> = drained.totals.extract_if(|key, _| key.happened() == UNTIMED).collect();
        let nothing = Lengths::default();
        for (key, Counted { count: untimed, .. }) in untimed {
            let key = hold(&key);
            let own = lengths.get(&key);
            let others = || self.known.get(&lock_and_mode(&key)).or_else(|| self.of_kind.get(&kind_and_mode(&key)));
            let lengths = own.or_else(others).unwrap_or(&nothing);
            let mut given_ns = 0.0;
            for (bucket, count, total_ns) in lengths.of_others(untimed) {
                given_ns += total_ns as f64;
                // None of them is the longest: those are known that were timed.
                let holds = Counted { count, total_ns, max_ns: total_ns.div_ceil(count), ..Counted::default() };
                drained.totals.entry(key.with(key.happened(), bucket)).or_default().merge(holds);
            }
            // Of those that have the lengths of other tasks' holds, or of other locks', nothing says that they are alike.
            let variance_ns2 =
                own.map_or((given_ns / HoldBasis::OF_95_PERCENT).powi(2), |own| own.variance_of_others(untimed));
            let known = drained.untimed.entry(key).or_default();
            *known = Untimed { count: known.count + untimed, variance_ns2: known.variance_ns2 + variance_ns2 };
        }
    }
}

/// What tells holds apart, but for their length.
fn hold(key: &TotalKey) -> TotalKey {
    key.with(Happened::Hold.code(), Bucket(0))
}

const fn lock_and_mode(key: &TotalKey) -> LockAndMode {
    (key.class, kind_and_mode(key))
}

const fn kind_and_mode(key: &TotalKey) -> KindAndMode {
    key.meta as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: u32 = 0x0204;

    fn key(happened: u8, bucket: u8, tgid: u32) -> TotalKey {
        TotalKey { class: 3 << 60, cgroup: 1, tgid, meta: WRITE, comm: [0; 16], cpu: None }
            .with(happened, Bucket(bucket))
    }

    fn counted(count: u64, total_ns: u64) -> Counted {
        Counted { count, total_ns, max_ns: total_ns, ..Counted::default() }
    }

    /// This many timed holds that stand for this many others each.
    fn stood_for(timed: u64, others: u64, ns: u64) -> Counted {
        Counted { spin_ns: timed * others * (others + 1), ..counted(timed * others, timed * others * ns) }
    }

    fn drained(totals: &[(TotalKey, Counted)]) -> Drained {
        Drained { totals: totals.iter().copied().collect(), ..Drained::default() }
    }

    fn sums(drained: &Drained, tgid: u32) -> (u64, u64) {
        let holds = drained.totals.iter().filter(|(key, _)| key.tgid == tgid);
        holds.fold((0, 0), |(count, ns), (key, holds)| {
            assert_eq!(key.happened(), Happened::Hold.code());
            (count + holds.count, ns + holds.total_ns)
        })
    }

    /// One in ten was timed: 100 short ones and 20 long ones.
    fn ten_times() -> [(TotalKey, Counted); 5] {
        [
            (key(Happened::Hold.code(), 6, 1), counted(100, 100 * 80)),
            (key(Happened::Hold.code(), 12, 1), counted(20, 20 * 5000)),
            (key(STOOD_FOR, 6, 1), stood_for(100, 9, 80)),
            (key(STOOD_FOR, 12, 1), stood_for(20, 9, 5000)),
            (key(UNTIMED, 0, 1), counted(2160, 0)),
        ]
    }

    #[test]
    fn counts_stay_exact_and_times_are_those_of_what_was_timed() {
        let mut drained = drained(&ten_times());
        HoldLengths::default().give(&mut drained);
        assert_eq!(sums(&drained, 1), (2280, 1900 * 80 + 380 * 5000));
        assert_eq!(drained.untimed.values().map(|untimed| untimed.count).sum::<u64>(), 2160);
        let longest = drained.totals.values().map(|holds| holds.max_ns).max();
        assert_eq!(longest, Some(20 * 5000), "what was not timed makes no maximum");
    }

    /// Of 120 drawn holds 20 are of 5 µs: by chance it might have been 11 or 29, and each stands for 18 of the 2160.
    #[test]
    fn an_estimate_says_how_far_it_may_be_from_the_truth() {
        let mut drained = drained(&ten_times());
        HoldLengths::default().give(&mut drained);
        let variance_ns2 = drained.untimed.values().map(|untimed| untimed.variance_ns2).sum::<f64>();
        let known_ns2 = 120.0 * (100.0 / 120.0) * (20.0 / 120.0) * (4_920.0 * 18.0_f64).powi(2);
        let times = variance_ns2 / known_ns2;
        assert!((0.9..1.3).contains(&times), "{times} times what chance makes");
        let mut lengths = HoldLengths::default();
        lengths.give(&mut self::drained(&ten_times()));
        let mut later = self::drained(&[(key(UNTIMED, 0, 2), counted(6, 0))]);
        lengths.give(&mut later);
        let error_ns = later.untimed.values().map(|untimed| untimed.variance_ns2.sqrt() * HoldBasis::OF_95_PERCENT);
        let error_ns = error_ns.sum::<f64>();
        assert!((error_ns - (5.0 * 80.0 + 5000.0)).abs() < 1.0, "nothing is known of this task's: {error_ns}");
    }

    #[test]
    fn a_task_without_a_timed_hold_has_the_lengths_of_the_others() {
        let mut lengths = HoldLengths::default();
        lengths.give(&mut drained(&ten_times()));
        let mut later = drained(&[(key(UNTIMED, 0, 2), counted(6, 0))]);
        lengths.give(&mut later);
        assert_eq!(sums(&later, 2), (6, 5 * 80 + 5000));
    }

    #[test]
    fn a_lock_without_a_timed_hold_has_the_lengths_of_its_kind() {
        let mut lengths = HoldLengths::default();
        lengths.give(&mut drained(&ten_times()));
        let other_lock = TotalKey { class: 7, ..key(UNTIMED, 0, 1) };
        let mut later = drained(&[(other_lock, counted(6, 0))]);
        lengths.give(&mut later);
        assert_eq!(sums(&later, 1), (6, 5 * 80 + 5000));
    }
}
