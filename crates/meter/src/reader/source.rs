//! All segments of a session, as one source.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::path::Path;

use lockmeter_profile::{
    Basis, Blocker, BlockerSource, Bucket, Frame, Happened, HoldBasis, Interval, IntervalClock, Key, Kind, Lock,
    LockId, Loss, Mode, Naming, OffTime, Sampled, Source, StackId, Swap, Task, TaskId, Total, Unnamed, Value,
};
use lockmeter_symbols::{
    MappedFile, Origin, UserNames, heap_lock, interpreter_lock, is_wait_for_work, lock_made_of_condition,
};

use super::directory::{Access, OwnDirectory};
use super::plausible::Bounds;
use super::segment::{Delta, LockFacts, SegmentReader};
use super::session::{self, SessionError};
use super::switches::{Switch, Switches};
use super::untimed::TimedHolds;
use crate::layout::{ENTRY_INIT, LOSSES, OFF, SWAPS, blocked, happened};
use crate::writer::monotonic_ns;

/// The losses of a segment in the order of [`crate::layout::Lost`].
const LOSS_CAUSES: [Loss; LOSSES] = [
    Loss::UserThreadsFull,
    Loss::UserSitesFull,
    Loss::UserSamplesFull,
    Loss::UserStacksFull,
    Loss::StackTooDeep,
    Loss::UserStackFailed,
    Loss::UserLocksFull,
    Loss::UserInterrupted,
    Loss::UserHeldTooMany,
    Loss::UserReleaseUnmatched,
    Loss::UserModulesFull,
    Loss::UserChildUnmetered,
    Loss::UserIncompatible,
];

/// What became of locks, in the order of [`crate::layout::Swap`].
const SWAP_OUTCOMES: [Swap; SWAPS] = [
    Swap::Mutex,
    Swap::RwlockToRwsem,
    Swap::RwlockToPercpuRwsem,
    Swap::SpinToSpin,
    Swap::LeftShared,
    Swap::LeftRobust,
    Swap::LeftInheriting,
    Swap::LeftProtecting,
    Swap::LeftNotChosen,
    Swap::LeftInUse,
    Swap::LeftNoRoom,
];

/// What is kept of all segments together, a few tens of bytes each: only a program that makes its numbers up has so many samples.
const MOST_KEPT: usize = 4 << 20;

/// Segments that are kept open; more are opened for each reading. A recorder may have a thousand descriptors in all.
const MOST_OPEN: usize = 256;

/// Reads the segments of all processes that report to a session.
pub struct UserSource {
    directory: OwnDirectory,
    /// By the name of their segment.
    processes: HashMap<String, Process>,
    names: UserNames,
    clock: IntervalClock,
    switches: Switches,
    /// What is called like a segment and is none; counted once.
    refused: HashSet<String>,
    /// When it began, and when it was last drained, by the clock of segments.
    begun_ns: u64,
    drained_ns: u64,
    processes_seen: u64,
    own_cpu_ns: u64,
}

struct Process {
    pid: u32,
    segment: SegmentReader,
    holds: TimedHolds,
    made_ns: u64,
    off: OffTime,
    /// `None` while its segment is not ready.
    level_at_start: Option<u32>,
    /// It had ended before it was read: nothing will come after.
    ended: bool,
}

impl Process {
    /// Off from its begin, if its parent was.
    fn begin_off(&mut self) {
        if self.level_at_start.is_none() {
            self.level_at_start = self.segment.level_at_start();
            self.off.switch(self.level_at_start == Some(OFF), self.made_ns);
        }
    }

    /// A child of a program that is off, which ended before anybody saw it: not worth a line under the report, and for how long
    /// it was there is not known. A shell may have thousands.
    fn came_and_went_off(&self, since_ns: u64) -> bool {
        self.ended && self.level_at_start == Some(OFF) && self.made_ns >= since_ns
    }
}

