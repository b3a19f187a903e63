//! The threads in scope, from look to look.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

use lockmeter_profile::{Cgroup, CgroupId, Interval, Sleep, Tables, Task, TaskId, ThreadState, ThreadTime};
use lockmeter_symbols::AwaitedByJava;

use super::lock_turns::{LockTurns, WordId};
use super::skeleton::types::{thread_end, thread_look, thread_time};
use super::sleep_sites::{FutexWord, SleepSite, SleepSites};
use crate::cgroups::CgroupTree;
use crate::clock::monotonic_ns;
use crate::comm::{Comm, text};
use crate::kernel_names::KernelNames;
use crate::thread_states::state_of;

/// A sleep as long as this is longer than ten looks.
const LONG_NS: u64 = 1_000_000_000;

/// As many states as the programs know, with the one that none has.
const STATES: usize = 17;

/// Time by state, in the order of their codes.
type Spent = [u64; STATES];

const RUNNING: usize = ThreadState::Running.code() as usize;

/// Time and how many threads had it, by name and control group.
type Times = HashMap<(Who, u64), (Spent, u64)>;

/// The thread's name and process: what times are told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Who {
    pub(crate) tgid: u32,
    pub(crate) comm: Comm,
}

/// What is known of a thread.
pub(super) struct Thread {
    pub(super) time: thread_time,
    /// How long it had slept already when it was first seen, at least; 0 if it has run since.
    pub(super) before_ns: u64,
    /// The kernel lock that it waits for, and who has that.
    pub(super) lock: u64,
    pub(super) lock_flags: u32,
    pub(super) owner_tid: u32,
    /// The futex word that it waits for; 0 if it waits for none.
    futex: u64,
    /// The one that it waited for last, by which operation, and when it was released from that; 0 if it was not.
    pub(super) last_word: u64,
    pub(super) last_operation: u32,
    pub(super) released_ns: u64,
    /// When it woke another thread last, but by a futex call.
    pub(super) woke_ns: u64,
    /// Whom it woke then, and who woke it last so.
    pub(super) wakee_tid: u32,
    pub(super) waker_tid: u32,
    /// The system call that it sleeps in.
    pub(super) call: u32,
    /// How often it has left its CPU.
    pub(super) switches: u32,
    /// The kernel's record of it, and where its stack ends while it sleeps.
    pub(super) task: u64,
    pub(super) stack_pointer: u64,
    /// Where the present sleep is, if its stacks were taken.
    sleep: Option<KnownSleep>,
    /// When the present sleep began, and the chance that no look has taken its stacks so far.
    chance: (u64, f64),
    monitor_wait: Option<MonitorWait>,
    /// The part of its time that was handed over.
    charged: Spent,
    /// Since the last drain.
    looks: Vec<Look>,
    last_site: LastSite,
    /// Whether its first sleep was [handed over](Threads::first_sleeps).
    first_sleep_told: bool,
}

/// The place where a thread was asleep when it was last seen asleep, and at which of the last looks it was there: the lowest bit is the
/// last look.
#[derive(Default)]
struct LastSite {
    site: Option<Rc<SleepSite>>,
    looks: u32,
}

impl LastSite {
    /// A look found the thread asleep there, or (`None`) not asleep or nobody knows where. One that has slept for a second was there all
    /// the while.
    fn look(&mut self, site: Option<&Rc<SleepSite>>, has_slept_long: bool) {
        if let Some(site) = site.filter(|site| self.site.as_ref().is_none_or(|last| !Rc::ptr_eq(last, site))) {
            self.site = Some(Rc::clone(site));
            self.looks = 0;
        }
        self.looks = self.looks << 1 | u32::from(site.is_some());
        if has_slept_long && site.is_some() {
            self.looks = u32::MAX;
        }
    }

    /// Whether nine of the last ten looks found it at this place.
    fn is_at(&self, site: Option<&Rc<SleepSite>>) -> bool {
        const LAST_TEN: u32 = (1 << 10) - 1;
        let is_here = site.zip(self.site.as_ref()).is_some_and(|(site, last)| Rc::ptr_eq(last, site));
        is_here && (self.looks & LAST_TEN).count_ones() >= 9
    }
}

