//! All segments of a session, as one source.

use std::collections::{HashMap, HashSet};
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockmeter_profile::{Interval, Loss, OffTime};
use lockmeter_symbols::UserNames;

use super::awaited::AwaitedPrograms;
use super::directory::OwnDirectory;
use super::filling::{Around, drain_process};
use super::keeper::{self, Keeper, Kept};
use super::living::{HeldFiles, Nested, ProgramFile, is_alive};
use super::memory::{Memory, Owned, u32_at, u64_at};
use super::plausible::Bounds;
use super::process::Process;
use super::remaining_writers::RemainingWriters;
use super::segment::SegmentReader;
use super::session::SessionError;
use super::shared_locks::{self, SharedLocks};
use super::switches::{Switch, Switches};
use super::ticks::BetweenReadings;
use super::untimed::TimedHolds;
use crate::layout::{self, OFF, PageKind, RUN, SessionHead, UNMETERED};
use crate::writer::monotonic_ns;

/// Why processes have no segment, in the order of [`crate::layout::Unmetered`].
const UNMETERED_CAUSES: [Loss; UNMETERED] =
    [Loss::UserChildUnmetered, Loss::UserIncompatible, Loss::UserNotPreloaded, Loss::UserOwnEnvironment];

/// What is kept of all segments together, a few tens of bytes each: only a program that makes its numbers up has this many samples.
const MOST_KEPT: usize = 4 << 20;

/// How long an ended command's children get to write their last word.
const GRACE: Duration = Duration::from_millis(1);

/// Reads the segments of all processes that report to a session.
pub struct UserSource {
    directory: OwnDirectory,
    memory: Memory,
    inode: u64,
    /// Where pages of ended processes go; `None` where nobody keeps pages ready.
    kept: Option<Arc<Mutex<Kept>>>,
    wants_drain: Option<Arc<OwnedFd>>,
    held: Arc<Mutex<HeldFiles>>,
    shared_locks: Arc<Mutex<SharedLocks>>,
    /// By their number in the session.
    processes: HashMap<u32, Process>,
    /// What has ended and was read to its end, and what is not believed: numbers that are of no further interest.
    passed_over: HashSet<u32>,
    names: UserNames,
    switches: Switches,
    remaining: RemainingWriters,
    /// The session's memory makes no sense: counted once.
    is_damaged: bool,
    unmetered: [u64; UNMETERED],
    awaited: AwaitedPrograms,
    /// How often the recorder's tick came late so far, and how often that was told.
    late_ticks: Arc<AtomicU64>,
    late_ticks_told: u64,
    between_readings: BetweenReadings,
    /// When it began, and when it was last drained, by the clock of segments.
    begun_ns: u64,
    drained_ns: u64,
    processes_seen: u64,
}

impl UserSource {
    /// Reads what comes into this directory, which must be this user's alone, from now on.
    pub fn open(directory: &Path) -> Result<Self, SessionError> {
        let source = OwnDirectory::open(directory).and_then(|directory| {
            let memory = Memory::open(&directory)?;
            Self::of(directory, memory, None)
        });
        source.map_err(|error| SessionError::cannot_read(directory, &error))
    }

    /// As [`open`](Self::open).
    pub(super) fn of(directory: OwnDirectory, memory: Memory, keeper: Option<&Keeper>) -> std::io::Result<Self> {
        let now_ns = monotonic_ns();
        let inode = memory.inode()?;
        let held = keeper.map(|keeper| Arc::clone(&keeper::lock(&keeper.kept()).held)).unwrap_or_default();
        Ok(Self {
            directory,
            held,
            inode,
            memory,
            kept: keeper.map(Keeper::kept),
            wants_drain: keeper.map(Keeper::wants_drain),
            shared_locks: keeper.map_or_else(|| SharedLocks::new(inode), Keeper::shared_locks),
            processes: HashMap::new(),
            passed_over: HashSet::new(),
            names: UserNames::new(),
            switches: Switches::default(),
            remaining: RemainingWriters::new(inode, now_ns),
            is_damaged: false,
            unmetered: [0; UNMETERED],
            awaited: AwaitedPrograms::new(),
            late_ticks: Arc::default(),
            late_ticks_told: 0,
            between_readings: BetweenReadings::measure(),
            begun_ns: now_ns,
            drained_ns: now_ns,
            processes_seen: 0,
        })
    }

    /// Counts how often the recorder's tick came late as a loss.
    pub(super) fn with_late_ticks(self, late_ticks: Arc<AtomicU64>) -> Self {
        Self { late_ticks, ..self }
    }

