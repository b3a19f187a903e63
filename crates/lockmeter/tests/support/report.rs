//! `lockmeter report --format json`, as `docs/reference/json.md` promises it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{lockmeter, run, text};

#[derive(Debug, Clone, Deserialize)]
pub struct Report {
    pub schema: u32,
    pub by: Vec<String>,
    pub start_unix_ns: u64,
    pub duration_ns: u64,
    pub intervals: u64,
    pub cpus: u64,
    pub lost: BTreeMap<String, u64>,
    pub overhead: Overhead,
    pub sampling: Sampling,
    pub head: Head,
    pub rows: Vec<Row>,
    /// What was asked and what came, for failure messages.
    #[serde(skip)]
    pub shown: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Overhead {
    pub own_cpu_ns: u64,
    pub program_run_ns: u64,
    pub program_runs: u64,
    pub stack_ns: u64,
    pub one_cpu_ppm: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Sampling {
    pub stacks: u64,
    pub period_ns: u64,
    pub budget_ppm: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Head {
    pub sentence: String,
    pub waits: Value,
    pub named_ns: u64,
    pub own_waits: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Value {
    pub count: u64,
    pub total_ns: u64,
    pub max_ns: u64,
    pub spin_ns: u64,
    pub sleep_ns: u64,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Row {
    pub happened: String,
    pub lock: Option<String>,
    pub naming: Option<String>,
    pub kind: Option<String>,
    pub mode: Option<String>,
    pub task: Option<String>,
    pub tgid: Option<u32>,
    pub cgroup: Option<String>,
    pub filesystem: Option<String>,
    pub context: Option<String>,
    pub cpu: Option<u32>,
    /// Of time that was only sampled there is none, nor of the three percentiles.
    #[serde(deserialize_with = "number_or_none")]
    pub count: u64,
    pub total_ns: u64,
    pub spin_ns: u64,
    pub sleep_ns: u64,
    pub mean_ns: Option<u64>,
    #[serde(deserialize_with = "number_or_none")]
    pub p50_ns: u64,
    #[serde(deserialize_with = "number_or_none")]
    pub p99_ns: u64,
    #[serde(deserialize_with = "number_or_none")]
    pub max_ns: u64,
    pub root: Option<Vec<String>>,
    pub root_lock: Option<String>,
    pub root_source: Option<String>,
    pub run_delay_ns: Option<u64>,
    pub root_state: Option<String>,
    pub root_call: Option<String>,
    pub blocker_state: Option<String>,
    pub blocker_call: Option<String>,
    pub stacks: u64,
    pub estimated: bool,
    pub own: bool,
    pub caller: Option<Vec<String>>,
    pub blocker: Option<Vec<String>>,
    pub blocker_source: Option<String>,
    pub blocker_task: Option<String>,
    pub histogram: Vec<(u64, u64, u64)>,
}

/// `null` is 0.
fn number_or_none<'input, D: serde::Deserializer<'input>>(input: D) -> Result<u64, D::Error> {
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

impl Row {
    pub fn lock(&self) -> &str {
        self.lock.as_deref().unwrap_or_default()
    }

    /// Whether its lock has a name (docs/reference/json.md: other values of `naming` say why there is none).
    pub fn is_named(&self) -> bool {
        let naming = self.naming.as_deref().unwrap_or_default();
        ["symbol", "per-cpu", "slab-field", "inferred-type", "inferred-site"].contains(&naming)
    }

    pub fn task(&self) -> &str {
        self.task.as_deref().unwrap_or_default()
    }
}

/// Count and total time of rows.
pub fn sum<'a>(rows: impl IntoIterator<Item = &'a Row>) -> (u64, u64) {
    rows.into_iter().fold((0, 0), |(count, total_ns), row| (count + row.count, total_ns + row.total_ns))
}

/// Reads a recording with these flags.
pub fn report(recording: &str, flags: &[&str]) -> Report {
    let json = report_as(recording, "json", flags);
    let mut report: Report = serde_json::from_str(&json)
        .unwrap_or_else(|error| panic!("the JSON of {flags:?} is not as promised: {error}\n{json}"));
    report.shown = format!("lockmeter report {}\n{}", flags.join(" "), report_as(recording, "table", flags));
    report
}

/// The JSON of a report, as a value of any shape.
pub fn json_report(recording: &str, flags: &[&str]) -> serde_json::Value {
    serde_json::from_str(&report_as(recording, "json", flags)).unwrap()
}

/// A report in any format of text; it must be had without an error.
pub fn report_as(recording: &str, format: &str, flags: &[&str]) -> String {
    text(&report_bytes(recording, format, flags))
}

/// A report in any format.
pub fn report_bytes(recording: &str, format: &str, flags: &[&str]) -> Vec<u8> {
    let mut command = lockmeter(["report", recording, "--format", format]);
    command.args(flags);
    let output = run(command);
    assert!(
        output.status.success(),
        "report --format {format} {flags:?} ended with {}:\n{}",
        output.status,
        text(&output.stderr)
    );
    output.stdout
}

/// Whether the lock and the function of `separate-debug` have their names: both or none.
pub fn is_separate_debug_named(reported: &str) -> bool {
    let names = [reported.contains("\"separate-debug:account_lock\""), reported.contains("\"deposit")];
    assert!(names[0] == names[1], "one of variable and function has a name:\n{reported}");
    names[0]
}
