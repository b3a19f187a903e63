//! What the terminal shows.

use lockmeter_statistics::{Estimate, counted, median};

use crate::contender::Contender;
use crate::duel::{Duel, WritersOnly};
use crate::fairness;
use crate::grid::{Cell, Measured, Point};
use crate::pairs::{Kind, Row};

/// The cost of ending a bias.
pub fn writer(row: &crate::writer::Row) {
    let readers = match row.readers {
        0 => "no other thread".to_owned(),
        readers => format!("{readers} reading"),
    };
    let ratio = interval(row.ratio);
    println!(
        "PercpuRwSem, first write after reads, {readers}: {}; a bare membarrier {}; ratio {ratio}",
        duration(row.write_ns),
        duration(row.barrier_ns)
    );
}

/// The semaphore used only by writers beside the mutex.
pub fn writers_only(writers: &WritersOnly) {
    println!("\nRwSem used only by writers, in Mutex (95 % interval)");
    println!("time of a pair, 1 thread: {}", interval(writers.pair));
    println!("throughput, {} points with contention: {}", writers.points.len(), interval(writers.overall));
    for duel in &writers.points {
        println!("    {:<40} {}", load(duel.point), interval(duel.throughput));
    }
}

/// A policy on beside off.
pub fn policy(name: &str, points: &[Duel]) {
    println!("\nRwSem with {name}, in the same without (95 % interval)");
    println!("    {:<40} {:<24} {:<24} switches in 1000 acquisitions", "", "context switches", "throughput");
    for duel in points {
        let [on, off] = duel.switches_per_1000;
        let (switches, throughput) = (interval(duel.switches), interval(duel.throughput));
        println!("    {:<40} {switches:<24} {throughput:<24} {on:.2} for {off:.2}", load(duel.point));
    }
    let medians = |of: fn(&Duel) -> Option<Estimate>| points.iter().filter_map(of).map(|ratio| ratio.median).collect();
    let (switches, throughput): (Vec<f64>, Vec<f64>) = (medians(|duel| duel.switches), medians(|duel| duel.throughput));
    println!(
        "median of {} points: context switches {:.2}, throughput {:.2}; lowest throughput {:.2}",
        points.len(),
        median(switches),
        median(throughput.clone()),
        throughput.into_iter().fold(f64::INFINITY, f64::min),
    );
}

/// How fair all are.
pub fn fairness(rows: &[fairness::Row], contenders: &[Contender]) {
    println!(
        "\nFairness, two threads or more: median over the points (that of the median peer; at how many points no worse)"
    );
    println!(
        "{:<22} {:<36} {:<30} longest wait",
        "", "slowest thread's part of its share", "longest wait in mean waits"
    );
    for row in rows {
        let share =
            format!("{:.2} ({:.2}; {} of {})", row.slowest_share, row.peers_slowest_share, row.fairer_at, row.points);
        let in_mean_waits =
            format!("{:.0} ({:.0}; {} of {})", row.longest_wait, row.peers_longest_wait, row.shorter_at, row.points);
        println!(
            "{:<22} {share:<36} {in_mean_waits:<30} {} ({}; {} of {})",
            contenders[row.contender].name,
            duration(row.longest_wait_ns),
            duration(row.peers_longest_wait_ns),
            row.shorter_in_ns_at,
            row.points
        );
    }
}

fn interval(ratio: Option<Estimate>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |r| format!("{:.3} ({:.3} – {:.3})", r.median, r.low, r.high))
}

fn load(point: Point) -> String {
    let Point { threads, read_percent, section_ns } = point;
    format!("{threads} threads, {read_percent} % reads, section {}", duration(f64::from(section_ns)))
}

/// At or above this share of the best peer a point counts as won.
pub const WON: f64 = 1.0;
/// Below this share of the best peer a point counts as lost.
pub const LOST: f64 = 0.9;

/// As people say it: `10 µs`.
pub fn duration(ns: f64) -> String {
    match ns {
        ns if ns < 1_000.0 => format!("{ns:.0} ns"),
        ns if ns < 1_000_000.0 => format!("{:.1} µs", ns / 1_000.0),
        ns => format!("{:.1} ms", ns / 1_000_000.0),
    }
}

fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 1e6 => format!("{:.2} M", r / 1e6),
        r if r >= 1e3 => format!("{:.1} k", r / 1e3),
        r => format!("{r:.0}"),
    }
}

