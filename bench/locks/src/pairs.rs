//! Pairs of lock and unlock with nothing between them: alone, and readers beside readers.

use std::time::Duration;

use lockmeter_statistics::{Estimate, Random, median};

use crate::contender::{Contender, Family};
use crate::slice;

/// Long enough that starting threads does not count.
const SLICE: Duration = Duration::from_millis(25);

/// One kind of pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub reads: bool,
    pub threads: usize,
}

/// What one contender takes for one kind of pair.
#[derive(Debug, Clone)]
pub struct Row {
    pub contender: usize,
    pub fastest_ns: f64,
    pub median_ns: f64,
    /// Of ours: time as a share of the best comparable peer's. Below 1 is faster.
    pub against_best: Option<(usize, Estimate)>,
}

/// Write pairs of one thread; read pairs of one thread, of as many as there are CPUs, and of four times as many.
pub fn kinds(cpus: usize) -> Vec<Kind> {
    let mut kinds = vec![Kind { reads: false, threads: 1 }];
    for threads in [1, cpus, cpus * 4] {
        let kind = Kind { reads: true, threads };
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

/// All contenders, in a new random order each round.
pub fn measure(kind: Kind, rounds: usize, contenders: &[Contender], random: &mut Random) -> Vec<Row> {
    let mut running: Vec<usize> = (0..contenders.len())
        .filter(|&at| !kind.reads || contenders[at].families.contains(&Family::ReadWrite))
        .collect();
    let mut times_ns = vec![Vec::new(); contenders.len()];
    for _ in 0..rounds {
        random.shuffle(&mut running);
        for &at in &running {
            let lock = (contenders[at].lock)();
            times_ns[at].push(slice::pair_ps(&*lock, kind.threads, kind.reads, SLICE) as f64 / 1000.0);
        }
    }
    running.sort_unstable();
    let best_peer = |ours: &Contender| {
        running
            .iter()
            .copied()
            .filter(|&at| !contenders[at].ours && contenders[at].comparable(ours, u32::from(kind.reads)))
            .min_by(|&a, &b| median(times_ns[a].clone()).total_cmp(&median(times_ns[b].clone())))
    };
    running
        .iter()
        .map(|&at| {
            let peer = contenders[at].ours.then(|| best_peer(&contenders[at])).flatten();
            let against_best = peer.and_then(|peer| {
                let ratios: Vec<f64> =
                    times_ns[at].iter().zip(&times_ns[peer]).map(|(ours, best)| ours / best).collect();
                Some((peer, Estimate::of(&ratios, random)?))
            });
            Row {
                contender: at,
                fastest_ns: times_ns[at].iter().copied().fold(f64::INFINITY, f64::min),
                median_ns: median(times_ns[at].clone()),
                against_best,
            }
        })
        .collect()
}