impl UserSource {
    /// Reads what comes into this directory, which must be this user's alone, from now on.
    pub fn open(directory: &Path) -> Result<Self, SessionError> {
        OwnDirectory::open(directory).map(Self::of).map_err(|error| SessionError::cannot_read(directory, &error))
    }

    /// As [`open`](Self::open).
    pub(super) fn of(directory: OwnDirectory) -> Self {
        let now_ns = monotonic_ns();
        Self {
            directory,
            processes: HashMap::new(),
            names: UserNames::new(),
            clock: IntervalClock::start(),
            switches: Switches::default(),
            refused: HashSet::new(),
            begun_ns: now_ns,
            drained_ns: now_ns,
            processes_seen: 0,
            own_cpu_ns: own_cpu_ns(),
        }
    }

    /// How many processes (programs: one that runs another counts twice) have reported so far.
    pub const fn processes_seen(&self) -> u64 {
        self.processes_seen
    }

    /// Adds everything measured since the last call to an interval, which keeps its own time.
    pub fn drain_into(&mut self, interval: &mut Interval) {
        // First, so that each segment that they name is found.
        let switches = self.switches.news(&self.directory);
        self.find_segments(interval);
        self.tell_off_time(&switches, interval);
        let bounds = Bounds::since(self.begun_ns, monotonic_ns());
        let mut kept = 0;
        let mut ended = Vec::new();
        for (at, (name, process)) in self.processes.iter_mut().enumerate() {
            if process.segment.open(|| self.directory.file(name, Access::Change)).is_ok() {
                process.begin_off();
                drain_process(process, bounds, &mut self.names, interval);
            }
            if at >= MOST_OPEN {
                process.segment.close();
            }
            kept += process.segment.kept();
            if process.ended || kept > MOST_KEPT {
                interval.losses.add(Loss::UserSegmentImplausible, u64::from(!process.ended));
                ended.push(name.clone());
            }
        }
        for name in ended {
            self.processes.remove(&name);
            let _ = self.directory.remove_file(&name);
        }
    }

    /// For how long processes were switched off since the last time.
    fn tell_off_time(&mut self, switches: &[Switch], interval: &mut Interval) {
        for switch in switches {
            if let Some(process) = self.processes.get_mut(&switch.segment) {
                process.off.switch(switch.is_off, switch.at_ns);
            }
        }
        let now_ns = monotonic_ns();
        let from_ns = std::mem::replace(&mut self.drained_ns, now_ns);
        let (mut longest_there_ns, mut longest_on_ns) = (0, 0);
        for process in self.processes.values_mut() {
            let off_ns = process.off.cut(now_ns);
            if !process.came_and_went_off(from_ns) {
                interval.off.add(process.pid, off_ns);
            }
            let there_ns = now_ns.saturating_sub(from_ns.max(process.made_ns));
            longest_there_ns = there_ns.max(longest_there_ns);
            longest_on_ns = there_ns.saturating_sub(off_ns).max(longest_on_ns);
        }
        if !interval.off.processes.is_empty() {
            interval.off.all_ns += longest_there_ns.saturating_sub(longest_on_ns);
        }
    }

