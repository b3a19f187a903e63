//! A recording of locks as a page: `lockmeter report --format html`, `lockmeter record --html`.

use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_cli::messages::say;
use lockmeter_cli::output;
use lockmeter_predict::forecast::{Plan, Prices};
use lockmeter_predict::measured::Measured;
use lockmeter_profile::recording::{PipeWait, RecordingReader, WholeFile};
use lockmeter_profile::view::{Query, ReportBuilder};
use lockmeter_profile::{About, Dimension, Interval, Limits, Report};
use lockmeter_render::html::{Flags, Page, Slices, VIEWS};
use serde_json::{Value, json};

use crate::arguments::{QueryArguments, ReportArguments};
use crate::predict::{doubts, forecast_each};
use crate::query;
use crate::report::{Excess, Loaded, load_each};
use crate::warnings::Warning;

/// Locks that have a forecast: those held longest. Each takes up to a second of simulation.
const FORECASTS: usize = 4;

/// The parts of the memory that a page may take: a fifth for the report by lock, in which nothing is added up, and a tenth for each of the
/// others; as much again for one that an interval is grouped in, and a quarter for the slices.
const SHARES: [usize; VIEWS.len()] = [5, 10, 10, 10, 10, 10];
const SHARE_OF_SLICES: usize = 4;

/// From the machine at hand to the largest that are sold, in the steps of `lockmeter predict`.
const FORECAST_CPUS: [usize; 6] = [1, 4, 16, 64, 128, 256];

/// `lockmeter report --format html`.
pub fn report(arguments: &ReportArguments, recordings: Vec<RecordingReader>) -> Result<()> {
    refuse_terminal(arguments.output.as_deref())?;
    let [recording] = <[RecordingReader; 1]>::try_from(recordings).map_err(|_| {
        usage("a page shows one recording; make one page of each, or compare two with `lockmeter diff --format html`")
    })?;
    let asked = query::from_flags(&arguments.query, arguments.window);
    let made = Made::of(recording, &asked)?;
    let mut out = output::open(arguments.output.as_deref())?;
    let flags = flags(&arguments.query, asked.window);
    let warnings = made.write(flags, &mut out).map_err(|error| output::failed(arguments.output.as_deref(), error))?;
    warnings.into_iter().for_each(say);
    Ok(())
}

/// A page is of no use on a terminal.
pub fn refuse_terminal(output: Option<&Path>) -> Result<()> {
    if output.is_none_or(output::is_standard_output) && io::stdout().is_terminal() {
        return Err(usage("a page is for a browser, not for a terminal; name a file with -o, such as -o report.html"));
    }
    Ok(())
}

fn usage(sentence: &str) -> anyhow::Error {
    Failure::error(Status::Usage, sentence)
}

/// All that a page of a recording shows.
pub struct Made {
    reports: [Report; VIEWS.len()],
    slices: Slices,
    warnings: Vec<Warning>,
    forecasts: Value,
}

impl Made {
    /// Reads the recording, as this query sees it; what the query groups by does not matter.
    pub fn of(recording: RecordingReader, asked: &Query) -> Result<Self> {
        let queries = VIEWS.map(|by| Query { by: by.to_vec(), ..asked.clone() });
        let mut slices = Slices::default();
        let mut begun_unix_ns = None;
        let mut each = |about: &About, interval: &Interval, limits: &Limits| {
            let begun_unix_ns = *begun_unix_ns.get_or_insert(interval.start_unix_ns);
            if !asked.covers(interval.start_unix_ns.saturating_sub(begun_unix_ns), interval.duration_ns) {
                return Ok(());
            }
            let of_view = |view: usize| {
                let share = limits.shared_by(SHARES[view]);
                // It has been seen to lie in the window, which the interval alone cannot tell.
                let mut alone = ReportBuilder::folding(about, &Query { window: None, ..queries[view].clone() });
                alone.add_within(interval, &share)?;
                alone.finish_within(&share)
            };
            let by_lock = of_view(0)?;
            slices.add(begun_unix_ns, 0, &by_lock);
            for view in 1..VIEWS.len() {
                slices.add(begun_unix_ns, view, of_view(view).as_ref().unwrap_or(&by_lock));
            }
            slices.keep_within(&limits.shared_by(SHARE_OF_SLICES));
            Ok(())
        };
        let loaded = load_each(recording, &queries, &SHARES, Excess::AddedUp, &mut each)?;
        let mut warnings = loaded[0].warnings(asked);
        warnings.extend(what_was_left_out(&loaded));
        let forecasts = forecasts(&loaded);
        Ok(Self { reports: loaded.map(|loaded| loaded.report), slices, warnings, forecasts })
    }

