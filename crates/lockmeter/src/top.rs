//! `lockmeter top`: the tables of `report`, live.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use anyhow::{Context, Result};
use lockmeter_cli::output;
use lockmeter_kernel::contention::{Scope, StackBudget};
use lockmeter_kernel::latency::{LatencySource, Options as LatencyOptions, RUNNERS};
use lockmeter_profile::latency::LatencyBuilder;
use lockmeter_profile::view::ReportBuilder;
use lockmeter_profile::{Interval, RecordingKind, Source};
use lockmeter_recorder::target::{self, Target};
use lockmeter_recorder::{Ended, LockSources, Recorder, Sink, StopSignals};
use lockmeter_render::escape::escaped;
use lockmeter_render::latency::LatencyTable;
use lockmeter_render::{Exporter, Table};

use crate::arguments::TopArguments;
use crate::{latency, query, scope};

/// The column that `--sort` names where it is left out.
const DEFAULT_SORT: &str = "total_ns";

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
    let (scope, words) = match scope::from_flags(&arguments.scope, &[])? {
        Some(scope) => scope,
        None => (Scope::Machine, "whole machine".to_owned()),
    };
    let query = query::from_flags(&arguments.query, None);
    let sort = query::sort_key(&arguments.sort, &query.by)?;
    let signals = StopSignals::catch().context("cannot catch signals")?;
    let target = target::watch(&scope)?;
    let options = arguments.lock_options(scope);
    let about = lockmeter_recorder::describe(RecordingKind::Locks, &words, options.stacks);
    arguments.names.prepare()?;
    let source = LockSources::start(&options)?;
    let new = || ReportBuilder::new(&about, &query);
    let add = |builder: &mut ReportBuilder, interval: &Interval| builder.add(interval);
    let table = |builder: ReportBuilder, table: Table, text: &mut Vec<u8>| {
        let mut report = builder.finish();
        sort.apply(&mut report);
        table.write(&report, text)
    };
    refresh(arguments, source, signals, &target, new, add, table)
}

/// The tables of `latency`, live.
fn top_latency(arguments: &TopArguments) -> Result<()> {
    let query = latency::query(&arguments.query);
    // The order that fits locks is only the default.
    let column = if arguments.sort == DEFAULT_SORT { latency::DEFAULT_SORT } else { &arguments.sort };
    let sort = latency::sort_key(column)?;
    let signals = StopSignals::catch().context("cannot catch signals")?;
    let kinds = if query.kinds.is_empty() { RUNNERS.to_vec() } else { query.kinds.clone() };
    let source = LatencySource::start(&LatencyOptions { runners: kinds, threshold: None, every: false })?;
    let about = lockmeter_recorder::describe(RecordingKind::Latency, "whole machine", StackBudget::DEFAULT);
    let new = || LatencyBuilder::new(&about, &query);
    let add = |builder: &mut LatencyBuilder, interval: &Interval| builder.add(interval);
    let table = |builder: LatencyBuilder, table: Table, text: &mut Vec<u8>| {
        let mut report = builder.report();
        sort.apply(&mut report);
        LatencyTable { table, histograms: false }.write(&report, text)
    };
    refresh(arguments, source, signals, &Target::None, new, add, table)
}

/// Shows a table of what was metered since the last one, each interval and once more at the end.
fn refresh<S, B>(
    arguments: &TopArguments,
    source: S,
    mut signals: StopSignals,
    target: &Target,
    new: impl Fn() -> B,
    add: impl Fn(&mut B, &Interval),
    table: impl Fn(B, Table, &mut Vec<u8>) -> io::Result<()>,
) -> Result<()>
where
    S: Source,
    anyhow::Error: From<S::Error>,
{
    signals.catch_q();
    let (screen, builder) = (Screen::open(), new());
    let (next_due, notices) = (Instant::now() + arguments.interval, Vec::new());
    let mut sink = ScreenSink { arguments, screen, new, add, table, builder, next_due, notices };
    let recorder = Recorder { signals: &mut signals, target, duration: arguments.duration };
    let metered: Result<Ended> = recorder.run(source, &mut sink);
    metered?;
    // The last of it came after the last table.
    sink.due()
}

/// Shows what is metered on the screen.
struct ScreenSink<'a, B, N, A, T> {
    arguments: &'a TopArguments,
    screen: Screen,
    new: N,
    add: A,
    table: T,
    builder: B,
    next_due: Instant,
    /// What stands below the table.
    notices: Vec<String>,
}

impl<B, N, A, T> Sink for ScreenSink<'_, B, N, A, T>
where
    N: Fn() -> B,
    A: Fn(&mut B, &Interval),
    T: Fn(B, Table, &mut Vec<u8>) -> io::Result<()>,
{
    type Error = anyhow::Error;

    fn next_due(&self) -> Instant {
        self.next_due
    }

    fn take(&mut self, interval: Interval) -> Result<()> {
        (self.add)(&mut self.builder, &interval);
        Ok(())
    }

    fn due(&mut self) -> Result<()> {
        let builder = std::mem::replace(&mut self.builder, (self.new)());
        self.screen.show(self.arguments, |table, text| {
            (self.table)(builder, table, text)?;
            self.notices.iter().try_for_each(|notice| writeln!(text, "{}", escaped(notice)))
        })?;
        self.next_due = Instant::now() + self.arguments.interval;
        Ok(())
    }

    fn notice(&mut self, sentence: String) {
        self.notices.push(sentence);
    }
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
        let query = &arguments.query;
        let table = output::table_for(&stdout, query.rows(), query.frames);
        write(Table { folds_small: query.folds_small(), ..table }, &mut text)?;
        let mut out = stdout.lock();
        if !self.terminal {
            out.write_all(&text)?;
            writeln!(out)?;
            return out.flush();
        }
        let rows = usize::from(output::size(&out).1.unwrap_or(u16::MAX));
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
