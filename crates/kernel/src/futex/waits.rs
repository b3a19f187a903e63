//! From futex words to locks: what their stacks tell, applied to what was counted.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use lockmeter_profile::{
    Blocker, BlockerSource, Bucket, Cgroup, CgroupId, Frame, Happened, HolderState, Interval, Key, Kind, Lock, LockId,
    Loss, Losses, Naming, OfFilesystem, Root, Sampled, StackId, Task, TaskId, ThreadState, Total, Value,
    lock_functions,
};
use lockmeter_symbols::{FutexCall, UserWait, is_wait_for_end_of_thread};

use super::KnownPrograms;
use super::holders::{Holder, HolderRoot, Holders, WhichLock};
use super::named_holder::holder_in_memory;
use super::processes::{Processes, copied_stack as as_copied};
use super::releases::{LockAddress, Part, PastSleep, Releases, Root as RootOf};
use super::semaphores::{SemaphoreUses, semaphore_user};
use super::tables::{Drained, RETRIED, Record, TIMED_OUT, TotalKey, Word};
use super::user_stacks::{FutexCallKey, LockBehind, is_of_preloaded, is_preloaded_file, leave_nameless_out};
use crate::cgroups::CgroupTree;
use crate::comm::{Comm, text};
use crate::lock_shares::{shares, split};
use crate::thread_states::holder_state_of;
use crate::threads::skeleton::types::{begin_record, copied_stack, end_record, sleep_record, woken_record};

/// The numbers of `enum waker` in `tables.h`.
const WAKER_FUTEX: u32 = 1;
const WAKER_EXIT: u32 = 2;

/// Its functions stand within this many frames of a wait's inner end: behind those of the C library that it calls.
const NEAREST_FRAMES: usize = 6;

/// Whether the preloaded library meters the wait whose stack this is, or too little of the stack is known to say that it does not.
fn may_be_seen_inside(frames: &[Frame]) -> bool {
    let is_outermost = |frame: &Frame| {
        let outermost = ["clone", "__clone", "clone3", "__clone3", "start_thread", "_start"];
        frame.function.as_deref().is_some_and(|function| outermost.contains(&function))
    };
    frames.iter().any(is_of_preloaded) || (frames.len() < NEAREST_FRAMES && !frames.last().is_some_and(is_outermost))
}

/// Drains that a word is remembered for after its last wait.
const REMEMBERED_DRAINS: u32 = 120;

/// Words remembered; beyond, only those of the last drains are.
const MOST_WORDS: usize = 1 << 16;

/// Stacks remembered with their names, over all processes.
const MOST_SITES: usize = 1 << 15;

/// At a release, this many of the last waits that have ended are looked at for those that timed out.
const LAST_ENDED: usize = 64;

/// What a stack weighs that belongs to no sampled wait: it counts only where there is no other.
const INTRODUCTION_WEIGHT: f64 = 1.0;

