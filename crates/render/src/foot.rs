//! What stands under every report: what was lost, what it rests on, what it cost.

use lockmeter_profile::{Dimension, Loss, Losses, Overhead, Report, Swap, Swaps};

use crate::terminal::Weight;
use crate::units::{MILLION, count, counted, duration, ratio, share};

/// A line of the foot and how it is set apart.
pub type FootLine = (String, Weight);

/// The foot of a report.
pub fn lines(report: &Report) -> Vec<FootLine> {
    let mut lines = lost(&report.losses);
    lines.extend(swapped(&report.swaps));
    lines.extend(switched_off(report).map(|sentence| (sentence, Weight::Warning)));
    lines.extend(holds_switched_off(report).map(|sentence| (sentence, Weight::Warning)));
    let sentences = [
        untimed(report),
        sampling(report),
        named(report),
        Some(cost(&report.overhead, report.duration_ns)),
        own(report),
    ];
    lines.extend(sentences.into_iter().flatten().map(|sentence| (sentence, Weight::Plain)));
    lines
}

/// Each cause that occurred, with what it means.
pub fn lost(losses: &Losses) -> Vec<FootLine> {
    if losses.is_empty() {
        return vec![("lost: nothing".to_owned(), Weight::Plain)];
    }
    let widest = losses.iter().map(|(_, lost)| count(lost).len()).max().unwrap_or(0);
    let each = losses.iter().map(|(loss, lost)| format!("  {:>widest$} {}", count(lost), loss.meaning(lost)));
    std::iter::once("lost:".to_owned()).chain(each).map(|line| (line, Weight::Warning)).collect()
}

/// Whether the times of holds are exact.
fn untimed(report: &Report) -> Option<String> {
    let timed = report.holds.saturating_sub(report.untimed_holds);
    (report.untimed_holds > 0).then(|| {
        format!(
            "hold times are estimated from {} timed holds of {}: of locks taken very often a random sample is timed; the true \
            value is within ± in 95 of 100 cases (`--every` times all)",
            count(timed),
            count(report.holds)
        )
    })
}

/// Processes that the foot lists by their ids.
const PROCESSES_LISTED: usize = 5;

/// For how long programs were not metered.
fn switched_off(report: &Report) -> Option<String> {
    let off = &report.off.processes;
    let one = |(tgid, off_ns): (&u32, &u64)| format!("process {tgid} for {}", duration(*off_ns));
    let mut each: Vec<String> = off.iter().take(PROCESSES_LISTED).map(one).collect();
    if off.len() > PROCESSES_LISTED {
        each.push(counted((off.len() - PROCESSES_LISTED) as u64, "other process", "other processes"));
    }
    let rates = match report.off.all_ns {
        0 => "rates of locks that several processes use are too low by the share of these processes".to_owned(),
        all_ns => {
            let metered = duration(report.duration_ns.saturating_sub(all_ns));
            format!("rates of programs' locks are of the {metered} for which programs were metered")
        }
    };
    (!off.is_empty()).then(|| format!("switched off: {}; {rates}", each.join(", ")))
}

/// For how much of the time holds of kernel locks were counted.
fn holds_switched_off(report: &Report) -> Option<String> {
    let off = &report.off.holds;
    let off_ns = *off.values().max()?;
    let kinds: Vec<&str> = off.keys().map(|kind| kind.name()).collect();
    let counted_ns = report.duration_ns.saturating_sub(off_ns);
    Some(format!(
        "holds of kernel locks ({}) were timed for {} of the {}, because their hooks would take more than `--hold-budget`; \
        totals, rates and shares of holds are of that time",
        kinds.join(", "),
        duration(counted_ns),
        duration(report.duration_ns)
    ))
}

/// What became of the locks that were to be swapped. Room that was wanting is a loss: more was asked for than was done.
pub fn swapped(swaps: &Swaps) -> Vec<FootLine> {
    if swaps.is_empty() {
        return Vec::new();
    }
    let list = |swapped: bool| {
        let each = swaps.iter().filter(|(swap, _)| swap.is_swapped() == swapped);
        each.map(|(swap, number)| format!("{} {}", count(number), swap.meaning(number))).collect::<Vec<_>>().join(", ")
    };
    let (done, left) = (list(true), list(false));
    let is_short = swaps.iter().any(|(swap, _)| swap == Swap::LeftNoRoom);
    let weight = if done.is_empty() || is_short { Weight::Warning } else { Weight::Plain };
    let done = if done.is_empty() { "no lock".to_owned() } else { done };
    let left = if left.is_empty() { String::new() } else { format!("; left alone: {left}") };
    vec![(format!("swapped: {done}{left}"), weight)]
}

