//! `lockmeter-fleet`: recordings of many machines as Parquet, and the questions about them.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use lockmeter_fleet::{
    Answer, By, Failure, Fleet, Format, Options, Store, Window, WorkloadBy, diff, export, moment_ns, query, say, top,
    trend,
};

/// Writes recordings of many machines as Parquet, and answers which lock costs them most.
#[derive(Debug, Parser)]
#[command(name = "lockmeter-fleet", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Export(ExportArguments),
    /// Show what costs the fleet most: which lock, who waits for it and who makes them wait, on which hosts
    ///
    /// WAITING is how many tasks waited at a time on an average host: the waited time divided by the metered time.
    #[command(after_help = "Examples:
  lockmeter-fleet top --from /srv/locks --since 2h
  lockmeter-fleet top --from s3://locks/prod --by lock,caller,blocker --limit 5
  lockmeter-fleet top --from /srv/locks --by host --lock inode.i_rwsem")]
    Top(ReadArguments),
    Diff(DiffArguments),
    /// Show how much was waited, hour by hour
    #[command(after_help = "Examples:
  lockmeter-fleet trend --from /srv/locks --since 3d
  lockmeter-fleet trend --from /srv/locks --by host --lock inode.i_rwsem")]
    Trend(ReadArguments),
    Query(QueryArguments),
}

/// Write recordings of locks as Parquet, partitioned by date and hour
///
/// Environment variables say how a bucket is reached: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and so on.
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
    /// The folder to write below, which is made if it is missing, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "DIR")]
    to: String,
    /// The machine that was recorded; recordings do not name it. Without this option: the machine that exports
    #[arg(long, value_name = "NAME", value_parser = host)]
    host: Option<String>,
    /// What a workload is: a systemd unit, a container, a control group, or the name of a thread
    #[arg(long, value_name = "WHAT", default_value = "unit")]
    workload_by: WorkloadBy,
    /// How many rows of an hour have full detail, those with most time; the others become `other`, by lock. `all`: all of them
    #[arg(long, value_name = "N", default_value_t = ROWS, value_parser = rows)]
    rows: usize,
}

/// docs/reference/parquet.md says what it takes.
const ROWS: usize = 1_000;

fn rows(text: &str) -> Result<usize, String> {
    if text == "all" { Ok(usize::MAX) } else { text.parse().map_err(|_| "give a number, or `all`".to_owned()) }
}

/// Where to read, and which hours.
#[derive(Debug, clap::Args)]
struct FromArguments {
    /// What `lockmeter-fleet export` wrote to: a folder, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "DIR")]
    from: String,
    /// The first hour: 2h (ago), or 2026-11-28T13:00 in UTC. The whole hour counts, because recordings are divided by hours
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = moment_ns)]
    since: u64,
    /// The end, written the same way. Without it: now
    #[arg(long, value_name = "TIME", default_value = "0s", hide_default_value = true, value_parser = moment_ns)]
    until: u64,
    /// As text or as JSON
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
}

impl FromArguments {
    fn window(&self) -> Result<Window, Failure> {
        Window::new(self.since, self.until)
    }

    fn fleet(&self, window: Window) -> Result<Fleet, Failure> {
        Fleet::of(&Store::named(&self.from)?, window)
    }
}

/// What to group by.
#[derive(Debug, clap::Args)]
struct RowArguments {
    /// What to group by
    #[arg(long, value_name = "WHAT,…", default_value = "lock", value_delimiter = ',')]
    by: Vec<By>,
    /// Only this lock
    #[arg(long, value_name = "NAME")]
    lock: Option<String>,
    /// Only this host
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// How many rows at most
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
}

impl RowArguments {
    /// As a condition in SQL.
    fn filter(&self) -> String {
        let columns = [("lock", &self.lock), ("host", &self.host)];
        let conditions = columns.into_iter().filter_map(|(column, value)| Some((column, value.as_ref()?)));
        conditions.map(|(column, value)| format!(" AND {column} = '{}'", value.replace('\'', "''"))).collect()
    }
}

/// Which rows, of which hours.
#[derive(Debug, clap::Args)]
struct ReadArguments {
    #[command(flatten)]
    from: FromArguments,
    #[command(flatten)]
    rows: RowArguments,
}