/// Everything that is known of the waits of the metered processes.
pub struct Waits {
    processes: Rc<RefCell<Processes>>,
    sites: HashMap<SiteKey, Rc<Site>>,
    words: HashMap<Word, KnownWord>,
    /// Sampled waits that were woken but run not yet, by thread and begin.
    woken: HashMap<(u32, u64), Woken>,
    ended: Vec<Ended>,
    releases: Releases<BlamedFor, WordLock>,
    blamed: HashMap<BlamedKey, Rc<BlamedFor>>,
    /// Of waits that the preloaded library meters.
    holders: Holders,
    semaphores: Rc<RefCell<SemaphoreUses>>,
    /// Who waits for these is at rest.
    pub(super) words_at_rest: HashSet<Word>,
    /// Waits that the preloaded library meters are left out.
    is_beside_preloaded: bool,
    losses: Losses,
    cgroups: CgroupTree,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SiteKey {
    tgid: u32,
    changes: u32,
    call: FutexCallKey,
    addresses: Vec<u64>,
}

/// A stack with its names.
#[derive(Debug)]
pub(super) struct Site {
    frames: Vec<Frame>,
    /// `None`: neither the functions nor the call told it.
    pub(super) wait: Option<UserWait>,
    /// The function that uses the lock.
    pub(super) user: Option<String>,
    /// The same of a semaphore, with or without a name.
    pub(super) semaphore_user: Option<String>,
    /// Other processes may map the word.
    is_shared: bool,
    /// The preloaded library meters it, or may do so.
    is_seen_inside: bool,
    /// The same stack, where a thread's end is what it waits for: the stack alone does not say so.
    as_join: OnceCell<Rc<Site>>,
}

/// A futex word, and what was waited for on it: one lock nearly always, several where it is a thread's own.
#[derive(Default)]
struct KnownWord {
    told: Vec<Told>,
    /// Drains since the last wait.
    age: u32,
}

/// A lock behind a word.
pub(super) struct Told {
    pub(super) wait: UserWait,
    is_told: bool,
    lock: Lock,
    instance: u64,
    /// A stack that waits for it.
    pub(super) site: Rc<Site>,
    /// What its stacks stand for, in this interval and in the last one that had any.
    now: f64,
    before: f64,
}

impl Told {
    /// The lock's address in this process; of one that processes share, what stands for it in all of them: its name says where it lies.
    fn address_of(&self, tgid: u32) -> LockAddress {
        if self.lock.naming != Naming::UserShared {
            return (tgid, self.instance);
        }
        let mut hasher = DefaultHasher::new();
        self.lock.name.hash(&mut hasher);
        (NO_PROCESS, hasher.finish())
    }
}

/// The process of a lock that several share.
const NO_PROCESS: u32 = 0;

struct Woken {
    word: Word,
    told: usize,
    weight: f64,
    site: Rc<Site>,
    /// Who woke it.
    by: Rc<BlamedFor>,
    woken_ns: u64,
    waited_ns: u64,
    /// What each holder had of the wait, if it was divided.
    parts: Vec<Part<BlamedFor, WordLock>>,
    /// If nobody released the lock: whom it named as its holder then.
    holder: Option<Rc<BlamedFor>>,
    has_timed_out: bool,
    age: u32,
}

impl Woken {
    /// Who had the lock meanwhile is known only at its next release.
    fn is_not_yet_divided(&self) -> bool {
        self.parts.is_empty() && self.by.source == BlockerSource::WakeupNotSeen
    }

    fn begin_ns(&self) -> u64 {
        self.woken_ns.saturating_sub(self.waited_ns)
    }
}

/// A word, and which of the locks behind it.
type WordLock = (Word, usize);

/// Who is to blame for a wait, or for a part of it.
struct BlamedFor {
    source: BlockerSource,
    comm: Comm,
    tgid: u32,
    releaser: Option<Rc<Site>>,
}

impl BlamedFor {
    fn holder(&self, lock: WhichLock) -> Option<Holder> {
        Holder::new(self.tgid, self.releaser.as_ref().and_then(|site| site.user.as_deref()), lock)
    }
}

/// What those are told apart by: how they are known, the process, the thread's name and the stack.
type BlamedKey = (BlockerSource, u32, Comm, Option<*const Site>);

/// A sampled wait.
struct Ended {
    woken: Woken,
    total_ns: u64,
    cgroup: u64,
    comm: Comm,
}

impl Waits {
    pub fn new(is_beside_preloaded: bool, known: KnownPrograms) -> Self {
        Self {
            is_beside_preloaded,
            processes: known.processes,
            sites: HashMap::new(),
            words: HashMap::new(),
            woken: HashMap::new(),
            ended: Vec::new(),
            releases: Releases::default(),
            blamed: HashMap::new(),
            holders: Holders::default(),
            semaphores: known.semaphores,
            words_at_rest: HashSet::new(),
            losses: Losses::default(),
            cgroups: CgroupTree::find(),
        }
    }

    /// Takes in a record of the ring buffer.
    pub fn take(&mut self, bytes: &[u8]) {
        match Record::read(bytes) {
            Some(Record::Begin(record)) => self.introduce(record),
            Some(Record::Woken(record)) => self.wake(record),
            Some(Record::End(record)) => self.end(record),
            None => self.losses.add(Loss::DanglingReference, 1),
        }
    }

    fn introduce(&mut self, record: &begin_record) {
        self.processes.borrow_mut().inherit(record.sleep.tgid, record.parent);
        let word = word_of(&record.sleep);
        let site = self.site(&record.sleep, record.sleep.tgid, &record.sleeper);
        self.semaphores.borrow_mut().waits(&site, record.sleep.tid);
        self.learn(word, &site, INTRODUCTION_WEIGHT);
    }

