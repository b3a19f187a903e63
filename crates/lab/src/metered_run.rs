//! A run of a command that is metered as `lockmeter record` would.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::Result;
use lockmeter_cli::messages::notice_once;
use lockmeter_kernel::contention::{Scope, StackBudget};
use lockmeter_kernel::futex::USUAL_SAMPLES;
use lockmeter_kernel::threads::LookPace;
use lockmeter_profile::{Interval, Source};
use lockmeter_recorder::{HoldOptions, LockOptions, LockSources, Recorder, Sink, StopSignals, Which};

use crate::running_command::{Ended, Running, Scratch};

/// How often what was metered is taken, as `record` does without `--interval`.
const INTERVAL: Duration = Duration::from_secs(1);

/// Hands on what is metered in each interval, and says what there is to say.
pub struct EachInterval<F> {
    take: F,
    next_due: Instant,
}

impl<F: FnMut(Interval) -> Result<()>> EachInterval<F> {
    /// From now on.
    pub fn to(take: F) -> Self {
        Self { take, next_due: Instant::now() + INTERVAL }
    }
}

impl<F: FnMut(Interval) -> Result<()>> Sink for EachInterval<F> {
    type Error = anyhow::Error;

    fn next_due(&self) -> Instant {
        self.next_due
    }

    fn take(&mut self, interval: Interval) -> Result<()> {
        (self.take)(interval)
    }

    fn due(&mut self) -> Result<()> {
        self.next_due = Instant::now() + INTERVAL;
        Ok(())
    }

    fn notice(&mut self, sentence: String) {
        notice_once(sentence);
    }
}

/// What `record -- COMMAND` meters, and with `--hold` also how long locks are held.
pub fn options(command: &[OsString], which: Which, hold: bool) -> LockOptions {
    LockOptions {
        scope: Scope::Children,
        command: command.to_vec(),
        which,
        stacks: StackBudget::DEFAULT,
        holds: hold.then(HoldOptions::default),
        per_cpu: false,
        swap: None,
        system_map: None,
        counts_unfinished: true,
        samples_a_second: USUAL_SAMPLES,
        looks: LookPace::EACH_TICK,
        threads: true,
        most_program_bytes: None,
    }
}

/// Runs the command to its end and hands what the sources meter to the sink.
pub fn run<K>(
    command: &[OsString],
    mut sources: LockSources,
    scratch: &Scratch,
    signals: &mut StopSignals,
    sink: &mut K,
) -> Result<Ended>
where
    K: Sink<Error = anyhow::Error>,
{
    let running = Running::start(command, &sources.environment(), scratch, None)?;
    sources.command_started()?;
    sources.take_notices().into_iter().for_each(notice_once);
    let recorder = Recorder { signals, target: running.target(), duration: None };
    let metered: Result<_> = recorder.run(sources, sink);
    match metered {
        Ok(ended) => {
            // The second signal came, and it goes on.
            if running.target().command_goes_on() {
                running.kill();
            }
            Ok(running.finish(ended.at, ended.by_signal)?)
        }
        Err(error) => {
            // The first error says more.
            let _ = running.end();
            Err(error)
        }
    }
}