/// A sleep whose stacks were taken.
struct KnownSleep {
    since_ns: u64,
    /// What the thread had run in all before.
    ran_ns: u64,
    site: Rc<SleepSite>,
    word: Option<FutexWord>,
}

/// A wait for a monitor of Java's, which is many sleeps: the machine parks a thread for a second at a time until it may enter.
struct MonitorWait {
    /// When the first sleep began, at the latest.
    begin_ns: u64,
    awaited: AwaitedByJava,
}

impl MonitorWait {
    /// Whether the thread still waits for that monitor, which the same one has.
    fn goes_on(&self, time: &thread_time, sites: &mut SleepSites) -> bool {
        sites.awaited_by_java(time.tgid, time.tid).is_some_and(|now| now == self.awaited)
    }
}

/// What the looks since the last drain found a thread asleep in.
struct Look {
    state: u8,
    site: Option<Rc<SleepSite>>,
    /// The lock that it waited for, or had while it waited for work.
    lock: Option<WordId>,
    times: u32,
    total_ns: u64,
    variance_ns2: f64,
}

/// All of them.
#[derive(Default)]
pub(super) struct Threads {
    known: HashMap<u64, Thread>,
    /// Of those that have ended since the last interval did.
    ended: Times,
    /// Of the interval that has ended.
    times: Times,
    /// Those of them that ended in a sleep, as they slept, and when that was.
    cut: Vec<(Thread, u64)>,
    sleeps: HashMap<(Who, u8, bool, Option<*const SleepSite>), SleepSum>,
    looked_ns: u64,
    /// When the last interval ended.
    ended_ns: u64,
    /// How long the one was that has ended.
    watched_ns: u64,
    turns: LockTurns,
    /// Sleeps whose stacks the last look has taken.
    described: u32,
}

/// Which stacks a look takes: those of sleeps that have gone on for this long, and of others by chance.
#[derive(Debug, Clone, Copy)]
pub(super) struct StackChoice {
    pub(super) long_sleep_ns: u64,
    pub(super) long_stacks: u32,
    pub(super) stacks: u32,
    /// From 0 to 1.
    pub(super) chance: f64,
}

impl StackChoice {
    /// So many of all that there are.
    pub(super) const fn all(stacks: u32) -> Self {
        Self { long_sleep_ns: u64::MAX, long_stacks: 0, stacks, chance: 1.0 }
    }

    fn chance_of(self, slept_ns: u64) -> f64 {
        if slept_ns >= self.long_sleep_ns { 1.0 } else { self.chance }
    }
}

/// What the looks say of one place where threads of a task sleep.
struct SleepSum {
    site: Option<Rc<SleepSite>>,
    looks: u64,
    total_ns: u64,
    variance_ns2: f64,
}

fn is_blocked(time: &thread_time) -> bool {
    state_of(time.state).is_some_and(ThreadState::is_blocked)
}

/// Whether the thread sleeps, and nobody has woken it.
pub(super) fn is_asleep(time: &thread_time) -> bool {
    is_blocked(time) && time.woken_ns <= time.since_ns
}

impl Thread {
    pub(super) fn state(&self) -> Option<ThreadState> {
        // It runs soon, whatever it slept for.
        if self.is_woken() { Some(ThreadState::Woken) } else { state_of(self.time.state) }
    }

    fn is_woken(&self) -> bool {
        is_blocked(&self.time) && !is_asleep(&self.time)
    }

    /// Where it sleeps, if it does and its stacks were taken.
    pub(super) fn site(&self) -> Option<(&Rc<SleepSite>, Option<&FutexWord>)> {
        let KnownSleep { since_ns, site, word, .. } = self.sleep.as_ref()?;
        (*since_ns == self.time.since_ns && !self.is_woken()).then_some((site, word.as_ref()))
    }

    /// Where it waits: where it sleeps, or between two sleeps for a monitor, where it slept and will sleep again.
    pub(super) fn waits_at(&self) -> Option<(&Rc<SleepSite>, Option<&FutexWord>)> {
        self.site().or_else(|| {
            let sleep = self.sleep.as_ref().filter(|_| self.monitor_wait.is_some())?;
            Some((&sleep.site, sleep.word.as_ref()))
        })
    }

