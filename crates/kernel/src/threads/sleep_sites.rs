//! Where threads sleep: their stacks, named, and what these say of the reason.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use lockmeter_profile::{
    Frame, Happened, Interval, Kind, Lock, Losses, Mode, StackId, Tables, ThreadState, lock_functions,
};
use lockmeter_symbols::{
    AwaitedByJava, FutexCall, JAVA_MACHINE, JavaMachine, Parked, ProgramLock, UserWait, has_own_locks, program_lock,
    waits_for_work,
};

use super::skeleton::types::thread_look;
use crate::clock::monotonic_ns;
use crate::futex::KnownPrograms;
use crate::futex::named_holder::{counts_threads_otherwise, inner_id, thread_id_of_owner};
use crate::futex::processes::{Processes, copied_stack};
use crate::futex::semaphores::{SemaphoreUses, semaphore_user};
use crate::futex::user_stacks::{FutexCallKey, LockBehind, is_of_preloaded, leave_nameless_out};
use crate::kernel_names::KernelNames;

/// Sites remembered; beyond, all are forgotten.
const MOST_SITES: usize = 1 << 14;

/// A sleep as long as this will hardly end before the thread is asked what it is for.
const GOES_ON_NS: u64 = 50_000_000;

/// `AROUND_BEFORE` and `AROUND_BYTES` in `tables.h`.
const AROUND_BEFORE: u64 = 16;
const AROUND_BYTES: usize = 64;

/// All of them.
pub(super) struct SleepSites {
    processes: Rc<RefCell<Processes>>,
    semaphores: Rc<RefCell<SemaphoreUses>>,
    known: HashMap<SiteKey, Rc<SleepSite>>,
    java: HashMap<u32, JavaProcess>,
    /// Processes with threads of Go's runtime.
    run_go: HashSet<u32>,
    losses: Losses,
}

/// A process that runs Java.
#[derive(Default)]
struct JavaProcess {
    /// Where the machine's library lies.
    begin: u64,
    /// `None`: it cannot be asked, or not yet.
    machine: Option<JavaMachine>,
    /// Its threads have other ids for itself than for the kernel: it runs in a container.
    counts_otherwise: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SiteKey {
    tgid: u32,
    changes: u32,
    /// Of a futex call.
    call: Option<FutexCallKey>,
    kernel: Vec<u64>,
    user: Vec<u64>,
    /// The name of a lock that the thread itself names, whose stack says less.
    told_by_thread: Option<&'static str>,
}

/// A place where threads sleep.
#[derive(Default)]
pub(super) struct SleepSite {
    pub(super) kernel: Vec<u64>,
    /// The program's, named when somebody asks.
    user: OnceCell<Vec<Frame>>,
    tgid: u32,
    addresses: Vec<u64>,
    /// What a futex call waits for; outer `None`: it is another call.
    futex: Option<Option<UserWait>>,
    /// Whether that is a mutex which lends priority: the kernel waits for it in the thread's place.
    lends_priority: bool,
    /// Whether it is a place for threads of a runtime that have nothing to run.
    has_no_work: bool,
    /// A lock that the program has built for itself.
    program_lock: Option<ProgramLock>,
    /// The kernel lock that it sleeps for, once the stack has names.
    kernel_lock: OnceCell<Option<(Kind, Mode)>>,
}

/// The word that a futex call waits on.
#[derive(Debug, Clone)]
pub(super) struct FutexWord {
    pub(super) tgid: u32,
    pub(super) address: u64,
    /// Whether other processes may map it.
    pub(super) is_shared: bool,
    /// Whether the call ends by itself.
    pub(super) is_timed: bool,
    /// What stood about it.
    around: [u8; AROUND_BYTES],
}

impl SleepSites {
    pub(super) fn new(programs: KnownPrograms) -> Self {
        let KnownPrograms { processes, semaphores } = programs;
        Self {
            processes,
            semaphores,
            known: HashMap::new(),
            java: HashMap::new(),
            run_go: HashSet::new(),
            losses: Losses::default(),
        }
    }

