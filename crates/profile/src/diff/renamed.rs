//! Programs and libraries that have another file name after than before: `server-v1` and `server-v2`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{DiffKey, Renamed};
use crate::report::{Report, RowRoot, RowTask};

/// As many bytes of a file's name are the name of its threads.
const LONGEST_COMM: usize = 15;

/// What a report knows of locks with a name of their own, by the file that they are in.
type LocksOfFiles<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Files that are only before, each with the one that is only after whose locks have the same names.
pub(super) fn renamed_files(before: &Report, after: &Report) -> Vec<Renamed> {
    let (old, new) = (locks_of_files(before), locks_of_files(after));
    let only = |one: &LocksOfFiles<'_>, other: &LocksOfFiles<'_>| {
        one.keys().filter(|file| !other.contains_key(*file)).map(|file| (*file).to_owned()).collect::<Vec<_>>()
    };
    let (gone, come) = (only(&old, &new), only(&new, &old));
    let mut candidates = Vec::new();
    for one in &gone {
        for other in &come {
            let common = old[one.as_str()].intersection(&new[other.as_str()]).count();
            if common > 0 {
                let alike = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
                candidates.push((common, alike, one, other));
            }
        }
    }
    // Most locks in common first, then the names most alike.
    candidates.sort_by_key(|(common, alike, ..)| std::cmp::Reverse((*common, *alike)));
    let (mut taken, mut pairs) = (BTreeSet::new(), Vec::new());
    for (common, _, one, other) in candidates {
        if !taken.contains(&(true, one)) && !taken.contains(&(false, other)) {
            taken.extend([(true, one), (false, other)]);
            pairs.push(Renamed { before: one.clone(), after: other.clone(), locks: common as u64 });
        }
    }
    pairs
}

/// A lock of a file is named `file:lock`.
fn locks_of_files(report: &Report) -> LocksOfFiles<'_> {
    let mut files = LocksOfFiles::new();
    for lock in report.rows.iter().filter_map(|row| row.lock.as_deref()) {
        if let Some((file, name)) = lock.split_once(':')
            && !name.is_empty()
        {
            files.entry(file).or_default().insert(name);
        }
    }
    files
}

/// The key of a group before, by the names that files have after.
pub(super) fn renamed(key: DiffKey, files: &[Renamed]) -> DiffKey {
    files.iter().fold(key, |key, Renamed { before, after, .. }| {
        let of_file = |text: &str| of_file(text, before, after);
        let stack = |stack: Arc<[Arc<str>]>| match stack.iter().any(|frame| of_file(frame).is_some()) {
            true => stack.iter().map(|frame| of_file(frame).map_or_else(|| Arc::clone(frame), Arc::from)).collect(),
            false => stack,
        };
        let thread = |comm: String| if comm == begin(before) { begin(after).to_owned() } else { comm };
        DiffKey {
            lock: key.lock.map(|lock| of_file(&lock).unwrap_or(lock)),
            task: key.task.map(thread),
            caller: key.caller.map(stack),
            blocker: key.blocker.map(|(source, functions)| (source, stack(functions))),
            blocker_task: key.blocker_task.map(thread),
            root: key.root.map(|root| RowRoot {
                by_task: root.by_task.map(|task| task.map(|task| RowTask { comm: thread(task.comm), ..task })),
                lock: root.lock.map(|lock| of_file(&lock).unwrap_or(lock)),
                stack: stack(root.stack),
                ..root
            }),
            ..key
        }
    })
}

/// `file:lock`, `file+0x10` and `[unknown in file]`, in another file; `None` if it is none of this file.
fn of_file(text: &str, before: &str, after: &str) -> Option<String> {
    const UNKNOWN: &str = "[unknown in ";
    if let Some(rest) = text.strip_prefix(before).filter(|rest| rest.starts_with([':', '+'])) {
        return Some(format!("{after}{rest}"));
    }
    let is_unknown = text.strip_prefix(UNKNOWN).and_then(|rest| rest.strip_suffix(']')) == Some(before);
    is_unknown.then(|| format!("{UNKNOWN}{after}]"))
}

/// What fits into the name of a thread.
fn begin(file: &str) -> &str {
    let mut end = file.len().min(LONGEST_COMM);
    while !file.is_char_boundary(end) {
        end -= 1;
    }
    &file[..end]
}