    fn wake(&mut self, record: &woken_record) {
        let word = word_of(&record.sleep);
        // A waker of another process cannot copy the sleeper's stack: one that slept on the same word before stands for it.
        let is_stranger = record.waker_tgid != record.sleep.tgid;
        let known = self
            .words
            .get(&word)
            .filter(|_| is_stranger)
            .and_then(KnownWord::heaviest)
            .map(|told| Rc::clone(&told.site));
        let site = known.unwrap_or_else(|| self.site(&record.sleep, record.sleep.tgid, &record.sleeper));
        let is_by_futex = record.waker == WAKER_FUTEX;
        let releaser = is_by_futex.then(|| self.site(&record.sleep, record.waker_tgid, &record.releaser));
        let site = match &releaser {
            Some(releaser) if site.is_joined_by(releaser) => site.as_join(),
            _ => site,
        };
        let waited_ns = record.waited_ns.max(1);
        let weight = if waited_ns >= record.period_ns { 1.0 } else { record.period_ns as f64 / waited_ns as f64 };
        let told = self.learn(word, &site, weight * waited_ns as f64);
        self.semaphores.borrow_mut().waits(&site, record.sleep.tid);
        if is_by_futex {
            self.semaphores.borrow_mut().wakes(&site, record.waker_tid, weight);
        }
        let source = match (record.waker, &releaser) {
            (WAKER_FUTEX, Some(releaser)) if releaser.frames.is_empty() => BlockerSource::StackLost,
            (WAKER_FUTEX, _) => BlockerSource::Releaser,
            (WAKER_EXIT, _) => BlockerSource::Waker,
            _ => BlockerSource::WakeupNotSeen,
        };
        let comm = record.waker_comm.map(i8::cast_unsigned);
        let by = self.blamed(BlamedFor { source, comm, tgid: record.waker_tgid, releaser });
        let parts = self.divide(word, told, &by, record);
        let holder = (source == BlockerSource::WakeupNotSeen).then(|| self.holder_now(word, told)).flatten();
        let (woken_ns, waited_ns, has_timed_out) = (record.woken_ns, record.waited_ns, false);
        let woken = Woken { word, told, weight, site, by, woken_ns, waited_ns, parts, holder, has_timed_out, age: 0 };
        self.woken.insert((record.sleep.tid, record.sleep.begin_ns), woken);
    }

    /// The same for all waits that the same thread is blamed for at the same place.
    fn blamed(&mut self, by: BlamedFor) -> Rc<BlamedFor> {
        let key = (by.source, by.tgid, by.comm, by.releaser.as_ref().map(Rc::as_ptr));
        if self.blamed.len() >= MOST_SITES {
            self.blamed.clear();
        }
        Rc::clone(self.blamed.entry(key).or_insert_with(|| Rc::new(by)))
    }

    /// What each holder had of a wait that has ended so. A wait for no lock has no holders.
    fn divide(
        &mut self,
        word: Word,
        told: usize,
        by: &Rc<BlamedFor>,
        record: &woken_record,
    ) -> Vec<Part<BlamedFor, WordLock>> {
        let word_lock = (word, told);
        let told = self.words.get(&word).and_then(|known| known.told.get(told));
        let Some(told) = told.filter(|told| has_holders(told.wait.kind) && record.waker == WAKER_FUTEX) else {
            return Vec::new();
        };
        let lock = told.address_of(word.tgid);
        let (begin_ns, end_ns) = (record.woken_ns.saturating_sub(record.waited_ns), record.woken_ns);
        let slept = record.waker_sleeps.iter().filter_map(|sleep| {
            let (begin_ns, end_ns, spent_ns) = (sleep.begin_ns, sleep.end_ns, sleep.spent_ns);
            Some(PastSleep { begin_ns, end_ns, spent_ns, did: holder_state_of(sleep.did.try_into().ok()?)? })
        });
        self.releases.note(lock, end_ns, record.waker_tid, (Rc::clone(by), slept.collect()));
        self.divide_timed_out(lock, end_ns);
        let parts = self.releases.divide(lock, begin_ns, end_ns);
        self.releases.waited(record.sleep.tid, (begin_ns, end_ns), (lock, &word_lock), &parts);
        parts
    }

    /// Who had a lock when a wait for it timed out is known at its next release, which is this one.
    fn divide_timed_out(&mut self, lock: LockAddress, released_ns: u64) {
        let ended = self.ended.iter_mut().rev().take(LAST_ENDED).map(|ended| &mut ended.woken);
        for woken in ended.chain(self.woken.values_mut()) {
            let told = self.words.get(&woken.word).and_then(|known| known.told.get(woken.told));
            let is_of_lock = |told: &Told| has_holders(told.wait.kind) && told.address_of(woken.word.tgid) == lock;
            if woken.is_not_yet_divided() && woken.woken_ns < released_ns && told.is_some_and(is_of_lock) {
                woken.parts = self.releases.divide(lock, woken.begin_ns(), woken.woken_ns);
            }
        }
    }

