//! How much of what lockmeter says is true.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::reason::Reason;
use crate::recorder::{Said, WaitedLock};
use crate::truth::Truth;

/// The judgement of one load.
#[derive(Debug, Serialize)]
pub struct Verdict {
    /// Share of the truly blocked time that lockmeter has under the right reason.
    pub right_reason: f64,
    /// Whether the first two sentences name the lock for which most time was spent; `None` if there is none.
    pub right_lock: Option<bool>,
    /// Share of the time truly spent for locks that lockmeter has under the right lock; `None` if there is none.
    pub right_lock_time: Option<f64>,
    /// Time that lockmeter has under locks beyond what is true, as a share of the threads' time.
    pub false_contention: f64,
}

impl Verdict {
    pub fn of(truth: &Truth, said: &Said) -> Self {
        // A program's own clock goes on until its thread runs. Who is at rest is seldom woken.
        let active: f64 = said.active.values().sum();
        let woken = if truth.until_it_runs && active > 0.0 { said.woken / active } else { 0.0 };
        let scale = scale(truth, said);
        let right = truth.blocked.iter().map(|(reason, threads)| {
            let of = |said: &BTreeMap<Reason, f64>| said.get(reason).copied().unwrap_or(0.0);
            ((of(&said.blocked) + of(&said.active) * woken) * scale).min(*threads)
        });
        // Who takes turns at waiting for work, by a lock, is said to be at rest.
        let locks: f64 = said.active.iter().filter(|(reason, _)| reason.is_lock()).map(|(_, threads)| threads).sum();
        // The head may count what the account of time does not. Its waits last until the thread runs.
        let locks = locks.max(said.asleep_for_locks - said.woken);
        let sentences = said.sentences.join(" ");
        let true_locks: f64 = truth.locks.values().sum();
        let under_lock = truth.locks.iter().map(|(lock, threads)| (for_lock(said, lock, woken) * scale).min(*threads));
        Self {
            right_reason: if truth.all() > 0.0 { right.sum::<f64>() / truth.all() } else { 1.0 },
            right_lock: truth.worst_lock().map(|lock| lock.split('|').any(|name| sentences.contains(name))),
            right_lock_time: (true_locks > 0.0).then(|| under_lock.sum::<f64>() / true_locks),
            false_contention: (locks * scale - truth.for_locks()).max(0.0) / said.threads.max(1.0),
        }
    }
}

/// How many threads lockmeter has waiting for a lock that is called one of these names, or in such a function: by its table of locks, or
/// by the account of threads, which knows of locks that the table has not.
fn for_lock(said: &Said, names: &str, woken: f64) -> f64 {
    let is_it = |lock: &&WaitedLock| names.split('|').any(|name| lock.names.iter().any(|known| known.contains(name)));
    let sum = |locks: &[WaitedLock]| locks.iter().filter(is_it).map(|lock| lock.threads).sum::<f64>();
    // The table's waits last until the thread runs, those of the account until it is woken.
    sum(&said.locks).max(sum(&said.sleeps) * (1.0 + woken))
}

