//! `lockmeter report`: a recording, grouped and shown.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_cli::messages::say;
use lockmeter_cli::output;
use lockmeter_cli::progress::{Progress, Unit};
use lockmeter_profile::diff::Spread;
use lockmeter_profile::merge::{self, Difference};
use lockmeter_profile::recording::RecordingReader;
use lockmeter_profile::rules::installed;
use lockmeter_profile::view::{Query, ReportBuilder};
use lockmeter_profile::{About, Dimension, Interval, Limits, RecordingKind, Report, TooLarge};
use lockmeter_render::{Csv, Exporter, Folded, FoldedStacks, Histograms, Json, Pprof, Table};

use crate::arguments::{Format, ReportArguments};
use crate::input::{is_standard_input, kind, open, open_locks, refuse_standard_input_twice};
use crate::warnings::{Language, Warning};
use crate::{latency, page, query};

pub fn run(arguments: &ReportArguments) -> Result<()> {
    refuse_to_overwrite(arguments.output.as_deref(), &arguments.recordings)?;
    refuse_standard_input_twice(arguments.recordings.iter())?;
    let recordings = match arguments.recordings.as_slice() {
        [path] => {
            let recording = open(path)?;
            if kind(path, &recording)? == RecordingKind::Latency {
                return latency::report(arguments, path, recording);
            }
            vec![recording]
        }
        paths => paths.iter().map(|path| open_locks(path)).collect::<Result<_>>()?,
    };
    if arguments.histogram {
        let sentence =
            "--histogram draws what `lockmeter latency` recorded; --format json holds the histograms of waits";
        return Err(Failure::error(Status::Usage, sentence));
    }
    match arguments.format {
        Format::Pprof => return write_pprof(arguments, recordings),
        Format::Html => return page::report(arguments, recordings),
        _ => {}
    }
    let mut query = query::from_flags(&arguments.query, arguments.window);
    let folded = folded_stacks(&query.by);
    if arguments.format == Format::Folded {
        query.by = folded.needs().to_vec();
    }
    let sort = query::sort_key(&arguments.sort, &query.by)?;
    if recordings.len() > 1 && !merge::can_merge(&query.by) {
        let sentence = "single locks (addresses) are not the same in two recordings; group by lock instead";
        return Err(Failure::error(Status::Usage, sentence));
    }
    let [mut loaded] = load_all(recordings, std::array::from_ref(&query), 1)?;
    sort.apply(&mut loaded.report);
    let mut out = output::open(arguments.output.as_deref())?;
    write(&loaded.report, arguments, folded, &mut out)
        .map_err(|error| output::failed(arguments.output.as_deref(), error))?;
    for warning in loaded.warnings(&query) {
        say(warning);
    }
    Ok(())
}

/// A report never takes the place of what it is made of.
pub fn refuse_to_overwrite<'a>(output: Option<&Path>, recordings: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
    let Some(output) = output.filter(|output| !output::is_standard_output(output)) else { return Ok(()) };
    if recordings.into_iter().any(|recording| is_same_file(output, recording)) {
        let sentence =
            format!("{} is the recording itself; choose another place for the report with -o", output.display());
        return Err(Failure::error(Status::NoOutput, sentence));
    }
    Ok(())
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| if is_standard_input(path) { fs::metadata("/dev/stdin") } else { fs::metadata(path) };
    let place = |path: &Path| file(path).map(|data| (data.dev(), data.ino()));
    matches!((place(one), place(other)), (Ok(one), Ok(other)) if one == other)
}

fn write(report: &Report, arguments: &ReportArguments, folded: FoldedStacks, out: &mut dyn Write) -> io::Result<()> {
    match arguments.format {
        Format::Table => table(arguments).write(report, out)?,
        Format::Histogram => Histograms { table: table(arguments) }.write(report, out)?,
        Format::Json => Json.write(report, out)?,
        Format::Csv => Csv.write(report, out)?,
        Format::Folded => Folded { stacks: folded }.write(report, out)?,
        // Written before, from several reports.
        Format::Pprof | Format::Html => {}
    }
    out.flush()
}

/// As wide as the terminal it goes to, or plain and of any width.
fn table(arguments: &ReportArguments) -> Table {
    let query = &arguments.query;
    let table = output::table_into(arguments.output.as_deref(), query.rows(), query.frames);
    Table { folds_small: query.folds_small(), ..table }
}

/// A recording as a query sees it, and what it takes to judge that.
pub struct Loaded {
    pub report: Report,
    pub ended_cleanly: bool,
    /// How long all of the recording is, and in how many intervals.
    length_ns: u64,
    intervals: u64,
    /// Whose locks are not told apart here.
    languages: BTreeSet<Language>,
    /// Between the recordings that are added up.
    differences: Vec<Difference>,
    /// How many small stacks and threads were added up for want of memory.
    pub folded: u64,
    /// Even so it did not fit: this is the first report again.
    pub is_left_out: bool,
}