    /// Of waits that timed out, and whose lock nobody has released since: after its last release it was the thread's that it named.
    fn divide_by_holders(&mut self) {
        for woken in self.ended.iter_mut().map(|ended| &mut ended.woken).filter(|woken| woken.is_not_yet_divided()) {
            let told = self.words.get(&woken.word).and_then(|known| known.told.get(woken.told));
            let Some(told) = told.filter(|told| has_holders(told.wait.kind)) else { continue };
            let lock = told.address_of(woken.word.tgid);
            woken.parts = self.releases.divide(lock, woken.begin_ns(), woken.woken_ns);
            let divided_ns: u64 = woken.parts.iter().map(|part| part.ns).sum();
            if let (Some(holder), left_ns @ 1..) = (&woken.holder, woken.waited_ns.saturating_sub(divided_ns)) {
                woken.parts.push(Part { by: Some(Rc::clone(holder)), root: None, did: None, ns: left_ns });
            }
        }
    }

    /// The thread that the lock names as its holder by now.
    fn holder_now(&mut self, word: Word, told: usize) -> Option<Rc<BlamedFor>> {
        let told = self.words.get(&word)?.told.get(told)?;
        let lock = told.wait.lock_address(word.address)?;
        let (tgid, comm) = holder_in_memory(word.tgid, lock.checked_add(told.wait.owner?)?, told.site.is_shared)?;
        Some(self.blamed(BlamedFor { source: BlockerSource::Holder, comm, tgid, releaser: None }))
    }

    fn end(&mut self, record: &end_record) {
        let Some(mut woken) = self.woken.remove(&(record.sleep.tid, record.sleep.begin_ns)) else { return };
        let comm = record.comm.map(i8::cast_unsigned);
        woken.has_timed_out = record.sleep.operation & TIMED_OUT != 0;
        if !woken.parts.is_empty() && woken.by.source != BlockerSource::WakeupNotSeen {
            self.releases.ran(record.sleep.tid, record.total_ns.saturating_sub(woken.waited_ns));
        }
        self.ended.push(Ended { woken, total_ns: record.total_ns, cgroup: record.cgroup, comm });
    }

    fn site(&mut self, sleep: &sleep_record, tgid: u32, stack: &copied_stack) -> Rc<Site> {
        let addresses = self.processes.borrow_mut().unwind(tgid, as_copied!(stack), &mut self.losses);
        let expected = sleep.expected & 0xffff_ffff;
        let call = FutexCallKey::of(sleep.operation, expected);
        let key = SiteKey { tgid, changes: self.processes.borrow_mut().changes(tgid), call, addresses };
        if let Some(known) = self.sites.get(&key) {
            return Rc::clone(known);
        }
        if self.sites.len() >= MOST_SITES {
            self.sites.clear();
        }
        let frames = self.processes.borrow_mut().frames(tgid, &key.addresses);
        let call = FutexCall { operation: sleep.operation, expected };
        let is_preloaded = self.is_beside_preloaded && self.processes.borrow_mut().maps_any(tgid, is_preloaded_file);
        let is_seen_inside = is_preloaded && may_be_seen_inside(&frames);
        let frames = frames.into_iter().filter(|frame| !is_of_preloaded(frame)).collect();
        let site = Rc::new(Site { is_seen_inside, ..Site::new(frames, call) });
        self.sites.insert(key, Rc::clone(&site));
        site
    }

    /// Remembers that this stack waits on this word. Returns the place of the lock among those behind the word.
    fn learn(&mut self, word: Word, site: &Rc<Site>, weight: f64) -> usize {
        let told = site.wait.unwrap_or(UserWait::UNTOLD);
        let LockBehind { wait, lock, address, is_own } = LockBehind::find(
            &mut self.processes.borrow_mut(),
            (word.tgid, word.address, site.is_shared),
            told,
            &site.frames,
        );
        let in_memory = || self.processes.borrow().lock_in_memory(word.tgid, address, &site.frames);
        let known = self.words.entry(word).or_default();
        known.age = 0;
        let user = site.user.as_deref();
        let same = |told: &Told| {
            // A library may be mapped where another one was.
            let is_same_lock = is_own || lock.as_ref().is_none_or(|lock| lock.name == told.lock.name);
            // A thread's own word says nothing of the lock: then the lock is as good as its user.
            told.wait == wait
                && is_same_lock
                && told.site.is_seen_inside == site.is_seen_inside
                && (address.is_some() || told.site.user.as_deref() == user)
        };
        // Of a sleeper that another process wakes there may be no stack: it sleeps for what others sleep for on this word.
        let is_blank = |told: &Told| told.site.frames.is_empty() && !told.is_told;
        let is_as_others = site.frames.is_empty() && site.wait.is_none();
        let known_at = known.told.iter().position(same).or_else(|| {
            let blank_at = known.told.iter().position(is_blank);
            if is_as_others { known.heaviest_at() } else { blank_at }
        });
        let at = known_at.unwrap_or(known.told.len());
        if known.told.get(at).is_none_or(|told| is_blank(told) && !is_as_others) {
            let (now, before) = known.told.get(at).map_or((0.0, 0.0), |blank| (blank.now, blank.before));
            let told = Told {
                wait,
                is_told: site.wait.is_some(),
                lock: lock.clone().unwrap_or_else(in_memory),
                instance: address.unwrap_or(word.address),
                site: Rc::clone(site),
                now,
                before,
            };
            match known.told.get_mut(at) {
                Some(blank) => *blank = told,
                None => known.told.push(told),
            }
        }
        if let Some(told) = known.told.get_mut(at) {
            told.now += weight;
        }
        at
    }

