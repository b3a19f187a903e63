//! Histograms for people: powers of two, drawn in letters.

use std::collections::HashMap;
use std::io;

use lockmeter_profile::{Bucket, Happened, Mode, Report, Row};

use crate::escape::Form;
use crate::stacks::chain;
use crate::table::{Table, about, sentence};
use crate::terminal::Weight;
use crate::units::{count, counted, duration, ratio};
use crate::{Exporter, Headline, foot};

/// Letters in the longest bar.
const BAR: u64 = 40;

/// A report as one picture for each group, mode, and wait or hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histograms {
    /// Width, colour and frames; its limit is of groups.
    pub table: Table,
}

impl Exporter for Histograms {
    fn form(&self) -> Form {
        self.table.colour.form()
    }

    fn export(&self, report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
        self.table.paragraph(&sentence(&Headline::of(report).to_string()), Weight::Bold, out)?;
        self.table.paragraph(&about(report), Weight::Dim, out)?;
        let groups = self.groups(report);
        let shown = groups.len().min(self.table.limit.unwrap_or(usize::MAX));
        for rows in &groups[..shown] {
            writeln!(out)?;
            let name = rows.first().map(|row| self.name(row)).unwrap_or_default();
            self.table.paragraph(&name, Weight::Bold, out)?;
            self.group(rows, out)?;
        }
        if shown < groups.len() {
            let rest = counted((groups.len() - shown) as u64, "more group", "more groups");
            writeln!(out)?;
            self.table.paragraph(&format!("… and {rest}; `-n 0` shows all"), Weight::Plain, out)?;
        }
        writeln!(out)?;
        for (line, weight) in foot::lines(report) {
            self.table.paragraph(&line, weight, out)?;
        }
        Ok(())
    }
}

impl Histograms {
    /// Rows that differ only in what happened and in which mode, under their common name; the heaviest group first.
    fn groups<'a>(&self, report: &'a Report) -> Vec<Vec<&'a Row>> {
        let mut groups: Vec<Vec<&Row>> = Vec::new();
        let mut places = HashMap::new();
        for row in &report.rows {
            let place = *places.entry(self.name(row)).or_insert(groups.len());
            match groups.get_mut(place) {
                Some(rows) => rows.push(row),
                None => groups.push(vec![row]),
            }
        }
        for rows in &mut groups {
            rows.sort_by_key(|row| (row.happened, row.mode));
        }
        groups
    }

    fn name(&self, row: &Row) -> String {
        let lock = row.lock.clone();
        let task = row.task.as_ref().map(|task| match task.tgid {
            Some(tgid) => format!("{} ({tgid})", task.comm),
            None => task.comm.clone(),
        });
        let cgroup = row.cgroup.clone();
        let caller = row.caller.as_deref().map(|frames| chain(frames, self.table.frames));
        let parts: Vec<String> = [lock, task, cgroup, caller].into_iter().flatten().collect();
        if parts.is_empty() { "all locks".to_owned() } else { parts.join(", ") }
    }

    fn group(&self, rows: &[&Row], out: &mut dyn io::Write) -> io::Result<()> {
        for row in rows {
            if row.happened == Happened::Failed {
                let tries = counted(row.value.count, "try", "tries");
                writeln!(out, "  {tries} to get it{} failed (trylock, or killed)", purpose(row.mode))?;
            } else {
                self.picture(row, out)?;
            }
        }
        Ok(())
    }

    fn picture(&self, row: &Row, out: &mut dyn io::Write) -> io::Result<()> {
        self.table.paragraph(&format!("  {}", summary(row)), Weight::Plain, out)?;
        drawn_histogram(row, BAR).iter().try_for_each(|line| writeln!(out, "    {line}"))
    }
}

/// A row's histogram, a line for each power of two and one above; the longest bar has this many letters.
pub fn drawn_histogram(row: &Row, bar: u64) -> Vec<String> {
    let filled = filled(row);
    let most = filled.iter().map(|(_, events)| *events).max().unwrap_or(0);
    let widest = count(most).len().max(5);
    let heading = format!("{:>21} : {:<widest$}  distribution", "time", "count");
    let lines = filled.into_iter().map(|(bucket, events)| {
        let bounds = format!("{:>9} -> {:<8}", duration(bucket.lower_ns()), duration(bucket.upper_ns()));
        let stars = "*".repeat(ratio(bar, events, most) as usize);
        format!("{bounds} : {:<widest$} |{stars:<width$}|", count(events), width = bar as usize)
    });
    std::iter::once(heading).chain(lines).collect()
}