    /// The place of a sleep, by the stacks in a record; `None` if the thread was to be asked, and has gone on meanwhile.
    pub(super) fn describe(&mut self, look: &thread_look) -> Option<(Rc<SleepSite>, Option<FutexWord>)> {
        let tgid = look.time.tgid;
        self.processes.borrow_mut().inherit(tgid, look.parent);
        let kernel_frames = (look.kernel_bytes as usize / 8).min(look.kernel.len());
        let kernel = look.kernel.iter().take(kernel_frames).copied().filter(|address| *address != 0).collect();
        let user = if look.user.bytes == 0 {
            Vec::new()
        } else {
            self.processes.borrow_mut().unwind(tgid, copied_stack!(&look.user), &mut self.losses)
        };
        let is_futex = look.word != 0;
        let expected = look.expected & 0xffff_ffff;
        let operation = look.operation as u32;
        let call = is_futex.then(|| FutexCallKey::of(operation, expected));
        let changes = self.processes.borrow_mut().changes(tgid);
        let parked = if is_futex { self.parked(tgid, look.time.tid) } else { None };
        let parks = || self.processes.borrow_mut().frames(tgid, &user).iter().any(is_park);
        let has_slept_long = monotonic_ns().saturating_sub(look.time.since_ns) >= GOES_ON_NS;
        if parked == Some(Parked::ForNothing) && !has_slept_long && parks() {
            return None;
        }
        let parked_for = match parked {
            Some(Parked::Lock(lock)) => Some(lock),
            _ => None,
        };
        let told_by_thread = parked_for.map(ProgramLock::name);
        let key = SiteKey { tgid, changes, call, kernel, user, told_by_thread };
        let word = is_futex.then_some(FutexWord {
            tgid,
            address: look.word,
            is_shared: FutexCall { operation, expected }.is_shared(),
            is_timed: look.timeout != 0,
            around: if look.around_bytes == 0 { [0; AROUND_BYTES] } else { look.around },
        });
        if let Some(known) = self.known.get(&key) {
            return Some((Rc::clone(known), word));
        }
        if self.known.len() >= MOST_SITES {
            self.known.clear();
        }
        // Most threads sleep for no futex, and are at rest: their names would fill the memory for nothing.
        let is_named = is_futex || self.processes.borrow_mut().maps_any(tgid, has_own_locks);
        let user = OnceCell::new();
        let (mut futex, mut own, mut has_no_work) = (is_futex.then_some(None), None, false);
        if is_named {
            let frames = self.processes.borrow_mut().frames(tgid, &key.user);
            if frames.iter().any(lock_functions::is_of_go) {
                self.run_go.insert(tgid);
            }
            if is_futex {
                let call = FutexCall { operation, expected };
                let wait = if frames.is_empty() { None } else { UserWait::tell(&frames, call) };
                let wait = wait.or_else(|| UserWait::by_call(call));
                // Where a library is stripped, the variable says that its condition is a lock.
                let processes = &mut self.processes.borrow_mut();
                let place = (tgid, look.word, call.is_shared());
                futex = Some(wait.map(|wait| LockBehind::find(processes, place, wait, &frames).wait));
            }
            has_no_work = futex.flatten().map_or_else(|| waits_for_work(&frames), |wait: UserWait| wait.is_for_work());
            let in_any_call = || if is_futex { None } else { program_lock(&frames, None) };
            own = parked_for.or_else(|| futex.flatten().and_then(|wait| wait.program_lock())).or_else(in_any_call);
            let frames = named(frames);
            let _ = user.set(frames);
        }
        let lends_priority = is_futex && UserWait::by_call(FutexCall { operation, expected }).is_some_and(is_mutex);
        let (kernel, addresses) = (key.kernel.clone(), key.user.clone());
        let kernel_lock = OnceCell::new();
        let site = SleepSite {
            kernel,
            user,
            tgid,
            addresses,
            futex,
            lends_priority,
            has_no_work,
            program_lock: own,
            kernel_lock,
        };
        let site = Rc::new(site);
        self.known.insert(key, Rc::clone(&site));
        Some((site, word))
    }

    /// What a thread is parked for, if it runs Java.
    fn parked(&mut self, tgid: u32, tid: u32) -> Option<Parked> {
        let (machine, tid) = self.java_machine(tgid, tid)?;
        Some(machine.parked_for(tid))
    }