    fn find_segments(&mut self, interval: &mut Interval) {
        let (segments, others): (Vec<_>, Vec<_>) = self
            .directory
            .names()
            .unwrap_or_default()
            .into_iter()
            .partition(|name| session::segment_pid(name).is_some());
        for name in others.iter().filter(|name| session::is_of_unmetered(name)) {
            interval.losses.add(Loss::UserChildUnmetered, self.directory.remove_file(name).is_ok().into());
        }
        let mut latest = HashMap::<u32, u64>::new();
        for name in &segments {
            if let (Some(pid), Some(made)) = (session::segment_pid(name), session::segment_made(name)) {
                let last = latest.entry(pid).or_default();
                *last = made.max(*last);
            }
        }
        for name in segments {
            let Some(pid) = session::segment_pid(&name) else { continue };
            // A process that ran another program left the first one's segment behind.
            let is_latest = session::segment_made(&name) == latest.get(&pid).copied();
            let ended = !is_latest || !session::is_alive(pid);
            if let Some(process) = self.processes.get_mut(&name) {
                process.ended = ended;
                continue;
            }
            let opened = self.directory.file(&name, Access::Change);
            let is_new_refusal = |error: &std::io::Error| error.kind() != std::io::ErrorKind::NotFound;
            if opened.as_ref().is_err_and(is_new_refusal) && self.refused.insert(name.clone()) {
                interval.losses.add(Loss::UserSegmentDamaged, 1);
            }
            if let Ok(file) = opened {
                self.processes_seen += 1;
                let mut process = Process {
                    pid,
                    segment: SegmentReader::new(file),
                    holds: TimedHolds::default(),
                    made_ns: session::segment_made(&name).unwrap_or(0),
                    off: OffTime::default(),
                    level_at_start: None,
                    ended,
                };
                process.begin_off();
                if self.processes.len() >= MOST_OPEN {
                    process.segment.close();
                }
                self.processes.insert(name, process);
            }
        }
    }
}

impl Source for UserSource {
    type Error = Infallible;

    fn drain(&mut self) -> Result<Interval, Infallible> {
        let mut interval = self.clock.cut();
        self.drain_into(&mut interval);
        let own_cpu_ns = own_cpu_ns();
        interval.overhead.own_cpu_ns = own_cpu_ns.saturating_sub(self.own_cpu_ns);
        self.own_cpu_ns = own_cpu_ns;
        Ok(interval)
    }
}

/// CPU time of this process so far.
fn own_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

fn drain_process(process: &mut Process, bounds: Bounds, names: &mut UserNames, interval: &mut Interval) {
    let mut reading = match process.segment.drain(process.ended, bounds) {
        Ok(Some(reading)) => reading,
        Ok(None) => return,
        Err(_) => {
            interval.losses.add(Loss::UserSegmentDamaged, 1);
            return;
        }
    };
    for (outcome, count) in SWAP_OUTCOMES.iter().zip(reading.swaps) {
        interval.swaps.add(*outcome, count);
    }
    for (cause, count) in LOSS_CAUSES.iter().zip(reading.losses) {
        interval.losses.add(*cause, count);
    }
    interval.losses.add(Loss::UserSegmentDamaged, reading.damaged);
    interval.losses.add(Loss::UserSegmentImplausible, reading.implausible.into());
    interval.losses.add(Loss::UserSamplesFull, reading.left_out);
    if reading.deltas.is_empty() {
        return;
    }
    let modules = process.segment.modules(process.pid, names);
    let counted = process.holds.share_out(&mut reading.deltas);
    let mut filling = Filling {
        process,
        names,
        modules,
        interval,
        locks: HashMap::new(),
        sites: HashMap::new(),
        interpreter_locks: HashSet::new(),
        made_of_conditions: HashMap::new(),
    };
    for delta in &reading.deltas {
        filling.add(delta);
    }
    for delta in &counted {
        filling.add_basis(delta);
    }
    interval.losses.add(Loss::FileReplaced, names.take_replaced());
    interval.losses.add(Loss::FileReadInPart, names.take_read_in_part());
}

/// One process's events on their way into an interval.
struct Filling<'a> {
    process: &'a mut Process,
    names: &'a mut UserNames,
    modules: Vec<MappedFile>,
    interval: &'a mut Interval,
    locks: HashMap<u32, (LockId, Option<u64>)>,
    sites: HashMap<(u64, &'static str), Option<StackId>>,
    /// Places of locks that are conditions of an interpreter lock.
    interpreter_locks: HashSet<u32>,
    /// By site, what its waits for a condition are.
    made_of_conditions: HashMap<u64, Option<(Kind, Mode)>>,
}

