//! Whole runs of a command, each with one level of metering.

use std::ffi::OsString;
use std::fs;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, anyhow};
use lockmeter_cli::exit::Status;
use lockmeter_cli::messages::say;
use lockmeter_experiments::overhead::naive::Naive;
use lockmeter_experiments::overhead::slices::Switch;
use lockmeter_experiments::overhead::whole_runs::{Ended, Plan, compare};
use lockmeter_experiments::overhead::{KernelSwitch, Level};
use lockmeter_kernel::contention::{ContentionSource, Metered, Options, Scope, StackBudget};
use lockmeter_meter::reader::Session;
use lockmeter_profile::RecordingKind;
use lockmeter_profile::recording::RecordingWriter;
use lockmeter_recorder::{LockSources, StopSignals, Which, describe, preload};
use lockmeter_statistics::{Machine, Random};

use super::{Workload, write};
use crate::arguments::overhead::OverheadArguments;
use crate::metered_run::{self, EachInterval};
use crate::running_command::{self, Ended as CommandEnded, Running, Scratch};
use crate::time_left::TimeLeft;

const DEFAULT_RUNS: usize = 10;

/// A failure that ends the comparison.
enum Failure {
    /// The command ended with this status, which was shown.
    Command(u8),
    Other(anyhow::Error),
}

pub fn run(arguments: &OverheadArguments, workload: &Workload) -> Result<ExitCode> {
    let machine = Machine::here(arguments.seed);
    let plan = Plan {
        rounds: arguments.runs.unwrap_or(DEFAULT_RUNS),
        levels: arguments.levels.clone(),
        limit: arguments.limit,
    };
    let mut runner = Runner {
        arguments,
        workload,
        scratch: Scratch::create()?,
        signals: StopSignals::catch().context("cannot catch signals")?,
        command: workload.of_round(0),
        kernel: if arguments.kernel { Some(KernelSwitch::load(StackBudget::DEFAULT)?) } else { None },
        naive: None,
    };
    let mut time_left = TimeLeft::new();
    let compared = compare(&plan, &mut Random::new(arguments.seed), |level, step| {
        time_left.step(&format!("running {} {level}", workload.name), step.left);
        runner.command = workload.of_round(step.round);
        runner.run(level)
    });
    time_left.clear();
    match compared {
        Ok(costs) if costs.costs.is_empty() && costs.missing.is_empty() => {
            say("lockmeter-lab: interrupted before every level had run once, so there is nothing to compare");
            Ok(Status::Failed.into())
        }
        Ok(costs) => write(arguments, machine, &format!("{}, whole runs", workload.name), &costs),
        Err(Failure::Command(status)) => Ok(status.into()),
        Err(Failure::Other(error)) => Err(error),
    }
}

struct Runner<'a> {
    arguments: &'a OverheadArguments,
    workload: &'a Workload,
    /// Of this round.
    command: &'a [OsString],
    scratch: Scratch,
    signals: StopSignals,
    /// Where only kernel locks are metered: stays loaded from run to run.
    kernel: Option<KernelSwitch>,
    naive: Option<Result<Naive, String>>,
}