/// What the stacks behind a report are worth.
fn sampling(report: &Report) -> Option<String> {
    let estimates: Vec<&str> = report.by.iter().filter(|by| by.is_sampled()).map(|by| plural(*by)).collect();
    if report.waits.count == 0 {
        return None;
    }
    let stacks = counted(report.overhead.stacks, "stack", "stacks");
    let how = how_sampled(report);
    Some(if estimates.is_empty() {
        let numbers = if report.untimed_holds == 0 {
            "all numbers are exact counts"
        } else {
            "all other numbers are exact counts"
        };
        format!("{numbers}; for callers and blockers there are {stacks}{how}")
    } else {
        let resting = counted(report.rows.iter().map(|row| row.stacks).fold(0, u64::saturating_add), "stack", "stacks");
        format!(
            "{} are estimated from {resting}, scaled to the exact totals of each lock{how}",
            estimates.join(" and ")
        )
    })
}

/// Of these there is a wait without the stack that was due.
const STACKS_LOST: [Loss; 8] = [
    Loss::OverBudget,
    Loss::SamplesFull,
    Loss::StacksFull,
    Loss::StackFailed,
    Loss::RingFull,
    Loss::ProcessGone,
    Loss::UserSitesFull,
    Loss::UserSamplesFull,
];

fn how_sampled(report: &Report) -> String {
    let budget = match report.about.stack_budget_ppm {
        Some(ppm) => format!(" (budget: {} of CPU time)", share(u64::from(ppm))),
        None => String::new(),
    };
    match report.overhead.sampling_period_ns {
        _ if report.overhead.stacks == 0 => budget,
        0 if STACKS_LOST.iter().any(|loss| report.losses.get(*loss) > 0) => {
            "; the stack of every wait was to be taken".to_owned()
        }
        0 => "; the stack of every wait was taken".to_owned(),
        period_ns => {
            format!("; waits of {} and longer always, shorter ones in proportion{budget}", duration(period_ns))
        }
    }
}

const fn plural(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Caller => "callers",
        Dimension::Blocker => "blockers",
        Dimension::Root => "roots",
        Dimension::BlockerTask => "blocking tasks",
        Dimension::RootTask => "tasks at the root",
        Dimension::Instance => "instances",
        Dimension::Filesystem => "file systems",
        other => other.name(),
    }
}

fn named(report: &Report) -> Option<String> {
    let named_ppm = ratio(report.named_ns, MILLION, report.waits.total_ns);
    (report.waits.total_ns > 0).then(|| format!("the locks of {} of the waited time have a name", share(named_ppm)))
}

/// What metering used of one CPU, in millionths: lockmeter's process and its programs in the kernel. `None` when no time
/// passed.
pub fn used_ppm(overhead: &Overhead, duration_ns: u64) -> Option<u64> {
    let used_ns = overhead.own_cpu_ns.saturating_add(overhead.program_run_ns);
    (duration_ns > 0).then(|| ratio(used_ns, MILLION, duration_ns))
}

/// What metering used.
pub fn cost(overhead: &Overhead, duration_ns: u64) -> String {
    let whole = cost_without_stacks(overhead, duration_ns);
    match overhead.program_runs {
        0 => whole,
        _ => format!("{whole}, of which stacks {}", duration(overhead.stack_ns)),
    }
}

/// What metering used where no stacks are taken.
pub fn cost_without_stacks(overhead: &Overhead, duration_ns: u64) -> String {
    let each = match overhead.program_runs {
        0 => String::new(),
        runs => format!(" in {}, {} each", counted(runs, "run", "runs"), duration(overhead.program_run_ns / runs)),
    };
    let (process, programs) = (duration(overhead.own_cpu_ns), duration(overhead.program_run_ns));
    let used =
        used_ppm(overhead, duration_ns).map_or("CPU time".to_owned(), |ppm| format!("{} of one CPU", share(ppm)));
    format!("lockmeter used {used}: its process {process}, its programs in the kernel {programs}{each}")
}

fn own(report: &Report) -> Option<String> {
    let own = &report.own_waits;
    Some(match own.count {
        0 => "lockmeter itself waited for no lock".to_owned(),
        _ => format!(
            "lockmeter itself waited {}, {} in all, {} at most (not in the totals above)",
            counted(own.count, "time", "times"),
            duration(own.total_ns),
            duration(own.max_ns)
        ),
    })
}
