//! Metering switched on and off while a command or a process runs.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_cli::messages::say;
use lockmeter_experiments::overhead::progress::Progress;
use lockmeter_experiments::overhead::slices::{Paused, Plan, Switch, compare};
use lockmeter_experiments::overhead::{Costs, KernelSwitch, Level};
use lockmeter_kernel::CgroupTree;
use lockmeter_kernel::contention::{StackBudget, open_process};
use lockmeter_meter::reader::{Level as ProgramLevel, Session, SessionError};
use lockmeter_recorder::{StopSignals, Woken};
use lockmeter_render::units::counted;
use lockmeter_statistics::{Machine, Random};

use super::write;
use crate::arguments::overhead::{OverheadArguments, ProgressBy};
use crate::running_command::{self, Ended, Running, Scratch};
use crate::time_left::TimeLeft;

const DEFAULT_ROUNDS: usize = 100;

/// A command may run for hours: its end is the end.
const ROUNDS_OF_A_COMMAND: usize = 100_000;

/// As many read and write calls a second make a measure of progress.
const ENOUGH_CALLS: f64 = 1_000.0;

/// For so long the calls of a process are counted to choose its measure.
const LOOK: Duration = Duration::from_millis(500);

/// One run of a command in a control group of its own.
pub fn command(arguments: &OverheadArguments, command: &[OsString]) -> Result<ExitCode> {
    let machine = Machine::here(arguments.seed);
    let scratch = Scratch::create()?;
    let mut signals = StopSignals::catch().context("cannot catch signals")?;
    let mut switch = KernelSwitch::load(StackBudget::DEFAULT)?;
    let group = Group::create()?;
    let running = Running::start(command, &[], &scratch, Some(group.entrance()?))?;
    let mut progress = Progress::Group(group.path.clone());
    let mut ended = false;
    let costs = measure(arguments, ROUNDS_OF_A_COMMAND, &mut switch, &mut progress, |time| {
        let woken = running.wait(&mut signals, time)?;
        ended |= woken == Woken::Exited;
        Ok(woken)
    });
    let Ended { status, interrupted, .. } =
        running.finish(Instant::now(), !ended).context("cannot wait for the command")?;
    if !interrupted && !status.success() {
        return Ok(running_command::failed(command, status, &scratch).into());
    }
    finish(arguments, machine, &command[0].to_string_lossy(), &costs?, Some(switch.counts()))
}

/// A process that runs.
pub fn attached(arguments: &OverheadArguments, pid: u32) -> Result<ExitCode> {
    let process = open_process(pid)?;
    let machine = Machine::here(arguments.seed);
    let mut signals = StopSignals::catch().context("cannot catch signals")?;
    let mut progress = choose_progress(arguments, pid);
    let wait = |time: Duration| signals.wait(time, Some(process.as_fd()), None);
    let what = format!("process {pid}");
    if arguments.user {
        let mut switch = ProgramSwitch { pid };
        // Refused before anything is measured, if it does not run under `record`.
        Session::switch(pid, Some(ProgramLevel::Off))?;
        let costs = measure(arguments, DEFAULT_ROUNDS, &mut switch, &mut progress, wait);
        // Back to what its recorder asked for; the process may be gone.
        let _ = Session::switch(pid, None);
        return finish(arguments, machine, &what, &costs?, None);
    }
    let mut switch = KernelSwitch::load(StackBudget::DEFAULT)?;
    let costs = measure(arguments, DEFAULT_ROUNDS, &mut switch, &mut progress, wait);
    finish(arguments, machine, &what, &costs?, Some(switch.counts()))
}

fn measure<S: Switch>(
    arguments: &OverheadArguments,
    otherwise: usize,
    switch: &mut S,
    progress: &mut Progress,
    mut wait: impl FnMut(Duration) -> std::io::Result<Woken>,
) -> Result<Costs> {
    let levels = arguments.levels.iter().copied().filter(|level| *level != Level::Hold || arguments.user).collect();
    let rounds = arguments.runs.unwrap_or(otherwise);
    let plan = Plan { rounds, slice: arguments.slice, levels, limit: arguments.limit };
    let mut time_left = TimeLeft::new();
    let mut failure = None;
    let costs = compare(&plan, switch, progress, &mut Random::new(arguments.seed), |time, left| {
        if plan.rounds < ROUNDS_OF_A_COMMAND {
            time_left.step("slices", left);
        }
        let end = Instant::now() + time;
        loop {
            match wait(end.saturating_duration_since(Instant::now())) {
                Ok(Woken::Timeout) if Instant::now() >= end => return Paused::Over,
                Ok(Woken::Timeout | Woken::News) => {}
                Ok(Woken::Exited | Woken::Signal(_)) => return Paused::Stop,
                Err(error) => {
                    failure = Some(error);
                    return Paused::Stop;
                }
            }
        }
    });
    time_left.clear();
    match failure {
        Some(error) => Err(error).context("cannot wait for the target"),
        None => Ok(costs),
    }
}

