//! Processes that may still write to the pages of one that has ended.
//!
//! A child that was made by a bare `clone` system call ran no fork handlers: it takes itself for its parent and writes to its parent's
//! pages, also when that has ended. Nothing in its memory tells that it is another process. So the pages of an ended process are read
//! on, and serve no other, while a process lives that maps the session's memory, has no segment, and may be a descendant.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::DirEntryExt;

use super::living::{is_known_to_map, stat_behind_name};
use crate::writer::monotonic_ns;

/// The kernel counts a process's start in these.
const CLOCK_TICK_NS: u64 = 10_000_000;

/// Looks for processes that map a session's memory.
#[derive(Debug)]
pub(super) struct RemainingWriters {
    /// The file that the session's processes map.
    inode: u64,
    begun_ns: u64,
    /// Processes that do not map it, by their id, with the number of their folder in `/proc`: another process of that id has another.
    others: HashMap<u32, u64>,
}

/// A process that maps the memory and has no segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unknown {
    parent: u32,
    /// By the monotonic clock; rounded down.
    start_ns: u64,
}

/// Those that live now.
#[derive(Debug, Default)]
pub(super) struct Remaining {
    unknown: HashMap<u32, Unknown>,
    known: HashSet<u32>,
}

impl RemainingWriters {
    pub(super) fn new(inode: u64, begun_ns: u64) -> Self {
        Self { inode, begun_ns, others: HashMap::new() }
    }

    /// Looks at all processes but those that are known.
    pub(super) fn look(&mut self, known: HashSet<u32>) -> Remaining {
        let mut remaining = Remaining { unknown: HashMap::new(), known };
        let mut others = HashMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok) {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if remaining.known.contains(&pid) {
                continue;
            }
            if self.others.get(&pid) != Some(&entry.ino())
                && let Some(unknown) = self.unknown(pid)
            {
                remaining.unknown.insert(pid, unknown);
            } else {
                others.insert(pid, entry.ino());
            }
        }
        self.others = others;
        remaining
    }

    /// `None` if this process does not map the memory, or began before there was any.
    fn unknown(&self, pid: u32) -> Option<Unknown> {
        let (parent, start_ns) = parent_and_start(&fs::read(format!("/proc/{pid}/stat")).ok()?)?;
        let is_new = start_ns.saturating_add(CLOCK_TICK_NS) >= self.begun_ns;
        (is_new && is_known_to_map(pid, self.inode).unwrap_or(false)).then_some(Unknown { parent, start_ns })
    }
}

impl Remaining {
    /// Whether any of them may be a descendant of the process with this id that had a segment since then.
    pub(super) fn may_write_for(&self, pid: u32, made_ns: u64) -> bool {
        self.unknown.values().any(|unknown| {
            // One that ran another program since has the same id and a segment of its own.
            let ancestor = self.known_ancestor(*unknown);
            let may_be_child = ancestor.is_none_or(|ancestor| ancestor == pid);
            may_be_child && unknown.start_ns.saturating_add(CLOCK_TICK_NS) >= made_ns
        })
    }

    /// Who made it, if that one lives and has a segment, to which it writes then.
    fn known_ancestor(&self, unknown: Unknown) -> Option<u32> {
        let mut parent = unknown.parent;
        for _ in 0..=self.unknown.len() {
            if self.known.contains(&parent) {
                return Some(parent);
            }
            parent = self.unknown.get(&parent)?.parent;
        }
        None
    }
}

/// A process's parent, and when it began by the monotonic clock.
fn parent_and_start(stat: &[u8]) -> Option<(u32, u64)> {
    let mut fields = stat_behind_name(stat)?.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let ticks: u64 = fields.nth(17)?.parse().ok()?;
    let asleep_ns = boot_ns().saturating_sub(monotonic_ns());
    Some((parent, ticks.saturating_mul(CLOCK_TICK_NS).saturating_sub(asleep_ns)))
}

/// Nanoseconds since the machine was started, those while it was suspended as well.
fn boot_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_began_after_its_parent_and_before_now() {
        let before_ns = monotonic_ns();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let stat = fs::read(format!("/proc/{}/stat", child.id())).unwrap();
        let after_ns = monotonic_ns();
        child.kill().unwrap();
        child.wait().unwrap();
        let (parent, start_ns) = parent_and_start(&stat).unwrap();
        assert_eq!(parent, std::process::id());
        assert!((before_ns - 2 * CLOCK_TICK_NS..=after_ns).contains(&start_ns), "{before_ns} {start_ns} {after_ns}");
        assert_eq!(parent_and_start(b"1 (a) b) S 7"), None);
    }

    #[test]
    fn those_made_by_a_process_with_a_segment_write_there() {
        let unknown = |parent, start_ns| Unknown { parent, start_ns };
        let of = |unknown: &[(u32, Unknown)]| Remaining {
            unknown: unknown.iter().copied().collect(),
            known: [10, 11].into_iter().collect(),
        };
        const LATER: u64 = 10 * CLOCK_TICK_NS;
        assert!(!of(&[]).may_write_for(5, 0));
        assert!(of(&[(20, unknown(1, LATER))]).may_write_for(5, LATER), "its parent has ended");
        assert!(!of(&[(20, unknown(1, LATER))]).may_write_for(5, 3 * LATER), "that began later");
        assert!(!of(&[(20, unknown(10, LATER))]).may_write_for(5, LATER));
        assert!(of(&[(20, unknown(10, LATER))]).may_write_for(10, LATER), "the program before");
        let chain = [(20, unknown(21, LATER)), (21, unknown(11, LATER))];
        assert!(!of(&chain).may_write_for(5, LATER) && of(&chain).may_write_for(11, LATER));
        let circle = [(20, unknown(21, LATER)), (21, unknown(20, LATER))];
        assert!(of(&circle).may_write_for(5, LATER));
    }
}
