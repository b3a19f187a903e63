//! Programs bare and metered, and the collector that reads the metered ones.

use std::ffi::OsString;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bench_harness::preloaded_library;
use lockmeter_meter::reader::{Level, Session, TIMED_HOLDS, UserSource};

/// As often as `lockmeter record` does.
const INTERVAL: Duration = Duration::from_secs(1);
/// How fast the collector ends.
const TICK: Duration = Duration::from_millis(50);

/// How a program's locks are metered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metering {
    /// Without the library.
    Bare,
    /// The library is there and does nothing.
    Off,
    Wait,
    /// As many holds are timed as by default.
    Hold,
    /// All are.
    HoldEvery,
}

/// What is switched within one process.
pub const LEVELS: [Metering; 3] = [Metering::Off, Metering::Wait, Metering::Hold];
/// What is switched in another: at level `hold` nobody's program has timed all its holds a moment before, and has all its locks
/// watched.
pub const EVERY: [Metering; 2] = [Metering::Off, Metering::HoldEvery];
/// What takes two.
pub const PROCESSES: [Metering; 2] = [Metering::Bare, Metering::Off];
/// They differ by their layout, too: several pairs do less.
pub const PAIRS_OF_PROCESSES: usize = 4;

impl Metering {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Off => "off",
            Self::Wait => "wait",
            Self::Hold => "hold",
            Self::HoldEvery => "hold --every",
        }
    }

    /// The level, and how many holds a thread times a second.
    const fn session(self) -> Option<(Level, u32)> {
        match self {
            Self::Bare => None,
            Self::Off => Some((Level::Off, 0)),
            Self::Wait => Some((Level::Wait, 0)),
            Self::Hold => Some((Level::Hold, TIMED_HOLDS)),
            Self::HoldEvery => Some((Level::Hold, 0)),
        }
    }

    /// Has a running program metered like this.
    pub fn switch(self, pid: u32) -> Result<()> {
        let Some((level, timed_holds)) = self.session() else { return Ok(()) };
        Session::time_holds(pid, timed_holds)?;
        Session::switch(pid, Some(level))?;
        Ok(())
    }
}

/// A way to run programs, and what is needed meanwhile.
pub struct Way {
    environment: Vec<(&'static str, OsString)>,
    collector: Option<Collector>,
}

struct Collector {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
    _session: Session,
}

impl Way {
    pub fn prepare(metering: Metering) -> Result<Self> {
        let Some((level, timed_holds)) = metering.session() else {
            return Ok(Self { environment: Vec::new(), collector: None });
        };
        let library = preloaded_library()?;
        let session = Session::create_timing(level, timed_holds).context("cannot prepare metering")?;
        let environment = session.environment(&library, None).to_vec();
        let directory = session.directory().to_owned();
        let ends = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let mut source = UserSource::open(&directory).expect("a session opens its own directory");
            let mut counted = 0;
            let mut last = Instant::now();
            loop {
                let is_last = asked.load(Relaxed);
                if is_last || last.elapsed() >= INTERVAL {
                    let interval = source.drain();
                    counted += interval.totals.iter().map(|total| total.value.count).sum::<u64>();
                    last = Instant::now();
                }
                if is_last {
                    return counted;
                }
                std::thread::sleep(TICK);
            }
        });
        Ok(Self { environment, collector: Some(Collector { ends, thread: Some(thread), _session: session }) })
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// To be called when its programs have ended. A metered program of which nothing was counted was not metered.
    pub fn finish(mut self, needs_events: bool) -> Result<()> {
        let Some(collector) = &mut self.collector else { return Ok(()) };
        collector.ends.store(true, Relaxed);
        let counted = collector.thread.take().and_then(|thread| thread.join().ok()).unwrap_or(0);
        if needs_events && counted == 0 {
            bail!("nothing was counted in the metered program: was the library preloaded?");
        }
        Ok(())
    }
}
