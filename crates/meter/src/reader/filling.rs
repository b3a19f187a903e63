//! What a process has recorded since the last reading, on its way into an interval: named, and with its stacks.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use lockmeter_profile::{
    Basis, Blocker, BlockerSource, Bucket, Frame, Happened, HoldBasis, Interval, Key, Kind, Lock, LockId, Loss, Mode,
    Naming, OfFilesystem, Root, Sampled, StackId, Swap, Task, TaskId, Total, Unnamed,
};
use lockmeter_symbols::{
    MappedFile, Origin, UserNames, heap_lock, is_on_main_stack, is_wait_for_end_of_thread, is_wait_for_work,
    lock_in_variable, lock_made_of_condition, may_be_the_lock_of, on_stack, unmapped_lock,
};

use super::divided::{DividedWaits, is_divided};
use super::living::HeldFiles;
use super::memory::Memory;
use super::off_cpu::OffCpu;
use super::plausible::Bounds;
use super::process::Process;
use super::segment::{Delta, FilesOfProcess, LockFacts, Reading};
use super::shared_locks::{self, SharedLocks};
use super::ticks::BetweenReadings;
use crate::layout::{
    ENTRY_INIT, ENTRY_SHARED, ENTRY_STACK, LOSSES, MOVE_BITS, SITE_IS_RELEASE, SITE_IS_STACK, SITE_IS_THREAD, SWAPS,
    blocked, happened, unpack_elsewhere,
};

/// The losses of a segment in the order of [`crate::layout::Lost`].
const LOSS_CAUSES: [Loss; LOSSES] = [
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
    Loss::UserStopped,
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

/// What a process's events are filled in with.
pub(super) struct Around<'a> {
    pub(super) memory: &'a Memory,
    pub(super) names: &'a mut UserNames,
    /// By their number: the other processes of the session.
    pub(super) others: &'a mut HashMap<u32, Process>,
    pub(super) shared_locks: &'a Mutex<SharedLocks>,
    pub(super) held: &'a Mutex<HeldFiles>,
}

/// Returns how many of its threads counted anything.
pub(super) fn drain_process(
    process: &mut Process,
    around: Around<'_>,
    (bounds, between_readings): (Bounds, BetweenReadings),
    interval: &mut Interval,
) -> u64 {
    let Around { memory, names, others, shared_locks, held } = around;
    let mut reading = match process.segment.drain(memory, &process.threads, process.ended, bounds) {
        Ok(Some(reading)) => reading,
        Ok(None) => return 0,
        Err(_) => Reading { damaged: 1, ..Reading::default() },
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
        return reading.active_threads;
    }
    let files = FilesOfProcess { pid: process.pid, program: process.program.as_ref(), held };
    let modules = process.segment.modules(memory, &files, names);
    let off_cpu = OffCpu::take(&mut reading.deltas);
    let divided = DividedWaits::take(&mut reading.deltas);
    let counted = process.holds.share_out(&mut reading.deltas, process.segment.reading_ns(between_readings));
    let mut filling = Filling {
        process,
        memory,
        names,
        others,
        shared_locks,
        held,
        modules,
        modules_of_others: HashMap::new(),
        interval,
        off_cpu,
        locks: HashMap::new(),
        sites: HashMap::new(),
        interpreter_locks: HashSet::new(),
        made_of_conditions: HashMap::new(),
        joins: HashSet::new(),
        thread_names: HashMap::new(),
    };
    filling.find_reused_places(&reading.deltas);
    filling.find_joins(reading.deltas.iter().copied().chain(divided.by_blocker()));
    for delta in &reading.deltas {
        filling.add(delta);
    }
    for delta in divided.by_blocker() {
        filling.add_part(&delta);
    }
    for (delta, variance_ns2) in &counted {
        filling.add_basis(delta, *variance_ns2);
    }
    interval.losses.add(Loss::FileReplaced, names.take_replaced());
    interval.losses.add(Loss::FileReadInPart, names.take_read_in_part());
    reading.active_threads
}