    /// The lock that a thread waits for right now, if it runs Java.
    pub(super) fn awaited_by_java(&mut self, tgid: u32, tid: u32) -> Option<AwaitedByJava> {
        let (machine, tid) = self.java_machine(tgid, tid)?;
        machine.awaited_by(tid)
    }

    /// The Java machine of a process, and what that calls its thread.
    fn java_machine(&mut self, tgid: u32, tid: u32) -> Option<(&mut JavaMachine, u32)> {
        let processes = self.processes.borrow();
        let library = processes.file(tgid, |file| file == JAVA_MACHINE)?;
        let known = self.java.entry(tgid).or_default();
        if known.begin != library.start {
            let machine = JavaMachine::find(tgid, library);
            *known = JavaProcess { begin: library.start, machine, counts_otherwise: counts_threads_otherwise(tgid) };
        }
        let tid = if known.counts_otherwise { inner_id(tgid, tid)? } else { tid };
        Some((known.machine.as_mut()?, tid))
    }

    /// Whether threads sleep there for a semaphore that guards something.
    pub(super) fn is_guard(&self, site: &SleepSite) -> bool {
        let is_semaphore = site.futex.flatten().is_some_and(|wait| wait.kind == Kind::Semaphore);
        is_semaphore && self.semaphores.borrow().is_lock(&semaphore_user(site.user()))
    }

    /// The lock behind a word at which threads sleep, and its address.
    pub(super) fn lock(&mut self, site: &SleepSite, word: &FutexWord) -> Option<(UserWait, Lock, u64)> {
        let told = site.futex??;
        let place = (word.tgid, word.address, word.is_shared);
        let processes = &mut self.processes.borrow_mut();
        let found = LockBehind::find(processes, place, told, site.user());
        let in_memory = || processes.lock_in_memory(word.tgid, found.address, site.user());
        let lock = found.lock.unwrap_or_else(in_memory);
        Some((found.wait, lock, found.address.unwrap_or(word.address)))
    }

    /// The processes that were seen to run Go.
    pub(super) const fn run_go(&self) -> &HashSet<u32> {
        &self.run_go
    }

    pub(super) fn add_losses(&mut self, interval: &mut Interval) {
        interval.losses.merge(&std::mem::take(&mut self.losses));
    }

    pub(super) fn grow_old(&mut self) {
        self.known.retain(|_, site| Rc::strong_count(site) > 1);
        let processes = self.processes.borrow();
        let is_there = |tgid: &u32| processes.file(*tgid, |file| file == JAVA_MACHINE).is_some();
        self.run_go.retain(|tgid| processes.is_known(*tgid));
        self.java.retain(|tgid, java| java.machine.is_some() && is_there(tgid));
        self.java.values_mut().filter_map(|java| java.machine.as_mut()).for_each(JavaMachine::grow_old);
    }
}

/// Whether this is a function in which threads of Java's park.
fn is_park(frame: &Frame) -> bool {
    frame
        .function
        .as_deref()
        .is_some_and(|function| function.contains("Parker::park") || function.contains("Unsafe_Park"))
}

fn is_mutex(wait: UserWait) -> bool {
    wait.kind == Kind::Mutex
}

/// The program's own frames, from the first function with a name on.
fn named(mut frames: Vec<Frame>) -> Vec<Frame> {
    frames.retain(|frame| !is_of_preloaded(frame));
    leave_nameless_out(&mut frames);
    frames
}

impl SleepSite {
    /// Has the program's functions named, for a report.
    pub(super) fn name(&self, sites: &mut SleepSites) {
        self.user.get_or_init(|| named(sites.processes.borrow_mut().frames(self.tgid, &self.addresses)));
    }

    fn user(&self) -> &[Frame] {
        self.user.get().map_or(&[], Vec::as_slice)
    }

    /// Asks the names of the kernel's functions what it sleeps for.
    pub(super) fn learn_reason(&self, names: &mut KernelNames) {
        self.kernel_lock.get_or_init(|| {
            let functions = names.functions(&self.kernel);
            lock_functions::slept_for(&functions.iter().map(|name| &**name).collect::<Vec<_>>())
        });
    }

