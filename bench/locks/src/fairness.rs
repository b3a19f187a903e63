//! How fair each lock is, over all points where threads can be unfair to each other.

use crate::contender::Contender;
use lockmeter_statistics::median;

use crate::grid::{Cell, Measured, Point};
use crate::table::max_by_mean;

/// One lock beside the median of its peers at each point with two threads or more.
#[derive(Debug)]
pub struct Row {
    pub contender: usize,
    pub points: usize,
    /// The slowest thread's part of an even share: median over the points, and how often at least the median peer's.
    pub slowest_share: f64,
    pub fairer_at: usize,
    /// Likewise the median peer's.
    pub peers_slowest_share: f64,
    /// The longest wait in mean waits: median over the points, and how often at most the median peer's.
    pub longest_wait: f64,
    pub shorter_at: usize,
    /// Likewise the median peer's.
    pub peers_longest_wait: f64,
    /// The same without the division, which makes the waits of a lock with short waits long: in ns.
    pub longest_wait_ns: f64,
    pub shorter_in_ns_at: usize,
    pub peers_longest_wait_ns: f64,
}

/// A row for each of `contenders` that has a peer.
pub fn of(grid: &[Measured], contenders: &[Contender]) -> Vec<Row> {
    (0..contenders.len()).filter_map(|contender| row(grid, contenders, contender)).collect()
}

fn row(grid: &[Measured], contenders: &[Contender], contender: usize) -> Option<Row> {
    let beside: Vec<Beside> = (grid.iter())
        .filter(|measured| measured.point.threads > 1)
        .filter_map(|measured| {
            let own = measured.cells.iter().find(|cell| cell.contender == contender)?;
            beside(own, &measured.cells, measured.point, contenders)
        })
        .collect();
    let over_points = |of: fn(&Beside) -> f64| median(beside.iter().map(of).collect());
    (!beside.is_empty()).then(|| Row {
        contender,
        points: beside.len(),
        slowest_share: over_points(|point| point.slowest_share),
        fairer_at: beside.iter().filter(|point| point.slowest_share >= point.peers_slowest_share).count(),
        peers_slowest_share: over_points(|point| point.peers_slowest_share),
        longest_wait: over_points(|point| point.longest_wait),
        shorter_at: beside.iter().filter(|point| point.longest_wait <= point.peers_longest_wait).count(),
        peers_longest_wait: over_points(|point| point.peers_longest_wait),
        longest_wait_ns: over_points(|point| point.longest_wait_ns),
        shorter_in_ns_at: beside.iter().filter(|point| point.longest_wait_ns <= point.peers_longest_wait_ns).count(),
        peers_longest_wait_ns: over_points(|point| point.peers_longest_wait_ns),
    })
}

/// One point.
struct Beside {
    slowest_share: f64,
    peers_slowest_share: f64,
    longest_wait: f64,
    peers_longest_wait: f64,
    longest_wait_ns: f64,
    peers_longest_wait_ns: f64,
}

fn beside(own: &Cell, cells: &[Cell], point: Point, contenders: &[Contender]) -> Option<Beside> {
    let peers: Vec<&Cell> = (cells.iter())
        .filter(|cell| {
            let peer = &contenders[cell.contender];
            !peer.ours
                && cell.contender != own.contender
                && peer.comparable(&contenders[own.contender], point.read_percent)
        })
        .collect();
    (!peers.is_empty()).then(|| Beside {
        slowest_share: own.slowest_share,
        peers_slowest_share: median(peers.iter().map(|cell| cell.slowest_share).collect()),
        longest_wait: max_by_mean(own).unwrap_or(0.0),
        peers_longest_wait: median(peers.iter().filter_map(|cell| max_by_mean(cell)).collect()),
        longest_wait_ns: own.longest_wait_ns as f64,
        peers_longest_wait_ns: median(peers.iter().map(|cell| cell.longest_wait_ns as f64).collect()),
    })
}
