//! Holds that were counted and not timed are given the lengths of timed ones, of which each stands for some of them.

use std::collections::HashMap;

use lockmeter_profile::{Bucket, Happened, Lengths};

use crate::contention::tables::{Counted, Drained, TotalKey};

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
            let Counted { count, total_ns, .. } = stood_for;
            lengths.entry(hold(&key)).or_default().add(key.bucket(), count, total_ns, 1);
            self.known.entry(lock_and_mode(&key)).or_default().add(key.bucket(), count, total_ns, 1);
            self.of_kind.entry(kind_and_mode(&key)).or_default().add(key.bucket(), count, total_ns, 1);
        }
        let untimed: Vec<_> = drained.totals.extract_if(|key, _| key.happened() == UNTIMED).collect();
        let nothing = Lengths::default();
        for (key, Counted { count: untimed, .. }) in untimed {
            let key = hold(&key);
            let lengths = lengths
                .get(&key)
                .or_else(|| self.known.get(&lock_and_mode(&key)))
                .or_else(|| self.of_kind.get(&kind_and_mode(&key)))
                .unwrap_or(&nothing);
            for (bucket, count, total_ns) in lengths.of_others(untimed) {
                // None of them is the longest: those are known that were timed.
                let holds = Counted { count, total_ns, max_ns: total_ns.div_ceil(count), ..Counted::default() };
                drained.totals.entry(key.with(key.happened(), bucket)).or_default().merge(holds);
            }
            *drained.untimed.entry(key).or_default() += untimed;
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
        TotalKey { class: 3 << 60, cgroup: 1, tgid, meta: WRITE, comm: [0; 16] }.with(happened, Bucket(bucket))
    }

    fn counted(count: u64, total_ns: u64) -> Counted {
        Counted { count, total_ns, max_ns: total_ns, ..Counted::default() }
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
            (key(STOOD_FOR, 6, 1), counted(900, 900 * 80)),
            (key(STOOD_FOR, 12, 1), counted(180, 180 * 5000)),
            (key(UNTIMED, 0, 1), counted(2160, 0)),
        ]
    }

    #[test]
    fn counts_stay_exact_and_times_are_those_of_what_was_timed() {
        let mut drained = drained(&ten_times());
        HoldLengths::default().give(&mut drained);
        assert_eq!(sums(&drained, 1), (2280, 1900 * 80 + 380 * 5000));
        assert_eq!(drained.untimed.values().sum::<u64>(), 2160);
        let longest = drained.totals.values().map(|holds| holds.max_ns).max();
        assert_eq!(longest, Some(20 * 5000), "what was not timed makes no maximum");
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