    /// Becomes readable when [`take_news`](Self::take_news) should be called, for which the next tick may be too late.
    pub fn news(&self) -> Option<BorrowedFd<'_>> {
        self.wants_drain.as_ref().map(|descriptor| descriptor.as_fd())
    }

    /// Reads what made [`news`](Self::news) readable. `true` if it should be drained now.
    pub fn take_news(&self) -> bool {
        let asked = self.wants_drain.as_ref().map(|asked| rustix::io::read(asked, &mut [0; size_of::<u64>()]));
        // It was drained meanwhile, if it is not any more.
        matches!(asked, Some(Ok(_))) && self.kept.as_ref().is_some_and(|kept| keeper::lock(kept).reserve.wants_drain())
    }

    /// Stops and adds the last of it to an interval.
    pub fn stop_into(mut self, interval: &mut Interval) {
        std::thread::sleep(GRACE);
        self.drain_into(interval);
        self.count_awaited(interval);
        self.count_nobody(interval);
    }

    /// Those that have not begun by now were not metered.
    fn count_awaited(&mut self, interval: &mut Interval) {
        let bounds = Bounds::since(self.begun_ns, monotonic_ns());
        interval.losses.add(Loss::UserNotPreloaded, self.awaited.last_look(&self.memory, bounds));
    }

    /// A session in which no program said anything has a command that is not metered, whatever the reason: a library of another version,
    /// for one.
    fn count_nobody(&self, interval: &mut Interval) {
        let nobody = self.processes_seen == 0 && self.unmetered.iter().all(|count| *count == 0);
        interval.losses.add(Loss::UserChildUnmetered, nobody.into());
    }

    /// How many processes (programs: one that runs another counts twice) have reported so far.
    pub const fn processes_seen(&self) -> u64 {
        self.processes_seen
    }

    /// Everything measured since the last call, in an interval that has no time of its own.
    pub fn drain(&mut self) -> Interval {
        let mut interval = Interval::default();
        self.drain_into(&mut interval);
        interval
    }

    /// Adds everything measured since the last call to an interval, which keeps its own time.
    pub fn drain_into(&mut self, interval: &mut Interval) {
        if let Some(kept) = &self.kept {
            keeper::lock(kept).reserve.drained();
        }
        // Before anything is read, so that each segment that they name is found.
        let switches = self.switches.news(&self.directory);
        let bounds = Bounds::since(self.begun_ns, monotonic_ns());
        self.find_segments(bounds, interval);
        let elapsed_ns = monotonic_ns().saturating_sub(self.drained_ns);
        self.note_off_time(&switches, interval);
        let late = self.late_ticks.load(Relaxed);
        interval.losses.add(Loss::UserTickLate, late.saturating_sub(self.late_ticks_told));
        self.late_ticks_told = late;
        shared_locks::lock(&self.shared_locks).look_again(&self.memory);
        let is_any_shared = shared_locks::lock(&self.shared_locks).is_any();
        let (mut kept, mut ended) = (0, Vec::new());
        let numbers: Vec<u32> = self.processes.keys().copied().collect();
        for number in numbers {
            // Apart from the others, in which its blockers may be.
            let Some(mut process) = self.processes.remove(&number) else { continue };
            let active = self.drain_process(&mut process, bounds, interval);
            process.note_running(&self.memory, active, elapsed_ns);
            kept += process.segment.kept();
            if kept > MOST_KEPT {
                interval.losses.add(Loss::UserSegmentImplausible, 1);
                process.segment.refuse();
            }
            if process.ended && (process.lingers || !is_any_shared) {
                ended.push(number);
            }
            process.lingers = process.ended;
            self.processes.insert(number, process);
        }
        for number in &ended {
            if let Some(process) = self.processes.remove(number) {
                self.recycle(*number, process);
            }
        }
        self.passed_over.extend(ended);
    }

    /// Returns how many threads of a process counted anything.
    fn drain_process(&mut self, process: &mut Process, bounds: Bounds, interval: &mut Interval) -> u64 {
        let around = Around {
            memory: &self.memory,
            names: &mut self.names,
            others: &mut self.processes,
            shared_locks: &self.shared_locks,
            held: &self.held,
        };
        drain_process(process, around, (bounds, self.between_readings), interval)
    }

    /// The pages of a process that has ended serve others, if somebody keeps them ready.
    fn recycle(&self, number: u32, process: Process) {
        shared_locks::lock(&self.shared_locks).forget(number);
        let Some(kept) = &self.kept else { return };
        keeper::lock(kept).stops.end(number);
        if self.memory.clear(&process.runs).is_ok() {
            keeper::lock(kept).reserve.recycle(&process.runs);
        }
    }

    /// For how long processes were switched off since the last time.
    fn note_off_time(&mut self, switches: &[Switch], interval: &mut Interval) {
        for switch in switches {
            if let Some(process) = self.processes.get_mut(&switch.process) {
                process.off.switch(switch.is_off, switch.at_ns);
            }
        }
        let now_ns = monotonic_ns();
        let from_ns = std::mem::replace(&mut self.drained_ns, now_ns);
        let (mut longest_there_ns, mut longest_on_ns) = (0, 0);
        for process in self.processes.values_mut().filter(|process| !process.lingers) {
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

    fn find_segments(&mut self, bounds: Bounds, interval: &mut Interval) {
        let Ok(Some(head)) = self.memory.head() else {
            interval.losses.add(Loss::UserSegmentDamaged, u64::from(!std::mem::replace(&mut self.is_damaged, true)));
            return;
        };
        for (why, cause) in UNMETERED_CAUSES.into_iter().enumerate() {
            let count = u64_at(&head, offset_of!(SessionHead, unmetered) + why * size_of::<u64>());
            if bounds.allow_counter(count) {
                // A program that was counted and then could not be executed is taken back.
                interval.losses.add(cause, count.saturating_sub(self.unmetered[why]));
                self.unmetered[why] = self.unmetered[why].max(count);
            }
        }
        interval.losses.add(Loss::UserNotPreloaded, self.awaited.look(&self.memory, bounds));
        let owned = self.memory.owned().unwrap_or_default();
        let mut nested = Nested::default();
        for begun in owned.iter().filter(|owned| owned.kind == PageKind::Process) {
            if !self.processes.contains_key(&begun.process) && !self.passed_over.contains(&begun.process) {
                self.begin(*begun, &mut nested);
            }
        }
        self.find_ended();
        // Looked at after it is known who has ended: such a process takes no page any more, and what it has now is all.
        let has_ended = self.processes.values().any(|process| process.ended);
        let owned = if has_ended { self.memory.owned().unwrap_or_default() } else { owned };
        for process in self.processes.values_mut() {
            process.runs.clear();
            process.threads.clear();
        }
        for Owned { page, process, kind } in owned {
            if let Some(process) = self.processes.get_mut(&process) {
                if (page as usize).is_multiple_of(RUN) {
                    process.runs.push(page);
                }
                if kind == PageKind::Thread {
                    process.threads.push(page);
                }
            }
        }
    }

    /// A process that was not seen before.
    fn begin(&mut self, owned: Owned, nested: &mut Nested) {
        let Ok(head) = self.memory.read(owned.page as usize, 0, size_of::<layout::Process>()) else { return };
        let own_pid = u32_at(&head, offset_of!(layout::Process, pid));
        let pid = nested.living(own_pid, self.inode);
        let known = self.kept.as_ref().and_then(|kept| keeper::lock(kept).programs.remove(&owned.process));
        if let (Some(kept), Some(pid)) = (&self.kept, pid) {
            keeper::lock(kept).stops.begin(owned.process, owned.page, pid);
        }
        let made_ns = u64_at(&head, offset_of!(layout::Process, start_ns));
        let began_off = u32_at(&head, offset_of!(layout::Process, level_at_start)) == OFF;
        let mut off = OffTime::default();
        off.switch(began_off, made_ns);
        self.processes_seen += 1;
        let process = Process {
            number: owned.process,
            pid: pid.unwrap_or(own_pid),
            own_pid,
            program: known.or_else(|| ProgramFile::of(pid?, &mut keeper::lock(&self.held))),
            segment: SegmentReader::new(owned.page),
            runs: Vec::new(),
            threads: Vec::new(),
            holds: TimedHolds::default(),
            made_ns,
            off,
            began_off,
            cpu_ns: 0,
            gone: pid.is_none(),
            ended: false,
            lingers: false,
            private_locks: HashSet::new(),
            reused_places: HashMap::new(),
            fits: HashMap::new(),
            fits_among: Vec::new(),
        };
        self.processes.insert(owned.process, process);
    }

    /// A process that ran another program left the first one's segment behind.
    fn find_ended(&mut self) {
        let mut latest = HashMap::<u32, u32>::new();
        for (number, process) in &self.processes {
            let last = latest.entry(process.pid).or_default();
            *last = (*number).max(*last);
        }
        for (number, process) in &mut self.processes {
            process.gone |= latest.get(&process.pid) != Some(number) || !is_alive(process.pid);
        }
        if self.processes.values().any(|process| process.gone) {
            let living = self.processes.values().filter(|process| !process.gone).map(|process| process.pid).collect();
            let remaining = self.remaining.look(living);
            for process in self.processes.values_mut().filter(|process| process.gone) {
                process.ended = !remaining.may_write_for(process.pid, process.made_ns);
            }
        }
    }
}
