//! Makes the recordings of many machines from a few real ones, for tests and for measurements of size.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use lockmeter_fleet::{Options, Store, WorkloadBy, export};
use lockmeter_profile::recording::{RecordingReader, RecordingWriter};
use lockmeter_profile::{About, Interval, Value};
use sha2::{Digest, Sha256};

const HOUR_NS: u64 = 3_600_000_000_000;

/// How many times as often its lock is waited for then, each time as long.
const REGRESSION: u64 = 4;

/// Make the recordings of many machines from real ones
#[derive(Debug, Parser)]
#[command(name = "generate")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a recording again, made at another time
    Move {
        /// The recording
        from: PathBuf,
        /// The new one
        to: PathBuf,
        /// How much later, in hours
        #[arg(long, allow_hyphen_values = true)]
        hours: i64,
    },
    /// Export recordings as those of many hosts, one an hour each
    Fleet(FleetArguments),
}

#[derive(Debug, clap::Args)]
struct FleetArguments {
    /// The recordings, which hosts have in turn; three of them: then the first is that of all hosts with the regression
    #[arg(required = true)]
    recordings: Vec<PathBuf>,
    /// The folder to export to
    #[arg(long)]
    to: PathBuf,
    /// How many hosts
    #[arg(long)]
    hosts: u32,
    /// How many hours each
    #[arg(long)]
    hours: u64,
    /// How many rows of an hour have full detail
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    rows: usize,
    /// On 3 % of the hosts, this lock is waited for four times as often
    #[arg(long, value_name = "LOCK")]
    regression: Option<String>,
    /// Or on every host of which there is one in this many
    #[arg(long, value_name = "N", default_value_t = 33, value_parser = clap::value_parser!(u32).range(1..))]
    every: u32,
    /// Since this hour
    #[arg(long, value_name = "HOUR", default_value_t = 0)]
    since: u64,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Move { from, to, hours } => write_again(
            &from,
            &to,
            |_| {},
            |interval| {
                let moved = interval.start_unix_ns.checked_add_signed(hours.saturating_mul(HOUR_NS.cast_signed()));
                interval.start_unix_ns = moved.context("there is no such time")?;
                Ok(())
            },
        ),
        Command::Fleet(arguments) => fleet(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("generate: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn fleet(arguments: &FleetArguments) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("host.lockmeter");
    let first_hour = RecordingReader::open(&arguments.recordings[0])?.about().start_unix_ns / HOUR_NS;
    for host in 0..arguments.hosts {
        let options = Options {
            to: Store::Folder(arguments.to.clone()),
            host: format!("host{host:05}"),
            workload_by: WorkloadBy::Command,
            most_rows: arguments.rows,
        };
        let has_regression = host % arguments.every == 0;
        let recording = &arguments.recordings[host as usize % arguments.recordings.len()];
        for hour in 0..arguments.hours {
            let about = |about: &mut About| {
                about.kernel_release = format!("{}-{}", about.kernel_release, host % 3);
                about.recorder_tgid = host;
            };
            let busy = busy_percent(host, hour);
            let slow = arguments.regression.as_deref().filter(|_| has_regression && hour >= arguments.since);
            write_again(recording, &path, about, |interval| {
                interval.start_unix_ns = (first_hour + hour) * HOUR_NS + interval.start_unix_ns % HOUR_NS;
                let tables = &interval.tables;
                let slow = |lock| tables.lock(lock).is_some_and(|lock| Some(&*lock.name) == slow);
                let percent = |lock| if slow(lock) { REGRESSION * busy } else { busy };
                interval.totals.iter_mut().for_each(|total| more(&mut total.value, percent(total.key.lock)));
                let sampled = interval.sampled.iter_mut();
                sampled.for_each(|sampled| more(&mut sampled.estimate, percent(sampled.key.lock)));
                Ok(())
            })?;
            export(&path, &options)?;
        }
    }
    Ok(())
}

/// Writes a recording with its intervals changed.
fn write_again(
    from: &Path,
    to: &Path,
    about: impl FnOnce(&mut About),
    mut change: impl FnMut(&mut Interval) -> Result<()>,
) -> Result<()> {
    let mut reader = RecordingReader::open(from)?;
    let mut changed = reader.about().clone();
    about(&mut changed);
    let mut writer = RecordingWriter::create(to, &changed)?;
    while let Some(mut interval) = reader.next_interval()? {
        change(&mut interval)?;
        writer.append(&interval)?;
    }
    writer.finish()?;
    Ok(())
}

/// How often things happen on a host in an hour, in percent of what was recorded: no two are the same. The same for each generated fleet.
fn busy_percent(host: u32, hour: u64) -> u64 {
    let digest = Sha256::digest([u64::from(host).to_le_bytes(), hour.to_le_bytes()].concat());
    80 + u64::from(digest[0]) * 40 / 255
}

/// Has something happen that often; each time it lasts as long as it did.
fn more(value: &mut Value, percent: u64) {
    let more = |number: &mut u64| *number = number.saturating_mul(percent) / 100;
    let Value { count, total_ns, spin_ns, .. } = value;
    [count, total_ns, spin_ns].into_iter().for_each(more);
}