impl Filling<'_> {
    fn add(&mut self, delta: &Delta) {
        let meta = delta.meta;
        let codes = (Happened::from_code(meta.happened), Kind::from_code(meta.kind), Mode::from_code(meta.mode));
        let (Some(happened), Some(kind), Some(mode)) = codes else {
            self.interval.losses.add(Loss::UserSegmentDamaged, 1);
            return;
        };
        let (lock, instance) = self.lock(delta.lock, kind);
        let called = user_function(happened, kind, mode);
        let blocker = self.blocker(delta, kind);
        let (happened, kind, mode) = match self.lock_made_of_condition(delta, kind) {
            Some((kind, mode)) => (Happened::Wait, kind, mode),
            None if happened == Happened::Wait
                && kind == Kind::Semaphore
                && is_wait_for_work(&self.frames(delta.site)) =>
            {
                (Happened::Idle, kind, mode)
            }
            None => (happened, kind, mode),
        };
        let task = self.task(meta.comm.into());
        let key = Key { happened, lock, kind, mode, task, cgroup: None, bucket: Bucket(meta.bucket) };
        let value = Value {
            count: delta.count,
            total_ns: delta.total_ns,
            max_ns: delta.max_ns,
            spin_ns: if kind == Kind::Spin && happened == Happened::Wait { delta.total_ns } else { 0 },
        };
        let site = self.site(delta.site, called);
        self.interval.totals.push(Total { key, value });
        self.interval.sampled.push(Sampled { key, instance, site, blocker, stacks: delta.count, estimate: value });
        self.interval.overhead.stacks += delta.count;
    }

    /// The kind and mode of the lock that a wait for a condition is part of.
    fn lock_made_of_condition(&mut self, delta: &Delta, kind: Kind) -> Option<(Kind, Mode)> {
        if kind != Kind::Condvar {
            return None;
        }
        if self.interpreter_locks.contains(&delta.lock) {
            return Some((Kind::Mutex, Mode::Exclusive));
        }
        let known = self.made_of_conditions.get(&delta.site).copied();
        known.unwrap_or_else(|| {
            let told = lock_made_of_condition(&self.frames(delta.site));
            self.made_of_conditions.insert(delta.site, told);
            told
        })
    }

    /// What is counted of holds beside their times.
    fn add_basis(&mut self, delta: &Delta) {
        let meta = delta.meta;
        let (Some(kind), Some(mode)) = (Kind::from_code(meta.kind), Mode::from_code(meta.mode)) else {
            self.interval.losses.add(Loss::UserSegmentDamaged, 1);
            return;
        };
        let (lock, _) = self.lock(delta.lock, kind);
        let task = self.task(meta.comm.into());
        let key = Key { happened: Happened::Hold, lock, kind, mode, task, cgroup: None, bucket: Bucket(0) };
        let mut value = HoldBasis::default();
        match meta.happened {
            happened::UNTIMED => value.untimed = delta.count,
            happened::WATCHED => value.watched = delta.count,
            _ => value.moved = delta.count,
        }
        self.interval.bases.push(Basis { key, value });
    }

    fn blocker(&mut self, delta: &Delta, kind: Kind) -> Blocker {
        if delta.meta.blocked == blocked::HOLDER {
            let task = if delta.releaser_comm == 0 { None } else { self.task(delta.releaser_comm) };
            let codes = (Happened::from_code(delta.meta.happened), Mode::from_code(delta.meta.mode));
            let (happened, mode) = (codes.0.unwrap_or(Happened::Wait), codes.1.unwrap_or(Mode::Exclusive));
            // Only an exclusive holder is known: a reader's wait is for a writer.
            let mode = if kind == Kind::Rwlock { Mode::Write } else { mode };
            let stack = self.site(delta.blocker, user_function(happened, kind, mode));
            return Blocker { source: BlockerSource::Holder, stack, task, owner_hint: task };
        }
        if delta.meta.blocked != blocked::RELEASER {
            let why = if kind == Kind::Spin { BlockerSource::NeverSlept } else { BlockerSource::WakeupNotSeen };
            return Blocker::unknown(why);
        }
        let task = if delta.releaser_comm == 0 { None } else { self.task(delta.releaser_comm) };
        match self.site(delta.blocker, release_function(kind)) {
            Some(stack) => Blocker { source: BlockerSource::Releaser, stack: Some(stack), task, owner_hint: None },
            None => Blocker { task, ..Blocker::unknown(BlockerSource::StackLost) },
        }
    }

    fn task(&mut self, comm: u32) -> Option<TaskId> {
        let comm = self.process.segment.comm(comm).unwrap_or_else(|| "[unknown]".to_owned());
        Some(self.interval.tables.intern_task(Task { tgid: self.process.pid, comm, own: false }))
    }

    /// A stack whose innermost frame is the pthread function.
    fn site(&mut self, site: u64, function: &'static str) -> Option<StackId> {
        if let Some(known) = self.sites.get(&(site, function)) {
            return *known;
        }
        let above = self.frames(site);
        let stack = (!above.is_empty()).then(|| {
            let frame =
                Frame { address: 0, function: Some(function.to_owned()), offset: 0, module: Some("libc".into()) };
            let frames = [frame].into_iter().chain(above);
            let frames = frames.map(|frame| self.interval.tables.intern_frame(frame)).collect();
            self.interval.tables.intern_stack(frames)
        });
        self.sites.insert((site, function), stack);
        stack
    }

    /// The frames above the pthread function.
    fn frames(&mut self, site: u64) -> Vec<Frame> {
        let addresses = self.process.segment.site(site);
        addresses.iter().flat_map(|address| self.names.frames(&self.modules, *address).as_ref().clone()).collect()
    }

    fn lock(&mut self, place: u32, kind: Kind) -> (LockId, Option<u64>) {
        if let Some(known) = self.locks.get(&place) {
            return *known;
        }
        let facts = self.process.segment.lock(place);
        let lock = match facts {
            None => unnamed("other locks".to_owned(), "not told apart: the table of locks was full"),
            Some(facts) => self.name(place, &facts, kind),
        };
        let instance = facts.filter(|facts| !facts.is_class).map(|facts| facts.address);
        let known = (self.interval.tables.intern_lock(lock), instance);
        self.locks.insert(place, known);
        known
    }

    fn name(&mut self, place: u32, facts: &LockFacts, kind: Kind) -> Lock {
        if let Some(variable) = self.names.static_place(&self.modules, facts.address) {
            if let Some(lock) = interpreter_lock(&variable, kind) {
                self.interpreter_locks.insert(place);
                return lock;
            }
            return if facts.is_class { variable.lock_of_many() } else { variable.lock() };
        }
        let origin = if facts.flags & ENTRY_INIT == 0 { Origin::FirstSeen } else { Origin::Created };
        heap_lock(&self.frames(facts.made_at), origin)
    }
}