/// One process's events on their way into an interval.
struct Filling<'a> {
    process: &'a mut Process,
    memory: &'a Memory,
    names: &'a mut UserNames,
    others: &'a mut HashMap<u32, Process>,
    shared_locks: &'a Mutex<SharedLocks>,
    held: &'a Mutex<HeldFiles>,
    modules: Vec<MappedFile>,
    /// By the number of another process.
    modules_of_others: HashMap<u32, Vec<MappedFile>>,
    interval: &'a mut Interval,
    off_cpu: OffCpu,
    locks: HashMap<u32, (LockId, Option<u64>)>,
    sites: HashMap<(u64, &'static str), Option<StackId>>,
    /// Places of locks that are conditions of an interpreter lock.
    interpreter_locks: HashSet<u32>,
    /// By site, what its waits for a condition are.
    made_of_conditions: HashMap<u64, Option<(Kind, Mode, Option<LockId>)>>,
    /// Semaphores and sites of waits for them that the end of a thread ends.
    joins: HashSet<(u32, u64)>,
    /// By id, what threads are called that did not name themselves.
    thread_names: HashMap<u32, Option<String>>,
}

impl Filling<'_> {
    fn add(&mut self, delta: &Delta) {
        let Some((key, instance)) = self.key(delta) else {
            return self.interval.losses.add(Loss::UserSegmentDamaged, 1);
        };
        if key.kind == Kind::Spin && key.happened == Happened::Wait && !self.process.segment.has_counter() {
            self.interval.losses.add(Loss::UserSpinUndivided, delta.count);
        }
        self.interval.totals.push(Total { key, value: self.off_cpu.value_of(delta, &key) });
        self.interval.overhead.stacks += delta.count;
        if !is_divided(delta) {
            self.add_estimate(delta, key, instance);
        }
    }

    /// What one blocker had of waits.
    fn add_part(&mut self, delta: &Delta) {
        // What makes no sense was counted with the total.
        if let Some((key, instance)) = self.key(delta) {
            self.add_estimate(delta, key, instance);
        }
    }

    fn add_estimate(&mut self, delta: &Delta, key: Key, instance: Option<u64>) {
        // As what the program called, also where that is part of a lock which it builds.
        let kind = Kind::from_code(delta.meta.kind).unwrap_or(key.kind);
        let called = match Happened::from_code(delta.meta.happened).unwrap_or(key.happened) {
            Happened::Hold => called_for_hold(delta.site, kind, key.mode),
            happened => user_function(happened, kind, Mode::from_code(delta.meta.mode).unwrap_or(key.mode)),
        };
        let blocker = self.blocker(delta, kind);
        let site = self.site(delta.site, called);
        let (stacks, estimate) = (delta.count, self.off_cpu.value_of(delta, &key));
        self.interval.sampled.push(Sampled {
            key,
            instance,
            filesystem: OfFilesystem::None,
            site,
            blocker,
            stacks,
            estimate,
        });
    }

    /// What was counted here, and the address of the lock; `None` of codes that do not exist.
    fn key(&mut self, delta: &Delta) -> Option<(Key, Option<u64>)> {
        let meta = delta.meta;
        let happened = Happened::from_code(meta.happened)?;
        let (kind, mode) = (Kind::from_code(meta.kind)?, Mode::from_code(meta.mode)?);
        let (lock, instance) = self.lock(delta.lock, kind);
        let made = self.lock_made_of_condition(delta, kind);
        let lock = made.and_then(|(_, _, lock)| lock).unwrap_or(lock);
        let (happened, kind, mode) = match made {
            Some((kind, mode, _)) => (Happened::Wait, kind, mode),
            None if happened == Happened::Wait && self.joins.contains(&(delta.lock, delta.site)) => {
                (Happened::Idle, Kind::Join, mode)
            }
            None if happened == Happened::Wait
                && kind == Kind::Semaphore
                && is_wait_for_work(&self.frames(delta.site)) =>
            {
                (Happened::Idle, kind, mode)
            }
            None => (happened, kind, mode),
        };
        let task = self.task(meta.comm.into(), delta.owner);
        Some((Key { task, bucket: Bucket(meta.bucket), ..Key::of(happened, lock, kind, mode) }, instance))
    }

    /// The kind and mode of the lock that a wait for a condition is part of, and which one if a rule names it.
    fn lock_made_of_condition(&mut self, delta: &Delta, kind: Kind) -> Option<(Kind, Mode, Option<LockId>)> {
        if kind != Kind::Condvar {
            return None;
        }
        if self.interpreter_locks.contains(&delta.lock) {
            return Some((Kind::Mutex, Mode::Exclusive, None));
        }
        let known = self.made_of_conditions.get(&delta.site).copied();
        known.unwrap_or_else(|| {
            let told = lock_made_of_condition(&self.frames(delta.site));
            let told =
                told.map(|(kind, mode, lock)| (kind, mode, lock.map(|lock| self.interval.tables.intern_lock(lock))));
            self.made_of_conditions.insert(delta.site, told);
            told
        })
    }

    /// Finds waits for semaphores that the end of a thread ended, for most of their time.
    fn find_joins(&mut self, by_blocker: impl Iterator<Item = Delta>) {
        let mut blamed_ns = HashMap::<(u32, u64), (u64, u64)>::new();
        for delta in by_blocker {
            let is_of_semaphore = Kind::from_code(delta.meta.kind) == Some(Kind::Semaphore);
            if is_of_semaphore && delta.meta.happened == happened::WAIT && delta.meta.blocked == blocked::RELEASER {
                let (waiter, releaser) = (self.frames(delta.site), self.frames(delta.blocker));
                let (by_end_ns, by_others_ns) = blamed_ns.entry((delta.lock, delta.site)).or_default();
                match is_wait_for_end_of_thread(&waiter, &releaser) {
                    true => *by_end_ns += delta.total_ns,
                    false => *by_others_ns += delta.total_ns,
                }
            }
        }
        let joins = blamed_ns.into_iter().filter(|(_, (by_end_ns, by_others_ns))| by_end_ns > by_others_ns);
        self.joins = joins.map(|(of, _)| of).collect();
    }

    /// What is counted of holds beside their times.
    fn add_basis(&mut self, delta: &Delta, variance_ns2: f64) {
        let meta = delta.meta;
        let (Some(kind), Some(mode)) = (Kind::from_code(meta.kind), Mode::from_code(meta.mode)) else {
            self.interval.losses.add(Loss::UserSegmentDamaged, 1);
            return;
        };
        let (lock, instance) = self.lock(delta.lock, kind);
        let task = self.task(meta.comm.into(), delta.owner);
        let key = Key { task, ..Key::of(Happened::Hold, lock, kind, mode) };
        let mut value = HoldBasis::default();
        match meta.happened {
            happened::UNTIMED => value = HoldBasis { untimed: delta.count, variance_ns2, ..value },
            happened::WATCHED => value.watched = delta.count,
            _ => value.moved = delta.count,
        }
        let (instance, site) = match meta.happened {
            happened::UNTIMED => (instance, self.site(delta.site, called_for_hold(delta.site, kind, mode))),
            _ => (None, None),
        };
        self.interval.bases.push(Basis { key, instance, site, value });
    }

    fn blocker(&mut self, delta: &Delta, kind: Kind) -> Blocker {
        if delta.meta.blocked == blocked::HOLDER {
            let task = self.blocking_task(delta);
            let codes = (Happened::from_code(delta.meta.happened), Mode::from_code(delta.meta.mode));
            let (happened, mode) = (codes.0.unwrap_or(Happened::Wait), codes.1.unwrap_or(Mode::Exclusive));
            // Only an exclusive holder is known: a reader's wait is for a writer.
            let mode = if kind == Kind::Rwlock { Mode::Write } else { mode };
            let stack = match named_holder(delta) {
                Some(_) => None,
                None => self.site(delta.blocker, user_function(happened, kind, mode)),
            };
            return Blocker { source: BlockerSource::Holder, stack, task, owner_hint: task, root: None, state: None };
        }
        match delta.meta.blocked {
            blocked::RELEASER => {}
            blocked::DIVIDED => return Blocker::unknown(BlockerSource::Handover),
            blocked::EARLIER => return Blocker::unknown(BlockerSource::EarlierHolder),
            _ if kind == Kind::Spin => return Blocker::unknown(BlockerSource::NeverSlept),
            _ => return Blocker::unknown(BlockerSource::WakeupNotSeen),
        }
        let task = self.blocking_task(delta);
        let root = delta.root.map(|root| Root {
            lock: self.lock(root.lock, kind).0,
            stack: match root.stack.checked_sub(1) {
                Some(stack) => self.site(SITE_IS_STACK | u64::from(stack), release_function(kind)),
                None => None,
            },
            task: self.task(root.comm.into(), 0),
            state: None,
        });
        match self.site(delta.blocker, release_function(kind)) {
            Some(stack) => Blocker {
                source: BlockerSource::Releaser,
                stack: Some(stack),
                task,
                owner_hint: None,
                root,
                state: None,
            },
            None => Blocker { task, ..Blocker::unknown(BlockerSource::StackLost) },
        }
    }

    /// The task that this was a wait for, if it is known, in this process or another.
    fn blocking_task(&mut self, delta: &Delta) -> Option<TaskId> {
        if let Some((number, _, comm)) = unpack_elsewhere(delta.blocker) {
            let other = self.others.get_mut(&number)?;
            other.segment.refresh(self.memory);
            let comm = other.segment.comm(self.memory, comm.max(1)).unwrap_or_else(|| "[unknown]".to_owned());
            return Some(self.interval.tables.intern_task(Task { tgid: other.pid, comm, own: false }));
        }
        if let Some(thread) = named_holder(delta) {
            return self.task(0, thread);
        }
        if delta.releaser_comm == 0 { None } else { self.task(delta.releaser_comm, 0) }
    }

    fn task(&mut self, comm: u32, thread: u32) -> Option<TaskId> {
        let comm = self.name_from_outside(comm, thread).or_else(|| self.process.segment.comm(self.memory, comm.max(1)));
        let comm = comm.unwrap_or_else(|| "[unknown]".to_owned());
        Some(self.interval.tables.intern_task(Task { tgid: self.process.pid, comm, own: false }))
    }

    /// What a living thread is called that did not name itself: as the one that made it, or somebody else named it. Its id is one of
    /// ours only outside of containers.
    fn name_from_outside(&mut self, comm: u32, thread: u32) -> Option<String> {
        let pid = self.process.pid;
        if comm > 1 || thread == 0 || self.process.gone || pid != self.process.own_pid {
            return None;
        }
        let ask = || {
            let name = std::fs::read(format!("/proc/{pid}/task/{thread}/comm")).ok()?;
            let name = name.strip_suffix(b"\n").unwrap_or(&name);
            (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
        };
        self.thread_names.entry(thread).or_insert_with(ask).clone()
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
        if let Some((number, stack, _)) = unpack_elsewhere(site) {
            return self.frames_elsewhere(number, SITE_IS_STACK | u64::from(stack)).unwrap_or_default();
        }
        let addresses = self.process.segment.site(self.memory, site);
        let frames = addresses.iter().flat_map(|address| self.names.frames(&self.modules, *address).as_ref().clone());
        frames.map(|frame| Frame { address: where_it_was(frame.address), ..frame }).collect()
    }

    /// The frames of a site of another process, by its number; `None` if that is none of the session's, or gone too long.
    fn frames_elsewhere(&mut self, number: u32, site: u64) -> Option<Vec<Frame>> {
        let other = self.others.get_mut(&number)?;
        other.segment.refresh(self.memory);
        let addresses = other.segment.site(self.memory, site);
        let modules = self.modules_of_others.entry(number).or_insert_with(|| {
            let files = FilesOfProcess { pid: other.pid, program: other.program.as_ref(), held: self.held };
            other.segment.modules(self.memory, &files, self.names)
        });
        let frames = addresses.iter().flat_map(|address| self.names.frames(modules, *address).as_ref().clone());
        Some(frames.map(|frame| Frame { address: where_it_was(frame.address), ..frame }).collect())
    }

    fn lock(&mut self, place: u32, kind: Kind) -> (LockId, Option<u64>) {
        if let Some(known) = self.locks.get(&place) {
            return *known;
        }
        let facts = self.process.segment.lock(self.memory, place);
        let (lock, address) = match facts {
            None => (unnamed("other locks".to_owned(), "locks that did not fit into the lock table"), 0),
            Some(facts) => self.name(place, &facts, kind),
        };
        let instance = facts.filter(|facts| !facts.is_class).map(|_| where_it_was(address));
        let known = (self.interval.tables.intern_lock(lock), instance);
        self.locks.insert(place, known);
        known
    }

    /// Finds locks that are not those that were made at their addresses, as far as those who use them show it: most of them, in this
    /// reading, are not about what the maker is about.
    fn find_reused_places(&mut self, deltas: &[Delta]) {
        let mut uses = HashMap::<u32, HashMap<u64, u64>>::new();
        for delta in deltas.iter().filter(|delta| matches!(delta.meta.happened, happened::WAIT | happened::HOLD)) {
            *uses.entry(delta.lock).or_default().entry(delta.site).or_default() += delta.count;
        }
        let modules: Vec<u64> = self.modules.iter().map(|module| module.start).collect();
        if self.process.fits_among != modules {
            self.process.fits_among = modules;
            self.process.fits.clear();
        }
        for (place, sites) in uses {
            let facts = self.process.segment.lock(self.memory, place);
            let is_made = |facts: &LockFacts| facts.flags & (ENTRY_INIT | ENTRY_SHARED) == ENTRY_INIT;
            let Some(facts) = facts.filter(is_made) else { continue };
            if self.process.reused_places.contains_key(&place) {
                continue;
            }
            let (fitting, others): (Vec<_>, Vec<_>) =
                sites.into_iter().partition(|(site, _)| self.may_be_the_lock_of(facts.made_at, *site));
            let sum = |uses: &[(u64, u64)]| uses.iter().map(|(_, count)| count).sum::<u64>();
            if sum(&others) <= sum(&fitting) {
                continue;
            }
            let others = others.into_iter().map(|(site, count)| (count, self.frames(site)));
            // Of as many, always the same.
            let most = others.max_by(|one, other| {
                one.0.cmp(&other.0).then_with(|| {
                    one.1.iter().map(|frame| frame.address).cmp(other.1.iter().map(|frame| frame.address))
                })
            });
            if let Some((_, user)) = most {
                self.process.reused_places.insert(place, user);
            }
        }
    }

    /// Whether the lock that was made at one of these sites may be the one that is used at the other.
    fn may_be_the_lock_of(&mut self, made_at: u64, site: u64) -> bool {
        if let Some(known) = self.process.fits.get(&(made_at, site)) {
            return *known;
        }
        let (maker, user) = (self.frames(made_at), self.frames(site));
        let fits = may_be_the_lock_of(&maker, &user);
        // A stack that is not there yet may be the next time.
        if !maker.is_empty() && !user.is_empty() {
            self.process.fits.insert((made_at, site), fits);
        }
        fits
    }

    /// What reports call a lock of this process's own memory.
    fn heap_lock(&self, (place, facts): (u32, &LockFacts), made_at: &[Frame], origin: Origin) -> Lock {
        let is_on_stack = !facts.is_class
            && (facts.flags & ENTRY_STACK != 0 || is_on_main_stack(facts.address, self.process.segment.stack_end()));
        let place_it = |lock: Lock| if is_on_stack { on_stack(lock) } else { lock };
        let Some(user) = self.process.reused_places.get(&place) else { return place_it(heap_lock(made_at, origin)) };
        let before = place_it(heap_lock(made_at, origin)).name;
        let mut lock = place_it(heap_lock(user, Origin::FirstSeen));
        lock.detail = format!("{}; its memory was initialised before, as {before}", lock.detail);
        lock
    }

    /// What reports call a lock, and the address that they give for it.
    fn name(&mut self, place: u32, facts: &LockFacts, kind: Kind) -> (Lock, u64) {
        if let Some(variable) = self.names.static_place(&self.modules, facts.address) {
            if let Some(lock) = lock_in_variable(&variable, kind) {
                self.interpreter_locks.insert(place);
                return (lock, facts.address);
            }
            let lock = if facts.is_class { variable.lock_of_many() } else { variable.lock() };
            return (lock, facts.address);
        }
        let origin = if facts.flags & ENTRY_INIT == 0 { Origin::FirstSeen } else { Origin::Created };
        let frames = self.frames(facts.made_at);
        let may_be_shared = facts.flags & ENTRY_SHARED != 0;
        if self.process.private_locks.contains(&place) && !may_be_shared {
            return (self.heap_lock((place, facts), &frames, origin), facts.address);
        }
        let mut shared_locks = shared_locks::lock(self.shared_locks);
        let pid = (!self.process.gone).then_some(self.process.pid);
        let process = (self.process.number, self.process.segment.head(), pid);
        if let Some(shared) = shared_locks.name(process, facts.address, (&frames, origin)) {
            return shared;
        }
        if may_be_shared && !shared_locks.knows(self.process.number) {
            return (unmapped_lock(&frames, origin), facts.address);
        }
        drop(shared_locks);
        self.process.private_locks.insert(place);
        (self.heap_lock((place, facts), &frames, origin), facts.address)
    }
}