/// What is done with what takes more memory than a report may.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Excess {
    /// The recording is refused.
    Refused,
    /// What is small is added up; of the first report there is nothing small.
    AddedUp,
}

impl Loaded {
    /// What makes this report less certain than it looks.
    pub fn warnings(&self, query: &Query) -> Vec<Warning> {
        let mut warnings = Warning::about(&self.report, self.ended_cleanly);
        warnings.extend(self.differences.iter().cloned().map(Warning::AddedUp));
        warnings.extend(Warning::about_rules(&self.report.about.rules, installed()));
        warnings.extend(self.languages.iter().map(|language| match language {
            Language::Go if self.report.goroutines.looks > 0 => Warning::Goroutines,
            language => Warning::OwnLocks(*language),
        }));
        let is_outside = query.window.is_some() && self.report.intervals == 0 && self.intervals > 0;
        if is_outside {
            warnings.push(Warning::NoIntervalInWindow { length_ns: self.length_ns, intervals: self.intervals });
        }
        if is_outside || !self.languages.is_empty() {
            // More of the same would show no more.
            warnings.retain(|warning| *warning != Warning::NothingContended);
        }
        if self.report.waits.count > 0 && self.report.rows.is_empty() && self.report.slow_holds.is_empty() {
            warnings.push(Warning::NothingFits);
        }
        warnings
    }
}

/// A recording as two queries see it, and whether the recorder ended it cleanly.
pub fn load_two(path: &Path, queries: &[Query; 2]) -> Result<([Report; 2], bool)> {
    let [one, other] = load_each(open_locks(path)?, queries, &[2; 2], Excess::Refused, &mut |_, _, _| Ok(()))?;
    Ok(([one.report, other.report], one.ended_cleanly))
}

/// A recording as the query sees it.
pub fn load_whole(reader: RecordingReader, query: &Query) -> Result<Loaded> {
    let [loaded] = load_each(reader, std::array::from_ref(query), &[1], Excess::Refused, &mut |_, _, _| Ok(()))?;
    Ok(loaded)
}

/// A recording as each of these queries sees it, of `reports` that are held together, and what each interval says of each.
pub fn load_with_spreads<const N: usize>(
    reader: RecordingReader,
    queries: &[Query; N],
    reports: usize,
    spreads: &mut [Spread; N],
) -> Result<[Loaded; N]> {
    let mut each = |about: &About, interval: &Interval, limits: &Limits| {
        let limits = &limits.shared_by(reports);
        for (query, spread) in queries.iter().zip(&mut *spreads) {
            let mut alone = ReportBuilder::new(about, query);
            alone.add_within(interval, limits)?;
            spread.add(&alone.finish_within(limits)?);
            limits.check(spread.memory_bytes())?;
        }
        Ok(())
    };
    load_each(reader, queries, &[reports; N], Excess::Refused, &mut each)
}

/// Recordings added up, as each of these queries sees them. `reports` is how many are held together of each.
fn load_all<const N: usize>(
    recordings: Vec<RecordingReader>,
    queries: &[Query; N],
    reports: usize,
) -> Result<[Loaded; N]> {
    // Those that are added up, and their sum.
    let reports = if recordings.len() > 1 { reports * (recordings.len() + 1) } else { reports };
    let mut of_queries: [Vec<Loaded>; N] = std::array::from_fn(|_| Vec::with_capacity(recordings.len()));
    for recording in recordings {
        let loaded = load_each(recording, queries, &[reports; N], Excess::Refused, &mut |_, _, _| Ok(()))?;
        for (all, loaded) in of_queries.iter_mut().zip(loaded) {
            all.push(loaded);
        }
    }
    let added_up = of_queries.into_iter().filter_map(Loaded::added_up).collect::<Vec<_>>();
    added_up.try_into().map_err(|_| anyhow!("one report for each query"))
}

impl Loaded {
    /// Several recordings as one; `None` of none.
    fn added_up(all: Vec<Self>) -> Option<Self> {
        let (length_ns, intervals) = all.iter().fold((0, 0), |(length_ns, intervals), loaded| {
            (u64::saturating_add(length_ns, loaded.length_ns), intervals + loaded.intervals)
        });
        let ended_cleanly = all.iter().all(|loaded| loaded.ended_cleanly);
        let languages = all.iter().flat_map(|loaded| loaded.languages.iter().copied()).collect();
        let count = all.len();
        let reports: Vec<Report> = all.into_iter().map(|loaded| loaded.report).collect();
        let differences = merge::differences(&reports);
        let mut report = merge::merge(reports)?;
        if count > 1 {
            report.about.scope = format!("{} ({count} recordings)", report.about.scope);
        }
        let (folded, is_left_out) = (0, false);
        Some(Self { report, ended_cleanly, length_ns, intervals, languages, differences, folded, is_left_out })
    }
}

