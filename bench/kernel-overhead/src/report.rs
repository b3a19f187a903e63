//! The results as plain text.

use std::fmt::{self, Write as _};

use serde::Serialize;

use crate::goals::{self, Verdict};
use crate::loads::LoadName;
use crate::memory::Memory;
use crate::meters::MeterName;
use crate::run_cost::RunCost;
use crate::throughput::{Ratio, Series, Throughput};
use lockmeter_statistics::Estimate;
use lockmeter_statistics::Machine;

/// All of a run, as it is printed in JSON.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub machine: Machine,
    pub throughput: Vec<Throughput>,
    pub run_cost: Vec<RunCost>,
    pub memory: Memory,
    pub goals: Vec<Goal>,
}

/// One line of the summary.
#[derive(Debug, Clone, Serialize)]
pub struct Goal {
    pub goal: String,
    pub measured: String,
    pub verdict: Verdict,
}

impl Report {
    pub fn new(machine: Machine, throughput: Vec<Throughput>, run_cost: Vec<RunCost>, memory: Memory) -> Self {
        let mut goals: Vec<Goal> = run_cost.iter().filter_map(Goal::of_run_cost).collect();
        goals.extend(throughput.iter().filter_map(Goal::of_throughput));
        goals.push(Goal::of_memory(&memory));
        Self { machine, throughput, run_cost, memory, goals }
    }
}

impl Goal {
    fn of_run_cost(cost: &RunCost) -> Option<Self> {
        (cost.meter == MeterName::NoStacks).then(|| Self {
            goal: format!("begin + end without a stack, {}: at most {} ns", cost.load.title(), goals::ACQUISITION_NS),
            measured: format!("{} ns", nanoseconds(cost.beyond_empty_ns)),
            verdict: Verdict::of(cost.beyond_empty_ns, goals::ACQUISITION_NS),
        })
    }

    fn of_throughput(throughput: &Throughput) -> Option<Self> {
        let goal = goals::loss(throughput.load)?;
        let is_default = |series| series == Series::Attached(MeterName::Default);
        let ratio = throughput.ratios.iter().find(|ratio| is_default(ratio.series))?;
        let loss = ratio.ratio.map(|ratio| 1.0 - ratio);
        Some(Self {
            goal: format!(
                "loss with the default budget, {} ({:.0} k contentions/s): at most {:.0} %",
                throughput.load.title(),
                throughput.contentions_per_s.median / 1e3,
                goal * 100.0
            ),
            measured: percent(loss),
            verdict: Verdict::of(loss, goal),
        })
    }

    fn of_memory(memory: &Memory) -> Self {
        Self {
            goal: format!("kernel memory a CPU: at most {}", mebibytes(goals::BYTES_PER_CPU)),
            measured: mebibytes(memory.bytes_per_cpu),
            verdict: if memory.bytes_per_cpu <= goals::BYTES_PER_CPU { Verdict::Met } else { Verdict::Missed },
        }
    }
}

/// What was measured under one load, shown as soon as it is known.
pub struct OneLoad<'a> {
    pub load: LoadName,
    pub throughput: Option<&'a Throughput>,
    pub run_cost: &'a [RunCost],
}

impl fmt::Display for OneLoad<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}: {}", self.load.title(), self.load.lock())?;
        if let Some(throughput) = self.throughput {
            write_throughput(f, throughput)?;
        }
        if !self.run_cost.is_empty() {
            write_run_cost(f, self.run_cost)?;
        }
        Ok(())
    }
}

/// What is known only at the end.
pub struct Summary<'a>(pub &'a Report);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_memory(f, &self.0.memory)?;
        writeln!(f, "\nGoals\n")?;
        for goal in &self.0.goals {
            writeln!(f, "  {:<85} {:<28} {}", goal.goal, goal.measured, goal.verdict)?;
        }
        Ok(())
    }
}

fn write_throughput(f: &mut fmt::Formatter<'_>, load: &Throughput) -> fmt::Result {
    writeln!(
        f,
        "\n  Throughput left (metered / bare, median of pairs, 95 % confidence); bare: {:.1} k contentions/s, {:.0} k operations/s\n",
        load.contentions_per_s.median / 1e3,
        load.operations_per_s.median / 1e3
    )?;
    for Ratio { series, ratio } in &load.ratios {
        let Estimate { median, low, high, samples } = ratio;
        writeln!(
            f,
            "    {:<40} {median:.4}  [{low:.4}, {high:.4}]  loss {:>5.1} %  {samples} pairs",
            series.title(),
            (1.0 - median) * 100.0
        )?;
    }
    for missing in &load.missing {
        writeln!(f, "    {:<40} NOT MEASURED: {}", missing.series.title(), missing.why)?;
    }
    if load.disturbed_pairs > 0 {
        writeln!(f, "    {} pairs repeated: something else metered contention meanwhile", load.disturbed_pairs)?;
    }
    Ok(())
}

fn write_run_cost(f: &mut fmt::Formatter<'_>, costs: &[RunCost]) -> fmt::Result {
    writeln!(f, "\n  Time in the programs (BPF statistics, which add some 30 ns a run; ns, median of slices)\n")?;
    writeln!(
        f,
        "    {:<22} {:>7} {:>7} {:>7} {:>12} {:>14}  beyond the empty programs",
        "", "begin", "end", "waking", "begins/wait", "begin+end"
    )?;
    for cost in costs {
        let beyond = match cost.meter {
            MeterName::Empty => "-".to_owned(),
            _ => nanoseconds(cost.beyond_empty_ns),
        };
        writeln!(
            f,
            "    {:<22} {:>7.0} {:>7.0} {:>7.0} {:>12.2} {:>14.0}  {beyond}",
            cost.meter.title(),
            cost.begin_ns.median,
            cost.end_ns.median,
            cost.waking_ns.median,
            cost.begins_per_acquisition.median,
            cost.acquisition_ns.median,
        )?;
    }
    Ok(())
}

fn write_memory(f: &mut fmt::Formatter<'_>, memory: &Memory) -> fmt::Result {
    writeln!(f, "\nKernel memory\n")?;
    writeln!(
        f,
        "  {} a CPU = two halves of tables and the CPU's state; {} possible CPUs here: {} ({} CPUs: {})",
        mebibytes(memory.bytes_per_cpu),
        memory.possible_cpus,
        mebibytes(memory.bytes_here),
        memory.large_machine_cpus,
        mebibytes(memory.bytes_on_large_machine)
    )?;
    writeln!(
        f,
        "  the kernel accounts {} to lockmeter's maps here, task storage (one element a task that slept on a lock) apart",
        mebibytes(usize::try_from(memory.accounted_bytes_here).unwrap_or(usize::MAX))
    )
}

fn nanoseconds(estimate: Estimate) -> String {
    format!("{:.0} [{:.0}, {:.0}]", estimate.median, estimate.low, estimate.high)
}

fn percent(share: Estimate) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(text, "{:.1} % [{:.1}, {:.1}]", share.median * 100.0, share.low * 100.0, share.high * 100.0);
    text
}

#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
fn mebibytes(bytes: usize) -> String {
    format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20))
}
