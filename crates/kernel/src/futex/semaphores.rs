//! Which semaphores are used as locks.
//!
//! A semaphore may guard something, hand out work, or tell that something is done, and looks the same each time. As a lock it is released
//! by those who wait for it at other times; work is handed out by somebody else. So a function that waits for semaphores waits for locks
//! if most of its sleepers are woken by threads that were seen to sleep in it, too.

use std::collections::{HashMap, HashSet};

use lockmeter_profile::{Frame, Happened, Kind, lock_functions};
use lockmeter_symbols::call_of_evaluator;

use super::waits::{Site, Told};

/// Threads that are remembered of a function: of a lock some come again soon.
const MOST_THREADS: usize = 1024;

/// Functions that are remembered.
const MOST_FUNCTIONS: usize = 4096;

/// The function that waits for a semaphore, by the stack. One without a name is told by where it calls: a library's semaphores are none
/// of the program's that calls it. Of Python's own code it is added how that calls.
pub fn semaphore_user(frames: &[Frame]) -> Option<String> {
    let user = user(frames)?;
    Some(match call_of_evaluator(frames) {
        Some(call) => format!("{user} < {call}"),
        None => user,
    })
}

fn user(frames: &[Frame]) -> Option<String> {
    let names: Vec<&str> = frames.iter().filter_map(|frame| frame.function.as_deref()).collect();
    let user = lock_functions::main_function(&names);
    let is_user = |frame: &&Frame| {
        frame.function.as_deref().is_none_or(|function| user.is_some_and(|user| function.contains(user)))
    };
    match frames.iter().find(is_user) {
        Some(Frame { function: None, module: Some(module), offset, .. }) => Some(format!("{module}+{offset:#x}")),
        _ => user.map(str::to_owned),
    }
}

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
        let has_room = self.0.len() < MOST_FUNCTIONS || self.0.contains_key(&site.semaphore_user);
        (is_semaphore && has_room).then(|| self.0.entry(site.semaphore_user.clone()).or_default())
    }

    /// Whether this function waits for locks, as far as is known now.
    pub fn is_lock(&self, user: &Option<String>) -> bool {
        self.0.get(user).is_some_and(Use::is_lock)
    }

    /// Whether a wait is for a lock, as far as is known now.
    pub(super) fn happened(&self, told: &Told) -> Happened {
        match told.wait.happened {
            Happened::Wait if told.wait.kind == Kind::Semaphore && !self.is_lock(&told.site.semaphore_user) => {
                Happened::Idle
            }
            happened => happened,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert!(!uses.is_lock(&lock.semaphore_user), "nobody was seen to release it");
        for (waker, weight) in [(1, 1.0), (2, 3.0), (9, 1.0)] {
            uses.wakes(&lock, waker, weight);
        }
        for (waker, weight) in [(9, 5.0), (1, 1.0)] {
            uses.wakes(&work, waker, weight);
        }
        assert!(uses.is_lock(&lock.semaphore_user) && !uses.is_lock(&work.semaphore_user));
    }

    #[test]
    fn functions_without_names_are_told_apart_by_where_they_call() {
        let user = |functions: &[(Option<&str>, u64)]| {
            let frame = |(name, offset): &(Option<&str>, u64)| Frame {
                address: 1,
                function: name.map(str::to_owned),
                offset: *offset,
                module: Some("_queue.so".to_owned()),
            };
            semaphore_user(&functions.iter().map(frame).collect::<Vec<_>>())
        };
        let evaluate = (Some("_PyEval_EvalFrameDefault"), 0x10);
        assert_eq!(user(&[(Some("sem_wait"), 0), (None, 0x2c2d), evaluate]).as_deref(), Some("_queue.so+0x2c2d"));
        let called = "_PyEval_EvalFrameDefault < sem_wait";
        assert_eq!(user(&[(Some("sem_wait"), 0), evaluate, (None, 0x99)]).as_deref(), Some(called));
    }
}
