//! Folded stacks, as Brendan Gregg's `flamegraph.pl` and everything after it reads them.

use std::io;
use std::sync::Arc;

use lockmeter_profile::{Dimension, Happened, Report, Row, RowBlocker};

use crate::Exporter;
use crate::escape::{Form, escaped};
use crate::stacks::{NO_STACK, source_words};

/// Which stacks are folded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FoldedStacks {
    /// The stacks that waited: for a report by lock and caller.
    #[default]
    Caller,
    /// The stacks that made them wait: for a report by lock and blocker.
    Blocker,
    /// The stack that waited, `--`, and on top of it, upside down, the stack that woke it, as `offwaketime` has it: for a
    /// report by lock, caller and blocker.
    Both,
}

impl FoldedStacks {
    /// What a report must be grouped by (besides the lock, without which the leaves have no name).
    pub const fn needs(self) -> &'static [Dimension] {
        match self {
            Self::Caller => &[Dimension::Lock, Dimension::Caller],
            Self::Blocker => &[Dimension::Lock, Dimension::Blocker],
            Self::Both => &[Dimension::Lock, Dimension::Caller, Dimension::Blocker],
        }
    }
}

/// A report's waits as folded stacks: `outermost;…;innermost;[lock (mode)] total_ns`, one line a row.
///
/// Holds are left out: a flame graph adds all its lines up, and time held is not time waited.
///
/// Writing fails with `InvalidInput` when the report is not grouped by what [`FoldedStacks::needs`] says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Folded {
    /// Which stacks.
    pub stacks: FoldedStacks,
}

impl Exporter for Folded {
    fn form(&self) -> Form {
        Form::TEXT
    }

    fn export(&self, report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
        let needed = self.stacks.needs();
        if !needed.iter().all(|dimension| report.by.contains(dimension)) {
            let needed: Vec<&str> = needed.iter().map(|dimension| dimension.name()).collect();
            let sentence = format!("folded stacks need a report grouped --by {}", needed.join(","));
            return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
        }
        for row in report.rows.iter().filter(is_waited) {
            writeln!(out, "{} {}", self.fold(row).join(";"), row.value.total_ns)?;
        }
        Ok(())
    }
}

/// Whether a row is of time that was waited: a graph adds all its rows up, and time held is not time waited.
pub fn is_waited(row: &&Row) -> bool {
    matches!(row.happened, Happened::Wait | Happened::Idle) && row.value.total_ns > 0
}

impl Folded {
    /// The frames of a row, outermost first.
    fn fold(&self, row: &Row) -> Vec<String> {
        let waiter = row.task.as_ref().map(|task| frame(&task.comm));
        let caller = || outermost_first(row.caller.as_deref().unwrap_or_default(), NO_STACK);
        let mut folded: Vec<String> = Vec::new();
        match self.stacks {
            FoldedStacks::Caller => {
                folded.extend(waiter);
                folded.extend(caller());
                folded.push(lock_frame(row));
            }
            FoldedStacks::Blocker => {
                folded.extend(blocker_outermost_first(row.blocker.as_deref()));
                folded.push(lock_frame(row));
            }
            FoldedStacks::Both => {
                folded.extend(waiter);
                folded.extend(caller());
                folded.push(lock_frame(row));
                folded.push("--".to_owned());
                folded.extend(blocker_outermost_first(row.blocker.as_deref()).into_iter().rev());
            }
        }
        folded
    }
}

/// The blocker's task and stack; the reason where there is none.
fn blocker_outermost_first(blocker: Option<&RowBlocker>) -> Vec<String> {
    let Some(blocker) = blocker else { return vec![NO_STACK.to_owned()] };
    let reason = format!("[{}]", source_words(blocker.source));
    let task = blocker.task.iter().map(|task| frame(task));
    task.chain(outermost_first(&blocker.stack, &reason)).collect()
}

fn outermost_first(frames: &[Arc<str>], none: &str) -> Vec<String> {
    if frames.is_empty() {
        return vec![none.to_owned()];
    }
    frames.iter().rev().map(|name| frame(name)).collect()
}

/// `[mm_struct.mmap_lock (write)]`; lockmeter's own waits are marked.
fn lock_frame(row: &Row) -> String {
    let lock = frame(row.lock.as_deref().unwrap_or("unknown lock"));
    let mode = row.mode.map(|mode| format!(" ({mode})")).unwrap_or_default();
    let own = if row.own { " lockmeter's own" } else { "" };
    format!("[{lock}{mode}{own}]")
}

/// A name as a folded stack can hold it. `;` separates frames, a line break stacks, and a blank the stack from its number: of two
/// numbers at the end of a line `flamegraph.pl` takes the first for the stack's value before a change.
fn frame(name: &str) -> String {
    let name = escaped(name).replace(';', "\\u{3b}");
    let (start, end) = name.split_at(name.trim_end_matches(|c: char| c == ' ' || c == '.' || c.is_ascii_digit()).len());
    start.to_owned() + &end.replace(' ', "\\u{20}")
}