    /// How long it has waited until then, at least.
    pub(super) fn waited_ns(&self, now_ns: u64) -> u64 {
        self.monitor_wait.as_ref().map_or_else(|| self.slept_ns(now_ns), |wait| now_ns.saturating_sub(wait.begin_ns))
    }

    /// Whether it still waits for the same monitor, after a look that found it changed.
    pub(super) fn waits_on_for_monitor(&self, sites: &mut SleepSites) -> bool {
        self.monitor_wait.as_ref().is_some_and(|wait| wait.goes_on(&self.time, sites))
    }

    /// Whether it sleeps for a futex that is, or may be, a lock.
    pub(super) fn waits_for_lock(&self) -> bool {
        self.futex != 0 && self.site().is_some_and(|(site, _)| site.may_be_lock())
    }

    fn who(&self) -> Who {
        Who { tgid: self.time.tgid, comm: self.time.comm.map(i8::cast_unsigned) }
    }

    pub(super) fn cgroup(&self, cgroups: &CgroupTree, tables: &mut Tables) -> Option<CgroupId> {
        named_cgroup(self.time.cgroup, cgroups, tables)
    }

    pub(super) fn task(&self, tables: &mut Tables) -> TaskId {
        self.who().task(tables)
    }

    /// How long the present sleep has gone on, at least.
    fn slept_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.time.since_ns).saturating_add(self.before_ns)
    }

    /// For how many sleeps the present one stands that went on for as long, after a look that took its stacks with this chance, if it was
    /// not known yet.
    fn weigh(&mut self, chance: f64) -> f64 {
        const HEAVIEST: f64 = 1000.0;
        let (begin_ns, missed) = &mut self.chance;
        if *begin_ns != self.time.since_ns {
            (*begin_ns, *missed) = (self.time.since_ns, 1.0);
        }
        *missed *= 1.0 - chance;
        let missed = *missed;
        if self.site().is_some() { 1.0 / (1.0 - missed).max(1.0 / HEAVIEST) } else { 1.0 }
    }

    /// All its time until then.
    fn spent_until(&self, now_ns: u64) -> Spent {
        let mut spent: Spent = self.time.spent_ns;
        let (since_ns, woken_ns) = (self.time.since_ns, self.time.woken_ns);
        let mut spend = |state: u32, from_ns: u64, to_ns: u64| {
            if let Some(sum) = spent.get_mut(state as usize) {
                *sum += to_ns.saturating_sub(from_ns);
            }
        };
        if self.is_woken() {
            spend(self.time.state, since_ns, woken_ns);
            spend(ThreadState::Woken.code().into(), woken_ns, now_ns);
        } else {
            spend(self.time.state, since_ns, now_ns);
        }
        spent
    }

    /// The part that was not handed over yet. A thread may have changed its state since it was looked at: what was handed over too much
    /// then is missing later.
    fn uncharged(&mut self, spent: &Spent) -> Spent {
        let mut new = [0; STATES];
        for ((new, charged), spent) in new.iter_mut().zip(&mut self.charged).zip(spent) {
            *new = spent.saturating_sub(*charged);
            *charged += *new;
        }
        new
    }
}

impl Who {
    pub(crate) fn task(&self, tables: &mut Tables) -> TaskId {
        tables.intern_task(Task { tgid: self.tgid, comm: text(&self.comm), own: false })
    }
}