    /// Names everything that was drained and adds it to an interval.
    pub fn drain_into(&mut self, interval: &mut Interval, drained: &Drained) {
        self.cgroups.learn(drained.totals.keys().map(|key| key.cgroup).filter(|id| *id != 0));
        let (replaced, read_in_part) = {
            let mut processes = self.processes.borrow_mut();
            (processes.take_replaced(), processes.take_read_in_part())
        };
        // From inside the same files are met.
        if !self.is_beside_preloaded {
            self.losses.add(Loss::FileReplaced, replaced);
            self.losses.add(Loss::FileReadInPart, read_in_part);
        }
        interval.losses.merge(&std::mem::take(&mut self.losses));
        self.learn_of_strangers(drained);
        self.divide_by_holders();
        let ended = std::mem::take(&mut self.ended);
        let semaphores = Rc::clone(&self.semaphores);
        let (words, semaphores, cgroups) = (&self.words, &*semaphores.borrow(), &self.cgroups);
        let words_at_rest = &self.words_at_rest;
        let mut filling = Filling { words, words_at_rest, semaphores, cgroups, interval, stacks: HashMap::new() };
        filling.add_samples(&ended);
        filling.add_totals(drained, &ended);
        if self.is_beside_preloaded {
            self.note_holders(&ended);
            self.holders.tell(interval);
        }
        self.grow_old();
    }

    /// What those did who are to blame for waits that the preloaded library meters.
    fn note_holders(&mut self, ended: &[Ended]) {
        for Woken { word, told, parts, .. } in ended.iter().map(|ended| &ended.woken) {
            let told = self.words.get(word).and_then(|known| known.told.get(*told));
            let Some(told) = told.filter(|told| told.site.is_seen_inside) else { continue };
            let is_shared = told.lock.naming == Naming::UserShared;
            let lock = if is_shared { WhichLock::Shared } else { WhichLock::At(told.instance) };
            for Part { by, root, did, ns } in parts {
                let Some(by) = by else { continue };
                let holder = by.holder(lock);
                if let (Some(holder), true) = (&holder, is_shared) {
                    let root = root.as_ref().and_then(|root| self.holder_root(root));
                    self.holders.note_root(holder.clone(), root, *ns);
                }
                let at_end = root.as_ref().map_or(holder, |root| root.by.holder(WhichLock::Any));
                if let (Some(holder), Some(did)) = (at_end, did) {
                    self.holders.note(holder, *did, *ns);
                }
            }
        }
    }

    /// `None` if nothing is known any more of the lock.
    fn holder_root(&self, root: &RootOf<BlamedFor, WordLock>) -> Option<HolderRoot> {
        let (word, told) = root.lock;
        let lock = self.words.get(&word)?.told.get(told)?.lock.clone();
        let BlamedFor { tgid, comm, releaser, .. } = &*root.by;
        let frames = releaser.as_ref()?.frames.clone();
        Some(HolderRoot { lock, frames, task: Task { tgid: *tgid, comm: text(comm), own: false }, did: root.did })
    }

    /// Words of which no stack was seen ever.
    fn learn_of_strangers(&mut self, drained: &Drained) {
        for key in drained.totals.keys() {
            if let Some(known) = self.words.get_mut(&key.word) {
                known.age = 0;
            }
            if self.words.get(&key.word).is_none_or(|known| known.told.is_empty()) {
                let call = FutexCall { operation: key.operation & !(TIMED_OUT | RETRIED), expected: 0 };
                let site = Rc::new(Site {
                    frames: Vec::new(),
                    wait: UserWait::by_call(call),
                    user: None,
                    semaphore_user: None,
                    is_shared: call.is_shared(),
                    is_seen_inside: self.is_beside_preloaded
                        && self.processes.borrow_mut().maps_any(key.word.tgid, is_preloaded_file),
                    as_join: OnceCell::new(),
                });
                self.learn(key.word, &site, INTRODUCTION_WEIGHT);
            }
        }
    }

