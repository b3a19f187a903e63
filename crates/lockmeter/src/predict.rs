//! `lockmeter predict`: from a recording's holds to throughput on more CPUs.

use std::io::Write;

use anyhow::Result;
use lockmeter_cli::ResultFormat;
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_cli::messages::say;
use lockmeter_cli::output;
use lockmeter_cli::progress::{Progress, Unit};
use lockmeter_predict::forecast::{Forecast, Plan, Prices, TooMuch, forecast};
use lockmeter_predict::measured::Measured;
use lockmeter_profile::view::Query;
use lockmeter_profile::{Dimension, Report};
use lockmeter_render::escape::Escaping;
use lockmeter_render::write_json;

use crate::arguments::predict::PredictArguments;
use crate::report;
use crate::warnings::Warning;

pub fn run(arguments: &PredictArguments) -> Result<()> {
    let queries = [Query::by([Dimension::Lock]), Query::by([Dimension::Lock, Dimension::Caller])];
    let ([report, callers], ended_cleanly) = report::load_two(&arguments.recording, &queries)?;
    let measured = Measured::from_report(&report);
    let chosen = choose(&measured, arguments)?;
    let plan = Plan {
        cpus: arguments.cpus.clone(),
        threads_per_cpu: arguments.threads_per_cpu,
        threads: arguments.threads,
        shards: arguments.shards,
        prices: Prices {
            spin_ns: arguments.spin_handoff.as_secs_f64() * 1e9,
            sleep_ns: arguments.sleep_handoff.as_secs_f64() * 1e9,
        },
    };
    let forecasts = forecast_each(&measured, &chosen, &plan, &callers).map_err(|error| refusal(error, arguments))?;
    let mut out = output::open(None)?;
    write(&forecasts, arguments, &mut out).map_err(|error| output::failed(None, error))?;
    if !ended_cleanly {
        say(Warning::RecorderDied);
    }
    for doubt in doubts(&report, &measured, arguments.threads, &forecasts) {
        say(doubt);
    }
    Ok(())
}

/// Forecasts of these locks; one that is far off the recording is refused.
pub fn forecast_each(
    measured: &Measured,
    locks: &[usize],
    plan: &Plan,
    callers: &Report,
) -> Result<Vec<Forecast>, TooMuch> {
    let mut progress = Progress::of("forecasting", Unit::Steps, Some(locks.len() as u64));
    let of_lock = |(done, lock): (u64, &usize)| {
        progress.reach(done);
        let forecast = forecast(measured, *lock, plan)?.refuse_if_doubtful(&measured.locks[*lock]);
        Ok(forecast.with_callers(measured, *lock, callers))
    };
    (0..).zip(locks).map(of_lock).collect()
}

fn refusal(error: TooMuch, arguments: &PredictArguments) -> anyhow::Error {
    if error.is_recorded() {
        Failure::error(Status::BadInput, format!("{} {error}", arguments.recording.display()))
    } else {
        Failure::error(Status::Usage, error.to_string())
    }
}

/// The locks asked for, longest held first.
fn choose(measured: &Measured, arguments: &PredictArguments) -> Result<Vec<usize>> {
    let file = arguments.recording.display();
    if measured.locks.is_empty() {
        let sentence = format!("{file} has no hold times; record it with `lockmeter record --hold -- COMMAND`");
        return Err(Failure::error(Status::BadInput, sentence));
    }
    let wanted = |at: &usize| arguments.lock.as_ref().is_none_or(|pattern| pattern.matches(&measured.locks[*at].name));
    let mut chosen: Vec<usize> = (0..measured.locks.len()).filter(wanted).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = measured.locks.iter().take(5).map(|lock| lock.name.as_str()).collect();
        let sentence = format!("no lock in {file} has such a name and hold times; choose from {}", names.join(", "));
        return Err(Failure::error(Status::Failed, sentence));
    }
    chosen.truncate(arguments.limit.max(1));
    Ok(chosen)
}

fn write(forecasts: &[Forecast], arguments: &PredictArguments, out: &mut dyn Write) -> std::io::Result<()> {
    match arguments.format {
        ResultFormat::Json => {
            write_json(&forecasts, &mut *out)?;
        }
        ResultFormat::Table => {
            let mut out = Escaping::text(&mut *out);
            for (at, forecast) in forecasts.iter().enumerate() {
                if at > 0 {
                    writeln!(out)?;
                }
                write!(out, "{forecast}")?;
            }
            writeln!(
                out,
                "\nACQUISITIONS A SECOND with {} on each CPU. SPINNING, SLEEPING: the lock as it is, if waiters spin or sleep.\n\
                 SIMULATED: as recorded, with the holds that were measured. SHARDED: split into {}. REMOVED: the lock costs nothing.",
                lockmeter_render::units::counted(arguments.threads_per_cpu as u64, "thread", "threads"),
                arguments.shards
            )?;
        }
    }
    out.flush()
}

/// The share of the threads' time above which waits that the model does not know change its answer.
const MUCH_UNTIMED: f64 = 0.05;

/// What makes forecasts less certain than they look; `threads` as the user says.
pub fn doubts(report: &Report, measured: &Measured, threads: Option<usize>, forecasts: &[Forecast]) -> Vec<Warning> {
    let mut doubts = Vec::new();
    let Some(needed) = forecasts.first().map(|forecast| forecast.threads) else { return doubts };
    if let Some(told) = threads.filter(|told| *told < needed) {
        doubts.push(Warning::MoreThreads { told, needed });
    }
    let Some(first) = forecasts.iter().find(|forecast| !forecast.points.is_empty()) else { return doubts };
    if threads.is_none() {
        doubts.push(Warning::ThreadsAssumed(first.threads));
    }
    let all_ns = report.duration_ns as f64 * first.threads as f64;
    let untimed = measured.untimed_ns as f64 / all_ns.max(1.0);
    if untimed > MUCH_UNTIMED {
        doubts.push(Warning::UntimedWaits((untimed * 100.0) as u64));
    }
    doubts
}
