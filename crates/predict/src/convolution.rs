//! The exact solution where a lock serves more slowly the more wait for it: handing over has a price.
//!
//! Buzen's convolution over logarithms: the terms differ by hundreds of orders of magnitude, but all are positive, so that
//! nothing cancels (load-dependent mean-value analysis loses all digits where a lock is saturated).

use crate::network::{Handoff, Network, SECOND_NS, Solution, Station, StationLoad, number};

/// Shorter than any instruction.
const SHORTEST_THINK_NS: f64 = 0.01;

/// Cycles a second with this many threads.
pub fn per_second(network: &Network, threads: usize) -> f64 {
    let delay = delay_terms(network.think_ns, threads);
    let lock = |station| lock_terms(station, threads);
    let whole = network.stations.iter().map(lock).fold(delay, |sum, next| convolve(&sum, &next));
    rate_per_ns(&whole, threads) * SECOND_NS
}

/// Locks combined once, to be solved for any time that threads compute.
pub(crate) struct Combined {
    /// `None` without locks.
    terms: Option<Vec<f64>>,
    threads: usize,
}

impl Combined {
    pub(crate) fn of<'a>(locks: impl Iterator<Item = &'a Station>, threads: usize) -> Self {
        let terms = locks.map(|station| lock_terms(station, threads)).reduce(|sum, next| convolve(&sum, &next));
        Self { terms, threads }
    }

    /// Cycles a nanosecond with 0, 1, … this many threads.
    pub(crate) fn rates_per_ns(&self, think_ns: f64) -> Vec<f64> {
        let delay = delay_terms(think_ns, self.threads);
        let whole = match &self.terms {
            Some(terms) => convolve(&delay, terms),
            None => delay,
        };
        (0..=self.threads).map(|present| rate_per_ns(&whole, present)).collect()
    }
}

/// The ratio of the last two normalising constants.
fn rate_per_ns(whole: &[f64], threads: usize) -> f64 {
    if threads == 0 { 0.0 } else { (whole[threads - 1] - whole[threads]).exp() }
}

/// Throughput and queues with this many threads.
pub fn solve(network: &Network, threads: usize) -> Solution {
    let delay = delay_terms(network.think_ns, threads);
    let terms: Vec<Vec<f64>> = network.stations.iter().map(|station| lock_terms(station, threads)).collect();
    let whole = terms.iter().fold(delay.clone(), |sum, next| convolve(&sum, next));
    let per_ns = rate_per_ns(&whole, threads);
    let stations = (0..terms.len()).map(|at| {
        let others = terms.iter().enumerate().filter(|(other, _)| *other != at);
        let rest = others.fold(delay.clone(), |sum, (_, next)| convolve(&sum, next));
        let probability = |present: usize| (terms[at][present] + rest[threads - present] - whole[threads]).exp();
        let queue: f64 = (1..=threads).map(|present| number(present) * probability(present)).sum();
        StationLoad {
            residence_ns: if per_ns > 0.0 { queue / per_ns } else { 0.0 },
            queue,
            utilization: 1.0 - probability(0),
        }
    });
    Solution { stations: stations.collect(), per_second: per_ns * SECOND_NS }
}

/// How long a thread is at one lock in a cycle, for any price of handing it over: everything else is solved once.
pub fn residence_ns_by_price(network: &Network, at: usize, threads: usize) -> impl Fn(Handoff) -> f64 {
    let lock = |station: &Station| lock_terms(station, threads);
    let others = network.stations.iter().enumerate().filter(|(other, _)| *other != at);
    let rest = others.fold(delay_terms(network.think_ns, threads), |sum, (_, other)| convolve(&sum, &lock(other)));
    let station = network.stations[at].clone();
    move |handoff| {
        let terms = lock_terms(&Station { handoff, ..station.clone() }, threads);
        let whole = |total: usize| log_of_sum((0..=total).map(|present| terms[present] + rest[total - present]));
        let all = whole(threads);
        let queue: f64 =
            (1..=threads).map(|present| number(present) * (terms[present] + rest[threads - present] - all).exp()).sum();
        queue / (whole(threads - 1) - all).exp()
    }
}