/// The buckets from the first that holds something to the last, with the empty ones between.
fn filled(row: &Row) -> Vec<(Bucket, u64)> {
    let (Some((first, ..)), Some((last, ..))) = (row.histogram.first(), row.histogram.last()) else {
        return Vec::new();
    };
    let events =
        |exponent: u8| row.histogram.iter().find(|(bucket, ..)| bucket.0 == exponent).map_or(0, |found| found.1);
    (first.0..=last.0).map(|exponent| (Bucket(exponent), events(exponent))).collect()
}

const fn purpose(mode: Option<Mode>) -> &'static str {
    match mode {
        Some(Mode::Read) => " to read",
        Some(Mode::Write) => " to write",
        _ => "",
    }
}

fn summary(row: &Row) -> String {
    let purpose = purpose(row.mode);
    let what = match row.happened {
        Happened::Wait | Happened::Idle => format!("waited{purpose}"),
        Happened::Hold => format!("held{purpose}"),
        Happened::ContendedHold => format!("held{purpose} while others waited"),
        _ => row.happened.name().to_owned(),
    };
    let value = &row.value;
    if let Some(parked) = row.parked.as_deref().filter(|_| value.count == 0) {
        let (total, error) = (duration(parked.total_ns), duration(parked.error_ns()));
        return format!(
            "goroutines waited{purpose} for {total} (± {error}), by {}",
            counted(parked.looks, "look", "looks")
        );
    }
    if let Some(spun) = row.sampled_spin.as_deref().filter(|_| value.count == 0) {
        let (total, error) = (duration(spun.total_ns), duration(spun.error_ns()));
        return format!("spun{purpose} for {total} (± {error}), by {}", counted(spun.samples, "sample", "samples"));
    }
    let waited = match row.contended {
        Some(contended) => format!(", {} of these waited", count(contended)),
        None => String::new(),
    };
    format!(
        "{what} {}{waited}: {} in all, mean {}, p50 {}, p99 {}, max {}",
        counted(value.count, "time", "times"),
        duration(value.total_ns),
        duration(value.mean_ns()),
        duration(row.p50_ns),
        duration(row.p99_ns),
        duration(value.max_ns)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockmeter_profile::view::{Query, ReportBuilder};
    use lockmeter_profile::{About, Dimension, Interval, Key, Kind, Lock, Naming, Total, Value};

    fn drawn(durations_ns: &[u64]) -> String {
        let mut interval = Interval { duration_ns: 1_000_000_000, ..Interval::default() };
        let lock = interval.tables.intern_lock(Lock {
            name: "mm_struct.mmap_lock".into(),
            object: None,
            naming: Naming::SlabField,
            detail: String::new(),
        });
        for duration_ns in durations_ns {
            let bucket = Bucket::of(*duration_ns);
            let key = Key {
                happened: Happened::Hold,
                lock,
                kind: Kind::Rwsem,
                mode: Mode::Read,
                task: None,
                cgroup: None,
                context: None,
                cpu: None,
                bucket,
            };
            let value = Value { count: 1, total_ns: *duration_ns, max_ns: *duration_ns, spin_ns: 0 };
            interval.totals.push(Total { key, value });
        }
        let mut builder = ReportBuilder::new(&About::default(), &Query::by([Dimension::Lock]));
        builder.add(&interval);
        let mut out = Vec::new();
        Histograms::default().write(&builder.finish(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn bars_are_as_long_as_their_counts_and_empty_buckets_between_are_shown() {
        let text = drawn(&[1_100, 1_200, 1_300, 1_400, 4_100]);
        let bars: Vec<&str> = text.lines().filter(|line| line.ends_with('|')).collect();
        assert_eq!(bars.len(), 3, "{text}");
        let stars = |line: &str| line.chars().filter(|letter| *letter == '*').count();
        assert_eq!([stars(bars[0]), stars(bars[1]), stars(bars[2])], [40, 0, 10], "{text}");
        assert!(text.contains("held to read 5 times"), "{text}");
    }
}
