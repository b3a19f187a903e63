//! One lock and the CPUs that its threads run on: exact for any number of threads, also for more than there are CPUs.
//!
//! The lock is one station of a chain whose state is how many threads are at it; everything else that threads do is the other, at
//! the rate at which this many threads do it (Norton's theorem for closed networks: K. Chandy, U. Herzog and L. Woo, "Parametric
//! analysis of queuing networks", IBM J. Res. Dev. 1975). CPUs enter as what they do to the rates: the holder and those who
//! compute need one each, a waiter that sleeps none, a waiter that spins burns one.

use crate::convolution::Combined;
use crate::halving::first_that;
use crate::network::{Network, SECOND_NS, Station, number};

/// What waiters do to the CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiters {
    /// They leave them to others: they sleep, or spin only while the holder runs and nobody else wants the CPU.
    Yield,
    /// They burn them, whether the holder runs or not.
    Burn,
}

/// What the chain says of a lock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Cycles a second.
    pub per_second: f64,
    /// Time at the lock in one cycle: waiting and holding.
    pub residence_ns: f64,
}

/// Cycles a second with this many threads on this many CPUs, the given lock being the one that is waited for.
pub fn per_second(network: &Network, station: usize, threads: usize, cpus: usize, waiters: Waiters) -> f64 {
    solve(network, station, threads, cpus, waiters).per_second
}

/// The same, and how long a cycle is at the lock.
pub fn solve(network: &Network, station: usize, threads: usize, cpus: usize, waiters: Waiters) -> Load {
    let elsewhere = elsewhere(network, station, threads).rates_per_ns(network.think_ns);
    match network.stations.get(station) {
        Some(lock) => solve_beside(lock, &elsewhere, cpus, waiters),
        None => Load { per_second: rate_on_ns(&elsewhere, threads, cpus, 0) * SECOND_NS, residence_ns: 0.0 },
    }
}

/// The other locks.
pub(crate) fn elsewhere(network: &Network, station: usize, threads: usize) -> Combined {
    let others = network.stations.iter().enumerate().filter(|(other, _)| *other != station);
    Combined::of(others.map(|(_, other)| other), threads)
}

/// The lock beside what 0, 1, … all threads do elsewhere, in cycles a nanosecond.
pub(crate) fn solve_beside(lock: &Station, elsewhere: &[f64], cpus: usize, waiters: Waiters) -> Load {
    let threads = elsewhere.len().saturating_sub(1);
    // ln of each state's weight: they differ by hundreds of orders of magnitude.
    let mut weights = vec![0.0_f64];
    let mut rates = vec![0.0];
    for present in 0..threads {
        let (arrivals, departures) = match waiters {
            Waiters::Yield => (
                rate_on_ns(elsewhere, threads - present, cpus, usize::from(present > 0)),
                1.0 / lock.service_ns(present + 1),
            ),
            Waiters::Burn => {
                let share = (number(cpus) / number(threads)).min(1.0);
                (elsewhere[threads - present] * share, share / lock.service_ns(present + 1))
            }
        };
        weights.push(weights[present] + arrivals.ln() - departures.ln());
        rates.push(departures);
    }
    let largest = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shares = weights.iter().map(|weight| (weight - largest).exp());
    let all: f64 = shares.clone().sum();
    let per_ns = shares.clone().zip(rates).map(|(share, rate)| share * rate).sum::<f64>() / all;
    let present = shares.enumerate().map(|(present, share)| number(present) * share).sum::<f64>() / all;
    // Little's law.
    Load { per_second: per_ns * SECOND_NS, residence_ns: if per_ns > 0.0 { present / per_ns } else { 0.0 } }
}

/// What this many threads elsewhere do where a CPU each is not to be had: as much as threads on all CPUs that are left. The holder keeps
/// its own, also where that is the only one.
fn rate_on_ns(elsewhere: &[f64], threads: usize, cpus: usize, holders: usize) -> f64 {
    elsewhere[threads.min(cpus.saturating_sub(holders))]
}