fn unnamed(name: String, why: &str) -> Lock {
    Lock { name, object: None, naming: Naming::Unnamed(Unnamed::NoUserSite), detail: why.to_owned() }
}

/// The function that a site called.
const fn user_function(happened: Happened, kind: Kind, mode: Mode) -> &'static str {
    match (happened, kind, mode) {
        (Happened::Hold, _, _) => release_function(kind),
        (_, Kind::Rwlock, Mode::Read) => "pthread_rwlock_rdlock",
        (_, Kind::Rwlock, _) => "pthread_rwlock_wrlock",
        (_, Kind::Spin, _) => "pthread_spin_lock",
        (_, Kind::Semaphore, _) => "sem_wait",
        (_, Kind::Condvar, _) => "pthread_cond_wait",
        (_, Kind::Barrier, _) => "pthread_barrier_wait",
        _ => "pthread_mutex_lock",
    }
}

const fn release_function(kind: Kind) -> &'static str {
    match kind {
        Kind::Rwlock => "pthread_rwlock_unlock",
        Kind::Spin => "pthread_spin_unlock",
        Kind::Semaphore => "sem_post",
        Kind::Condvar => "pthread_cond_signal",
        Kind::Barrier => "pthread_barrier_wait",
        _ => "pthread_mutex_unlock",
    }
}
