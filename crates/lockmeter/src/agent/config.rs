//! The agent's configuration file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use lockmeter_cli::exit::{Failure, Status};
use serde::Deserialize;

use crate::trusted_file;

/// The file that is read where none is named.
const DEFAULT_FILE: &str = "/etc/lockmeter/agent.toml";

/// A configuration is small.
const MOST_BYTES: usize = 64 << 10;

/// The shortest and the longest interval. A shorter one costs more than metering, a longer one is longer than scrapes are apart.
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);

/// The most series of locks, and of workloads: a lock has up to 35 lines in an answer.
const MOST_SERIES: usize = 10_000;

/// Everything that can be configured.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub listen: SocketAddr,
    #[serde(deserialize_with = "duration")]
    pub interval: Duration,
    pub programs: bool,
    pub latency: bool,
    pub holds: bool,
    pub most_locks: usize,
    pub workloads: bool,
    pub most_workloads: usize,
    pub cpu_budget_percent: f64,
    pub memory_budget_mb: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9778)),
            interval: Duration::from_secs(10),
            programs: true,
            latency: true,
            holds: false,
            most_locks: 100,
            workloads: false,
            most_workloads: 100,
            cpu_budget_percent: 0.5,
            memory_budget_mb: 96,
        }
    }
}

fn duration<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Duration, D::Error> {
    humantime::parse_duration(&String::deserialize(value)?).map_err(serde::de::Error::custom)
}

impl Config {
    /// The configuration of this file, of the usual one if none is named, or the defaults if that is not there.
    pub fn read(file: Option<&Path>) -> Result<Self> {
        let default = PathBuf::from(DEFAULT_FILE);
        let path = match file {
            Some(path) => path,
            None if default.exists() => &default,
            None => return Ok(Self::default()),
        };
        let refuse = |what: String| Failure::error(Status::BadInput, format!("{}: {what}", path.display()));
        let text = trusted_file::read(path, "configuration", MOST_BYTES).map_err(refuse)?;
        Self::parse(&text).map_err(refuse)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| error.to_string().trim_end().replace('\n', " "))?;
        let shown = |duration: &Duration| humantime::format_duration(*duration).to_string();
        if !INTERVALS.contains(&config.interval) {
            let (least, most) = (shown(INTERVALS.start()), shown(INTERVALS.end()));
            return Err(format!("interval is {}; give one of {least} to {most}", shown(&config.interval)));
        }
        for (name, count) in [("most_locks", config.most_locks), ("most_workloads", config.most_workloads)] {
            if !(1..=MOST_SERIES).contains(&count) {
                return Err(format!("{name} is {count}; give a number of 1 to {MOST_SERIES}"));
            }
        }
        if !(config.cpu_budget_percent > 0.0 && config.cpu_budget_percent <= 100.0) {
            return Err(format!("cpu_budget_percent is {}; give a percentage above 0", config.cpu_budget_percent));
        }
        if config.memory_budget_mb == 0 {
            return Err("memory_budget_mb is 0; give a number of megabytes".to_owned());
        }
        Ok(config)
    }

    /// The file that says the same, with what each setting means.
    pub fn text(&self) -> String {
        let Self { listen, programs, latency, holds, most_locks, workloads, most_workloads, .. } = self;
        let (cpu, memory, interval) =
            (self.cpu_budget_percent, self.memory_budget_mb, humantime::format_duration(self.interval));
        format!(
            "\
# Where metrics are served, at /metrics. Anybody who reaches it can read them. A change needs a restart.
listen = \"{listen}\"
# How often what was metered is added to the metrics.
interval = \"{interval}\"

# Locks of programs, and what their threads sleep for.
programs = {programs}
# Interrupts, softirqs, timers and work items.
latency = {latency}
# How long mmap_lock is held, and the contended part of the holds of other kernel locks that sleep.
holds = {holds}

# Locks with series of their own: those that are waited for longest. The rest is in one named \"other\". A change needs a restart.
most_locks = {most_locks}
# Series by systemd unit, container and pod, and how many of these. A change needs a restart.
workloads = {workloads}
most_workloads = {most_workloads}

# Shares of the machine's CPU time and memory that metering may take. Beyond them it goes on without holds, then without
# latency, then without programs.
cpu_budget_percent = {cpu:?}
memory_budget_mb = {memory}
"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_back_and_an_empty_file_is_the_defaults() {
        let config =
            Config { interval: Duration::from_secs(90), holds: true, cpu_budget_percent: 2.0, ..Config::default() };
        assert_eq!(Config::parse(&config.text()), Ok(config));
        assert_eq!(Config::parse(""), Ok(Config::default()));
    }

    #[test]
    fn what_makes_no_sense_is_said_in_one_line() {
        for (text, said) in [
            ("intervall = \"1s\"", "unknown field `intervall`"),
            ("interval = \"1ms\"", "give one of 1s to 5m"),
            ("interval = \"soon\"", "expected number"),
            ("listen = \"localhost\"", "invalid socket address"),
            ("most_locks = 0", "give a number of 1 to 10000"),
            ("cpu_budget_percent = 0.0", "give a percentage above 0"),
            ("cpu_budget_percent = nan", "give a percentage above 0"),
            ("memory_budget_mb = 0", "give a number of megabytes"),
            ("holds = 1", "expected a boolean"),
        ] {
            let error = Config::parse(text).unwrap_err();
            assert!(error.contains(said) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
