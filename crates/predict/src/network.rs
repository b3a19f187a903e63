//! The network: threads, what they compute alone, and the locks that they share.

/// What handing a lock to a waiter costs, on top of its hold.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Handoff {
    /// From the release until the next holder runs: a cache line moved to a spinner, or a sleeper woken.
    pub base_ns: f64,
    /// What each further waiter adds: all of them read the word of a lock that is not a queue.
    pub per_waiter_ns: f64,
}

impl Handoff {
    /// The cost with this many at the lock, its holder among them. Nobody else there: nothing is handed over.
    pub fn cost_ns(&self, present: usize) -> f64 {
        let waiters = u32::try_from(present.saturating_sub(1)).unwrap_or(u32::MAX);
        if waiters == 0 { 0.0 } else { self.base_ns + self.per_waiter_ns * f64::from(waiters - 1) }
    }
}

/// A lock.
#[derive(Debug, Clone, PartialEq)]
pub struct Station {
    /// Its name.
    pub name: String,
    /// How often a thread takes it in one cycle; a cycle is what throughput counts.
    pub visits: f64,
    /// Mean hold of one acquisition.
    pub hold_ns: f64,
    /// What handing it over costs.
    pub handoff: Handoff,
}

/// Shorter than any instruction: a lock that is held for no time at all would serve at an infinite rate.
const SHORTEST_NS: f64 = 1e-9;

impl Station {
    /// Time at the lock in one cycle, waiting apart, while this many threads are there.
    pub fn service_ns(&self, present: usize) -> f64 {
        (self.visits * (self.hold_ns + self.handoff.cost_ns(present))).max(SHORTEST_NS)
    }

    /// Time a cycle holds it.
    pub fn demand_ns(&self) -> f64 {
        self.visits * self.hold_ns
    }
}

/// Threads that compute for a while and take locks, again and again.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// What a thread does in one cycle without any of the locks.
    pub think_ns: f64,
    /// The locks.
    pub stations: Vec<Station>,
}

impl Network {
    /// The network with another price for handing one of its locks to its first waiter.
    pub fn with_handoff(&self, station: usize, base_ns: f64) -> Self {
        let mut other = self.clone();
        if let Some(lock) = other.stations.get_mut(station) {
            lock.handoff.base_ns = base_ns;
        }
        other
    }

    /// The network without one of its locks: what it protected is done by all at once.
    pub fn without(&self, station: usize) -> Self {
        let mut other = self.clone();
        if station < other.stations.len() {
            let removed = other.stations.remove(station);
            other.think_ns += removed.demand_ns();
        }
        other
    }

    /// The network with one of its locks split into this many, each taken equally often.
    pub fn with_shards(&self, station: usize, shards: u32) -> Self {
        let mut other = self.clone();
        if station < other.stations.len() && shards > 1 {
            let mut part = other.stations.remove(station);
            part.visits /= f64::from(shards);
            other.stations.extend((0..shards).map(|_| part.clone()));
        }
        other
    }
}

/// What a network does with this many threads.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// Cycles a second.
    pub per_second: f64,
    /// Of each station, in the order of the network.
    pub stations: Vec<StationLoad>,
}

/// What one lock sees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StationLoad {
    /// Time at the lock in one cycle: waiting and holding.
    pub residence_ns: f64,
    /// Mean number of threads there.
    pub queue: f64,
    /// Share of the time that somebody is there.
    pub utilization: f64,
}

/// Nanoseconds in a second, for rates.
pub const SECOND_NS: f64 = 1e9;

/// A small count as a number to calculate with.
pub(crate) fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}
