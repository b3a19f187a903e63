//! Threads that wait for a lock right now: for which, since when, for whom, and whether for ever.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::rc::Rc;

use lockmeter_profile::{
    Blocker, BlockerSource, Bucket, Happened, Interval, Key, Kind, Lock, LockHolder, Loss, Mode, Naming, OfFilesystem,
    OpenWait, Sampled, ThreadState, Total, Unnamed, Value,
};

use super::file_locks::FileWait;
use super::skeleton::types::{thread_look, thread_time};
use super::sleep_sites::{FutexWord, SleepSite, SleepSites};
use super::table::{Thread, Threads, is_asleep};
use crate::cgroups::CgroupTree;
use crate::clock::monotonic_ns;
use crate::contention::OlderWait;
use crate::futex::named_holder::outer_ids;
use crate::kernel_names::{KernelNames, is_of_slab};
use crate::lock_codes::kind_mode_of_flags;

/// A wait shorter than this is one of many that come and go.
const SHORTEST_NS: u64 = 100_000_000;

/// Waits told one by one in an interval, the oldest first.
const MOST: usize = 1000;

/// A wait that goes on.
pub(super) struct Wait<'a> {
    thread: &'a Thread,
    site: Rc<SleepSite>,
    age_ns: u64,
    /// The part of it that lies in the recording.
    seen_ns: u64,
    is_older: bool,
    is_timed: bool,
    /// Whether its thread has ended in it.
    is_cut: bool,
    for_what: For,
    holder: Option<&'a Thread>,
    /// Whether the lock names no more than the holder's process, whose first thread that is.
    is_held_by_process: bool,
    /// The thread that the lock names, if that has ended.
    ended_holder: Option<u32>,
    deadlock: Option<u32>,
}

enum For {
    Kernel { address: u64, kind: Kind, mode: Mode },
    User { lock: Lock, address: u64, kind: Kind, mode: Mode },
    File { lock: Lock, mode: Mode },
}

/// When a recording began, and the length of its intervals, the last of which has ended a moment ago.
#[derive(Clone, Copy)]
pub(super) struct Recorded {
    pub(super) begin_ns: u64,
    pub(super) length_ns: u64,
}

/// Threads by their ids.
struct ThreadIds<'a> {
    /// As the kernel counts them.
    by_tid: HashMap<u32, &'a Thread>,
    /// In processes that count them otherwise, by process: from their ids to the kernel's.
    by_inner: HashMap<u32, Option<HashMap<u32, u32>>>,
}

impl<'a> ThreadIds<'a> {
    fn new(threads: &'a Threads) -> Self {
        let cut = threads.cut().map(|(thread, _)| thread);
        let by_tid = cut.chain(threads.iter()).map(|thread| (thread.time.tid, thread)).collect();
        Self { by_tid, by_inner: HashMap::new() }
    }

    /// The thread that a process knows by this id.
    fn of_process(&mut self, tgid: u32, tid: u32) -> Option<&'a Thread> {
        let outer = self.by_inner.entry(tgid).or_insert_with(|| outer_ids(tgid));
        let tid = outer.as_ref().map_or(Some(tid), |outer| outer.get(&tid).copied())?;
        self.by_tid.get(&tid).copied()
    }

    /// Whether this is one of several threads of its process.
    fn has_more_threads(&self, thread: &Thread) -> bool {
        self.by_tid.values().filter(|other| other.time.tgid == thread.time.tgid).nth(1).is_some()
    }

    /// Whether no thread has this id any more that may have the lock at the word. Not said of processes that count their threads otherwise.
    fn has_ended(&mut self, word: &FutexWord, tid: u32) -> bool {
        let is_inner = self.by_inner.entry(word.tgid).or_insert_with(|| outer_ids(word.tgid)).is_some();
        let thread = if word.is_shared { format!("/proc/{tid}") } else { format!("/proc/{}/task/{tid}", word.tgid) };
        !is_inner && fs::exists(thread).is_ok_and(|exists| !exists)
    }
}

