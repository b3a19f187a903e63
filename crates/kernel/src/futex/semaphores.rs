//! Which semaphores are used as locks.
//!
//! A semaphore may guard something, hand out work, or tell that something is done, and looks the same each time. As a lock it is released
//! by those who wait for it at other times; work is handed out by somebody else. So a function that waits for semaphores waits for locks
//! if most of its sleepers are woken by threads that were seen to sleep in it, too.

use std::collections::{HashMap, HashSet};

use lockmeter_profile::{Happened, Kind};

use super::waits::{Site, Told};

/// Threads that are remembered of a function: of a lock some come again soon.
const MOST_THREADS: usize = 1024;

/// Functions that are remembered.
const MOST_FUNCTIONS: usize = 4096;

/// By the function that uses the semaphore.
#[derive(Default)]
pub struct SemaphoreUses(HashMap<Option<String>, Use>);

#[derive(Default)]
struct Use {
    sleepers: HashSet<u32>,
    by_sleepers: f64,
    by_others: f64,
}

impl Use {
    fn is_lock(&self) -> bool {
        self.by_sleepers > self.by_others
    }
}

impl SemaphoreUses {
    /// A thread sleeps there.
    pub(super) fn waits(&mut self, site: &Site, tid: u32) {
        if let Some(of) = self.of(site).filter(|of| of.sleepers.len() < MOST_THREADS) {
            of.sleepers.insert(tid);
        }
    }

    /// A thread has woken somebody there.
    pub(super) fn wakes(&mut self, site: &Site, waker: u32, weight: f64) {
        let Some(of) = self.of(site) else { return };
        if of.sleepers.contains(&waker) {
            of.by_sleepers += weight;
        } else {
            of.by_others += weight;
        }
    }

    fn of(&mut self, site: &Site) -> Option<&mut Use> {
        let is_semaphore = site.wait.is_some_and(|wait| wait.kind == Kind::Semaphore);
        let has_room = self.0.len() < MOST_FUNCTIONS || self.0.contains_key(&site.user);
        (is_semaphore && has_room).then(|| self.0.entry(site.user.clone()).or_default())
    }

    /// Whether this function waits for locks, as far as is known now.
    pub fn is_lock(&self, user: &Option<String>) -> bool {
        self.0.get(user).is_some_and(Use::is_lock)
    }

    /// Whether a wait is for a lock, as far as is known now.
    pub(super) fn happened(&self, told: &Told) -> Happened {
        match told.wait.happened {
            Happened::Wait if told.wait.kind == Kind::Semaphore && !self.is_lock(&told.site.user) => Happened::Idle,
            happened => happened,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockmeter_profile::Frame;
    use lockmeter_symbols::FutexCall;

    fn site(user: &str) -> Site {
        let frame = |name: &str| Frame { address: 1, function: Some(name.to_owned()), offset: 0, module: None };
        Site::new(vec![frame("sem_wait"), frame(user)], FutexCall { operation: 0, expected: 0 })
    }

    #[test]
    fn a_lock_is_released_by_those_who_wait_for_it_and_work_by_somebody_else() {
        let (lock, work) = (site("enter"), site("take_work"));
        let mut uses = SemaphoreUses::default();
        for tid in [1, 2, 3] {
            uses.waits(&lock, tid);
            uses.waits(&work, tid);
        }
        assert!(!uses.is_lock(&lock.user), "nobody was seen to release it");
        for (waker, weight) in [(1, 1.0), (2, 3.0), (9, 1.0)] {
            uses.wakes(&lock, waker, weight);
        }
        for (waker, weight) in [(9, 5.0), (1, 1.0)] {
            uses.wakes(&work, waker, weight);
        }
        assert!(uses.is_lock(&lock.user) && !uses.is_lock(&work.user));
    }
}
