//! `lockmeter top`: the tables of `report`, live.

use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockmeter_kernel::contention::{Metered, Options, StackBudget};
use lockmeter_kernel::latency::{LatencySource, Options as LatencyOptions, RUNNERS};
use lockmeter_profile::latency::LatencyBuilder;
use lockmeter_profile::view::ReportBuilder;
use lockmeter_profile::{Interval, Source};
use lockmeter_render::latency::LatencyTable;
use lockmeter_render::{Exporter, Table};

use crate::arguments::TopArguments;
use crate::latency;
use crate::signals::{StopSignals, Woken};
use crate::sources::Sources;
use crate::{output, query, target};

/// The column that `--sort` names where it is left out.
const DEFAULT_SORT: &str = "total_ns";

/// How often to look whether tables fill.
const TICK: Duration = Duration::from_millis(100);

/// Home, and clear from there: no flicker as with clearing first.
const HOME: &str = "\x1b[H";
const CLEAR_LINE_END: &str = "\x1b[K\n";
const CLEAR_BELOW: &str = "\x1b[J";
const ALTERNATE_SCREEN: &str = "\x1b[?1049h\x1b[?25l";
const NORMAL_SCREEN: &str = "\x1b[?25h\x1b[?1049l";

pub fn run(arguments: &TopArguments) -> Result<()> {
    if arguments.latency {
        return top_latency(arguments);
    }
    let (scope, words) = match target::scope(&arguments.scope, &[])? {
        Some(scope) => scope,
        None => (lockmeter_kernel::contention::Scope::Machine, "whole machine".to_owned()),
    };
    let query = query::from_flags(&arguments.query, None);
    let sort = query::sort_key(&arguments.sort, &query.by)?;
    let mut signals = StopSignals::catch().context("cannot catch signals")?;
    let watched = target::watch(&scope)?;
    let options = Options { scope, stacks: arguments.stacks.budget(), metered: metered(arguments) };
    let about = crate::about::describe(&words, options.stacks);
    let mut sources = Sources::watch(&options)?;
    signals.catch_q();
    let mut screen = Screen::open();
    let end = arguments.duration.map(|duration| Instant::now() + duration);
    loop {
        let mut builder = ReportBuilder::new(&about, &query);
        let woken =
            collect(&mut sources, &mut signals, &watched, arguments.interval, end, |interval| builder.add(&interval))?;
        let mut report = builder.finish();
        sort.apply(&mut report);
        screen.show(arguments, |table, text| table.write(&report, text))?;
        if woken != Woken::Timeout || end.is_some_and(|end| Instant::now() >= end) {
            return Ok(());
        }
    }
}

/// The tables of `latency`, live.
fn top_latency(arguments: &TopArguments) -> Result<()> {
    let query = latency::query(&arguments.query);
    // The order that fits locks is only the default.
    let column = if arguments.sort == DEFAULT_SORT { latency::DEFAULT_SORT } else { &arguments.sort };
    let sort = latency::sort_key(column)?;
    let mut signals = StopSignals::catch().context("cannot catch signals")?;
    let kinds = if query.kinds.is_empty() { RUNNERS.to_vec() } else { query.kinds.clone() };
    let mut source = LatencySource::start(&LatencyOptions { runners: kinds, threshold: None, every: false })?;
    let about = crate::about::describe("whole machine", StackBudget::DEFAULT);
    signals.catch_q();
    let mut screen = Screen::open();
    let end = arguments.duration.map(|duration| Instant::now() + duration);
    loop {
        let mut builder = LatencyBuilder::new(&about, &query);
        let nobody = target::Target::None;
        let woken =
            collect(&mut source, &mut signals, &nobody, arguments.interval, end, |interval| builder.add(&interval))?;
        let mut report = builder.report();
        sort.apply(&mut report);
        screen.show(arguments, |table, text| LatencyTable { table, histograms: false }.write(&report, text))?;
        if woken != Woken::Timeout || end.is_some_and(|end| Instant::now() >= end) {
            return Ok(());
        }
    }
}

/// What `top` refreshes from.
trait Refreshing {
    fn tick(&mut self) -> bool;
    fn drain(&mut self) -> Result<Interval>;

    /// Becomes readable when [`Self::take_news`] is due.
    fn news(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn take_news(&self) {}
}

impl Refreshing for Sources {
    fn tick(&mut self) -> bool {
        Self::tick(self)
    }

    fn drain(&mut self) -> Result<Interval> {
        Self::drain(self)
    }

    fn news(&self) -> Option<BorrowedFd<'_>> {
        Self::news(self)
    }

    fn take_news(&self) {
        Self::take_news(self);
    }
}

impl Refreshing for LatencySource {
    fn tick(&mut self) -> bool {
        Self::tick(self)
    }

    fn drain(&mut self) -> Result<Interval> {
        Ok(Source::drain(self)?)
    }
}

const fn metered(arguments: &TopArguments) -> Metered {
    if arguments.hold { Metered::Holds { hooks: None } } else { Metered::Waits }
}

/// Hands over all intervals of one refresh.
fn collect(
    source: &mut impl Refreshing,
    signals: &mut StopSignals,
    watched: &target::Target,
    refresh: Duration,
    end: Option<Instant>,
    mut add: impl FnMut(Interval),
) -> Result<Woken> {
    let due = Instant::now() + refresh;
    let due = end.map_or(due, |end| due.min(end));
    let woken = loop {
        let left = due.saturating_duration_since(Instant::now());
        let woken = signals.wait(left.min(TICK), watched.end(), source.news())?;
        source.take_news();
        if left.is_zero() {
            break Woken::Timeout;
        }
        if !matches!(woken, Woken::Timeout | Woken::News) {
            break woken;
        }
        if source.tick() {
            add(source.drain()?);
        }
    };
    add(source.drain()?);
    Ok(woken)
}

/// The terminal while `top` runs; the user's screen comes back when this is dropped.
struct Screen {
    terminal: bool,
}

impl Screen {
    fn open() -> Self {
        let terminal = io::stdout().is_terminal();
        if terminal {
            print!("{ALTERNATE_SCREEN}");
        }
        Self { terminal }
    }

    /// Shows what `write` makes of the table that fits.
    fn show(
        &mut self,
        arguments: &TopArguments,
        write: impl FnOnce(Table, &mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        let stdout = io::stdout();
        let mut text = Vec::new();
        write(output::table_for(&stdout, arguments.query.limit, arguments.query.frames), &mut text)?;
        let mut out = stdout.lock();
        if !self.terminal {
            out.write_all(&text)?;
            writeln!(out)?;
            return out.flush();
        }
        let rows = usize::from(output::size(out.as_raw_fd()).1.unwrap_or(u16::MAX));
        write!(out, "{HOME}")?;
        // The last line stays empty: a line break there would scroll.
        for line in String::from_utf8_lossy(&text).lines().take(rows.saturating_sub(1)) {
            write!(out, "{line}{CLEAR_LINE_END}")?;
        }
        write!(out, "{CLEAR_BELOW}")?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.terminal {
            print!("{NORMAL_SCREEN}");
            let _ = io::stdout().flush();
        }
    }
}
