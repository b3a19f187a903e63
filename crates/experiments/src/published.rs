//! The model against the published figures of the breakpoint accounting change (2022), whose authors had 256 CPUs.
//!
//! 64 workers create and join threads with four breakpoints each. Microseconds an operation: 108.3 under a global mutex, 40.2
//! under per-task mutexes and a per-CPU rwsem, 35.3 with no accounting. What the model is given is what one thread alone needs
//! for its accounting, and the 35.3 of everything else, which many threads share and which is no business of this lock.

use lockmeter_predict::convolution;
use lockmeter_predict::network::{Handoff, Network, Station};
use serde::Serialize;

/// Microseconds an operation on 256 CPUs, as published: before, after, ideal.
pub const PUBLISHED_US: [f64; 3] = [108.3, 40.2, 35.3];
/// Threads that worked at once.
pub const WORKERS: usize = 64;

/// Each of four breakpoints takes a slot and gives it back.
const ACQUISITIONS: f64 = 8.0;

const MICROSECOND_NS: f64 = 1e3;
const SECOND_US: f64 = 1e6;

/// What one thread alone needs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OneThread {
    /// Taking or giving back a slot under the global mutex, which looks at each CPU: all of it under the mutex.
    pub before_ns: f64,
    /// The same under the task's own mutex and the rwsem's reader side: nothing of it shared between tasks.
    pub after_ns: f64,
    /// Handing a mutex to a spinning waiter, who finds what it protects in another CPU's cache.
    pub handoff_ns: f64,
}

/// One row of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Compared {
    /// Which of the three.
    pub design: &'static str,
    /// As published.
    pub published_us: f64,
    /// As the model says.
    pub predicted_us: f64,
}

impl Compared {
    /// How far the model is off.
    pub fn error(&self) -> f64 {
        self.predicted_us / self.published_us - 1.0
    }
}

/// What a slot under the global mutex must have taken on the published machine, handed over: the mutex, always wanted, was passed on from one to
/// the next. It is what the first figure rests on, and was not published.
pub fn implied_slot_ns() -> f64 {
    PUBLISHED_US[0] * MICROSECOND_NS / ACQUISITIONS
}

/// Microseconds an operation on the published machine.
pub fn compare(inputs: OneThread) -> [Compared; 3] {
    let [before_us, after_us, ideal_us] = PUBLISHED_US;
    let rest = Station {
        name: "everything else".into(),
        visits: 1.0,
        hold_ns: ideal_us * MICROSECOND_NS,
        handoff: Handoff::default(),
    };
    let mutex = Station {
        name: "global mutex".into(),
        visits: ACQUISITIONS,
        hold_ns: inputs.before_ns,
        handoff: Handoff { base_ns: inputs.handoff_ns, per_waiter_ns: 0.0 },
    };
    let us = |network: Network| SECOND_US / convolution::per_second(&network, WORKERS);
    let before = Network { think_ns: 0.0, stations: vec![rest.clone(), mutex] };
    let after = Network { think_ns: ACQUISITIONS * inputs.after_ns, stations: vec![rest.clone()] };
    let ideal = Network { think_ns: 0.0, stations: vec![rest] };
    [
        Compared { design: "global mutex", published_us: before_us, predicted_us: us(before) },
        Compared { design: "per-task mutexes, percpu-rwsem", published_us: after_us, predicted_us: us(after) },
        Compared { design: "no accounting", published_us: ideal_us, predicted_us: us(ideal) },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes sure of the arithmetic: a mutex that all pass one after another is the sum of its holds and handoffs.
    #[test]
    fn a_long_hold_makes_the_mutex_the_bottleneck() {
        let inputs = OneThread { before_ns: 13_000.0, after_ns: 300.0, handoff_ns: 500.0 };
        let [before, after, ideal] = compare(inputs);
        assert!((before.predicted_us - 8.0 * 13.5).abs() < 1.0, "{before:?}");
        assert!((after.predicted_us - ideal.predicted_us).abs() < 0.1, "{after:?}");
        assert!(ideal.error().abs() < 1e-9);
    }

    /// Makes sure that a slot which takes as long as the published machine's gives its figure: then the model misses nothing but that time.
    #[test]
    fn the_slot_that_the_first_figure_implies_gives_it() {
        let inputs = OneThread { before_ns: implied_slot_ns(), after_ns: 14.0, handoff_ns: 0.0 };
        let [before, ..] = compare(inputs);
        assert!(before.error().abs() < 0.01, "{before:?}");
    }
}