/// Show what changed since another time, on most hosts or on a few of them
///
/// Hosts that were metered in both windows are compared with themselves. CHANCE is how likely such a change is on all of them together if
/// nothing is different (Wilcoxon's signed-rank test, adjusted for the number of rows by Holm's procedure); below 0.01 it counts as a
/// change. Hosts that changed differently from most are named: those whose modified z-score (Iglewicz and Hoaglin) is above 3.5, if there are
/// ten hosts or more.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lockmeter-fleet diff --from /srv/locks --since 2h
  lockmeter-fleet diff --from /srv/locks --since 2026-11-28T12 --baseline-since 2026-11-28T06 --baseline-until 2026-11-28T12")]
struct DiffArguments {
    #[command(flatten)]
    read: ReadArguments,
    /// The first hour to compare with. Without it: as many hours, a day earlier
    #[arg(long, value_name = "TIME", value_parser = moment_ns, requires = "baseline_until")]
    baseline_since: Option<u64>,
    /// The end of the hours to compare with
    #[arg(long, value_name = "TIME", value_parser = moment_ns, requires = "baseline_since")]
    baseline_until: Option<u64>,
}

/// Ask in SQL: there are the tables samples, stacks and recordings, and the views of fleet/sql/views.sql
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lockmeter-fleet query --from /srv/locks 'SELECT * FROM workloads ORDER BY waited_ns DESC LIMIT 10'")]
struct QueryArguments {
    /// The question; it can change nothing
    sql: String,
    #[command(flatten)]
    from: FromArguments,
}

const A_DAY: Duration = Duration::from_hours(24);

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
    match Arguments::parse().command {
        Command::Export(arguments) => export_all(arguments).unwrap_or_else(|failure| failure.report()),
        Command::Top(ReadArguments { from, rows }) => {
            answer(&from, || top(&from.fleet(from.window()?)?, &rows.by, &rows.filter(), rows.limit))
        }
        Command::Trend(ReadArguments { from, rows }) => {
            answer(&from, || trend(&from.fleet(from.window()?)?, &rows.by, &rows.filter(), rows.limit))
        }
        Command::Query(QueryArguments { sql, from }) => answer(&from, || query(&from.fleet(from.window()?)?, &sql)),
        Command::Diff(arguments) => answer(&arguments.read.from, || compare(&arguments)),
    }
}

fn compare(arguments: &DiffArguments) -> Result<Answer, Failure> {
    let DiffArguments { read: ReadArguments { from, rows }, baseline_since, baseline_until } = arguments;
    let window = from.window()?;
    let baseline = match (baseline_since, baseline_until) {
        (Some(since), Some(until)) => Window::new(*since, *until)?,
        _ => window.earlier(A_DAY).ok_or_else(|| Failure::usage("there is no day before".to_owned()))?,
    };
    diff(&from.fleet(baseline)?, &from.fleet(window)?, &rows.by, &rows.filter(), rows.limit)
}

/// Prints an answer. The reader may be gone.
fn answer(from: &FromArguments, ask: impl FnOnce() -> Result<Answer, Failure>) -> ExitCode {
    let answer = match ask() {
        Ok(answer) => answer,
        Err(failure) => return failure.report(),
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let width = io::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    let width = width.map(|(terminal_size::Width(columns), _)| columns.into());
    match answer.write(from.format, width, &mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Failure::output("the answer".as_ref(), error).report()
        }
        _ => ExitCode::SUCCESS,
    }
}

fn export_all(arguments: ExportArguments) -> Result<ExitCode, Failure> {
    let options = Options {
        to: Store::named(&arguments.to)?,
        host: arguments.host.map_or_else(own_host, Ok)?,
        workload_by: arguments.workload_by,
        most_rows: arguments.rows,
    };
    let mut outcome = ExitCode::SUCCESS;
    // One that cannot be read keeps nobody from the others.
    for path in &arguments.recordings {
        match export(path, &options) {
            Ok(written) => println!("{}: {written}", path.display()),
            Err(failure) => outcome = failure.report(),
        }
    }
    Ok(outcome)
}