/// ln(think^n / n!): every thread computes for itself.
fn delay_terms(think_ns: f64, threads: usize) -> Vec<f64> {
    let mut terms = vec![0.0];
    for present in 1..=threads {
        // A thread that computes nothing at all would make the logarithm infinite.
        terms.push(terms[present - 1] + think_ns.max(SHORTEST_THINK_NS).ln() - number(present).ln());
    }
    terms
}

/// ln of the product of the service times with 1, 2, … n threads at the lock.
fn lock_terms(station: &Station, threads: usize) -> Vec<f64> {
    let mut terms = vec![0.0];
    for present in 1..=threads {
        terms.push(terms[present - 1] + station.service_ns(present).ln());
    }
    terms
}

fn convolve(a: &[f64], b: &[f64]) -> Vec<f64> {
    (0..a.len()).map(|total| log_of_sum((0..=total).map(|part| a[part] + b[total - part]))).collect()
}

/// Terms smaller than the largest by this factor, as a logarithm, do not change a sum in double precision.
const NEGLIGIBLE: f64 = -45.0;

/// ln(Σ exp(x)), without leaving the range of the numbers.
fn log_of_sum(logarithms: impl Iterator<Item = f64> + Clone) -> f64 {
    let largest = logarithms.clone().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return largest;
    }
    let parts = logarithms.map(|term| term - largest).filter(|part| *part > NEGLIGIBLE);
    largest + parts.map(f64::exp).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mva;

    fn lock(visits: f64, hold_ns: f64, handoff: Handoff) -> Station {
        Station { name: "lock".into(), visits, hold_ns, handoff }
    }

    /// Two derivations of the same numbers: neither can be wrong in a way that the other shares.
    #[test]
    fn without_a_price_for_handing_over_it_is_mean_value_analysis() {
        let free = Handoff::default();
        let network = Network {
            think_ns: 2_000.0,
            stations: vec![lock(1.0, 100.0, free), lock(3.0, 20.0, free), lock(0.5, 70.0, free)],
        };
        for threads in [1, 2, 3, 16, 64, 256] {
            let (one, other) = (solve(&network, threads), mva::solve(&network, threads));
            assert!((one.per_second / other.per_second - 1.0).abs() < 1e-9, "{threads} threads: {one:?} {other:?}");
            for (one, other) in one.stations.iter().zip(&other.stations) {
                assert!((one.queue - other.queue).abs() < 1e-6 * (1.0 + other.queue), "{threads} threads");
                assert!((one.utilization - other.utilization).abs() < 1e-9, "{threads} threads");
            }
        }
    }

    #[test]
    fn a_price_changes_nothing_but_its_own_lock() {
        let free = Handoff::default();
        let network = Network { think_ns: 900.0, stations: vec![lock(1.0, 100.0, free), lock(2.0, 30.0, free)] };
        let price = Handoff { base_ns: 55.0, per_waiter_ns: 3.0 };
        let mut priced = network.clone();
        priced.stations[1].handoff = price;
        let whole = solve(&priced, 12).stations[1].residence_ns;
        assert!((residence_ns_by_price(&network, 1, 12)(price) / whole - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_saturated_lock_gives_one_hold_and_one_handoff_at_a_time() {
        let network = Network {
            think_ns: 1_000.0,
            stations: vec![lock(1.0, 100.0, Handoff { base_ns: 900.0, per_waiter_ns: 0.0 })],
        };
        let solution = solve(&network, 256);
        assert!((solution.per_second - 1e6).abs() < 1.0, "{solution:?}");
    }

    /// A lock whose waiters all read its word gets slower the more wait: throughput has a peak and falls behind it.
    #[test]
    fn a_lock_that_is_no_queue_collapses() {
        let network = Network {
            think_ns: 1_000.0,
            stations: vec![lock(1.0, 100.0, Handoff { base_ns: 50.0, per_waiter_ns: 50.0 })],
        };
        let per_second = |threads| per_second(&network, threads);
        assert!(per_second(8) > per_second(1) && per_second(8) > per_second(256) * 2.0);
    }

    #[test]
    fn no_thread_does_nothing() {
        let network = Network { think_ns: 1.0, stations: vec![lock(1.0, 1.0, Handoff::default())] };
        assert!(solve(&network, 0).per_second.abs() < f64::EPSILON);
    }
}