/// Where all threads are known to both, shares of the blocked time are compared: asking keeps a thread or two from their CPU. Threads that
/// lockmeter does not know are missing all the same.
fn scale(truth: &Truth, said: &Said) -> f64 {
    let all_said: f64 = said.blocked.values().sum();
    match truth.threads {
        Some(threads) if all_said > 0.0 => truth.all() / all_said * (said.threads / threads).min(1.0),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(blocked: &[(Reason, f64)], first: &str) -> Said {
        Said {
            sentences: [first.to_owned(), String::new()],
            threads: 10.0,
            blocked: blocked.iter().copied().collect(),
            active: blocked.iter().copied().collect(),
            woken: 1.0,
            asleep_for_locks: 0.0,
            locks: Vec::new(),
            sleeps: Vec::new(),
            own_cpu: 0.0,
        }
    }

    fn truth(blocked: &[(Reason, f64)], lock: &'static str) -> Truth {
        let locks = BTreeMap::from([(lock, 1.0)]);
        Truth { blocked: blocked.iter().copied().collect(), locks, ..Truth::default() }
    }

    #[test]
    fn what_is_under_another_reason_or_missing_is_wrong() {
        let truth = truth(&[(Reason::UserLock, 6.0), (Reason::DiskIo, 2.0)], "row lock|lock_wait");
        let verdict =
            Verdict::of(&truth, &said(&[(Reason::UserLock, 4.0), (Reason::Condition, 4.0)], "worst: lock_wait"));
        assert!((verdict.right_reason - 0.5).abs() < 1e-9, "{verdict:?}");
        assert_eq!((verdict.right_lock, verdict.false_contention), (Some(true), 0.0));
    }

    #[test]
    fn locks_beyond_what_is_true_are_false_contention() {
        let truth = truth(&[(Reason::UserLock, 1.0), (Reason::Condition, 7.0)], "row lock");
        let verdict =
            Verdict::of(&truth, &said(&[(Reason::UserLock, 3.0), (Reason::Condition, 5.0)], "worst: another"));
        assert!((verdict.right_reason - 0.75).abs() < 1e-9, "{verdict:?}");
        assert!((verdict.false_contention - 0.2).abs() < 1e-9, "{verdict:?}");
        assert_eq!(verdict.right_lock, Some(false));
    }

    #[test]
    fn time_counts_for_the_lock_under_whose_name_or_function_it_stands() {
        let truth = truth(&[(Reason::UserLock, 1.0)], "row lock|lock_wait");
        let waited = |name: &str, threads| WaitedLock { names: vec![name.to_owned()], threads };
        let mut said = said(&[(Reason::UserLock, 1.0)], "");
        said.locks = vec![waited("lock_wait_suspend", 0.25), waited("another", 2.0)];
        assert_eq!(Verdict::of(&truth, &said).right_lock_time, Some(0.25));
        said.sleeps = vec![waited("InnoDB row lock", 0.5)];
        assert_eq!(Verdict::of(&truth, &said).right_lock_time, Some(0.5));
        said.locks.push(waited("row lock", 7.0));
        assert_eq!(Verdict::of(&truth, &said).right_lock_time, Some(1.0), "no more than there is");
    }

    #[test]
    fn who_is_said_to_be_at_rest_is_not_said_to_wait_for_a_lock() {
        let truth = truth(&[(Reason::Condition, 8.0)], "");
        let mut said = said(&[(Reason::UserLock, 8.0)], "");
        assert!((Verdict::of(&truth, &said).false_contention - 0.8).abs() < 1e-9);
        said.active.clear();
        assert!(Verdict::of(&truth, &said).false_contention.abs() < 1e-9);
    }

    #[test]
    fn where_all_threads_are_known_shares_are_compared_and_missing_threads_count() {
        let mut truth = truth(&[(Reason::UserLock, 3.0), (Reason::Condition, 3.0)], "row lock");
        truth.threads = Some(10.0);
        let double = said(&[(Reason::UserLock, 6.0), (Reason::Condition, 6.0)], "row lock");
        assert!((Verdict::of(&truth, &double).right_reason - 1.0).abs() < 1e-9);
        truth.threads = Some(20.0);
        assert!((Verdict::of(&truth, &double).right_reason - 0.5).abs() < 1e-9);
    }

    #[test]
    fn the_time_from_wake_up_to_running_counts_where_the_programs_clock_has_it() {
        let mut truth = truth(&[(Reason::UserLock, 5.0)], "row lock");
        let said = said(&[(Reason::UserLock, 4.0)], "");
        assert!((Verdict::of(&truth, &said).right_reason - 0.8).abs() < 1e-9);
        truth.until_it_runs = true;
        assert!((Verdict::of(&truth, &said).right_reason - 1.0).abs() < 1e-9);
    }
}
