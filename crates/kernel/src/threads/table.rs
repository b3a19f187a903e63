//! The threads in scope, from look to look.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

use lockmeter_profile::{Cgroup, CgroupId, Interval, Sleep, Tables, Task, TaskId, ThreadState, ThreadTime};

use super::skeleton::types::{thread_look, thread_time};
use super::sleep_sites::{FutexWord, SleepSite, SleepSites};
use crate::cgroups::CgroupTree;
use crate::clock::monotonic_ns;
use crate::comm::{Comm, text};
use crate::kernel_names::KernelNames;

/// A sleep as long as this is longer than ten looks.
const LONG_NS: u64 = 1_000_000_000;

/// As many states as the programs know, with the one that none has.
const STATES: usize = 16;

/// Time by state, in the order of their codes.
type Spent = [u64; STATES];

/// The thread's name and process: what times are told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Who {
    tgid: u32,
    comm: Comm,
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
    /// The kernel's record of it, and where its stack ends while it sleeps.
    pub(super) task: u64,
    pub(super) stack_pointer: u64,
    /// Where the present sleep is, if its stacks were taken.
    sleep: Option<(u64, Rc<SleepSite>, Option<FutexWord>)>,
    /// The part of its time that was handed over.
    charged: Spent,
    /// Since the last drain.
    looks: Vec<Look>,
    last_site: LastSite,
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

/// What the looks since the last drain found a thread asleep in.
struct Look {
    state: u8,
    site: Option<Rc<SleepSite>>,
    times: u32,
    total_ns: u64,
    variance_ns2: f64,
}

/// All of them.
#[derive(Default)]
pub(super) struct Threads {
    known: HashMap<u64, Thread>,
    /// Of those that have ended since the last drain.
    ended: HashMap<(Who, u64), (Spent, u64)>,
    sleeps: HashMap<(Who, u8, bool, Option<*const SleepSite>), SleepSum>,
    looked_ns: u64,
}

/// What the looks say of one place where threads of a task sleep.
struct SleepSum {
    site: Option<Rc<SleepSite>>,
    looks: u64,
    total_ns: u64,
    variance_ns2: f64,
}

impl Thread {
    pub(super) fn state(&self) -> Option<ThreadState> {
        // It runs soon, whatever it slept for.
        if self.is_woken() { Some(ThreadState::Woken) } else { state_of(self.time.state) }
    }

    fn is_woken(&self) -> bool {
        self.time.woken_ns > self.time.since_ns && state_of(self.time.state).is_some_and(ThreadState::is_blocked)
    }

    /// Where it sleeps, if it does and its stacks were taken.
    pub(super) fn site(&self) -> Option<(&Rc<SleepSite>, Option<&FutexWord>)> {
        let (since_ns, site, word) = self.sleep.as_ref()?;
        (*since_ns == self.time.since_ns && !self.is_woken()).then_some((site, word.as_ref()))
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
    fn task(&self, tables: &mut Tables) -> TaskId {
        tables.intern_task(Task { tgid: self.tgid, comm: text(&self.comm), own: false })
    }
}

impl Threads {
    /// Takes in a record of the iterator.
    pub(super) fn see(&mut self, look: &thread_look, sites: &mut SleepSites) {
        let described = (look.has_stacks != 0).then(|| sites.describe(look));
        let thread = self.known.entry(look.time.id).or_insert_with(|| Thread {
            time: thread_time::default(),
            before_ns: 0,
            lock: 0,
            lock_flags: 0,
            owner_tid: 0,
            futex: 0,
            task: 0,
            stack_pointer: 0,
            sleep: None,
            charged: [0; STATES],
            looks: Vec::new(),
            last_site: LastSite::default(),
        });
        thread.time = look.time;
        thread.before_ns = look.before_ns;
        (thread.lock, thread.lock_flags, thread.owner_tid) = (look.lock, look.lock_flags, look.owner_tid);
        thread.futex = look.futex;
        (thread.task, thread.stack_pointer) = (look.task, look.stack_pointer);
        if let Some((site, word)) = described {
            thread.sleep = Some((look.time.since_ns, site, word));
        }
    }

    /// Takes in the last of a thread that has ended.
    pub(super) fn end(&mut self, time: thread_time) {
        let who = Who { tgid: time.tgid, comm: time.comm.map(i8::cast_unsigned) };
        let mut thread = self.known.remove(&time.id);
        let spent = match &mut thread {
            Some(thread) => {
                let spent = thread.uncharged(&time.spent_ns);
                add_looks(&mut self.sleeps, who, thread, &spent);
                spent
            }
            None => time.spent_ns,
        };
        let (sum, threads) = self.ended.entry((who, time.cgroup)).or_default();
        add(sum, &spent);
        *threads += 1;
    }