fn finish(
    arguments: &OverheadArguments,
    machine: Machine,
    what: &str,
    costs: &Costs,
    metered: Option<(u64, u64)>,
) -> Result<ExitCode> {
    if costs.costs.is_empty() && costs.idle_rounds > 0 {
        let rounds = counted(costs.idle_rounds as u64, "round", "rounds");
        say(format_args!(
            "lockmeter-lab: {what} did too little work to compare in {rounds} of slices of {} (time in the kernel does not count); measure while \
             it has more to do, with a longer --slice, or whole runs of it without --slices",
            humantime::format_duration(arguments.slice)
        ));
        return Ok(Status::Failed.into());
    }
    if costs.costs.is_empty() && costs.missing.is_empty() {
        say(format_args!(
            "lockmeter-lab: {what} ended, or was interrupted, before every level had run; there is nothing to compare"
        ));
        return Ok(Status::Failed.into());
    }
    let slice = humantime::format_duration(arguments.slice);
    let status = write(arguments, machine, &format!("{what}, slices of {slice}"), costs)?;
    if let Some((waits, timed)) = metered {
        say(format_args!(
            "{} metered on the whole machine, {timed} of mmap_lock timed by the naive meter",
            counted(waits, "contended acquisition was", "contended acquisitions were")
        ));
    }
    Ok(status)
}

fn choose_progress(arguments: &OverheadArguments, pid: u32) -> Progress {
    match arguments.progress {
        Some(ProgressBy::Calls) => return Progress::Calls(pid),
        Some(ProgressBy::UserTime) => return Progress::Process(pid),
        None => {}
    }
    let calls = Progress::Calls(pid);
    let before = calls.read();
    std::thread::sleep(LOOK);
    let rate = before.and_then(|before| Some(calls.read()?.since(&before, LOOK))).unwrap_or(0.0);
    // Metering inside the program is user time itself.
    if rate >= ENOUGH_CALLS || arguments.user { calls } else { Progress::Process(pid) }
}

/// Metering of a program's own locks, switched from outside.
struct ProgramSwitch {
    pid: u32,
}

impl Switch for ProgramSwitch {
    type Error = String;

    fn switch(&mut self, level: Level) -> Result<(), String> {
        let level = match level {
            Level::Bare | Level::Off => ProgramLevel::Off,
            Level::Wait => ProgramLevel::Wait,
            Level::Hold => ProgramLevel::Hold,
            Level::Naive => return Err("the naive meter times a lock of the kernel; leave --user out".to_owned()),
        };
        Session::switch(self.pid, Some(level)).map_err(|error: SessionError| error.to_string())
    }
}

/// A control group that tells the CPU time of all that a command starts. Removed at the end, with whatever still runs in it.
struct Group {
    path: PathBuf,
}

impl Group {
    fn create() -> Result<Self> {
        let tree = CgroupTree::find();
        let Some(root) = tree.root() else {
            let sentence = "no control groups of version 2 are mounted, which --slices needs to measure the command's CPU time; mount \
                them, or leave --slices out";
            return Err(Failure::error(Status::NotAllowed, sentence));
        };
        let path = root.join(format!("lockmeter-overhead-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| {
            let sentence =
                format!("cannot make a control group {}: {error}; run as root, or leave --slices out", path.display());
            Failure::error(Status::NotAllowed, sentence)
        })?;
        Ok(Self { path })
    }

    fn entrance(&self) -> Result<File> {
        let path = self.path.join("cgroup.procs");
        File::options().write(true).open(&path).with_context(|| format!("cannot open {}", path.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(2);
        let begin = Instant::now();
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
        while fs::remove_dir(&self.path).is_err_and(|error| error.kind() == std::io::ErrorKind::ResourceBusy)
            && begin.elapsed() < PATIENCE
        {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
