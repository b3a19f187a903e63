//! What became of the locks of a program whose locks were to be swapped for lockmeter's own.

use std::collections::BTreeMap;

use crate::sample::named_enum;

named_enum! {
    /// What became of a lock.
    Swap {
        /// A mutex became lockmeter's.
        Mutex = 1, "mutex_to_mutex";
        /// A reader-writer lock became lockmeter's reader-writer semaphore.
        RwlockToRwsem = 2, "rwlock_to_rwsem";
        /// A reader-writer lock became lockmeter's per-CPU reader-writer semaphore.
        RwlockToPercpuRwsem = 3, "rwlock_to_percpu_rwsem";
        /// A spin lock became lockmeter's.
        SpinToSpin = 4, "spin_to_spin";
        /// Left alone: shared between processes.
        LeftShared = 17, "left_shared";
        /// Left alone: robust.
        LeftRobust = 18, "left_robust";
        /// Left alone: inherits priorities.
        LeftInheriting = 19, "left_inheriting";
        /// Left alone: has a priority ceiling.
        LeftProtecting = 20, "left_protecting";
        /// Left alone: not one of those that were asked for.
        LeftNotChosen = 21, "left_not_chosen";
        /// Left alone: used by code that the preloaded library does not see.
        LeftInUse = 22, "left_in_use";
        /// Left alone: the table of swapped locks was full.
        LeftNoRoom = 23, "left_no_room";
    }
}

impl Swap {
    /// Whether the lock was swapped.
    pub const fn is_swapped(self) -> bool {
        (self as u8) < Self::LeftShared as u8
    }

    /// In words, to stand behind the number: what this many locks became, or why they were left alone.
    pub const fn meaning(self, count: u64) -> &'static str {
        match self {
            Self::Mutex if count == 1 => "mutex to lockmeter's mutex",
            Self::Mutex => "mutexes to lockmeter's mutex",
            Self::RwlockToRwsem if count == 1 => "rwlock to rwsem",
            Self::RwlockToRwsem => "rwlocks to rwsem",
            Self::RwlockToPercpuRwsem if count == 1 => "rwlock to percpu-rwsem",
            Self::RwlockToPercpuRwsem => "rwlocks to percpu-rwsem",
            Self::SpinToSpin if count == 1 => "spin lock to lockmeter's spin lock",
            Self::SpinToSpin => "spin locks to lockmeter's spin lock",
            Self::LeftShared => "shared between processes",
            Self::LeftRobust => "robust",
            Self::LeftInheriting => "priority-inheriting",
            Self::LeftProtecting => "with a priority ceiling",
            Self::LeftNotChosen => "not matched by --lock",
            Self::LeftInUse => "used by code that the preloaded library does not see",
            Self::LeftNoRoom => "because the table of swapped locks is full",
        }
    }
}

/// How many locks became what. Outcomes that never happened are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swaps(BTreeMap<Swap, u64>);

impl Swaps {
    /// Counts `count` more locks of which this became.
    pub fn add(&mut self, swap: Swap, count: u64) {
        if count > 0 {
            let sum = self.0.entry(swap).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Swaps) {
        for (swap, count) in other.iter() {
            self.add(swap, count);
        }
    }

    /// The outcomes that occurred, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (Swap, u64)> + '_ {
        self.0.iter().map(|(swap, count)| (*swap, *count))
    }

    /// How many were swapped.
    pub fn swapped(&self) -> u64 {
        self.iter().filter(|(swap, _)| swap.is_swapped()).fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// Whether no lock was looked at: none was to be swapped, or there was none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