impl Threads {
    /// Takes in a record of the iterator.
    pub(super) fn see(&mut self, look: &thread_look, sites: &mut SleepSites) {
        self.described += look.has_stacks;
        let described = if look.has_stacks != 0 { sites.describe(look) } else { None };
        let thread = self.known.entry(look.time.id).or_insert_with(|| Thread {
            time: thread_time::default(),
            before_ns: 0,
            lock: 0,
            lock_flags: 0,
            owner_tid: 0,
            futex: 0,
            last_word: 0,
            last_operation: 0,
            released_ns: 0,
            woke_ns: 0,
            wakee_tid: 0,
            waker_tid: 0,
            call: 0,
            switches: 0,
            chance: (0, 1.0),
            task: 0,
            stack_pointer: 0,
            sleep: None,
            monitor_wait: None,
            charged: [0; STATES],
            looks: Vec::new(),
            last_site: LastSite::default(),
            first_sleep_told: false,
        });
        let is_other_sleep = look.time.since_ns != thread.time.since_ns;
        let was_released = look.released_ns != thread.released_ns && look.released_ns != 0;
        thread.time = look.time;
        thread.before_ns = look.before_ns;
        (thread.lock, thread.lock_flags, thread.owner_tid) = (look.lock, look.lock_flags, look.owner_tid);
        thread.futex = look.futex;
        (thread.last_word, thread.last_operation) = (look.last_word, look.last_operation);
        (thread.released_ns, thread.woke_ns, thread.call) = (look.released_ns, look.woke_ns, look.call);
        (thread.wakee_tid, thread.waker_tid, thread.switches) = (look.wakee_tid, look.waker_tid, look.switches);
        (thread.task, thread.stack_pointer) = (look.task, look.stack_pointer);
        if is_other_sleep && (was_released || !thread.waits_on_for_monitor(sites)) {
            thread.monitor_wait = None;
        }
        if let Some((site, word)) = described {
            if thread.monitor_wait.is_none() && site.program_lock().is_some() {
                let awaited = sites.awaited_by_java(look.time.tgid, look.time.tid);
                let begin_ns = look.time.since_ns.saturating_sub(look.before_ns);
                thread.monitor_wait = awaited
                    .filter(|awaited| awaited.monitor.is_some())
                    .map(|awaited| MonitorWait { begin_ns, awaited });
            }
            let thread_time { since_ns, spent_ns, .. } = look.time;
            thread.sleep = Some(KnownSleep { since_ns, ran_ns: spent_ns[RUNNING], site, word });
        }
    }

    /// Takes in the last of a thread that has ended.
    pub(super) fn end(&mut self, end: thread_end, sites: &SleepSites) {
        /// Who ran for longer after its sleep was not killed in it.
        const LONGEST_DEATH_NS: u64 = 10_000_000;
        let thread_end { time, cut_sleep_ns } = end;
        let who = Who { tgid: time.tgid, comm: time.comm.map(i8::cast_unsigned) };
        let mut thread = self.known.remove(&time.id);
        let spent = match &mut thread {
            Some(thread) => {
                let spent = thread.uncharged(&time.spent_ns);
                add_looks(&mut self.sleeps, (&self.turns, sites), who, thread, &spent);
                spent
            }
            None => time.spent_ns,
        };
        let (sum, threads) = self.ended.entry((who, time.cgroup)).or_default();
        add(sum, &spent);
        *threads += 1;
        let is_cut = |thread: &Thread| {
            thread.sleep.as_ref().is_some_and(|sleep| {
                let ran_ns = time.spent_ns[RUNNING].saturating_sub(sleep.ran_ns);
                let is_known = sleep.since_ns == cut_sleep_ns || thread.monitor_wait.is_some();
                cut_sleep_ns > 0 && is_known && ran_ns < LONGEST_DEATH_NS
            })
        };
        if let Some(mut thread) = thread.filter(is_cut) {
            // The last look may have met it on its way to its end.
            (thread.time.since_ns, thread.time.woken_ns) = (cut_sleep_ns, 0);
            self.cut.push((thread, time.woken_ns.max(cut_sleep_ns)));
        }
    }

    /// Which of so many stacks the next look is to take. The longest sleeps come first: one that goes on has its stack taken once, and
    /// its time is the longest.
    pub(super) fn choose_stacks(&mut self, most: u32) -> StackChoice {
        let now_ns = monotonic_ns();
        let is_nameless = |thread: &&Thread| {
            !thread.is_woken() && thread.state().is_some_and(ThreadState::is_blocked) && thread.site().is_none()
        };
        let mut slept_ns: Vec<u64> =
            self.known.values().filter(is_nameless).map(|thread| thread.slept_ns(now_ns)).collect();
        let nameless = u32::try_from(slept_ns.len()).unwrap_or(u32::MAX);
        let long_stacks = nameless.min(most - most / 4);
        let stacks = most - long_stacks;
        let long_sleep_ns = long_stacks.checked_sub(1).map_or(u64::MAX, |last| {
            *slept_ns.select_nth_unstable_by_key(last as usize, |ns| std::cmp::Reverse(*ns)).1
        });
        // As many as the last look has met are new again.
        let others = nameless - long_stacks + std::mem::take(&mut self.described);
        StackChoice {
            long_sleep_ns,
            long_stacks,
            stacks,
            chance: (f64::from(stacks) / f64::from(others.max(1))).min(1.0),
        }
    }

