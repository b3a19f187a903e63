//! What a recording leaves open about one of its locks: what its threads compute, and what handing it over costs.

use super::ENOUGH_WAITS;
use crate::convolution::{self, Combined};
use crate::halving::first_that;
use crate::measured::{Measured, MeasuredLock, as_f64};
use crate::network::{Handoff, Network, Station};
use crate::processors::{self, Waiters};

/// Who was at work in the recording, and how much came of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recorded {
    pub(super) threads: usize,
    pub(super) cpus: usize,
    pub(super) waiters: Waiters,
    /// Acquisitions of the lock a second.
    pub(super) per_second: f64,
    /// What handing over costs where the recording does not tell.
    pub(super) typical_ns: f64,
}

/// The network that does what was recorded.
#[derive(Debug)]
pub(super) struct Fitted {
    pub(super) network: Network,
    /// Which of its stations the lock is.
    pub(super) station: usize,
    /// What handing the lock over costs; `None` if too few waited.
    pub(super) handoff_ns: Option<f64>,
}

pub(super) fn fit(measured: &Measured, lock: usize, recorded: &Recorded) -> Fitted {
    let figures = &measured.locks[lock];
    let mut network = measured.network(lock, recorded.threads);
    let station = measured.station(lock);
    let known = figures.contended >= ENOUGH_WAITS && recorded.threads > 1;
    if recorded.threads <= recorded.cpus {
        let handoff_ns = known.then(|| handoff_ns(&network, station, recorded.threads, figures));
        return Fitted { network, station, handoff_ns };
    }
    let Some(lock_of_crowd) = network.stations.get(station).cloned() else {
        return Fitted { network, station, handoff_ns: None };
    };
    let elsewhere = processors::elsewhere(&network, station, recorded.threads);
    let crowd = Crowd { lock: lock_of_crowd, elsewhere, most_think_ns: network.think_ns, recorded };
    let handoff_ns = known.then(|| crowd.handoff_ns(figures));
    let think_ns = crowd.think_ns(handoff_ns.unwrap_or(recorded.typical_ns));
    network.think_ns = think_ns;
    Fitted { network, station, handoff_ns }
}

const LONGEST_NS: f64 = 1e9;

/// The price at which the model waits as long as was measured, for waiting grows with the price; 0 if they waited less than
/// exponential holds would have them wait.
fn handoff_ns(network: &Network, station: usize, threads: usize, figures: &MeasuredLock) -> f64 {
    let residence_ns = convolution::residence_ns_by_price(network, station, threads);
    let residence_ns = |base_ns: f64| residence_ns(Handoff { base_ns, per_waiter_ns: 0.0 });
    first_that(LONGEST_NS, 60, |price_ns| residence_ns(price_ns) >= figures.hold_ns() + figures.wait_ns())
}

/// More threads than CPUs. What a thread did elsewhere is then not all computing: it waited for a CPU, too.
struct Crowd<'a> {
    lock: Station,
    /// The other locks: combined once, for combining them takes the square of the threads.
    elsewhere: Combined,
    /// If all of that were computing.
    most_think_ns: f64,
    recorded: &'a Recorded,
}

impl Crowd<'_> {
    /// Enough for a tenth of a percent of what is looked for, each of them solving the network some twenty times.
    const HALVINGS: u32 = 24;

    fn solve(&self, think_ns: f64, price_ns: f64) -> processors::Load {
        let Recorded { cpus, waiters, .. } = *self.recorded;
        let handoff = Handoff { base_ns: price_ns, ..self.lock.handoff };
        let lock = Station { handoff, ..self.lock.clone() };
        processors::solve_beside(&lock, &self.elsewhere.rates_per_ns(think_ns), cpus, waiters)
    }

    /// How long a thread must compute for each acquisition to do no more than was recorded.
    fn think_ns(&self, price_ns: f64) -> f64 {
        let does_no_more = |think_ns| self.solve(think_ns, price_ns).per_second <= self.recorded.per_second;
        first_that(self.most_think_ns, Self::HALVINGS, does_no_more)
    }

    /// The price at which threads that do what was recorded wait as long as was recorded.
    fn handoff_ns(&self, figures: &MeasuredLock) -> f64 {
        // Who waits does so for a part of it at least.
        let most_ns = figures.wait_ns() * as_f64(figures.acquisitions) / as_f64(figures.contended.max(1)) * 8.0;
        first_that(most_ns, Self::HALVINGS, |price_ns| {
            self.solve(self.think_ns(price_ns), price_ns).residence_ns >= figures.hold_ns() + figures.wait_ns()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockmeter_profile::{Kind, Mode};

    const HOLD_NS: f64 = 1_000.0;
    const ACQUISITIONS: u64 = 1_000_000;

    fn network(think_ns: f64, base_ns: f64) -> Network {
        let handoff = Handoff { base_ns, per_waiter_ns: 0.0 };
        Network { think_ns, stations: vec![Station { name: "hot".into(), visits: 1.0, hold_ns: HOLD_NS, handoff }] }
    }

    /// A recording of what the network does.
    fn record(network: &Network, threads: usize, cpus: usize) -> (Measured, Recorded) {
        let load = processors::solve(network, 0, threads, cpus, Waiters::Yield);
        let lock = MeasuredLock {
            name: "hot".into(),
            kind: Kind::Mutex,
            mode: Mode::Exclusive,
            acquisitions: ACQUISITIONS,
            held_ns: ACQUISITIONS * HOLD_NS as u64,
            waited_ns: (as_f64(ACQUISITIONS) * (load.residence_ns - HOLD_NS)) as u64,
            contended: ACQUISITIONS,
            spin_ns: 0,
            holds: vec![(HOLD_NS, ACQUISITIONS)],
        };
        let duration_ns = (as_f64(ACQUISITIONS) / load.per_second * 1e9) as u64;
        let measured = Measured { duration_ns, locks: vec![lock], untimed_ns: 0, cpus: u32::try_from(cpus).unwrap() };
        let recorded =
            Recorded { threads, cpus, waiters: Waiters::Yield, per_second: load.per_second, typical_ns: 0.0 };
        (measured, recorded)
    }

    #[test]
    fn what_threads_compute_and_what_handing_over_costs_are_found_again() {
        for (threads, cpus) in [(4, 4), (4, 2), (16, 2), (8, 3)] {
            let (think_ns, base_ns) = (6_000.0, 700.0);
            let (measured, recorded) = record(&network(think_ns, base_ns), threads, cpus);
            let fitted = fit(&measured, 0, &recorded);
            let found_ns = fitted.handoff_ns.unwrap();
            assert!((found_ns / base_ns - 1.0).abs() < 0.01, "{threads} on {cpus}: {found_ns}");
            let found_ns = fitted.network.think_ns;
            assert!((found_ns / think_ns - 1.0).abs() < 0.01, "{threads} on {cpus}: {found_ns}");
        }
    }

    /// Makes sure that waiting for a CPU is not taken for computing where nothing is known of the lock's waits either.
    #[test]
    fn threads_that_wait_for_a_cpu_do_not_compute() {
        let (mut measured, recorded) = record(&network(20_000.0, 0.0), 8, 2);
        measured.locks[0].contended = 10;
        let fitted = fit(&measured, 0, &recorded);
        assert!(measured.think_ns(0, 8) > 60_000.0, "{}", measured.think_ns(0, 8));
        assert!((fitted.network.think_ns / 20_000.0 - 1.0).abs() < 0.01, "{fitted:?}");
    }
}
