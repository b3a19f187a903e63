//! What is seen as lines: plain tables, or a JSON object each, where no terminal shows the screen.

use std::io::{self, Write};
use std::time::Instant;

use anyhow::Result;
use lockmeter_cli::ResultFormat;
use lockmeter_cli::messages::{notice_once, say};
use lockmeter_cli::output;
use lockmeter_profile::latency::{LatencyBuilder, LatencyQuery};
use lockmeter_profile::recording::RecordingReader;
use lockmeter_profile::view::{Query, ReportBuilder};
use lockmeter_profile::{About, Interval, Limits, TooLarge};
use lockmeter_recorder::Sink;
use lockmeter_render::escape::escaped;
use lockmeter_render::latency::{LatencySortKey, LatencyTable};
use lockmeter_render::{Exporter, JsonLine, SortKey, Table, lost_lines};

use crate::arguments::TopArguments;
use crate::warnings::Warning;

/// What is shown.
#[derive(Debug, Clone)]
pub enum Subject {
    Locks(Query, SortKey),
    Latency(LatencyQuery, LatencySortKey),
}

enum Builder {
    Locks(Box<ReportBuilder>),
    Latency(Box<LatencyBuilder>),
}

/// Writes what was added since the last time.
pub struct Lines<'a> {
    arguments: &'a TopArguments,
    about: &'a About,
    subject: Subject,
    builder: Builder,
    next_due: Instant,
    /// What stands below the table.
    notices: Vec<String>,
}

impl<'a> Lines<'a> {
    pub fn new(arguments: &'a TopArguments, about: &'a About, subject: Subject) -> Self {
        let builder = Self::builder(about, &subject);
        Self { arguments, about, subject, builder, next_due: Instant::now() + arguments.interval, notices: Vec::new() }
    }

    fn builder(about: &About, subject: &Subject) -> Builder {
        match subject {
            Subject::Locks(query, _) => Builder::Locks(Box::new(ReportBuilder::new(about, query))),
            Subject::Latency(query, _) => Builder::Latency(Box::new(LatencyBuilder::new(about, query))),
        }
    }

    fn add(&mut self, interval: &Interval, limits: &Limits) -> Result<(), TooLarge> {
        match &mut self.builder {
            Builder::Locks(builder) => builder.add_within(interval, limits),
            Builder::Latency(builder) => builder.add_within(interval, limits),
        }
    }

    pub fn write(&mut self) -> io::Result<()> {
        let new = Self::builder(self.about, &self.subject);
        let query = &self.arguments.query;
        let table = output::table_for(&io::stdout(), query.rows(), query.frames);
        let table = Table { folds_small: query.folds_small(), ..table };
        let mut text = Vec::new();
        match (std::mem::replace(&mut self.builder, new), &self.subject) {
            (Builder::Locks(builder), Subject::Locks(_, sort)) => {
                let mut report = builder.finish();
                sort.apply(&mut report);
                match self.arguments.format {
                    ResultFormat::Table => table.write(&report, &mut text)?,
                    ResultFormat::Json => JsonLine.write(&report, &mut text)?,
                }
            }
            (Builder::Latency(builder), Subject::Latency(_, sort)) => {
                let mut report = builder.report();
                sort.apply(&mut report);
                match self.arguments.format {
                    ResultFormat::Table => LatencyTable { table, histograms: false }.write(&report, &mut text)?,
                    ResultFormat::Json => JsonLine.write(&report, &mut text)?,
                }
            }
            _ => {}
        }
        if self.arguments.format == ResultFormat::Table {
            self.notices.iter().try_for_each(|notice| writeln!(text, "{}", escaped(notice)))?;
            writeln!(text)?;
        }
        let mut out = io::stdout().lock();
        out.write_all(&text)?;
        out.flush()
    }
}

impl Sink for Lines<'_> {
    type Error = anyhow::Error;

    fn next_due(&self) -> Instant {
        self.next_due
    }

    fn take(&mut self, interval: Interval) -> Result<()> {
        // What was measured here is not too large.
        let _ = self.add(&interval, &Limits::NONE);
        Ok(())
    }

    fn due(&mut self) -> Result<()> {
        self.write()?;
        self.next_due = Instant::now() + self.arguments.interval;
        Ok(())
    }

    fn notice(&mut self, sentence: String) {
        match self.arguments.format {
            ResultFormat::Table => self.notices.push(sentence),
            ResultFormat::Json => notice_once(sentence),
        }
    }
}

/// Writes a recording, interval by interval.
pub fn replay(arguments: &TopArguments, mut reader: RecordingReader, subject: Subject) -> Result<()> {
    let about = reader.about().clone();
    let mut lines = Lines::new(arguments, &about, subject);
    while let Some(interval) = reader.next_interval()? {
        lines.add(&interval, &reader.limits()).map_err(|error| reader.too_large(error))?;
        lines.write()?;
    }
    if !reader.losses().is_empty() {
        lost_lines(reader.losses()).into_iter().for_each(|(line, _)| say(line));
    }
    if !reader.ended_cleanly() {
        say(Warning::RecorderDied);
    }
    Ok(())
}
