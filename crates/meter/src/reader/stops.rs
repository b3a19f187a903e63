//! Sees when metered processes are stopped by a signal (`SIGSTOP`, Ctrl-Z), and leaves word of it in their memory: a stop is no part of
//! the waits and holds that it falls into.
//!
//! The kernel tells nobody but a parent of stops, so the states of processes are looked at. Only time between two looks that both
//! found the process stopped counts as a stop: what is left out of a wait was never a wait.
//!
//! The one that looks also sees when a process has recorded something in a library for the first time.

use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};
use std::time::{Duration, Instant};

use super::living::{maps, stat_behind_name};
use super::memory::{Memory, u32_at};
use crate::layout::{Process, STOPS, Stop};
use crate::writer::monotonic_ns;

/// How often processes are looked at that run.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How many of those that run are looked at in turn: each takes a few microseconds.
const MOST_AT_A_TIME: usize = 16;

/// In a longer time between two looks a process may have gone on and been stopped again.
const LONGEST_UNSEEN_NS: u64 = 50_000_000;

/// The processes of a session that are looked at.
#[derive(Debug)]
pub(super) struct Stops {
    /// The file that the session's processes map.
    inode: u64,
    /// By their number in the session.
    processes: BTreeMap<u32, Watched>,
    /// The number to go on with.
    next: u32,
    looked: Option<Instant>,
    /// A process that has used a library that it did not use when it was last looked at.
    loaded: Option<u32>,
}

#[derive(Debug)]
struct Watched {
    page: usize,
    pid: u32,
    stops: u32,
    /// Programs and libraries that it had used when it was last looked at.
    modules: u32,
    /// The stop that goes on.
    stopped: Option<StoppedTime>,
}

#[derive(Debug, Clone, Copy)]
struct StoppedTime {
    since_ns: u64,
    until_ns: u64,
}

impl Stops {
    pub(super) fn new(inode: u64) -> Self {
        Self { inode, processes: BTreeMap::new(), next: 0, looked: None, loaded: None }
    }

    /// This process has begun; it may be known already, by an id that is none here.
    pub(super) fn begin(&mut self, number: u32, page: u32, pid: u32) {
        let watched = Watched { page: page as usize, pid, stops: 0, modules: 0, stopped: None };
        if self.processes.get(&number).is_none_or(|known| known.pid != pid) {
            self.processes.insert(number, watched);
        }
    }

    /// It has ended.
    pub(super) fn end(&mut self, number: u32) {
        self.processes.remove(&number);
    }

    /// Looks at those that were stopped, and at some of the others if it is time. Says whether any is stopped.
    pub(super) fn look(&mut self, memory: &Memory) -> bool {
        let is_time = self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_AGAIN);
        let stopped = self.processes.iter().filter(|(_, process)| process.stopped.is_some());
        let mut numbers: Vec<u32> = stopped.map(|(number, _)| *number).collect();
        if is_time {
            self.looked = Some(Instant::now());
            let running = |from: std::ops::RangeFrom<u32>| {
                self.processes.range(from).filter(|(_, process)| process.stopped.is_none()).map(|(number, _)| *number)
            };
            let most = MOST_AT_A_TIME.min(self.processes.len() - numbers.len());
            let turn: Vec<u32> = running(self.next..).chain(running(0..)).take(most).collect();
            self.next = turn.last().map_or(0, |last| last.wrapping_add(1));
            numbers.extend(turn);
        }
        let mut is_any_stopped = false;
        for number in numbers {
            let Some(process) = self.processes.get_mut(&number) else { continue };
            // One at a time: to see what a process has loaded takes a tenth of a millisecond.
            if is_time && self.loaded.is_none() && process.has_new_modules(memory) {
                self.loaded = Some(process.pid);
            }
            match process.look(memory, self.inode) {
                Some(is_stopped) => is_any_stopped |= is_stopped,
                None => drop(self.processes.remove(&number)),
            }
        }
        is_any_stopped
    }
}

impl Stops {
    /// A process that has used a library for the first time, once.
    pub(super) fn take_loaded(&mut self) -> Option<u32> {
        self.loaded.take()
    }
}

impl Watched {
    fn has_new_modules(&mut self, memory: &Memory) -> bool {
        let at = offset_of!(Process, module_count);
        let Ok(modules) = memory.read(self.page, at, size_of::<u32>()).map(|bytes| u32_at(&bytes, 0)) else {
            return false;
        };
        std::mem::replace(&mut self.modules, modules) != modules
    }

    /// Whether it is stopped; `None` if it has ended or is none of ours.
    fn look(&mut self, memory: &Memory, inode: u64) -> Option<bool> {
        let before_ns = monotonic_ns();
        if !is_stopped(self.pid)? {
            self.stopped = None;
            return Some(false);
        }
        let is_same = |seen: &StoppedTime| before_ns.saturating_sub(seen.until_ns) < LONGEST_UNSEEN_NS;
        let number = match self.stopped.filter(is_same) {
            Some(seen) => {
                self.stopped = Some(StoppedTime { until_ns: before_ns, ..seen });
                self.stops - 1
            }
            None => {
                // By a process of this id; in a container it may be another one.
                if !maps(self.pid, inode) {
                    return None;
                }
                let now_ns = monotonic_ns();
                self.stopped = Some(StoppedTime { since_ns: now_ns, until_ns: now_ns });
                self.stops = self.stops.wrapping_add(1);
                self.stops.wrapping_sub(1)
            }
        };
        if let Some(seen) = self.stopped {
            let at = offset_of!(Process, stops) + number as usize % STOPS * size_of::<Stop>();
            let times = [seen.since_ns.to_ne_bytes(), seen.until_ns.to_ne_bytes()].concat();
            memory.write(self.page, at, &times).ok()?;
            memory.put_u32(self.page, offset_of!(Process, stop_count), self.stops).ok()?;
        }
        Some(true)
    }
}

/// Whether a process's first thread is stopped; `None` if there is no such process.
fn is_stopped(pid: u32) -> Option<bool> {
    // That of the thread: the process's own adds up what all of its threads did.
    let stat = std::fs::read(format!("/proc/{pid}/task/{pid}/stat")).ok()?;
    Some(stat_behind_name(&stat)?.starts_with('T'))
}