/// Finds those that have gone on for a while, or that have gone on until their threads ended. `at_rest` are the words, by process, for which
/// threads wait at rest.
pub(super) fn find<'a>(
    threads: &'a Threads,
    recorded: Recorded,
    at_rest: &HashSet<(u32, u64)>,
    sites: &mut SleepSites,
) -> Vec<Wait<'a>> {
    let Recorded { begin_ns, length_ns } = recorded;
    let now_ns = monotonic_ns();
    let mut ids = ThreadIds::new(threads);
    let going_on = threads.iter().map(|thread| (thread, None));
    let mut found: Vec<Wait<'a>> = going_on
        .chain(threads.cut().map(|(thread, end_ns)| (thread, Some(end_ns))))
        .filter_map(|(thread, end_ns)| {
            let (site, word) = thread.waits_at()?;
            let (is_cut, now_ns) = (end_ns.is_some(), end_ns.unwrap_or(now_ns));
            // What slept before was counted as it ended.
            let sleeps_ns = if thread.site().is_some() { thread.time.since_ns.max(begin_ns) } else { now_ns };
            let seen_ns = now_ns.saturating_sub(sleeps_ns).min(length_ns);
            let age_ns = thread.waited_ns(now_ns);
            let reason = site.reason().or(thread.state())?;
            if age_ns < SHORTEST_NS || !reason.is_lock() {
                return None;
            }
            let word = word.filter(|_| reason == ThreadState::UserLock);
            if word.is_some_and(|word| at_rest.contains(&(word.tgid, word.address))) {
                return None;
            }
            let is_asleep_for_file = reason == ThreadState::FileLock && site.program_lock().is_none();
            let file = if is_asleep_for_file { Some(FileWait::find(thread.time.tgid, thread.time.tid)?) } else { None };
            // Of one that says who has it, the word leads there.
            let program_lock = site.program_lock().filter(|_| word.is_none() || !site.names_owner());
            let (mut ended_holder, mut is_held_by_process) = (None, false);
            let mut is_older = thread.before_ns > 0 || thread.time.since_ns < begin_ns;
            let (for_what, holder, is_timed) = match (file, program_lock, word) {
                (Some(FileWait { lock, mode, holder }), _, _) => {
                    let holder = holder.and_then(|pid| ids.by_tid.get(&pid).copied());
                    is_held_by_process = holder.is_some_and(|holder| ids.has_more_threads(holder));
                    (For::File { lock, mode }, holder, false)
                }
                // One that the program tries again and again.
                (None, Some((lock, Kind::File, mode)), _) => (For::File { lock, mode }, None, false),
                (None, Some((lock, kind, mode)), word) => {
                    let (tgid, tid) = (thread.time.tgid, thread.time.tid);
                    let java = sites.awaited_by_java(tgid, tid);
                    let holder = java.as_ref().and_then(|java| ids.of_process(tgid, java.holder?));
                    let is_timed = word.is_some_and(|word| word.is_timed);
                    let monitor = java.and_then(|java| java.monitor);
                    // The thread gives up only to try again, and may have done so before it was first seen.
                    let tries_again = is_timed && monitor.is_some();
                    is_older |= tries_again;
                    let (address, name) = match monitor {
                        Some((address, class)) => (address, format!("{} of {class}", lock.name)),
                        None => (0, lock.name),
                    };
                    (For::User { lock: Lock { name, ..lock }, address, kind, mode }, holder, is_timed && !tries_again)
                }
                (None, None, Some(word)) => {
                    let mut word = word.clone();
                    word.read_again();
                    let (wait, lock, address) = sites.lock(site, &word)?;
                    if wait.happened != Happened::Wait {
                        return None;
                    }
                    let named = word.holder(&wait, site);
                    let holder = named.and_then(|tid| ids.of_process(thread.time.tgid, tid));
                    let holder = holder.filter(|holder| word.is_shared || holder.time.tgid == thread.time.tgid);
                    let has_ended = |tid: &u32| !is_cut && holder.is_none() && ids.has_ended(&word, *tid);
                    ended_holder = named.filter(has_ended).filter(|tid| {
                        // One that ends in peace has released the lock before.
                        word.read_again();
                        word.holder(&wait, site) == Some(*tid)
                    });
                    (For::User { lock, address, kind: wait.kind, mode: wait.mode }, holder, word.is_timed)
                }
                (None, None, None) => {
                    let by_stack = || site.kernel_lock().unwrap_or((Kind::Unknown, Mode::Exclusive));
                    let by_flags = (thread.lock != 0).then(|| kind_mode_of_flags(thread.lock_flags));
                    let (kind, mode) = by_flags.unwrap_or_else(by_stack);
                    (
                        For::Kernel { address: thread.lock, kind, mode },
                        ids.by_tid.get(&thread.owner_tid).copied(),
                        false,
                    )
                }
            };
            if let Some((place, _)) = holder.filter(|_| !is_held_by_process).and_then(Thread::waits_at) {
                place.name(sites);
            }
            site.name(sites);
            Some(Wait {
                thread,
                site: Rc::clone(site),
                age_ns,
                seen_ns,
                is_older,
                is_timed,
                is_cut,
                for_what,
                holder,
                is_held_by_process,
                ended_holder,
                deadlock: None,
            })
        })
        .collect();
    find_deadlocks(&mut found);
    found
}