/// One kind of pair.
pub fn pairs(kind: Kind, rows: &[Row], contenders: &[Contender]) {
    let what = if kind.reads { "read" } else { "write" };
    let threads = counted(kind.threads, "thread", "threads");
    println!("\n{what} lock + unlock, {threads}, a pair of one thread");
    println!(
        "{:<22} {:>11} {:>10}   time as a share of the best peer's (95 % interval)",
        "", "fastest ns", "median ns"
    );
    for row in rows {
        let against = row.against_best.map_or_else(String::new, |(peer, ratio)| {
            format!("{:.3} ({:.3} – {:.3}) of {}", ratio.median, ratio.low, ratio.high, contenders[peer].name)
        });
        println!("{:<22} {:>11.2} {:>10.2}   {against}", contenders[row.contender].name, row.fastest_ns, row.median_ns);
    }
}

fn title(point: Point, cpus: usize) -> String {
    format!(
        "{}{}, {} % reads, section {}",
        counted(point.threads, "thread", "threads"),
        if point.threads > cpus { " (more than CPUs)" } else { "" },
        point.read_percent,
        duration(f64::from(point.section_ns)),
    )
}

/// One point of the grid.
pub fn point(measured: &Measured, contenders: &[Contender], cpus: usize) {
    println!("\n{}", title(measured.point, cpus));
    println!(
        "{:<22} {:>10} {:>9} {:>9} {:>10} {:>10} {:>9} {:>9}   throughput as a share of the best peer's (95 % interval)",
        "", "per s", "slowest", "mean wait", "99.9 %", "max wait", "max/mean", "switches"
    );
    for cell in &measured.cells {
        let against = cell.against_best.map_or_else(String::new, |against| {
            let ratio = against.ratio;
            format!("{:.3} ({:.3} – {:.3}) of {}", ratio.median, ratio.low, ratio.high, contenders[against.peer].name)
        });
        println!(
            "{:<22} {:>10} {:>9.2} {:>9} {:>10} {:>10} {:>9} {:>9.2}   {against}",
            contenders[cell.contender].name,
            rate(cell.median_rate),
            cell.slowest_share,
            duration(cell.mean_wait_ns),
            duration(cell.p999_wait_ns as f64),
            duration(cell.longest_wait_ns as f64),
            max_by_mean(cell).map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.0}")),
            cell.switches_per_1000,
        );
    }
}

/// The longest wait in mean waits.
pub fn max_by_mean(cell: &Cell) -> Option<f64> {
    (cell.mean_wait_ns > 0.0).then(|| cell.longest_wait_ns as f64 / cell.mean_wait_ns)
}

/// How often each of ours wins and loses, and where it loses most.
pub fn summary(grid: &[Measured], contenders: &[Contender], cpus: usize) {
    println!("\nAgainst the best peer at each point (won: {WON:.1} or more; lost: below {LOST})");
    for (at, ours) in contenders.iter().enumerate().filter(|(_, contender)| contender.ours) {
        let mut ratios: Vec<(Estimate, Point, usize)> = grid
            .iter()
            .flat_map(|measured| measured.cells.iter().map(move |cell| (measured.point, cell)))
            .filter(|(_, cell)| cell.contender == at)
            .filter_map(|(point, cell)| cell.against_best.map(|against| (against.ratio, point, against.peer)))
            .collect();
        ratios.sort_by(|a, b| a.0.median.total_cmp(&b.0.median));
        let share = |keep: &dyn Fn(&Estimate) -> bool| {
            ratios.iter().filter(|(ratio, ..)| keep(ratio)).count() as f64 * 100.0 / ratios.len().max(1) as f64
        };
        println!(
            "{:<14} {:>3} points: won {:.0} %, within 10 % {:.0} %, lost {:.0} %; not below with 95 % confidence {:.0} %",
            ours.name,
            ratios.len(),
            share(&|ratio| ratio.median >= WON),
            share(&|ratio| (LOST..WON).contains(&ratio.median)),
            share(&|ratio| ratio.median < LOST),
            share(&|ratio| ratio.high >= WON),
        );
        for (Estimate { median: ratio, .. }, point, peer) in
            ratios.iter().take(WORST_SHOWN).filter(|(ratio, ..)| ratio.median < WON)
        {
            println!("    {ratio:.3} of {} at {}", contenders[*peer].name, title(*point, cpus));
        }
    }
}

/// Of each of ours, this many of its worst points.
const WORST_SHOWN: usize = 5;
