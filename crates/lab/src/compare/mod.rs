//! `lockmeter-lab compare`: one command with one kind of its locks in several variants, run in turn, in random order.

mod outcome;
mod show;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockmeter_meter::reader::{Level, Session, UserSource};
use lockmeter_profile::Swaps;
use lockmeter_recorder::{StopSignals, Woken, preload, swap_environment};
use lockmeter_statistics::{Machine, Random};

use crate::arguments::compare::CompareArguments;
use crate::running_command::{self, Ended as CommandEnded, Running, Scratch};
use crate::time_left::TimeLeft;
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_cli::messages::say;
use lockmeter_cli::output;
use lockmeter_cli::swaps::Swap;
use outcome::{Better, Comparison, Measured, Runs};

/// How often segments of ended processes are emptied while a run lasts.
const TICK: Duration = Duration::from_secs(1);
/// A run that takes this many times as long as the longest before it is taken to hang.
const HANGS_AFTER_RUNS: u32 = 10;
/// None hangs before this: a machine may be busy for a while.
const HANGS_AFTER: Duration = Duration::from_secs(60);

pub fn run(arguments: &CompareArguments) -> Result<ExitCode> {
    if let Some(obstacle) = preload::obstacle(&arguments.command) {
        return Err(Failure::error(Status::NotAllowed, format!("{}, nor swapped", obstacle.why)));
    }
    let mut runner = Runner {
        arguments,
        scratch: Scratch::create()?,
        signals: StopSignals::catch().context("cannot catch signals")?,
        variants: arguments.swap.0.iter().map(|swap| Variant::prepare(*swap, arguments)).collect::<Result<_>>()?,
        longest: None,
    };
    let ended = runner.run_all()?;
    let comparison = runner.comparison();
    match ended {
        Ended::CommandFailed(status) => return Ok(status.into()),
        Ended::Interrupted if comparison.is_empty() => {
            say("lockmeter-lab: interrupted before every variant had run, so there is nothing to compare");
            return Ok(Status::Failed.into());
        }
        Ended::Interrupted | Ended::Well => {}
    }
    let mut out = output::open_until(arguments.output.as_deref(), runner.signals.pipe_wait()?)?;
    show::write(&comparison, arguments.format, &mut out)
        .map_err(|error| output::failed(arguments.output.as_deref(), error))?;
    for variant in comparison.variants.iter().filter(|variant| !variant.swap.is_std()) {
        if variant.hung_after.is_none() && variant.swaps.swapped() == 0 {
            say(format_args!(
                "warning: no lock was swapped with {}, so there is nothing in it to compare: the command uses no such pthread lock, or \
                 --lock chose none",
                variant.swap
            ));
        }
    }
    Ok(if comparison.has_hung() { Status::Failed.into() } else { ExitCode::SUCCESS })
}

/// One of those that are compared.
struct Variant {
    swap: Swap,
    environment: Vec<(&'static str, OsString)>,
    source: UserSource,
    swaps: Swaps,
    samples: Vec<f64>,
    /// This many runs are in `swaps`.
    all_runs: u64,
    /// How long the run that hung was waited for: there are no more.
    hung_after: Option<Duration>,
    // Last: its end removes what the source reads.
    _session: Session,
}

impl Variant {
    fn prepare(swap: Swap, arguments: &CompareArguments) -> Result<Self> {
        let library = preload::library()?;
        // Not metered: what is compared is the locks alone.
        let session = Session::create(Level::Off)?;
        let preloaded = std::env::var_os("LD_PRELOAD");
        let mut environment = session.environment(&library, preloaded.as_deref()).to_vec();
        environment.extend(swap_environment(
            &session,
            &swap.to_string(),
            arguments.lock.as_deref(),
            &arguments.command,
        )?);
        let source = session.source()?;
        let (swaps, samples) = (Swaps::default(), Vec::new());
        let (all_runs, hung_after) = (0, None);
        Ok(Self { swap, environment, source, swaps, samples, all_runs, hung_after, _session: session })
    }

    fn drain(&mut self) {
        self.swaps.merge(&self.source.drain().swaps);
    }
}

/// How the runs came to an end.
enum Ended {
    Well,
    Interrupted,
    /// With this status; what it printed was shown.
    CommandFailed(u8),
}

struct Runner<'a> {
    arguments: &'a CompareArguments,
    scratch: Scratch,
    signals: StopSignals,
    variants: Vec<Variant>,
    /// The longest run so far.
    longest: Option<Duration>,
}