/// Those for kernel locks that began before anybody could see them begin, each once.
pub(super) fn find_older(
    threads: &mut Threads,
    begin_ns: u64,
    names: &mut KernelNames,
    classes: &Classes<'_>,
) -> Vec<OlderWait> {
    let mut found = Vec::new();
    for (thread, site) in threads.first_sleeps() {
        site.learn_reason(names);
        let Some((kind, mode)) = site.kernel_lock() else { continue };
        let Some(lock) = lock_on_stack(thread, kind, names, classes) else { continue };
        let (tid, switches) = (thread.time.tid, thread.switches);
        found.push(OlderWait { tid, switches, lock, kind, mode, begin_ns: thread.time.since_ns.max(begin_ns) });
    }
    found
}

/// Whether threads seem to wait for each other.
pub(super) fn are_in_circles(waits: &[Wait<'_>]) -> bool {
    waits.iter().any(|wait| wait.deadlock.is_some())
}

/// Leaves out the waits that have ended since they were found, by a look at the threads that are not as they were: what a lock says of its
/// holder was read later than who waits for it, and the holder may be one that waited. Those that still wait did so when their locks
/// were read.
pub(super) fn leave_ended_out(
    waits: &mut Vec<Wait<'_>>,
    changed: impl Iterator<Item = Box<thread_look>>,
    sites: &mut SleepSites,
) {
    let changed: HashMap<u64, thread_time> = changed.map(|look| (look.time.id, look.time)).collect();
    waits.retain(|wait| {
        let before = &wait.thread.time;
        let sleeps_on = |now: &thread_time| is_asleep(now) && now.since_ns == before.since_ns;
        changed.get(&before.id).is_none_or(|now| sleeps_on(now) || wait.thread.waits_on_for_monitor(sites))
    });
    find_deadlocks(waits);
}

/// Follows each wait from holder to holder. Threads that come back to where they began wait for ever, unless one of them gives up by
/// itself, or [has ended](leave_ended_out) before what its lock says was read. They come first, then the
/// oldest.
fn find_deadlocks(waits: &mut [Wait<'_>]) {
    waits.iter_mut().for_each(|wait| wait.deadlock = None);
    let at_of: HashMap<u64, usize> = waits.iter().enumerate().map(|(at, wait)| (wait.thread.time.id, at)).collect();
    let next = |at: usize, waits: &[Wait<'_>]| {
        let wait = &waits[at];
        let is_told = matches!(wait.for_what, For::User { .. } | For::File { .. });
        let holder = wait.holder.filter(|_| is_told && !wait.is_timed && !wait.is_held_by_process)?;
        at_of.get(&holder.time.id).copied()
    };
    let mut circles = 0;
    for begin in 0..waits.len() {
        if waits[begin].deadlock.is_some() {
            continue;
        }
        let mut path = vec![begin];
        while let Some(at) = path.last().and_then(|at| next(*at, waits)) {
            if at == begin {
                for at in &path {
                    waits[*at].deadlock = Some(circles);
                }
                circles += 1;
                break;
            }
            if path.contains(&at) || waits[at].deadlock.is_some() {
                break;
            }
            path.push(at);
        }
    }
    waits.sort_by_key(|wait| (wait.deadlock.is_none(), std::cmp::Reverse(wait.age_ns), wait.thread.time.tid));
}

/// Counts those that the last interval of a recording ends with, for nobody sees their end: the part of each that lies in the recording.
pub(super) fn count(waits: &[Wait<'_>], open: &[OpenWait], interval: &mut Interval, cgroups: &CgroupTree) {
    // Waits for locks on files are in no table, and those of threads that have ended are counted where they ended.
    let is_counted = |wait: &Wait<'_>| !wait.is_cut && !matches!(wait.for_what, For::File { .. });
    let counted = || waits.iter().zip(open).filter(|(wait, _)| is_counted(wait) && wait.seen_ns > 0);
    for (wait, open) in counted() {
        let key = Key {
            task: Some(open.task),
            cgroup: wait.thread.cgroup(cgroups, &mut interval.tables),
            bucket: Bucket::of(wait.seen_ns),
            ..Key::of(Happened::Wait, open.lock, open.kind, open.mode)
        };
        let value = Value { count: 1, total_ns: wait.seen_ns, max_ns: wait.seen_ns, spin_ns: 0 };
        let blocker = match open.holder {
            Some(holder) => Blocker { task: Some(holder.task), ..Blocker::unknown(BlockerSource::Holder) },
            None => Blocker::unknown(BlockerSource::WakeupNotSeen),
        };
        interval.totals.push(Total { key, value });
        let (instance, filesystem, site) = (open.instance, OfFilesystem::NotLookedUp, open.site);
        interval.sampled.push(Sampled { key, instance, filesystem, site, blocker, stacks: 1, estimate: value });
    }
    interval.losses.settle(Loss::Unfinished, counted().count() as u64);
}

/// How the programs tell kernel locks apart.
pub(super) struct Classes<'a> {
    /// The class of the lock at an address.
    pub(super) of: &'a dyn Fn(u64) -> u64,
    /// The slab caches that they have met, which classes name by their numbers.
    pub(super) caches: &'a dyn Fn() -> &'a [u64],
}

/// Adds them to an interval.
pub(super) fn add(waits: &[Wait<'_>], interval: &mut Interval, names: &mut KernelNames, classes: &Classes<'_>) {
    for wait in waits.iter().take(MOST) {
        let (lock, instance, kind, mode, reason) = match &wait.for_what {
            For::User { lock, address, kind, mode } => {
                (lock.clone(), (*address != 0).then_some(*address), *kind, *mode, ThreadState::UserLock)
            }
            For::File { lock, mode } => (lock.clone(), None, Kind::File, *mode, ThreadState::FileLock),
            For::Kernel { address, kind, mode } => {
                let (kind, mode) = (*kind, *mode);
                let address = match *address {
                    0 => lock_on_stack(wait.thread, kind, names, classes).unwrap_or(0),
                    address => address,
                };
                let lock = (address != 0).then(|| {
                    let class = (classes.of)(address);
                    names.name_by_stack(class, kind, &wait.site.kernel, (classes.caches)())
                });
                let lock = lock.flatten().unwrap_or_else(of_no_name);
                (lock, (address != 0).then_some(address), kind, mode, ThreadState::KernelLock)
            }
        };
        let task = wait.thread.task(&mut interval.tables);
        let site = wait.site.stack(reason, &mut interval.tables, names);
        let holder = wait.holder.map(|holder| {
            let task = holder.task(&mut interval.tables);
            let does = Some(holder).filter(|_| !wait.is_held_by_process);
            let place = does.and_then(Thread::waits_at).map(|(site, _)| Rc::clone(site));
            let state = place.as_ref().and_then(|site| site.reason()).or(does.and_then(Thread::state));
            let site =
                place.and_then(|site| site.stack(state.unwrap_or(ThreadState::Other), &mut interval.tables, names));
            LockHolder { task, tid: holder.time.tid, state, site }
        });
        let lock = interval.tables.intern_lock(lock);
        interval.threads.open_waits.push(OpenWait {
            task,
            tid: wait.thread.time.tid,
            reason,
            lock,
            kind,
            mode,
            instance,
            site,
            age_ns: wait.age_ns,
            is_older: wait.is_older,
            is_timed: wait.is_timed,
            is_cut: wait.is_cut,
            holder,
            ended_holder: wait.ended_holder,
            deadlock: wait.deadlock,
        });
    }
}

/// The lock of a wait that nobody saw begin.
fn lock_on_stack(thread: &Thread, kind: Kind, names: &KernelNames, classes: &Classes<'_>) -> Option<u64> {
    let is_lock = |address: u64| names.is_in_image(address) || is_of_slab((classes.of)(address));
    let read = |address: u64| names.read_word(address);
    names.waiter_lists().lock_of(kind, thread.task, thread.stack_pointer, &read, &is_lock)
}

/// A wait that began before the recording does not tell its lock's address, and its stack names none.
fn of_no_name() -> Lock {
    Lock {
        name: "kernel lock".to_owned(),
        object: None,
        naming: Naming::Unnamed(Unnamed::UnknownMemory),
        detail: "its waiters began to wait before the recording, so its address is not known".to_owned(),
    }
}