    /// To be called when a look that began then has been read.
    pub(super) fn look_ends(&mut self, begin_ns: u64, choice: StackChoice, names: &mut KernelNames) {
        let since_last_ns = if self.looked_ns == 0 { 0 } else { begin_ns.saturating_sub(self.looked_ns) };
        let last_ns = std::mem::replace(&mut self.looked_ns, begin_ns);
        if since_last_ns == 0 {
            return;
        }
        let locks = self.turns.look(&self.known);
        for thread in self.known.values_mut() {
            let state = state_of(thread.time.state);
            if thread.is_woken() || !state.is_some_and(ThreadState::is_blocked) {
                thread.last_site.look(None, false);
                continue;
            }
            let site = thread.site().map(|(site, _)| Rc::clone(site));
            let slept_ns = thread.slept_ns(begin_ns);
            let weight = thread.weigh(choice.chance_of(slept_ns));
            thread.last_site.look(site.as_ref(), slept_ns >= LONG_NS);
            if let Some(site) = &site {
                site.learn_reason(names);
            }
            let is_new = thread.time.since_ns > last_ns;
            // One that went on since the last look is known, if its stack is; another stands for those that no look has met.
            let unknown = if is_new { weight } else { weight - 1.0 };
            let variance_ns2 = (since_last_ns as f64).powi(2) * weight * unknown;
            let total_ns = (since_last_ns as f64 * weight) as u64;
            let (state, lock) = (thread.time.state as u8, locks.get(&thread.time.id).copied());
            let same = |look: &&mut Look| {
                let is_here = look.site.as_ref().map(Rc::as_ptr) == site.as_ref().map(Rc::as_ptr);
                (look.state, look.lock) == (state, lock) && is_here
            };
            if let Some(look) = thread.looks.iter_mut().find(same) {
                look.times += 1;
                look.total_ns += total_ns;
                look.variance_ns2 += variance_ns2;
            } else {
                thread.looks.push(Look { state, site, lock, times: 1, total_ns, variance_ns2 });
            }
        }
    }

    /// What was until the last look is no part of the first interval. Returns when that was.
    pub(super) fn begin(&mut self) -> u64 {
        for thread in self.known.values_mut() {
            let spent = thread.spent_until(self.looked_ns);
            thread.uncharged(&spent);
            thread.looks.clear();
        }
        self.ended.clear();
        self.times.clear();
        self.sleeps.clear();
        self.ended_ns = self.looked_ns;
        self.looked_ns
    }

