//! `lockmeter report --format html`: one recording as a page.

use std::io::{self, IsTerminal};

use anyhow::Result;
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_cli::messages::say;
use lockmeter_cli::output;
use lockmeter_predict::forecast::{Plan, Prices, forecast};
use lockmeter_predict::measured::Measured;
use lockmeter_profile::recording::RecordingReader;
use lockmeter_profile::view::{Query, ReportBuilder};
use lockmeter_profile::{About, Interval, Limits, Report};
use lockmeter_render::html::{Flags, Page, Slices, VIEWS};
use serde_json::{Value, json};

use crate::arguments::ReportArguments;
use crate::query;
use crate::report::{Loaded, load_each};

/// Locks that have a forecast: those held longest. Each takes up to a second of simulation.
const FORECASTS: usize = 4;

/// Into how many parts the memory is divided that a page may take: one for each view, one for what an interval is grouped in, and two
/// for the slices.
const SHARES: usize = VIEWS.len() + 3;

/// From the machine at hand to the largest that are sold, in the steps of `lockmeter predict`.
const FORECAST_CPUS: [usize; 6] = [1, 4, 16, 64, 128, 256];

pub fn write(arguments: &ReportArguments, recordings: Vec<RecordingReader>) -> Result<()> {
    let usage = |sentence: &str| Failure::error(Status::Usage, sentence);
    if arguments.output.as_deref().is_none_or(output::is_standard_output) && io::stdout().is_terminal() {
        return Err(usage("a page is for a browser, not for a terminal; name a file with -o, such as -o report.html"));
    }
    let [recording] = <[RecordingReader; 1]>::try_from(recordings).map_err(|_| {
        usage("a page shows one recording; make one page of each, or compare two with `lockmeter diff`")
    })?;
    let asked = query::from_flags(&arguments.query, arguments.window);
    let queries = VIEWS.map(|by| Query { by: by.to_vec(), ..asked.clone() });
    let mut slices = Slices::default();
    let mut begun_unix_ns = None;
    let mut each = |about: &About, interval: &Interval, limits: &Limits| {
        let begun_unix_ns = *begun_unix_ns.get_or_insert(interval.start_unix_ns);
        if !asked.covers(interval.start_unix_ns.saturating_sub(begun_unix_ns), interval.duration_ns) {
            return Ok(());
        }
        let share = limits.shared_by(SHARES);
        for (view, query) in queries.iter().enumerate() {
            // It has been seen to lie in the window, which the interval alone cannot tell.
            let mut alone = ReportBuilder::new(about, &Query { window: None, ..query.clone() });
            alone.add_within(interval, &share)?;
            slices.add(begun_unix_ns, view, &alone.finish_within(&share)?);
        }
        slices.keep_within(&limits.shared_by(SHARES / 2))
    };
    let loaded = load_each(recording, &queries, SHARES, &mut each)?;
    let warnings = loaded[0].warnings(&asked);
    let forecasts = forecasts(&loaded);
    let page = Page {
        reports: &loaded.map(|loaded| loaded.report),
        slices,
        warnings: warnings.iter().map(ToString::to_string).collect(),
        forecasts,
        flags: flags(arguments, &asked),
    };
    let mut out = output::open(arguments.output.as_deref())?;
    page.write(&mut out).map_err(|error| output::failed(arguments.output.as_deref(), error))?;
    warnings.into_iter().for_each(say);
    Ok(())
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
    let of_lock = |lock| {
        let forecast = forecast(&measured, lock, &plan)?;
        Ok(forecast.refuse_if_far_off().with_callers(&measured, lock, &by_caller.report))
    };
    let forecasts: Result<Vec<_>, lockmeter_predict::forecast::TooMuch> =
        (0..measured.locks.len().min(FORECASTS)).map(of_lock).collect();
    match forecasts {
        Ok(forecasts) => json!({ "locks": forecasts }),
        Err(error) => json!({ "why": format!("There is no forecast: the recording {error}.") }),
    }
}

/// The flags that choose what the page shows.
fn flags(arguments: &ReportArguments, asked: &Query) -> Flags {
    let query = &arguments.query;
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
        window: asked.window.map(|(from_ns, to_ns)| {
            let to = if to_ns == u64::MAX { String::new() } else { microseconds(to_ns) };
            format!("{}..{to}", microseconds(from_ns))
        }),
        others,
    }
}