/// Takes an interval in beside the reports; the limits are those of all together.
pub type Each<'a> = &'a mut dyn FnMut(&About, &Interval, &Limits) -> Result<(), TooLarge>;

/// A recording as each of these queries sees it, from one reading. Each report has one of so many `shares` of the memory.
pub fn load_each<const N: usize>(
    mut reader: RecordingReader,
    queries: &[Query; N],
    shares: &[usize; N],
    excess: Excess,
    each: Each<'_>,
) -> Result<[Loaded; N]> {
    let mut progress = Progress::of(format_args!("reading {}", reader.name()), Unit::Bytes, reader.length_bytes());
    let mut builders = queries.each_ref().map(|query| {
        Some(match excess {
            Excess::Refused => ReportBuilder::new(reader.about(), query),
            Excess::AddedUp => ReportBuilder::folding(reader.about(), query),
        })
    });
    let can_do_without = |at: usize| at > 0 && excess == Excess::AddedUp;
    let (mut length_ns, mut intervals, mut languages) = (0, 0, BTreeSet::new());
    while let Some(interval) = reader.next_interval()? {
        for (at, kept) in builders.iter_mut().enumerate() {
            let Some(builder) = kept else { continue };
            match builder.add_within(&interval, &reader.limits().shared_by(shares[at])) {
                Ok(()) => {}
                Err(_) if can_do_without(at) => *kept = None,
                Err(error) => return Err(reader.too_large(error).into()),
            }
        }
        progress.reach(reader.read_bytes());
        each(reader.about(), &interval, &reader.limits()).map_err(|error| reader.too_large(error))?;
        length_ns = u64::saturating_add(length_ns, interval.duration_ns);
        intervals += 1;
        languages.extend(interval.tables.frames().iter().filter_map(Language::of));
    }
    let mut loaded = Vec::<Loaded>::with_capacity(N);
    for (at, builder) in builders.into_iter().enumerate() {
        let limits = reader.limits().shared_by(shares[at]);
        let finish = |mut builder: ReportBuilder| {
            builder.add_losses(reader.losses());
            builder.make_room_for_rows(&limits)?;
            Ok((builder.folded(), builder.finish_within(&limits)?))
        };
        let finished = match builder.map(finish).transpose() {
            Err(_) if can_do_without(at) => None,
            finished => finished.map_err(|error: TooLarge| reader.too_large(error))?,
        };
        let is_left_out = finished.is_none();
        let (folded, report) = finished.unwrap_or_else(|| (0, loaded[0].report.clone()));
        let (ended_cleanly, languages) = (reader.ended_cleanly(), languages.clone());
        let differences = Vec::new();
        loaded.push(Loaded {
            report,
            ended_cleanly,
            length_ns,
            intervals,
            languages,
            differences,
            folded,
            is_left_out,
        });
    }
    loaded.try_into().map_err(|_| anyhow!("one report for each query"))
}

/// Whose stacks to fold follows from what the report is grouped by.
fn folded_stacks(by: &[Dimension]) -> FoldedStacks {
    match (by.contains(&Dimension::Caller), by.contains(&Dimension::Blocker)) {
        (true, true) => FoldedStacks::Both,
        (false, true) => FoldedStacks::Blocker,
        _ => FoldedStacks::Caller,
    }
}

/// Who waits and who makes them wait, from one reading of the file.
fn write_pprof(arguments: &ReportArguments, recordings: Vec<RecordingReader>) -> Result<()> {
    if arguments.output.as_deref().is_none_or(output::is_standard_output) && io::stdout().is_terminal() {
        return Err(Failure::error(
            Status::Usage,
            "pprof output is binary; name a file with -o, then `go tool pprof -top FILE`",
        ));
    }
    let asked = query::from_flags(&arguments.query, arguments.window);
    let by_task = asked.by.contains(&Dimension::Task).then_some(Dimension::Task);
    let by =
        |dimensions: [Dimension; 2]| Query { by: dimensions.into_iter().chain(by_task).collect(), ..asked.clone() };
    let [waits, blame] = load_all(recordings, &[by(Pprof::WAITS), by(Pprof::BLAME)], 2)?;
    let mut out = output::open(arguments.output.as_deref())?;
    Pprof { waits: &waits.report, blame: &blame.report }
        .write(&mut out)
        .and_then(|()| out.flush())
        .map_err(|error| output::failed(arguments.output.as_deref(), error))?;
    for warning in waits.warnings(&asked) {
        say(warning);
    }
    Ok(())
}