    fn grow_old(&mut self) {
        let remembered = if self.words.len() > MOST_WORDS { 1 } else { REMEMBERED_DRAINS };
        self.words.retain(|_, known| {
            known.age += 1;
            if known.told.iter().any(|told| told.now > 0.0) {
                for told in &mut known.told {
                    told.before = std::mem::take(&mut told.now);
                }
            }
            known.age <= remembered
        });
        // The record of their end was lost.
        self.woken.retain(|_, woken| {
            woken.age += 1;
            woken.age <= 2
        });
    }

    /// Whether the last stacks on a word say that its waits are idle.
    pub fn is_idle(&self, word: Word) -> bool {
        let heaviest = self.words.get(&word).and_then(KnownWord::heaviest);
        self.words_at_rest.contains(&word)
            || heaviest.is_some_and(|told| {
                told.site.is_seen_inside || self.semaphores.borrow().happened(told) == Happened::Idle
            })
    }
}

impl Site {
    pub(super) fn new(mut frames: Vec<Frame>, call: FutexCall) -> Self {
        let wait = if frames.is_empty() { None } else { UserWait::tell(&frames, call) };
        let nameless = leave_nameless_out(&mut frames);
        let begins_with_lock = frames
            .first()
            .and_then(|frame| frame.function.as_deref())
            .is_some_and(lock_functions::is_user_lock_function);
        if let Some(function) = wait.and_then(|wait| wait.function).filter(|_| !begins_with_lock && nameless > 0) {
            // The function that was called has jumped to an inner one, whose name the library lacks.
            let function = Some(function.to_owned());
            frames.insert(0, Frame { address: 0, function, offset: 0, module: Some("libc".to_owned()) });
        }
        let names: Vec<&str> = frames.iter().filter_map(|frame| frame.function.as_deref()).collect();
        let user = lock_functions::main_function(&names).map(str::to_owned);
        let is_semaphore = wait.is_some_and(|wait| wait.kind == Kind::Semaphore);
        let semaphore_user = is_semaphore.then(|| semaphore_user(&frames)).flatten();
        let (is_shared, as_join) = (call.is_shared(), OnceCell::new());
        Self { frames, wait, user, semaphore_user, is_shared, is_seen_inside: false, as_join }
    }

    /// Whether who waits here for a semaphore has waited for the end of the thread that posted it.
    fn is_joined_by(&self, releaser: &Self) -> bool {
        self.wait.is_some_and(|wait| wait.kind == Kind::Semaphore)
            && is_wait_for_end_of_thread(&self.frames, &releaser.frames)
    }

    fn as_join(&self) -> Rc<Self> {
        let join = || Self {
            frames: self.frames.clone(),
            wait: self.wait.map(UserWait::for_end_of_thread),
            user: self.user.clone(),
            semaphore_user: None,
            as_join: OnceCell::new(),
            ..*self
        };
        Rc::clone(self.as_join.get_or_init(|| Rc::new(join())))
    }
}

/// Whether waits for it end when holders release it, and not by an event.
const fn has_holders(kind: Kind) -> bool {
    matches!(kind, Kind::Mutex | Kind::Rwsem | Kind::Rwlock | Kind::RtMutex | Kind::Semaphore | Kind::Spin)
}

/// Whether a wait of this operation timed out for good. A lock that is made of a condition has time limits of its own, after which its
/// user goes on to wait; one that comes again for any other lock was told that it did not get it.
fn has_given_up(told: &Told, operation: u32) -> bool {
    operation & TIMED_OUT != 0 || (operation & RETRIED != 0 && !told.wait.is_made_of_condition())
}

fn word_of(sleep: &sleep_record) -> Word {
    Word { tgid: sleep.tgid, address: sleep.word }
}

impl KnownWord {
    /// The lock of most of its waits.
    fn heaviest(&self) -> Option<&Told> {
        self.told.get(self.heaviest_at()?)
    }

    fn heaviest_at(&self) -> Option<usize> {
        let weight = |at: &usize| self.told.get(*at).map_or(0.0, |told| told.now + told.before);
        (0..self.told.len()).max_by(|one, other| weight(one).total_cmp(&weight(other)))
    }