    /// An interval ends at the last look. Returns the futex words, by process, for which threads waited at rest in it.
    pub(super) fn end_interval(&mut self, sites: &SleepSites) -> HashSet<(u32, u64)> {
        self.times = std::mem::take(&mut self.ended);
        self.watched_ns = self.looked_ns - std::mem::replace(&mut self.ended_ns, self.looked_ns);
        for thread in self.known.values_mut() {
            let spent = thread.spent_until(self.looked_ns);
            let new = thread.uncharged(&spent);
            add_looks(&mut self.sleeps, (&self.turns, sites), thread.who(), thread, &new);
            let (sum, threads) = self.times.entry((thread.who(), thread.time.cgroup)).or_default();
            add(sum, &new);
            *threads += 1;
        }
        let words_at_rest = self.turns.at_rest().collect();
        self.turns.forget_looks();
        words_at_rest
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Thread> {
        self.known.values()
    }

    /// Threads that have slept in one place since they were first seen, each once.
    pub(super) fn first_sleeps(&mut self) -> impl Iterator<Item = (&Thread, Rc<SleepSite>)> {
        self.known.values_mut().filter_map(|thread| {
            let site = Rc::clone(thread.site().filter(|_| thread.before_ns > 0)?.0);
            (!std::mem::replace(&mut thread.first_sleep_told, true)).then_some((&*thread, site))
        })
    }

    /// The futex words that threads wait for, with their processes, without those of which a stack says that they are no locks.
    pub(super) fn futexes(&self, sites: &SleepSites) -> impl Iterator<Item = (u32, u64)> {
        let is_lock = |site: &SleepSite| site.reason() == Some(ThreadState::UserLock) || sites.is_guard(site);
        let may_be_lock = move |thread: &Thread| thread.site().is_none_or(|(site, _)| is_lock(site));
        let asleep = self.known.values().filter(|thread| thread.futex != 0 && !thread.is_woken());
        let asleep = asleep.filter(move |thread| may_be_lock(thread));
        asleep.map(|thread| (thread.time.tgid, thread.futex))
    }

    /// Threads that have ended in a sleep since the last drain, as they slept, and when that was.
    pub(super) fn cut(&self) -> impl Iterator<Item = (&Thread, u64)> {
        self.cut.iter().map(|(thread, end_ns)| (thread, *end_ns))
    }

    pub(super) fn forget_cut(&mut self) {
        self.cut.clear();
    }

    pub(super) fn processes(&self) -> Vec<u32> {
        let processes: HashSet<u32> = self.known.values().map(|thread| thread.time.tgid).collect();
        processes.into_iter().collect()
    }

    /// A process, by the name of its first thread, and its control group; `None` if no thread of its is there.
    pub(super) fn process(&self, tgid: u32) -> Option<(Who, u64)> {
        let threads = self.known.values().filter(|thread| thread.time.tgid == tgid);
        let first = threads.min_by_key(|thread| (thread.time.tid != tgid, thread.time.tid))?;
        Some((first.who(), first.time.cgroup))
    }

    pub(super) fn cgroups(&self) -> impl Iterator<Item = u64> {
        let alive = self.known.values().map(|thread| thread.time.cgroup);
        alive.chain(self.times.keys().map(|(_, cgroup)| *cgroup)).filter(|id| *id != 0)
    }

    /// Threads that are gone without a word would sleep for ever.
    pub(super) fn forget_lost(&mut self) {
        self.known
            .retain(|_, thread| Path::new(&format!("/proc/{}/task/{}", thread.time.tgid, thread.time.tid)).exists());
    }

    /// Adds what was in the interval that has ended.
    pub(super) fn drain_into(
        &mut self,
        interval: &mut Interval,
        cgroups: &CgroupTree,
        names: &mut KernelNames,
        sites: &mut SleepSites,
    ) {
        interval.threads.watched_ns = self.watched_ns;
        for ((who, cgroup), (spent, threads)) in std::mem::take(&mut self.times) {
            let task = who.task(&mut interval.tables);
            let cgroup = named_cgroup(cgroup, cgroups, &mut interval.tables);
            let spent = ThreadState::ALL.iter().map(|state| (*state, spent[usize::from(state.code())]));
            let spent = spent.filter(|(_, ns)| *ns > 0).collect();
            interval.threads.times.push(ThreadTime { task, cgroup, threads, spent });
        }
        for ((who, state, at_rest, _), sum) in std::mem::take(&mut self.sleeps) {
            let Some(counted_as) = ThreadState::from_code(state) else { continue };
            let task = who.task(&mut interval.tables);
            // Who has little to do rests, even where it takes turns with others.
            let is_guard = !at_rest && sum.site.as_ref().is_some_and(|site| sites.is_guard(site));
            let reason =
                if is_guard { Some(ThreadState::UserLock) } else { sum.site.as_ref().and_then(|site| site.reason()) };
            let reason = reason.unwrap_or(counted_as);
            let program_lock = sum.site.as_ref().and_then(|site| site.program_lock());
            let lock = program_lock.filter(|_| reason.is_lock());
            let lock = lock.map(|(lock, _, _)| interval.tables.intern_lock(lock));
            let site = sum.site.as_ref().and_then(|site| {
                if !at_rest {
                    site.name(sites);
                }
                site.stack(reason, &mut interval.tables, names)
            });
            interval.threads.sleeps.push(Sleep {
                task,
                counted_as,
                reason,
                lock,
                at_rest,
                site,
                looks: sum.looks,
                estimate_ns: sum.total_ns,
                variance_ns2: sum.variance_ns2,
            });
        }
    }
}

/// Adds what the looks since the last drain found of a thread, which spent its time so meanwhile.
fn add_looks(
    sleeps: &mut HashMap<(Who, u8, bool, Option<*const SleepSite>), SleepSum>,
    (turns, sites): (&LockTurns, &SleepSites),
    who: Who,
    thread: &mut Thread,
    spent: &Spent,
) {
    for look in std::mem::take(&mut thread.looks) {
        let reason = look.site.as_ref().and_then(|site| site.reason()).or(ThreadState::from_code(look.state));
        // In a queue for a lock a thread is where it always is, too.
        let is_guard = || look.site.as_ref().is_some_and(|site| sites.is_guard(site));
        let is_where_always =
            reason.is_some_and(may_be_for_work) && thread.last_site.is_at(look.site.as_ref()) && !is_guard();
        let takes_turns = look.lock.is_some_and(|lock| turns.is_at_rest(lock));
        let has_no_work = look.site.as_ref().is_some_and(|site| site.has_no_work());
        let at_rest = has_no_work || (ran_little(spent) && (is_where_always || takes_turns));
        let key = (who, look.state, at_rest, look.site.as_ref().map(Rc::as_ptr));
        let sum = sleeps.entry(key).or_insert(SleepSum { site: look.site, looks: 0, total_ns: 0, variance_ns2: 0.0 });
        sum.looks += u64::from(look.times);
        sum.total_ns += look.total_ns;
        sum.variance_ns2 += look.variance_ns2;
    }
}

/// Whether what a thread waits for may be work: it is no lock, disk or page.
const fn may_be_for_work(reason: ThreadState) -> bool {
    matches!(
        reason,
        ThreadState::Condition
            | ThreadState::NetworkOrPoll
            | ThreadState::PipeOrSocket
            | ThreadState::Sleep
            | ThreadState::Child
            | ThreadState::Other
            | ThreadState::Futex
    )
}

/// Whether a thread ran for less than a hundredth of its time: else it is not at rest, whatever it waits for.
fn ran_little(spent: &Spent) -> bool {
    let all_ns: u64 = spent.iter().sum();
    spent[RUNNING] * 100 <= all_ns
}

fn add(sum: &mut Spent, more: &Spent) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum = sum.saturating_add(*more);
    }
}