impl Runner<'_> {
    fn run(&mut self, level: Level) -> Ended<Failure> {
        if let Err(error) = self.prepare() {
            return Ended::Failed(Failure::Other(error));
        }
        let ended = match level {
            _ if self.kernel.is_some() => self.kernel_only(level),
            Level::Bare => self.bare(&[]),
            Level::Off => self.switched_off(),
            Level::Wait | Level::Hold => self.recorded(level),
            Level::Naive => self.naive(),
        };
        ended.unwrap_or_else(|error| Ended::Failed(Failure::Other(error)))
    }

    fn kernel_only(&mut self, level: Level) -> Result<Ended<Failure>> {
        if level == Level::Hold {
            return Ok(Ended::NotPossible("holds are those of the command's own locks; leave --kernel out".to_owned()));
        }
        if let Some(Err(why)) = self.kernel.as_mut().map(|kernel| kernel.switch(level)) {
            return Ok(Ended::NotPossible(why));
        }
        self.bare(&[])
    }

    /// Brings the workload back to where it begins.
    fn prepare(&self) -> Result<()> {
        if let Some(clean) = &self.workload.clean {
            let status = Command::new("sh").args(["-c", clean]).stdin(Stdio::null()).stdout(Stdio::null()).status();
            let status = status.context("cannot run `sh`")?;
            if !status.success() {
                return Err(anyhow!(
                    "`{clean}` failed ({status}); every run must begin alike, so nothing was compared"
                ));
            }
        }
        if self.arguments.drop_caches {
            // SAFETY: takes nothing; it writes dirty pages back, so that dropping clean ones drops all.
            unsafe { libc::sync() };
            fs::write("/proc/sys/vm/drop_caches", "3")
                .context("cannot empty the kernel's caches; run as root or leave --drop-caches out")?;
        }
        Ok(())
    }

    fn bare(&mut self, environment: &[(&'static str, OsString)]) -> Result<Ended<Failure>> {
        let running = Running::start(self.command, environment, &self.scratch, None)?;
        let ended = running.run_to_end(&mut self.signals).context("cannot wait for the command")?;
        Ok(self.outcome(ended))
    }

    /// What a run's end is worth to the comparison.
    fn outcome(&self, ended: CommandEnded) -> Ended<Failure> {
        if ended.interrupted {
            Ended::Interrupted
        } else if ended.status.success() {
            Ended::Well(ended.run)
        } else {
            Ended::Failed(Failure::Command(running_command::failed(self.command, ended.status, &self.scratch)))
        }
    }

    /// Programs attached and libraries preloaded, but all of it switched off.
    fn switched_off(&mut self) -> Result<Ended<Failure>> {
        let options = Options { scope: Scope::Machine, stacks: StackBudget::DEFAULT, metered: Metered::Waits };
        let mut kernel = match ContentionSource::start(&options) {
            Ok(kernel) => kernel,
            Err(error) => return Ok(Ended::NotPossible(error.to_string())),
        };
        kernel.pause(true);
        let session = match (preload::obstacle(self.command), preload::library()) {
            (None, Ok(library)) => {
                let session = Session::create(lockmeter_meter::reader::Level::Off)?;
                let preloaded = std::env::var_os("LD_PRELOAD");
                Some((session.environment(&library, preloaded.as_deref()), session))
            }
            _ => None,
        };
        let environment = session.as_ref().map_or(&[][..], |(environment, _)| environment);
        self.bare(environment)
    }

    /// As `record` would, file and all.
    fn recorded(&mut self, level: Level) -> Result<Ended<Failure>> {
        let options = metered_run::options(self.command, Which::All, level == Level::Hold);
        let about = describe(RecordingKind::Locks, "a command, to measure what metering costs", options.stacks);
        let sources = match LockSources::start(&options) {
            Ok(sources) => sources,
            Err(error) => return Ok(Ended::NotPossible(format!("{error:#}"))),
        };
        let recording = self.scratch.recording();
        let mut writer = RecordingWriter::create(&recording, &about)?;
        let mut sink = EachInterval::to(|interval| Ok(writer.append(&interval)?));
        let ended = metered_run::run(self.command, sources, &self.scratch, &mut self.signals, &mut sink)?;
        writer.finish()?;
        let _ = fs::remove_file(recording);
        Ok(self.outcome(ended))
    }

    fn naive(&mut self) -> Result<Ended<Failure>> {
        let switched = match self.naive.get_or_insert_with(Naive::load) {
            Ok(naive) => naive.switch(true),
            Err(why) => Err(why.clone()),
        };
        if let Err(why) = switched {
            return Ok(Ended::NotPossible(why));
        }
        let ended = self.bare(&[]);
        if let Some(Ok(naive)) = &mut self.naive {
            // Switching off cannot fail.
            let _ = naive.switch(false);
        }
        ended
    }
}
