//! The whole story in a sentence: what it costs, and what kept a CPU longest.

use std::fmt;

use lockmeter_profile::Kind;
use lockmeter_profile::latency::{LatencyReport, LatencyRow};

use crate::escape::escaped;
use crate::units::{MILLION, counted, duration, ratio, share};

/// A callee is named beside its caller where it accounts for at least this part of the caller's longest run, in percent.
const MOST_OF_IT_PERCENT: u64 = 50;

/// The sentence at the head of a report of what ran.
#[derive(Debug, Clone, Copy)]
pub struct LatencyHeadline<'a> {
    report: &'a LatencyReport,
}

impl<'a> LatencyHeadline<'a> {
    /// The head of this report.
    pub const fn of(report: &'a LatencyReport) -> Self {
        Self { report }
    }

    /// What kept a CPU longest at a time from everybody else.
    pub fn worst(&self) -> Option<&'a LatencyRow> {
        longest(self.report.rows.iter().filter(|row| row.keeps_the_cpu()))
    }

    /// The work item that ran longest.
    pub fn worst_item(&self) -> Option<&'a LatencyRow> {
        longest(self.report.rows.iter().filter(|row| !row.keeps_the_cpu()))
    }

    /// Of what keeps the CPU: what came latest after it was due. Timers are due at a tick, which is too coarse to compare; how
    /// late they are shows in their softirq.
    pub fn latest(&self) -> Option<&'a LatencyRow> {
        let comparable = |row: &&LatencyRow| row.keeps_the_cpu() && row.kind != Kind::Timer && row.delays.max_ns > 0;
        let delayed = self.report.rows.iter().filter(comparable);
        delayed.max_by_key(|row| row.delays.max_ns)
    }

    /// Share of the machine's CPU time that all of it took, in millionths; `None` when no time passed.
    pub fn cpu_ppm(&self) -> Option<u64> {
        let machine_ns = self.report.duration_ns.saturating_mul(self.report.about.cpus.into());
        (machine_ns > 0).then(|| ratio(self.report.own_ns(), MILLION, machine_ns))
    }

    /// What took most CPU time by itself.
    pub fn heaviest(&self) -> Option<&'a LatencyRow> {
        self.report.rows.iter().filter(|row| row.runs.spin_ns > 0).max_by_key(|row| row.runs.spin_ns)
    }

    /// What the worst spent most of its longest run in: softirqs and the timer interrupt only call.
    fn called_by(&self, worst: &LatencyRow) -> Option<&'a LatencyRow> {
        let called = match (worst.kind, worst.name.as_str()) {
            (Kind::Softirq, "TIMER") => Kind::Timer,
            (Kind::Softirq, "TASKLET" | "HI") => Kind::Tasklet,
            (Kind::Softirq, "HRTIMER") | (Kind::Irq, "LOC") => Kind::Hrtimer,
            _ => return None,
        };
        let longest = longest(self.report.rows.iter().filter(|row| row.kind == called))?;
        (longest.runs.max_ns * 100 >= worst.runs.max_ns * MOST_OF_IT_PERCENT).then_some(longest)
    }
}

fn longest<'a>(rows: impl Iterator<Item = &'a LatencyRow>) -> Option<&'a LatencyRow> {
    rows.filter(|row| row.timed > 0).max_by_key(|row| row.runs.max_ns)
}

/// `irq 36 virtio1-req.0 (vring_interrupt)`, `softirq NET_RX`, `timer tcp_write_timer`.
pub(super) fn title(kind: Kind, name: &str, detail: &str) -> String {
    let kind = if kind == Kind::Work { "work item" } else { kind.name() };
    match detail {
        "" => format!("{kind} {}", escaped(name)),
        detail => format!("{kind} {} ({})", escaped(name), escaped(detail)),
    }
}

fn of_row(row: &LatencyRow) -> String {
    title(row.kind, &row.name, &row.detail)
}

impl fmt::Display for LatencyHeadline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let over = duration(self.report.duration_ns);
        if self.report.rows.is_empty() {
            return write!(f, "nothing that is metered ran in {over}");
        }
        match self.worst() {
            Some(worst) => {
                write!(f, "{} kept a CPU longest: {} in one run", of_row(worst), duration(worst.runs.max_ns))?;
                if let Some(called) = self.called_by(worst) {
                    write!(f, ", most of it perhaps in {} ({})", of_row(called), duration(called.runs.max_ns))?;
                }
            }
            None => f.write_str("no interrupt was metered")?,
        }
        if let Some(item) = self.worst_item() {
            write!(f, "; the longest {} ran {}", of_row(item), duration(item.runs.max_ns))?;
        }
        if let Some(latest) = self.latest() {
            write!(f, "; {} came {} late", of_row(latest), duration(latest.delays.max_ns))?;
        }
        let runs: u64 = self.report.rows.iter().map(|row| row.runs.count).fold(0, u64::saturating_add);
        let all = counted(runs, "run", "runs");
        match self.cpu_ppm() {
            Some(ppm) => write!(f, "; all {all} together took {} of the machine's CPU time", share(ppm))?,
            None => write!(f, "; there were {all}")?,
        }
        match self.heaviest() {
            Some(row) => {
                let part = share(ratio(row.runs.spin_ns, MILLION, self.report.own_ns()));
                write!(f, ", {part} of it {}", of_row(row))
            }
            None => Ok(()),
        }
    }
}
