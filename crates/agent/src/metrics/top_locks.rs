//! A bounded number of series: those that most happens to have their own, the rest share one.
//!
//! A series that loses its place is kept, so that it goes on where it stopped when it gets one again: it never goes back. What happened
//! meanwhile is in the shared series, and stays there.

use std::collections::HashMap;
use std::hash::Hash;

/// Keys looked at, for each that may have a series.
const WATCHED_FOR_EACH: usize = 4;

/// How much of what happened counts one interval later: what was busy a minute ago gives way.
const STAYS: f64 = 0.9;

/// A key without a series gets one when this much more happens there than at the least of those that have: none comes and goes.
const AHEAD: f64 = 2.0;

struct Slot<S> {
    sums: S,
    recent: f64,
    shown: bool,
}

/// Sums by key, for at most this many keys.
pub struct Top<K, S> {
    most: usize,
    slots: HashMap<K, Slot<S>>,
}

impl<K: Eq + Hash + Clone + Ord, S: Default> Top<K, S> {
    pub fn new(most: usize) -> Self {
        Self { most, slots: HashMap::new() }
    }

    /// The sums of this key, in which so much happened; `None` if they belong into the shared series.
    pub fn of(&mut self, key: &K, weight: f64) -> Option<&mut S> {
        if !self.slots.contains_key(key) {
            let shown = self.slots.values().filter(|slot| slot.shown).count() < self.most;
            if self.slots.len() >= self.most * WATCHED_FOR_EACH && !self.make_room(weight) {
                return None;
            }
            self.slots.insert(key.clone(), Slot { sums: S::default(), recent: 0.0, shown });
        }
        let slot = self.slots.get_mut(key)?;
        slot.recent += weight;
        slot.shown.then_some(&mut slot.sums)
    }

    /// The sums of this key, if it has a series.
    pub fn shown_of(&mut self, key: &K) -> Option<&mut S> {
        self.slots.get_mut(key).filter(|slot| slot.shown).map(|slot| &mut slot.sums)
    }

    /// Forgets the key without a series where least happens, if less happens there.
    fn make_room(&mut self, weight: f64) -> bool {
        let hidden = self.slots.iter().filter(|(_, slot)| !slot.shown);
        let least = hidden.min_by(|(a_key, a), (b_key, b)| a.recent.total_cmp(&b.recent).then(a_key.cmp(b_key)));
        match least.filter(|(_, slot)| slot.recent < weight).map(|(key, _)| key.clone()) {
            Some(key) => self.slots.remove(&key).is_some(),
            None => false,
        }
    }

    /// The interval has ended: gives series to the keys where most happens.
    pub fn end_interval(&mut self) {
        loop {
            let least =
                self.slots.iter().filter(|(_, slot)| slot.shown).min_by(|a, b| a.1.recent.total_cmp(&b.1.recent));
            let best =
                self.slots.iter().filter(|(_, slot)| !slot.shown).max_by(|a, b| a.1.recent.total_cmp(&b.1.recent));
            let (Some((least, low)), Some((best, high))) = (least, best) else { break };
            if high.recent <= AHEAD * low.recent {
                break;
            }
            let (least, best) = (least.clone(), best.clone());
            self.slots.entry(least).and_modify(|slot| slot.shown = false);
            self.slots.entry(best).and_modify(|slot| slot.shown = true);
        }
        self.slots.values_mut().for_each(|slot| slot.recent *= STAYS);
    }

    /// The keys that have a series, with their sums, in the order of the keys.
    pub fn shown(&self) -> Vec<(&K, &S)> {
        let mut shown: Vec<_> =
            self.slots.iter().filter(|(_, slot)| slot.shown).map(|(key, slot)| (key, &slot.sums)).collect();
        shown.sort_by_key(|(key, _)| *key);
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(top: &mut Top<u32, u64>, key: u32, weight: u64) -> bool {
        top.of(&key, weight as f64).map(|sum| *sum += weight).is_some()
    }

    fn shown(top: &Top<u32, u64>) -> Vec<(u32, u64)> {
        top.shown().into_iter().map(|(key, sum)| (*key, *sum)).collect()
    }

    #[test]
    fn a_busier_key_takes_the_place_of_the_least_busy_one_which_goes_on_where_it_stopped() {
        let mut top = Top::new(2);
        assert!(add(&mut top, 1, 10) && add(&mut top, 2, 20) && !add(&mut top, 3, 100));
        top.end_interval();
        assert_eq!(shown(&top), [(2, 20), (3, 0)], "what happened before is in the shared series");
        assert!(add(&mut top, 3, 5) && !add(&mut top, 1, 1_000));
        top.end_interval();
        assert!(add(&mut top, 1, 7));
        assert_eq!(shown(&top), [(1, 17), (3, 5)]);
    }

    #[test]
    fn keys_without_end_take_bounded_room_and_nothing_shown_is_forgotten() {
        let mut top = Top::new(3);
        (1..=3).for_each(|key| assert!(add(&mut top, key, 50)));
        for key in 4..10_000 {
            assert!(!add(&mut top, key, 1));
            assert!(top.slots.len() <= 3 * WATCHED_FOR_EACH);
        }
        assert_eq!(shown(&top), [(1, 50), (2, 50), (3, 50)]);
    }
}
