//! What a user asks of a recording.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use crate::interval::{Interval, Task};
use crate::lock::{Lock, Space};
use crate::report::Dimension;
use crate::sample::{Happened, Key, Kind, Mode};

/// What to group by and what to leave out.
///
/// Filters choose the rows. The head of the report (`waits`, `own_waits`, `named_ns`, `worst`) always speaks of the whole
/// window, so that a filter does not change what share of the machine was lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// What to group by; nothing means one row for everything.
    pub by: Vec<Dimension>,
    /// From and to, nanoseconds after the recording's start. An interval belongs to the window that its middle lies in, so
    /// that windows side by side share none.
    pub window: Option<(u64, u64)>,
    /// Only locks of this kind.
    pub kind: Option<Kind>,
    /// Only waits in this mode.
    pub mode: Option<Mode>,
    /// Only locks of the kernel, or of programs.
    pub space: Option<Space>,
    /// Only locks whose name fits.
    pub lock: Option<NamePattern>,
    /// Only waits of this task.
    pub task: Option<TaskPattern>,
    /// Whether lockmeter's own waits get rows.
    pub include_own: bool,
}

impl Query {
    /// Everything, grouped by this.
    pub fn by(by: impl Into<Vec<Dimension>>) -> Self {
        Self { by: by.into(), ..Self::default() }
    }

    /// Whether some locks are left out.
    pub(super) const fn leaves_locks_out(&self) -> bool {
        self.kind.is_some() || self.mode.is_some() || self.space.is_some() || self.lock.is_some()
    }

    pub(super) fn groups_by(&self, dimension: Dimension) -> bool {
        self.by.contains(&dimension)
    }

    /// Whether rows tell apart who is to blame: the waits are then divided among them.
    pub(super) fn is_by_blame(&self) -> bool {
        self.by.iter().any(|dimension| dimension.is_of_blame())
    }

    /// Whether rows rest on sampled stacks.
    pub(super) fn is_sampled(&self) -> bool {
        self.by.iter().any(|dimension| dimension.is_sampled())
    }

    /// Whether the window covers an interval that begins so long after the recording's start.
    pub fn covers(&self, offset_ns: u64, duration_ns: u64) -> bool {
        let middle_ns = offset_ns.saturating_add(duration_ns / 2);
        self.window.is_none_or(|(from_ns, to_ns)| (from_ns..to_ns).contains(&middle_ns))
    }

    /// Leaves in an interval only what the filters choose.
    pub fn narrow(&self, interval: &mut Interval) {
        let tables = &interval.tables;
        let wanted = |key: &Key| {
            let task = key.task.and_then(|task| tables.task(task));
            let own = task.is_some_and(|task| task.own);
            let lock = tables.lock(key.lock);
            let name = lock.map_or("", |lock| &lock.name);
            let space = lock.map_or(Space::Kernel, Lock::space);
            (self.include_own || !own) && self.wants_space(space) && self.wants(name, key, task)
        };
        interval.totals.retain(|total| wanted(&total.key));
        interval.sampled.retain(|sampled| wanted(&sampled.key));
        interval.slow_holds.retain(|hold| {
            let name = tables.lock(hold.lock).map_or("", |lock| &lock.name);
            let task = tables.task(hold.task);
            task.is_some_and(|task| {
                (self.include_own || !task.own) && self.wants_hold(name, hold.kind, hold.mode, task)
            })
        });
    }

    pub(super) fn wants_space(&self, space: Space) -> bool {
        self.space.is_none_or(|wanted| wanted == space)
    }

    /// Whether a single hold is one of those asked for.
    pub(super) fn wants_hold(&self, lock_name: &str, kind: Kind, mode: Mode, task: &Task) -> bool {
        self.space != Some(Space::User)
            && self.kind.is_none_or(|wanted| wanted == kind)
            && self.mode.is_none_or(|wanted| wanted == mode)
            && self.lock.as_ref().is_none_or(|pattern| pattern.matches(lock_name))
            && self.task.as_ref().is_none_or(|pattern| pattern.matches(task))
    }

    /// Whether what a thread does is asked for.
    pub(super) fn wants_task(&self, task: &Task) -> bool {
        (self.include_own || !task.own) && self.task.as_ref().is_none_or(|pattern| pattern.matches(task))
    }