impl Runner<'_> {
    fn run_all(&mut self) -> Result<Ended> {
        let mut random = Random::new(self.arguments.seed);
        let mut order: Vec<usize> = (0..self.variants.len()).collect();
        let (warmup, runs) = (self.arguments.warmup as usize, self.arguments.runs as usize);
        let mut left = (warmup + runs) * order.len();
        let mut time_left = TimeLeft::new();
        for round in 0..warmup + runs {
            // The first round begins with the variant that the others are compared with: it says how long a run takes.
            if round > 0 {
                random.shuffle(&mut order);
            }
            let mut measured = Vec::new();
            for &variant in &order {
                time_left.step(&format!("running with {}", self.variants[variant].swap), left);
                left -= 1;
                if self.variants[variant].hung_after.is_some() {
                    continue;
                }
                let ended = self.run_once(variant);
                if !matches!(ended, Ok(Once::Measured(_))) {
                    time_left.clear();
                }
                match ended? {
                    Once::Measured(value) => measured.push((variant, value)),
                    Once::Hung(limit) => self.variants[variant].hung_after = Some(limit),
                    Once::Interrupted => return Ok(Ended::Interrupted),
                    Once::Failed(status) => return Ok(Ended::CommandFailed(status)),
                }
            }
            // Whole rounds only: the variants are compared within each.
            if round >= warmup {
                for (variant, value) in measured {
                    self.variants[variant].samples.push(value);
                }
            }
        }
        time_left.clear();
        Ok(Ended::Well)
    }

    fn run_once(&mut self, variant: usize) -> Result<Once> {
        let limit = self.limit();
        let Self { arguments, scratch, signals, variants, longest } = self;
        let variant = &mut variants[variant];
        let running = Running::start(&arguments.command, &variant.environment, scratch, None)?;
        loop {
            let left = limit.map(|limit| limit.saturating_sub(running.elapsed()));
            match running.wait(signals, left.unwrap_or(TICK).min(TICK))? {
                Woken::Exited => break,
                Woken::Timeout | Woken::News if left.is_some_and(|left| left.is_zero()) => {
                    running.kill();
                    running.end()?;
                    variant.drain();
                    variant.all_runs += 1;
                    return Ok(Once::Hung(limit.unwrap_or_default()));
                }
                Woken::Timeout | Woken::News => variant.drain(),
                Woken::Signal(_) => {
                    running.end()?;
                    return Ok(Once::Interrupted);
                }
            }
        }
        let CommandEnded { status, run, interrupted } = running.finish(Instant::now(), false)?;
        variant.drain();
        variant.all_runs += 1;
        *longest = (*longest).max(Some(Duration::from_nanos(run.wall_ns)));
        if interrupted {
            return Ok(Once::Interrupted);
        }
        if !status.success() {
            let code = running_command::failed(&arguments.command, status, scratch);
            say(format_args!("lockmeter-lab: the failed run was with {}", variant.swap));
            return Ok(Once::Failed(code));
        }
        let Some(metric) = &arguments.metric else {
            #[expect(clippy::cast_precision_loss, reason = "a run of 104 days is exact to the nanosecond")]
            return Ok(Once::Measured(run.wall_ns as f64));
        };
        let value = outcome::captured(metric, &scratch.output_text());
        value.map(Once::Measured).ok_or_else(|| {
            scratch.show_output();
            let sentence = format!("what the command printed (above) has no number that `{metric}` matches");
            Failure::error(Status::Failed, sentence)
        })
    }

    /// How long a run may take; `None` if nothing is known of that.
    fn limit(&self) -> Option<Duration> {
        let by_runs = self.longest.map(|longest| longest.saturating_mul(HANGS_AFTER_RUNS).max(HANGS_AFTER));
        self.arguments.timeout.or(by_runs)
    }

    fn comparison(&self) -> Comparison {
        let arguments = self.arguments;
        let words: Vec<_> = arguments.command.iter().map(|word| word.to_string_lossy()).collect();
        let better = match &arguments.metric {
            Some(_) if !arguments.lower_is_better => Better::Higher,
            _ => Better::Lower,
        };
        let variants = self.variants.iter().map(|Variant { swap, swaps, samples, all_runs, hung_after, .. }| Runs {
            swap: *swap,
            swaps: swaps.clone(),
            samples: samples.clone(),
            hung_after: *hung_after,
            all_runs: *all_runs,
        });
        let measured = Measured { metric: arguments.metric.as_ref().map(ToString::to_string), better };
        Comparison::of(Machine::here(arguments.seed), words.join(" "), measured, variants, arguments.seed)
    }
}

/// How one run ended.
enum Once {
    Measured(f64),
    Interrupted,
    Failed(u8),
    /// It was ended after this time.
    Hung(Duration),
}
