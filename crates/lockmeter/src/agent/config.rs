//! The agent's configuration file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use lockmeter_cli::exit::{Failure, Status};
use serde::Deserialize;

use super::flight::{Room, Settings, Thresholds};
use crate::trusted_file;

/// The file that is read where none is named.
const DEFAULT_FILE: &str = "/etc/lockmeter/agent.toml";

/// A configuration is small.
const MOST_BYTES: usize = 64 << 10;

/// The shortest and the longest interval. A shorter one costs more than metering, a longer one is longer than scrapes are apart.
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);

/// The most series of locks, and of workloads: a lock has up to 35 lines in an answer.
const MOST_SERIES: usize = 10_000;

/// What the flight recorder may keep in memory, and recordings may take together: one holds what is kept, and as much again.
const MEMORY_MB: std::ops::RangeInclusive<u64> = 1..=1024;
const MOST_RECORDINGS: usize = 1000;

/// The part of it about the flight recorder.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecorderConfig {
    pub folder: PathBuf,
    #[serde(deserialize_with = "duration")]
    pub keep: Duration,
    pub memory_mb: u64,
    #[serde(deserialize_with = "duration")]
    pub after: Duration,
    #[serde(deserialize_with = "duration")]
    pub apart: Duration,
    pub most_recordings: usize,
    pub most_recordings_mb: u64,
    pub deadlock: bool,
    #[serde(deserialize_with = "duration")]
    pub hung_after: Duration,
    #[serde(deserialize_with = "duration")]
    pub wait_longer_than: Duration,
    pub waited_percent: f64,
}

impl Default for RecorderConfig {
    fn default() -> Self {
        Self {
            folder: PathBuf::from("/var/lib/lockmeter"),
            keep: Duration::from_secs(300),
            memory_mb: 8,
            after: Duration::from_secs(20),
            apart: Duration::from_secs(600),
            most_recordings: 20,
            most_recordings_mb: 64,
            deadlock: true,
            hung_after: Duration::from_secs(120),
            wait_longer_than: Duration::from_secs(30),
            waited_percent: 0.0,
        }
    }
}

/// Everything that can be configured.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub listen: SocketAddr,
    #[serde(deserialize_with = "duration")]
    pub interval: Duration,
    pub threads: bool,
    pub programs: bool,
    pub latency: bool,
    pub holds: bool,
    pub most_locks: usize,
    pub workloads: bool,
    pub most_workloads: usize,
    pub cpu_budget_percent: f64,
    pub memory_budget_mb: u64,
    pub recorder: RecorderConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9778)),
            interval: Duration::from_secs(10),
            threads: true,
            programs: true,
            latency: true,
            holds: false,
            most_locks: 100,
            workloads: false,
            most_workloads: 100,
            cpu_budget_percent: 0.5,
            memory_budget_mb: 96,
            recorder: RecorderConfig::default(),
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
        if config.programs && !config.threads {
            return Err(
                "programs is true and threads is false; programs cannot be metered without their threads".to_owned()
            );
        }
        config.recorder.check()?;
        Ok(config)
    }

    /// The file that says the same, with what each setting means.
    pub fn text(&self) -> String {
        let Self { listen, threads, programs, latency, holds, most_locks, workloads, most_workloads, .. } = self;
        let (cpu, memory, interval) =
            (self.cpu_budget_percent, self.memory_budget_mb, humantime::format_duration(self.interval));
        format!(
            "\
# Where metrics are served, at /metrics. Anyone who can connect can read them. A change needs a restart.
listen = \"{listen}\"
# How often what was metered is added to the metrics.
interval = \"{interval}\"

# Where the time of threads goes: running, waiting for a CPU, blocked and why.
threads = {threads}
# Locks of programs, and what their threads sleep for. Needs threads.
programs = {programs}
# Interrupts, softirqs, timers and work items.
latency = {latency}
# How long mmap_lock is held, and the contended part of the holds of other kernel locks that sleep.
holds = {holds}

# How many locks have series of their own: those that are waited for longest. All others are in one series named \"other\".
# A change needs a restart.
most_locks = {most_locks}
# Whether there are series by systemd unit, container and pod, and how many. A change needs a restart.
workloads = {workloads}
most_workloads = {most_workloads}

# How much of the machine's CPU time, and of its memory, metering may take. Beyond that it goes on without holds, then also
# without latency, then without programs, then without threads.
cpu_budget_percent = {cpu:?}
memory_budget_mb = {memory}
{recorder}",
            recorder = self.recorder.text()
        )
    }
}

