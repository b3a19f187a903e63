//! `lockmeter top`: the tables of `report`, live.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockmeter_kernel::contention::Options;
use lockmeter_profile::Interval;
use lockmeter_profile::view::ReportBuilder;
use lockmeter_render::Exporter;

use crate::arguments::TopArguments;
use crate::signals::{StopSignals, Woken};
use crate::sources::Sources;
use crate::{output, query, target};

/// How often to look whether tables fill.
const TICK: Duration = Duration::from_millis(100);

/// Home, and clear from there: no flicker as with clearing first.
const HOME: &str = "\x1b[H";
const CLEAR_LINE_END: &str = "\x1b[K\n";
const CLEAR_BELOW: &str = "\x1b[J";
const ALTERNATE_SCREEN: &str = "\x1b[?1049h\x1b[?25l";
const NORMAL_SCREEN: &str = "\x1b[?25h\x1b[?1049l";

pub fn run(arguments: &TopArguments) -> Result<()> {
    let (scope, words) = match target::scope(&arguments.scope, &[])? {
        Some(scope) => scope,
        None => (lockmeter_kernel::contention::Scope::Machine, "whole machine".to_owned()),
    };
    let query = query::from_flags(&arguments.query, None);
    let sort = query::sort_key(&arguments.sort, &query.by)?;
    let mut signals = StopSignals::catch().context("cannot catch signals")?;
    let watched = target::watch(&scope)?;
    let options = Options { scope, stacks: arguments.stacks.budget() };
    let about = crate::about::describe(&words, options.stacks);
    let mut sources = Sources::watch(&options)?;
    let mut screen = Screen::open();
    let end = arguments.duration.map(|duration| Instant::now() + duration);
    loop {
        let mut builder = ReportBuilder::new(&about, &query);
        let woken =
            collect(&mut sources, &mut signals, &watched, arguments.interval, end, |interval| builder.add(&interval))?;
        let mut report = builder.finish();
        sort.apply(&mut report);
        screen.show(&report, arguments)?;
        if woken != Woken::Timeout || end.is_some_and(|end| Instant::now() >= end) {
            return Ok(());
        }
    }
}

/// Hands over all intervals of one refresh.
fn collect(
    sources: &mut Sources,
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
        let woken = signals.wait(left.min(TICK), watched.end(), sources.news())?;
        sources.take_news();
        if left.is_zero() {
            break Woken::Timeout;
        }
        if !matches!(woken, Woken::Timeout | Woken::News) {
            break woken;
        }
        if sources.tick() {
            add(sources.drain()?);
        }
    };
    add(sources.drain()?);
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

    fn show(&mut self, report: &lockmeter_profile::Report, arguments: &TopArguments) -> io::Result<()> {
        let stdout = io::stdout();
        let mut text = Vec::new();
        output::table_for(&stdout, arguments.query.limit, arguments.query.frames).write(report, &mut text)?;
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