    /// Whether a single wait is one of those asked for.
    pub(super) fn wants_wait(&self, lock: &Lock, kind: Kind, mode: Mode, task: &Task) -> bool {
        self.wants_space(lock.space())
            && self.kind.is_none_or(|wanted| wanted == kind)
            && self.mode.is_none_or(|wanted| wanted == mode)
            && self.lock.as_ref().is_none_or(|pattern| pattern.matches(&lock.name))
            && self.wants_task(task)
    }

    /// Waits for conditions and barriers get rows only when their kind is asked for: idle threads would hide the locks.
    pub(super) fn wants(&self, lock_name: &str, key: &Key, task: Option<&Task>) -> bool {
        (key.happened != Happened::Idle || self.kind.is_some())
            && self.kind.is_none_or(|wanted| wanted == key.kind)
            && self.mode.is_none_or(|wanted| wanted == key.mode)
            && self.lock.as_ref().is_none_or(|pattern| pattern.matches(lock_name))
            && self.task.as_ref().is_none_or(|pattern| task.is_some_and(|task| pattern.matches(task)))
    }
}

/// A part of a name; or, with `*` (any characters) or `?` (any one) in it, the whole name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern {
    text: String,
    /// Whether it is the whole name, letter by letter.
    exact: bool,
}

impl NamePattern {
    /// This name and no other.
    pub fn exactly(name: &str) -> Self {
        Self { text: name.to_owned(), exact: true }
    }

    /// Whether the name fits.
    pub fn matches(&self, name: &str) -> bool {
        if self.exact {
            name == self.text
        } else if self.text.contains(['*', '?']) {
            glob(self.text.as_bytes(), name.as_bytes())
        } else {
            name.contains(&self.text)
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<&str> for NamePattern {
    fn from(pattern: &str) -> Self {
        Self { text: pattern.to_owned(), exact: false }
    }
}

impl FromStr for NamePattern {
    type Err = Infallible;

    fn from_str(pattern: &str) -> Result<Self, Infallible> {
        Ok(pattern.into())
    }
}

/// Which tasks: a process id, or a pattern for the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskPattern {
    /// The process with this id.
    Tgid(u32),
    /// Threads whose name fits.
    Name(NamePattern),
}

impl TaskPattern {
    /// Whether the task fits.
    pub fn matches(&self, task: &Task) -> bool {
        match self {
            Self::Tgid(tgid) => task.tgid == *tgid,
            Self::Name(pattern) => pattern.matches(&task.comm),
        }
    }
}

impl fmt::Display for TaskPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tgid(tgid) => tgid.fmt(f),
            Self::Name(pattern) => pattern.fmt(f),
        }
    }
}

impl FromStr for TaskPattern {
    type Err = Infallible;

    /// A number is a process id.
    fn from_str(pattern: &str) -> Result<Self, Infallible> {
        Ok(pattern.parse().map_or_else(|_| Self::Name(pattern.into()), Self::Tgid))
    }
}

/// Goes back only to the last `*`, so that no pattern takes more than pattern times name steps.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    let mut last_star = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                last_star = Some((at, in_name));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => {
                let Some((star, eaten)) = last_star else {
                    return false;
                };
                last_star = Some((star, eaten + 1));
                at = star + 1;
                in_name = eaten + 1;
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_part_of_the_name_or_with_a_star_the_whole() {
        let matches = |pattern: &str, name: &str| NamePattern::from(pattern).matches(name);
        assert!(matches("mmap", "mm_struct.mmap_lock"));
        assert!(matches("*.mmap_lock", "mm_struct.mmap_lock"));
        assert!(matches("mm_*_lo?k", "mm_struct.mmap_lock"));
        assert!(matches("**", ""));
        assert!(!matches("mmap_*", "mm_struct.mmap_lock"));
        assert!(!matches("?", ""));
    }

    #[test]
    fn a_number_names_a_process_and_a_word_a_thread() {
        assert_eq!("42".parse(), Ok(TaskPattern::Tgid(42)));
        assert_eq!("stress-*".parse(), Ok(TaskPattern::Name("stress-*".into())));
    }

    #[test]
    fn windows_side_by_side_cover_each_interval_once() {
        let query = |from, to| Query { window: Some((from, to)), ..Query::default() };
        for offset_ns in (0..3_000).step_by(7) {
            let covered = [query(0, 1_000), query(1_000, 5_000)].iter().filter(|q| q.covers(offset_ns, 333)).count();
            assert_eq!(covered, 1, "interval at {offset_ns}");
        }
    }
}