    /// To be called when a look that began then has been read.
    pub(super) fn look_ends(&mut self, begin_ns: u64, names: &mut KernelNames) {
        let since_last_ns = if self.looked_ns == 0 { 0 } else { begin_ns.saturating_sub(self.looked_ns) };
        let last_ns = std::mem::replace(&mut self.looked_ns, begin_ns);
        if since_last_ns == 0 {
            return;
        }
        for thread in self.known.values_mut() {
            let state = state_of(thread.time.state);
            if thread.is_woken() || !state.is_some_and(ThreadState::is_blocked) {
                thread.last_site.look(None, false);
                continue;
            }
            let site = thread.site().map(|(site, _)| Rc::clone(site));
            let slept_ns = begin_ns.saturating_sub(thread.time.since_ns).saturating_add(thread.before_ns);
            thread.last_site.look(site.as_ref(), slept_ns >= LONG_NS);
            if let Some(site) = &site {
                site.learn_reason(names);
            }
            let is_new = thread.time.since_ns > last_ns;
            // One that went on since the last look is known; another stands for those that no look has met.
            let variance_ns2 = if is_new { (since_last_ns as f64).powi(2) } else { 0.0 };
            let state = thread.time.state as u8;
            let same = |look: &&mut Look| {
                look.state == state && look.site.as_ref().map(Rc::as_ptr) == site.as_ref().map(Rc::as_ptr)
            };
            if let Some(look) = thread.looks.iter_mut().find(same) {
                look.times += 1;
                look.total_ns += since_last_ns;
                look.variance_ns2 += variance_ns2;
            } else {
                thread.looks.push(Look { state, site, times: 1, total_ns: since_last_ns, variance_ns2 });
            }
        }
    }

    /// What was until now is no part of the first interval.
    pub(super) fn begin(&mut self) {
        let now_ns = monotonic_ns();
        for thread in self.known.values_mut() {
            let spent = thread.spent_until(now_ns);
            thread.uncharged(&spent);
        }
        self.ended.clear();
        self.sleeps.clear();
        for thread in self.known.values_mut() {
            thread.looks.clear();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Thread> {
        self.known.values()
    }

    /// The futex words that threads wait for, with their processes.
    pub(super) fn futexes(&self) -> impl Iterator<Item = (u32, u64)> {
        let asleep = self.known.values().filter(|thread| thread.futex != 0 && !thread.is_woken());
        asleep.map(|thread| (thread.time.tgid, thread.futex))
    }

    pub(super) fn processes(&self) -> Vec<u32> {
        let processes: HashSet<u32> = self.known.values().map(|thread| thread.time.tgid).collect();
        processes.into_iter().collect()
    }

    pub(super) fn cgroups(&self) -> impl Iterator<Item = u64> {
        let alive = self.known.values().map(|thread| thread.time.cgroup);
        alive.chain(self.ended.keys().map(|(_, cgroup)| *cgroup)).filter(|id| *id != 0)
    }

    /// Threads that are gone without a word would sleep for ever.
    pub(super) fn forget_lost(&mut self) {
        self.known
            .retain(|_, thread| Path::new(&format!("/proc/{}/task/{}", thread.time.tgid, thread.time.tid)).exists());
    }

    /// Adds what was not handed over yet.
    pub(super) fn drain_into(
        &mut self,
        interval: &mut Interval,
        cgroups: &CgroupTree,
        names: &mut KernelNames,
        sites: &mut SleepSites,
    ) {
        let mut times = std::mem::take(&mut self.ended);
        let now_ns = self.looked_ns;
        for thread in self.known.values_mut() {
            let spent = thread.spent_until(now_ns);
            let new = thread.uncharged(&spent);
            add_looks(&mut self.sleeps, thread.who(), thread, &new);
            let (sum, threads) = times.entry((thread.who(), thread.time.cgroup)).or_default();
            add(sum, &new);
            *threads += 1;
        }
        for ((who, cgroup), (spent, threads)) in times {
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
            let lock = sum.site.as_ref().and_then(|site| site.program_lock());
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
    who: Who,
    thread: &mut Thread,
    spent: &Spent,
) {
    for look in std::mem::take(&mut thread.looks) {
        let reason = look.site.as_ref().and_then(|site| site.reason()).or(ThreadState::from_code(look.state));
        let at_rest =
            reason.is_some_and(|reason| can_be_at_rest(reason, spent)) && thread.last_site.is_at(look.site.as_ref());
        let key = (who, look.state, at_rest, look.site.as_ref().map(Rc::as_ptr));
        let sum = sleeps.entry(key).or_insert(SleepSum { site: look.site, looks: 0, total_ns: 0, variance_ns2: 0.0 });
        sum.looks += u64::from(look.times);
        sum.total_ns += look.total_ns;
        sum.variance_ns2 += look.variance_ns2;
    }
}

/// Whether a thread may be at rest that waits so: it ran for less than a hundredth of its time, and waits for no lock, disk or page.
fn can_be_at_rest(reason: ThreadState, spent: &Spent) -> bool {
    let is_idle = matches!(
        reason,
        ThreadState::Condition
            | ThreadState::NetworkOrPoll
            | ThreadState::PipeOrSocket
            | ThreadState::Sleep
            | ThreadState::Child
            | ThreadState::Other
            | ThreadState::Futex
    );
    let all_ns: u64 = spent.iter().sum();
    let ran_ns = spent[usize::from(ThreadState::Running.code())];
    is_idle && ran_ns * 100 <= all_ns
}

fn add(sum: &mut Spent, more: &Spent) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum = sum.saturating_add(*more);
    }
}

fn state_of(code: u32) -> Option<ThreadState> {
    u8::try_from(code).ok().and_then(ThreadState::from_code)
}

fn named_cgroup(id: u64, cgroups: &CgroupTree, tables: &mut Tables) -> Option<CgroupId> {
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
        spent[usize::from(ThreadState::Running.code())] = 10;
        assert!(can_be_at_rest(ThreadState::Condition, &spent));
        assert!(!can_be_at_rest(ThreadState::UserLock, &spent) && !can_be_at_rest(ThreadState::DiskIo, &spent));
        spent[usize::from(ThreadState::Running.code())] = 20;
        assert!(!can_be_at_rest(ThreadState::Condition, &spent));
    }
}