    /// The locks behind the word with the share of each in what was counted, in millionths.
    fn shares(&self) -> Vec<(usize, u64)> {
        let is_now = self.told.iter().any(|told| told.now > 0.0);
        let weight = |told: &Told| if is_now { told.now } else { told.before };
        shares(&self.told.iter().map(weight).enumerate().collect())
    }
}

/// What the sampled waits of each word and bucket stand for, by the lock behind the word: readers and writers of one lock, say, sleep on
/// the same word for different times.
fn weights_by_length(ended: &[Ended]) -> HashMap<(Word, u8), BTreeMap<usize, f64>> {
    let mut weights = HashMap::<_, BTreeMap<usize, f64>>::new();
    for Ended { woken, total_ns, .. } in ended {
        let of_length = weights.entry((woken.word, Bucket::of(*total_ns).0)).or_default();
        *of_length.entry(woken.told).or_default() += woken.weight * *total_ns as f64;
    }
    weights
}

/// An interval in the making.
struct Filling<'a> {
    words: &'a HashMap<Word, KnownWord>,
    words_at_rest: &'a HashSet<Word>,
    semaphores: &'a SemaphoreUses,
    cgroups: &'a CgroupTree,
    interval: &'a mut Interval,
    stacks: HashMap<*const Site, StackId>,
}

/// What sampled waits are told apart by.
#[derive(PartialEq, Eq, Hash)]
struct SampledKey {
    key: Key,
    instance: u64,
    site: Option<StackId>,
    blocker: Blocker,
}