pub(super) fn named_cgroup(id: u64, cgroups: &CgroupTree, tables: &mut Tables) -> Option<CgroupId> {
    let path = cgroups.path(id).map(str::to_owned);
    (id != 0).then(|| tables.intern_cgroup(Cgroup { id, path }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that wakes now and then stays at rest; one that has come from elsewhere is not until ten looks later.
    #[test]
    fn a_thread_is_at_rest_where_nine_of_ten_looks_find_it() {
        let (queue, other) = (Rc::new(SleepSite::default()), Rc::new(SleepSite::default()));
        let mut last_site = LastSite::default();
        for look in 1..=12 {
            last_site.look(Some(&queue), false);
            assert_eq!(last_site.is_at(Some(&queue)), look >= 9, "look {look}");
        }
        last_site.look(None, false);
        assert!(last_site.is_at(Some(&queue)) && !last_site.is_at(Some(&other)) && !last_site.is_at(None));
        last_site.look(None, false);
        assert!(!last_site.is_at(Some(&queue)), "awake at two of ten looks");
        last_site.look(Some(&other), false);
        assert!(!last_site.is_at(Some(&other)));
        last_site.look(Some(&queue), true);
        assert!(last_site.is_at(Some(&queue)), "it has slept there for longer than ten looks");
    }

    #[test]
    fn who_works_or_waits_for_a_lock_is_not_at_rest() {
        let mut spent = [0; STATES];
        spent[usize::from(ThreadState::Condition.code())] = 990;
        spent[RUNNING] = 10;
        assert!(may_be_for_work(ThreadState::Condition) && ran_little(&spent));
        assert!(!may_be_for_work(ThreadState::UserLock) && !may_be_for_work(ThreadState::DiskIo));
        spent[RUNNING] = 20;
        assert!(!ran_little(&spent));
    }
}
