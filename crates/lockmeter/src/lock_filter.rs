//! `record --lock PATTERN`: leaves out what other locks did, and says so if no lock fitted.

use lockmeter_profile::Interval;
use lockmeter_profile::view::{NamePattern, Query};

use crate::arguments::RecordArguments;

/// Leaves only the locks asked for, and remembers what locks there were.
#[derive(Debug, Default)]
pub struct LockFilter {
    names: std::collections::BTreeSet<String>,
    fitted: bool,
}

/// How many names to suggest.
const SUGGESTIONS: usize = 3;

impl LockFilter {
    /// Leaves only the locks asked for in the interval.
    pub fn narrow(&mut self, arguments: &RecordArguments, interval: &mut Interval) {
        let Some(pattern) = pattern(arguments) else { return };
        for lock in interval.tables.locks() {
            self.fitted |= pattern.matches(&lock.name);
            self.names.insert(lock.name.clone());
        }
        let query = Query { lock: Some(pattern.clone()), include_own: true, ..Default::default() };
        query.narrow(interval);
    }

    /// A sentence for a pattern that nothing fitted.
    pub fn complaint(&self, arguments: &RecordArguments) -> Option<String> {
        let pattern = pattern(arguments).filter(|_| !self.fitted)?;
        let mut nearest: Vec<(usize, &str)> =
            self.names.iter().map(|name| (distance(&pattern.to_string(), name), name.as_str())).collect();
        nearest.sort_unstable();
        let nearest: Vec<&str> = nearest.into_iter().take(SUGGESTIONS).map(|(_, name)| name).collect();
        let seen = match nearest[..] {
            [] => "no lock was seen".to_owned(),
            _ => format!("the nearest of {} names: {}", self.names.len(), nearest.join(", ")),
        };
        Some(format!("lockmeter: no lock with a name that matches `{pattern}` was seen; {seen}"))
    }
}

/// The locks to meter, if not all. With `--swap` the pattern says which to swap.
fn pattern(arguments: &RecordArguments) -> Option<&NamePattern> {
    arguments.lock.as_ref().filter(|_| arguments.swap.is_none())
}

/// How many letters of the pattern, in their order, a name lacks.
fn distance(pattern: &str, name: &str) -> usize {
    let mut letters = name.chars();
    let wanted: Vec<char> = pattern.chars().filter(|letter| !matches!(letter, '*' | '?')).collect();
    let found =
        wanted.iter().filter(|wanted| letters.by_ref().any(|letter| letter.eq_ignore_ascii_case(wanted))).count();
    (wanted.len() - found) * 8 + name.len().abs_diff(wanted.len()) / 4
}