impl Filling<'_> {
    fn add_totals(&mut self, drained: &Drained, ended: &[Ended]) {
        let sampled: HashSet<Word> = ended.iter().map(|ended| ended.woken.word).collect();
        let sampled_as_long = weights_by_length(ended);
        let mut totals = HashMap::<Key, Value>::new();
        for (key, whole) in &drained.totals {
            let Some(known) = self.words.get(&key.word) else { continue };
            let as_long = sampled_as_long.get(&(key.word, key.bucket));
            for (at, value) in split(whole, &as_long.map_or_else(|| known.shares(), shares)) {
                let Some(told) = known.told.get(at).filter(|told| !told.site.is_seen_inside) else { continue };
                let total_key = self.key(told, key);
                totals.entry(total_key).or_default().merge(&value);
                if !told.is_told {
                    self.interval.losses.add(Loss::FutexUntold, value.count);
                }
                if !sampled.contains(&key.word) && !told.site.frames.is_empty() {
                    self.add_stand_in(total_key, told, value);
                }
            }
        }
        self.interval.totals.extend(totals.into_iter().map(|(key, value)| Total { key, value }));
    }

    /// Waits that nobody of the process ended have no stack of their own: the last one seen on their word stands for them.
    fn add_stand_in(&mut self, key: Key, told: &Told, value: Value) {
        let site = self.stack(&told.site);
        let blocker = Blocker::unknown(BlockerSource::WakeupNotSeen);
        let instance = Some(told.instance);
        self.interval.sampled.push(Sampled {
            key,
            instance,
            filesystem: OfFilesystem::None,
            site,
            blocker,
            stacks: 1,
            estimate: value,
        });
    }

    fn add_samples(&mut self, ended: &[Ended]) {
        let mut sums = HashMap::<SampledKey, (u64, f64, f64, u64)>::new();
        for Ended { woken, total_ns, cgroup, comm } in ended {
            let Some(told) = self.words.get(&woken.word).and_then(|known| known.told.get(woken.told)) else { continue };
            if told.site.is_seen_inside {
                continue;
            }
            let bucket = Bucket::of(*total_ns).0;
            // Whether a wait for a lock that is made of a condition went on is not known yet when it ends.
            let has_given_up = woken.has_timed_out && !told.wait.is_made_of_condition();
            let operation = if has_given_up { TIMED_OUT } else { 0 };
            let total_key = TotalKey { word: woken.word, operation, bucket, cgroup: *cgroup, comm: *comm };
            let key = self.key(told, &total_key);
            let site = self.stack(&woken.site);
            let blockers = self.blockers(woken, key.happened, *total_ns);
            let most_ns = blockers.iter().map(|(_, part_ns)| *part_ns).max();
            for (blocker, part_ns) in blockers {
                let (stacks, count, sum_ns, max_ns) =
                    sums.entry(SampledKey { key, instance: told.instance, site, blocker }).or_default();
                // One stack was taken of the wait.
                *stacks += u64::from(Some(part_ns) == most_ns);
                *count += woken.weight * part_ns as f64 / (*total_ns).max(1) as f64;
                *sum_ns += woken.weight * part_ns as f64;
                *max_ns = part_ns.max(*max_ns);
            }
        }
        for (SampledKey { key, instance, site, blocker }, (stacks, count, sum_ns, max_ns)) in sums {
            let estimate = Value { count: count.round() as u64, total_ns: sum_ns as u64, max_ns, spin_ns: 0 };
            self.interval.sampled.push(Sampled {
                key,
                instance: Some(instance),
                filesystem: OfFilesystem::None,
                site,
                blocker,
                stacks,
                estimate,
            });
        }
    }

    fn key(&mut self, told: &Told, key: &TotalKey) -> Key {
        let happened = match self.semaphores.happened(told) {
            _ if self.words_at_rest.contains(&key.word) => Happened::Idle,
            Happened::Wait if has_given_up(told, key.operation) => Happened::TimedOut,
            happened => happened,
        };
        Key {
            task: (key.comm[0] != 0).then(|| self.task(key.word.tgid, &key.comm)),
            cgroup: self.cgroup(key.cgroup),
            bucket: Bucket(key.bucket),
            ..Key::of(happened, self.lock(told), told.wait.kind, told.wait.mode)
        }
    }

    fn lock(&mut self, told: &Told) -> LockId {
        let mut lock = told.lock.clone();
        if told.wait.kind == Kind::Futex && !told.is_told && lock.detail.is_empty() {
            "no function on its waiters' stacks is known to wait for a lock".clone_into(&mut lock.detail);
        }
        self.interval.tables.intern_lock(lock)
    }

    fn task(&mut self, tgid: u32, comm: &Comm) -> TaskId {
        let own = tgid == std::process::id();
        self.interval.tables.intern_task(Task { tgid, comm: text(comm), own })
    }

    fn cgroup(&mut self, id: u64) -> Option<CgroupId> {
        let path = self.cgroups.path(id).map(str::to_owned);
        (id != 0).then(|| self.interval.tables.intern_cgroup(Cgroup { id, path }))
    }

    /// Who is to blame for a wait, and for how much of it.
    fn blockers(&mut self, woken: &Woken, happened: Happened, total_ns: u64) -> Vec<(Blocker, u64)> {
        if woken.parts.is_empty() || !matches!(happened, Happened::Wait | Happened::TimedOut) {
            return vec![(self.blocker(&woken.by), total_ns)];
        }
        let mut left_ns = total_ns;
        let mut blockers: Vec<(Blocker, u64)> = woken
            .parts
            .iter()
            .map(|Part { by, root, did, ns }| {
                let part_ns = (*ns).min(left_ns);
                left_ns -= part_ns;
                let unknown = Blocker::unknown(BlockerSource::EarlierHolder);
                let blocker = by.as_ref().map_or(unknown, |by| self.blocker(by));
                let root = root.as_ref().and_then(|root| self.root(root));
                let state = if root.is_some() { Some(HolderState::of(ThreadState::UserLock)) } else { *did };
                (Blocker { root, state, ..blocker }, part_ns)
            })
            .collect();
        if left_ns > 0 {
            let is_released = happened == Happened::Wait;
            let nobody = || Blocker::unknown(BlockerSource::Handover);
            blockers.push((if is_released { nobody() } else { self.blocker(&woken.by) }, left_ns));
        }
        blockers
    }

    /// `None` if nothing is known any more of the lock.
    fn root(&mut self, root: &RootOf<BlamedFor, WordLock>) -> Option<Root> {
        let (word, told) = root.lock;
        let told = self.words.get(&word)?.told.get(told)?;
        let Blocker { stack, task, .. } = self.blocker(&root.by);
        Some(Root { lock: self.lock(told), stack, task, state: root.did })
    }

    fn blocker(&mut self, by: &BlamedFor) -> Blocker {
        let stack = by.releaser.as_ref().and_then(|site| self.stack(site));
        let is_known = by.source != BlockerSource::WakeupNotSeen;
        let task = is_known.then(|| self.task(by.tgid, &by.comm));
        Blocker { source: by.source, stack, task, owner_hint: None, root: None, state: None }
    }

    fn stack(&mut self, site: &Rc<Site>) -> Option<StackId> {
        if site.frames.is_empty() {
            return None;
        }
        let tables = &mut self.interval.tables;
        let stack = self.stacks.entry(Rc::as_ptr(site)).or_insert_with(|| {
            let frames = site.frames.iter().map(|frame| tables.intern_frame(frame.clone())).collect();
            tables.intern_stack(frames)
        });
        Some(*stack)
    }
}