impl RecorderConfig {
    fn check(&self) -> Result<(), String> {
        let Self { folder, memory_mb, most_recordings, most_recordings_mb, waited_percent, .. } = self;
        if !folder.is_absolute() && !folder.as_os_str().is_empty() {
            return Err(format!(
                "folder is {}; give an absolute path, or none to have no flight recorder",
                folder.display()
            ));
        }
        if !MEMORY_MB.contains(memory_mb) {
            let (least, most) = (MEMORY_MB.start(), MEMORY_MB.end());
            return Err(format!("memory_mb is {memory_mb}; give a number of {least} to {most}"));
        }
        if most_recordings_mb / 2 < *memory_mb {
            return Err(format!("most_recordings_mb is {most_recordings_mb}; give at least twice memory_mb"));
        }
        if !(1..=MOST_RECORDINGS).contains(most_recordings) {
            return Err(format!("most_recordings is {most_recordings}; give a number of 1 to {MOST_RECORDINGS}"));
        }
        if !(*waited_percent >= 0.0 && waited_percent.is_finite()) {
            return Err(format!("waited_percent is {waited_percent}; give a percentage, or 0 for never"));
        }
        Ok(())
    }

    /// `None` where recordings have no place.
    pub fn settings(&self) -> Option<Settings> {
        let set = |duration: Duration| (!duration.is_zero()).then_some(duration);
        (!self.folder.as_os_str().is_empty()).then(|| Settings {
            folder: self.folder.clone(),
            keep: self.keep,
            memory_bytes: usize::try_from(self.memory_mb * 1_000_000).unwrap_or(usize::MAX),
            after: self.after,
            apart: self.apart,
            room: Room { most: self.most_recordings, most_bytes: self.most_recordings_mb * 1_000_000 },
            thresholds: Thresholds {
                deadlock: self.deadlock,
                hung_after: set(self.hung_after),
                wait_longer_than: set(self.wait_longer_than),
                waited_percent: (self.waited_percent > 0.0).then_some(self.waited_percent),
            },
        })
    }

    fn text(&self) -> String {
        let Self { memory_mb, most_recordings, most_recordings_mb, deadlock, waited_percent, .. } = self;
        let shown = |duration: Duration| humantime::format_duration(duration).to_string();
        // Strings of JSON are strings of TOML.
        let folder = serde_json::Value::from(self.folder.to_string_lossy());
        let (keep, after, apart) = (shown(self.keep), shown(self.after), shown(self.apart));
        let (hung_after, wait_longer_than) = (shown(self.hung_after), shown(self.wait_longer_than));
        format!(
            "
# The flight recorder keeps the last minutes in all detail, and writes them when a trigger fires, or on SIGUSR1.
[recorder]
# Where recordings are written; nobody else may write there. \"\": no flight recorder; changing to or from that needs a restart.
folder = {folder}
# How much is kept in memory: for how long, and in how many megabytes at most.
keep = \"{keep}\"
memory_mb = {memory_mb}
# How long a recording goes on after its trigger, and the shortest time between two recordings.
after = \"{after}\"
apart = \"{apart}\"
# How many recordings there may be, and how large they may be together. The oldest are removed.
most_recordings = {most_recordings}
most_recordings_mb = {most_recordings_mb}
# Triggers; 0 is never. Threads that wait for each other in a circle, or for a lock whose holder has ended.
deadlock = {deadlock}
# A wait for a lock that has lasted this long, has not ended, and has no time limit.
hung_after = \"{hung_after}\"
# A wait for a lock that has lasted this long, ended or not.
wait_longer_than = \"{wait_longer_than}\"
# Time that threads were blocked for locks in an interval, of the machine's CPU time: 100 is one thread for each CPU on average.
waited_percent = {waited_percent:?}
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
        let recorder = RecorderConfig { folder: "/a \"b\\".into(), keep: Duration::from_secs(61), ..config.recorder };
        let config = Config { recorder, ..config };
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
            ("[recorder]\nfolder = \"here\"", "give an absolute path"),
            ("[recorder]\nmemory_mb = 0", "give a number of 1 to 1024"),
            ("[recorder]\nmemory_mb = 40", "give at least twice memory_mb"),
            ("[recorder]\nmost_recordings = 0", "give a number of 1 to 1000"),
            ("[recorder]\nwaited_percent = -1.0", "give a percentage, or 0"),
            ("[recorder]\nwait_longer = \"1s\"", "unknown field `wait_longer`"),
        ] {
            let error = Config::parse(text).unwrap_err();
            assert!(error.contains(said) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