    /// Writes the page, and gives the warnings that are in it.
    pub fn write(self, flags: Flags, out: &mut dyn Write) -> io::Result<Vec<Warning>> {
        let page = Page {
            reports: &self.reports,
            slices: self.slices,
            warnings: self.warnings.iter().map(ToString::to_string).collect(),
            forecasts: self.forecasts,
            flags,
        };
        page.write(out)?;
        Ok(self.warnings)
    }
}

/// The page that `record --html` writes when the recording ends. Its place is looked at before metering begins.
pub struct Pending {
    path: PathBuf,
    file: WholeFile,
}

impl Pending {
    /// Makes sure that a page can be written there, of what goes into this recording.
    pub fn begin(path: &Path, recording: &Path, mode: u32, wait: Box<dyn PipeWait>) -> Result<Self> {
        refuse_terminal(Some(path))?;
        if is_same_place(path, recording) {
            let sentence =
                format!("{} is the recording; choose another place for the page with --html", path.display());
            return Err(Failure::error(Status::NoOutput, sentence));
        }
        let file = WholeFile::create(path, mode, wait).map_err(|error| {
            // The same rules, another flag.
            Failure::error(Status::NoOutput, error.to_string().replace("with -o", "with --html"))
        })?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Reads the recording, which stands at its begin, and writes the page.
    pub fn write(mut self, recording: RecordingReader) -> Result<()> {
        let made = Made::of(recording, &Query::by([Dimension::Lock]))?;
        let mut out = BufWriter::new(&mut self.file);
        let written = made.write(Flags::default(), &mut out).and_then(|_| out.flush());
        drop(out);
        written.map_err(|error| output::failed(Some(&self.path), error))?;
        self.file.commit().map_err(output::cannot_write)
    }
}

/// Whether both are one file, which need not be there yet.
fn is_same_place(one: &Path, other: &Path) -> bool {
    let folder = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        fs::metadata(folder.unwrap_or(Path::new("."))).map(|data| (data.dev(), data.ino()))
    };
    one.file_name() == other.file_name() && matches!((folder(one), folder(other)), (Ok(one), Ok(other)) if one == other)
}

/// What a page has not, for want of memory.
fn what_was_left_out(loaded: &[Loaded; VIEWS.len()]) -> Option<Warning> {
    let folded = loaded.iter().map(|loaded| loaded.folded).max().unwrap_or(0);
    let left_out = loaded.iter().zip(VIEWS).filter(|(loaded, _)| loaded.is_left_out);
    let left_out: Vec<String> =
        left_out.map(|(_, by)| by.iter().map(|by| by.name()).collect::<Vec<_>>().join(",")).collect();
    (folded > 0 || !left_out.is_empty()).then_some(Warning::SmallOnesAddedUp { folded, left_out })
}

/// What removing or splitting the locks that were held longest would gain, or why that is not known.
fn forecasts([by_lock, by_caller, ..]: &[Loaded; VIEWS.len()]) -> Value {
    let report: &Report = &by_lock.report;
    let measured = Measured::from_report(report);
    if measured.locks.is_empty() {
        return json!({ "why": "No holds were timed, so nothing can be forecast; `lockmeter record --hold -- COMMAND` times them." });
    }
    let plan =
        Plan { cpus: FORECAST_CPUS.to_vec(), threads_per_cpu: 1, threads: None, shards: 16, prices: Prices::default() };
    let locks: Vec<usize> = (0..measured.locks.len().min(FORECASTS)).collect();
    match forecast_each(&measured, &locks, &plan, &by_caller.report) {
        Ok(forecasts) => {
            let doubts = doubts(report, &measured, None, &forecasts);
            let doubts: Vec<String> = doubts.iter().map(ToString::to_string).collect();
            json!({ "locks": forecasts, "doubts": doubts })
        }
        Err(error) => json!({ "why": format!("There is no forecast: the recording {error}.") }),
    }
}

/// The flags that choose what a page shows; the window is from and to, in nanoseconds after the recording's begin.
pub fn flags(query: &QueryArguments, window: Option<(u64, u64)>) -> Flags {
    let mut others: Vec<String> = Vec::new();
    if let Some(task) = &query.task {
        others.extend(["--task".to_owned(), task.to_string()]);
    }
    let switches = [(query.user, "--user"), (query.kernel, "--kernel"), (query.own, "--own")];
    others.extend(switches.into_iter().filter(|(is_given, _)| *is_given).map(|(_, name)| name.to_owned()));
    let microseconds = |ns: u64| format!("{}us", ns / 1_000);
    Flags {
        kind: query.kind.map(|kind| kind.to_string()),
        mode: query.mode.map(|mode| mode.to_string()),
        lock: query.lock.as_ref().map(ToString::to_string),
        window: window.map(|(from_ns, to_ns)| {
            let to = if to_ns == u64::MAX { String::new() } else { microseconds(to_ns) };
            format!("{}..{to}", microseconds(from_ns))
        }),
        others,
    }
}