/// The price at which the chain takes as long for an acquisition as was measured; 0 where it takes longer even for nothing.
pub fn price_ns(network: &Network, threads: usize, cpus: usize, measured_ns: f64) -> f64 {
    const HALVINGS: u32 = 60;
    first_that(measured_ns * number(threads), HALVINGS, |base_ns| {
        let takes_ns = SECOND_NS / per_second(&network.with_handoff(0, base_ns), 0, threads, cpus, Waiters::Yield);
        takes_ns >= measured_ns
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convolution;
    use crate::network::Handoff;

    fn network(think_ns: f64, holds_ns: &[f64], base_ns: f64) -> Network {
        let station = |hold_ns: &f64| Station {
            name: "lock".into(),
            visits: 1.0,
            hold_ns: *hold_ns,
            handoff: Handoff { base_ns, per_waiter_ns: 0.0 },
        };
        Network { think_ns, stations: holds_ns.iter().map(station).collect() }
    }

    fn is_near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-9, "{found} instead of {expected}");
    }

    /// M/M/1//N, the machine repairman: the closed form p(0) = 1 / Σ N!/(N-k)! (S/Z)^k.
    #[test]
    fn one_lock_and_a_cpu_for_everyone_is_the_machine_repairman() {
        let (think_ns, hold_ns) = (700.0, 100.0);
        for threads in [1_usize, 2, 5, 20] {
            let term = |k: usize| (0..k).map(|i| (threads - i) as f64 * hold_ns / think_ns).product::<f64>();
            let busy = 1.0 - 1.0 / (0..=threads).map(term).sum::<f64>();
            is_near(
                per_second(&network(think_ns, &[hold_ns], 0.0), 0, threads, 64, Waiters::Yield),
                busy / hold_ns * 1e9,
            );
        }
    }

    /// Without the lock in the way, threads beyond the CPUs add nothing.
    #[test]
    fn a_lock_that_is_hardly_held_leaves_the_cpus_as_the_limit() {
        let found = per_second(&network(1_000.0, &[1e-6], 0.0), 0, 32, 4, Waiters::Yield);
        assert!((found / 4e6 - 1.0).abs() < 1e-6, "{found}");
    }

    #[test]
    fn with_a_cpu_for_every_thread_it_is_the_convolution() {
        for base_ns in [0.0, 250.0] {
            let network = network(2_000.0, &[100.0, 60.0, 30.0], 0.0);
            let priced = |mut network: Network| {
                network.stations[1].handoff.base_ns = base_ns;
                network
            };
            let network = priced(network);
            for threads in [1, 2, 8, 64] {
                is_near(
                    per_second(&network, 1, threads, 64, Waiters::Yield),
                    convolution::per_second(&network, threads),
                );
            }
        }
    }

    /// Balanced job bounds (Zahorjan et al. 1982): with the thinking time apart, throughput lies between all stations balanced and
    /// the asymptotes.
    #[test]
    fn throughput_keeps_within_the_bounds_of_balanced_jobs() {
        let (think_ns, holds_ns) = (1_500.0, [120.0, 80.0, 100.0]);
        let (whole, most) = (300.0, 120.0);
        for threads in [1_usize, 2, 4, 16, 64] {
            let found = per_second(&network(think_ns, &holds_ns, 0.0), 0, threads, 64, Waiters::Yield) / 1e9;
            let n = threads as f64;
            let least = n / (whole + think_ns + (n - 1.0) * most);
            let best = (1.0 / most).min(n / (whole + think_ns));
            assert!(found >= least * (1.0 - 1e-9) && found <= best * (1.0 + 1e-9), "{threads}: {least} {found} {best}");
        }
    }

    #[test]
    fn spinners_that_burn_cpus_take_them_from_the_holder() {
        let network = network(500.0, &[500.0], 0.0);
        let on = |waiters| per_second(&network, 0, 16, 4, waiters);
        assert!(
            (on(Waiters::Burn) / 0.5e6 - 1.0).abs() < 1e-6,
            "a quarter of one hold after another: {}",
            on(Waiters::Burn)
        );
        assert!((on(Waiters::Yield) / 2e6 - 1.0).abs() < 1e-3, "{}", on(Waiters::Yield));
    }

    #[test]
    fn a_price_is_found_again_in_the_time_it_makes() {
        let priced = network(400.0, &[1_000.0], 650.0);
        for (threads, cpus) in [(2, 2), (4, 2), (8, 64)] {
            let ns = 1e9 / per_second(&priced, 0, threads, cpus, Waiters::Yield);
            let found = price_ns(&network(400.0, &[1_000.0], 0.0), threads, cpus, ns);
            assert!((found - 650.0).abs() < 0.1, "{threads} threads: {found}");
        }
        assert!(price_ns(&network(400.0, &[1_000.0], 0.0), 2, 2, 500.0).abs() < f64::EPSILON);
    }

    #[test]
    fn one_cpu_does_one_thing_at_a_time() {
        let found = per_second(&network(700.0, &[300.0], 0.0), 0, 8, 1, Waiters::Yield);
        assert!((found / 1e6 - 1.0).abs() < 1e-9, "{found}");
    }
}
