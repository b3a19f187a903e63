//! `lockmeter-fleet`: recordings as Parquet, for the engines that answer questions about many machines.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lockmeter_fleet::{Failure, Options, WorkloadBy, export, say};

/// Writes recordings as Parquet, for the engines that answer questions about many machines.
#[derive(Debug, Parser)]
#[command(name = "lockmeter-fleet", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Export(ExportArguments),
}

/// Write recordings of locks as Parquet, partitioned by date and hour
///
/// Below DIR it writes three tables: `samples` (waits and holds by lock, caller, blocker and workload), `stacks` (the functions of each
/// stack) and `recordings` (how long each recording metered, and what it lost). Exporting a recording again replaces its files. A reader
/// sees whole files only.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lockmeter-fleet export out.lockmeter --to /srv/locks
  lockmeter-fleet export *.lockmeter --to /srv/locks --host web7 --workload-by container
  duckdb -c \"select lock, sum(total_ns) from '/srv/locks/samples/**/*.parquet' where happened = 'wait' group by all\"")]
struct ExportArguments {
    /// What `lockmeter record` wrote
    #[arg(required = true, value_name = "RECORDING")]
    recordings: Vec<PathBuf>,
    /// The folder to write below; made if it is missing
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// The machine that was recorded; recordings do not name it. Without this option: the machine that exports
    #[arg(long, value_name = "NAME", value_parser = host)]
    host: Option<String>,
    /// What a workload is: a systemd unit, a container, a control group, or the name of a thread
    #[arg(long, value_name = "WHAT", default_value = "unit")]
    workload_by: WorkloadBy,
}

/// Letters, digits, `.`, `_` and `-`: it becomes a part of file names.
fn host(name: &str) -> Result<String, String> {
    const LONGEST: usize = 128;
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    if name.is_empty() || name.len() > LONGEST || name.starts_with('.') || !name.chars().all(fits) {
        let allowed = "letters, digits, '.', '_' and '-', not beginning with '.'";
        return Err(format!("a host's name has 1 to {LONGEST} {allowed}"));
    }
    Ok(name.to_owned())
}

/// The name of the machine that exports.
fn own_host() -> Result<String, Failure> {
    let path = "/proc/sys/kernel/hostname";
    let name = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read {path}: {error}; give --host")))?;
    let name = host(name.trim_end())
        .map_err(|why| Failure::usage(format!("this machine is called {:?}: {why}; give --host", name.trim_end())))?;
    say(format_args!("recordings do not name their machine: exporting as {name}, this one; --host names another"));
    Ok(name)
}

fn main() -> ExitCode {
    let Command::Export(arguments) = Arguments::parse().command;
    let host = match arguments.host.map_or_else(own_host, Ok) {
        Ok(host) => host,
        Err(failure) => return failure.report(),
    };
    let options = Options { to: arguments.to, host, workload_by: arguments.workload_by };
    let mut outcome = ExitCode::SUCCESS;
    // One that cannot be read keeps nobody from the others.
    for path in &arguments.recordings {
        match export(path, &options) {
            Ok(written) => println!("{}: {written}", path.display()),
            Err(failure) => outcome = failure.report(),
        }
    }
    outcome
}
