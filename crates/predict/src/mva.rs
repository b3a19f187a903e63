//! Exact mean-value analysis of locks that serve at a constant rate: handing over costs nothing, or always the same.
//!
//! Reiser and Lavenberg 1980: a thread that arrives sees the network as it is with one thread fewer.

use crate::network::{Network, SECOND_NS, Solution, StationLoad, number};

/// Throughput and queues with this many threads. What handing over costs is left out.
pub fn solve(network: &Network, threads: usize) -> Solution {
    let demands: Vec<f64> = network.stations.iter().map(|station| station.demand_ns()).collect();
    let mut queues = vec![0.0; demands.len()];
    let mut residences = vec![0.0; demands.len()];
    let mut per_ns = 0.0;
    for present in 1..=threads {
        for ((residence, demand), queue) in residences.iter_mut().zip(&demands).zip(&queues) {
            *residence = demand * (1.0 + queue);
        }
        let cycle_ns = network.think_ns + residences.iter().sum::<f64>();
        per_ns = number(present) / cycle_ns;
        for (queue, residence) in queues.iter_mut().zip(&residences) {
            *queue = per_ns * residence;
        }
    }
    let load = |((residence, demand), queue): ((&f64, &f64), &f64)| StationLoad {
        residence_ns: *residence,
        queue: *queue,
        utilization: per_ns * demand,
    };
    Solution {
        per_second: per_ns * SECOND_NS,
        stations: residences.iter().zip(&demands).zip(&queues).map(load).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Handoff, Station};

    fn lock(hold_ns: f64) -> Station {
        Station { name: "lock".into(), visits: 1.0, hold_ns, handoff: Handoff::default() }
    }

    #[test]
    fn one_thread_never_waits() {
        let network = Network { think_ns: 900.0, stations: vec![lock(100.0)] };
        let solution = solve(&network, 1);
        assert!((solution.per_second - 1e6).abs() < 1e-3);
        assert!((solution.stations[0].residence_ns - 100.0).abs() < 1e-9);
    }

    /// The machine-repairman model has a textbook solution: with two threads and equal means, p(idle) = 1/5.
    #[test]
    fn two_threads_wait_as_the_machine_repairman_says() {
        let network = Network { think_ns: 100.0, stations: vec![lock(100.0)] };
        let solution = solve(&network, 2);
        assert!((solution.stations[0].utilization - 0.8).abs() < 1e-12, "{solution:?}");
    }

    #[test]
    fn throughput_ends_where_the_busiest_lock_is_always_held() {
        let network = Network { think_ns: 10_000.0, stations: vec![lock(100.0), lock(40.0)] };
        let solution = solve(&network, 1_000);
        assert!((solution.per_second - 1e7).abs() < 1.0, "{solution:?}");
    }
}