    /// The kernel lock that it sleeps for, by its stack.
    pub(super) fn kernel_lock(&self) -> Option<(Kind, Mode)> {
        self.kernel_lock.get().copied().flatten()
    }

    /// Whether who sleeps there has nothing to run, so that it is at rest.
    pub(super) const fn has_no_work(&self) -> bool {
        self.has_no_work
    }

    /// Whether it sleeps for a futex that is a lock, or a semaphore that may be one.
    pub(super) fn may_be_lock(&self) -> bool {
        self.futex.flatten().is_some_and(|wait| wait.happened == Happened::Wait || wait.kind == Kind::Semaphore)
    }

    /// The lock that the program has built for itself, if it sleeps for such a one.
    pub(super) fn program_lock(&self) -> Option<(Lock, Kind, Mode)> {
        let lock = self.program_lock?;
        Some((lock.lock(self.user())?, lock.kind(), lock.mode()))
    }

    /// Whether that lock says which thread has it.
    pub(super) fn names_owner(&self) -> bool {
        self.program_lock.is_some_and(ProgramLock::names_owner)
    }

    /// What the stacks say; `None` if no more than the call.
    pub(super) fn reason(&self) -> Option<ThreadState> {
        if self.kernel_lock().is_some() && !self.lends_priority {
            return Some(ThreadState::KernelLock);
        }
        // A semaphore is a lock only where those who wait for it release it, too.
        match self.program_lock.map(ProgramLock::kind) {
            None | Some(Kind::Semaphore) => {}
            Some(Kind::File) => return Some(ThreadState::FileLock),
            Some(_) => return Some(ThreadState::UserLock),
        }
        match self.futex? {
            // One that nobody was seen to use as a lock is no more than a condition.
            Some(wait) if wait.kind == Kind::Semaphore => Some(ThreadState::Condition),
            Some(wait) if wait.happened == Happened::Wait => Some(ThreadState::UserLock),
            Some(_) => Some(ThreadState::Condition),
            None => None,
        }
    }

    /// The stack that says most: of a kernel lock the kernel's, else the program's.
    pub(super) fn stack(&self, reason: ThreadState, tables: &mut Tables, names: &mut KernelNames) -> Option<StackId> {
        if reason == ThreadState::KernelLock || self.user().is_empty() {
            return names.site(&self.kernel, tables);
        }
        let frames = self.user().iter().map(|frame| tables.intern_frame(frame.clone())).collect();
        Some(tables.intern_stack(frames))
    }
}

impl FutexWord {
    /// The words of the program may have changed since the sleep began.
    pub(super) fn read_again(&mut self) {
        let Ok(memory) = File::open(format!("/proc/{}/mem", self.tgid)) else { return };
        let mut around = [0; AROUND_BYTES];
        let (before, from_word) = around.split_at_mut(AROUND_BEFORE as usize);
        // Either may reach into a page that is not there.
        let _ = memory.read_at(before, self.address.wrapping_sub(AROUND_BEFORE));
        if memory.read_at(from_word, self.address).is_ok() {
            self.around = around;
        }
    }

    fn u32_at(&self, address: u64) -> Option<u32> {
        let at = usize::try_from(address.checked_sub(self.address.wrapping_sub(AROUND_BEFORE))?).ok()?;
        Some(u32::from_ne_bytes(self.around.get(at..at.checked_add(4)?)?.try_into().ok()?))
    }

    /// The same as [`holder`](Self::holder), by what stands there now.
    pub(super) fn holder_now(mut self, site: &SleepSite) -> Option<u32> {
        let wait = site.futex.flatten()?;
        self.read_again();
        self.holder(&wait, site)
    }

    /// The thread that the lock names as its holder, as the process knows it; `None` if this kind of lock does not tell.
    pub(super) fn holder(&self, wait: &UserWait, site: &SleepSite) -> Option<u32> {
        if site.lends_priority {
            return self.u32_at(self.address).and_then(thread_id_of_owner);
        }
        let lock = wait.lock_address(self.address)?;
        self.u32_at(lock.checked_add(wait.owner?)?).and_then(thread_id_of_owner)
    }
}