/// The holder that this was a wait for, if only its id is known.
fn named_holder(delta: &Delta) -> Option<u32> {
    let is_named =
        delta.meta.blocked == blocked::HOLDER && delta.blocker & (SITE_IS_STACK | SITE_IS_THREAD) == SITE_IS_THREAD;
    is_named.then_some(delta.blocker as u32)
}

fn unnamed(name: String, why: &str) -> Lock {
    Lock { name, object: None, naming: Naming::Unnamed(Unnamed::NoUserSite), detail: why.to_owned() }
}

/// An address before its library was unloaded.
const fn where_it_was(address: u64) -> u64 {
    address & ((1 << MOVE_BITS) - 1)
}

/// The function that a site called.
const fn user_function(happened: Happened, kind: Kind, mode: Mode) -> &'static str {
    match (happened, kind, mode) {
        (_, Kind::Rwlock, Mode::Read) => "pthread_rwlock_rdlock",
        (_, Kind::Rwlock, _) => "pthread_rwlock_wrlock",
        (_, Kind::Spin, _) => "pthread_spin_lock",
        (_, Kind::Semaphore, _) => "sem_wait",
        (_, Kind::Condvar, _) => "pthread_cond_wait",
        (_, Kind::Barrier, _) => "pthread_barrier_wait",
        _ => "pthread_mutex_lock",
    }
}

/// The function that a site of a hold called: that which took the lock, unless only the release was seen.
const fn called_for_hold(site: u64, kind: Kind, mode: Mode) -> &'static str {
    match site & (SITE_IS_STACK | SITE_IS_RELEASE) {
        SITE_IS_RELEASE => release_function(kind),
        _ => user_function(Happened::Hold, kind, mode),
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
