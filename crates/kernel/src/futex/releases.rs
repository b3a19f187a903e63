//! Divides a wait among those who had the lock meanwhile: from one release to the next, the lock was the next releaser's.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// Releases that are kept of a lock. A wait during which there were more is divided from the first of these on.
const RELEASES: usize = 64;

/// Locks whose releases are kept.
const MOST_LOCKS: usize = 1 << 14;

/// A lock: the process, and the address.
pub(super) type LockAddress = (u32, u64);

/// The last releases of each lock that woke a sampled waiter, with who did it.
pub(super) struct Releases<By> {
    locks: HashMap<LockAddress, VecDeque<(u64, Rc<By>)>>,
}

impl<By> Default for Releases<By> {
    fn default() -> Self {
        Self { locks: HashMap::new() }
    }
}

impl<By> Releases<By> {
    /// The lock was released then.
    pub(super) fn note(&mut self, lock: LockAddress, at_ns: u64, by: Rc<By>) {
        if self.locks.len() >= MOST_LOCKS && !self.locks.contains_key(&lock) {
            self.locks.clear();
        }
        let last = self.locks.entry(lock).or_default();
        if last.len() == RELEASES {
            last.pop_front();
        }
        // What two CPUs send may come in another order.
        let at = last.partition_point(|(before_ns, _)| *before_ns <= at_ns);
        last.insert(at, (at_ns, by));
    }

    /// What each releaser had of a wait for this lock that a release has ended: `None` those whose releases are no longer kept. All
    /// of it is somebody's.
    pub(super) fn divide(&self, lock: LockAddress, begin_ns: u64, end_ns: u64) -> Vec<(Option<Rc<By>>, u64)> {
        let mut parts = Vec::<(Option<Rc<By>>, u64)>::new();
        let Some(last) = self.locks.get(&lock) else { return parts };
        let is_whole = last.len() < RELEASES || last.front().is_some_and(|(first_ns, _)| *first_ns <= begin_ns);
        let mut since_ns = begin_ns;
        for (at_ns, by) in last.iter().filter(|(at_ns, _)| *at_ns > begin_ns && *at_ns <= end_ns) {
            let by = if since_ns == begin_ns && !is_whole { None } else { Some(by) };
            let had_ns = at_ns - since_ns;
            since_ns = *at_ns;
            let is_same = |known: &Option<Rc<By>>| known.as_ref().map(Rc::as_ptr) == by.map(Rc::as_ptr);
            match parts.iter_mut().find(|(known, _)| is_same(known)) {
                Some((_, sum_ns)) => *sum_ns += had_ns,
                None => parts.push((by.cloned(), had_ns)),
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(parts: &[(Option<Rc<&'static str>>, u64)]) -> Vec<(&'static str, u64)> {
        parts.iter().map(|(by, ns)| (by.as_ref().map_or("earlier", |by| **by), *ns)).collect()
    }

    #[test]
    fn each_holder_is_blamed_for_its_time() {
        let (long, short) = (Rc::new("long"), Rc::new("short"));
        let mut releases = Releases::default();
        let lock = (1, 0x1000);
        releases.note(lock, 500, Rc::clone(&short));
        releases.note(lock, 2_000, Rc::clone(&long));
        releases.note(lock, 2_020, Rc::clone(&short));
        releases.note(lock, 2_010, Rc::clone(&short));
        assert_eq!(told(&releases.divide(lock, 1_000, 2_020)), [("long", 1_000), ("short", 20)]);
        assert_eq!(told(&releases.divide((1, 0x2000), 1_000, 2_020)), []);
    }

    #[test]
    fn what_came_before_the_releases_that_are_kept_is_nobodys_by_name() {
        let by = Rc::new("known");
        let mut releases = Releases::default();
        let lock = (1, 0x1000);
        for number in 0..=RELEASES as u64 {
            releases.note(lock, 1_000 + number * 10, Rc::clone(&by));
        }
        let end_ns = 1_000 + RELEASES as u64 * 10;
        assert_eq!(told(&releases.divide(lock, 0, end_ns)), [("earlier", 1_010), ("known", end_ns - 1_010)]);
        assert_eq!(told(&releases.divide(lock, end_ns - 5, end_ns)), [("known", 5)]);
    }
}
