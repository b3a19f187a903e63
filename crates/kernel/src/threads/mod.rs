//! Where the time of every thread in scope goes, who waits right now, and the waits of programs for futexes: the loader of
//! `threads.bpf.c`.
//!
//! The programs keep each thread's account, exactly, and count its waits for futexes, of which [`crate::futex`] makes waits for locks. An iterator, read ten times a second, hands over what has changed and the stacks
//! of those that sleep: by these the loader tells what a sleep is for. A sleep that goes on is met by each look, so one that never ends
//! is as visible as one that has.

mod calls;
mod connections;
mod file_locks;
mod goroutines;
mod lock_turns;
mod look_pace;
mod open_waits;
mod sleep_sites;
mod table;
mod waiter_on_stack;

use std::cell::RefCell;
use std::collections::HashSet;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject, ProgramInput, RingBuffer, RingBufferBuilder};
use lockmeter_profile::{Interval, Loss, ThreadState, ThreadTime};

use crate::attaching::{attach_one, run_iterator};
use crate::cgroups::CgroupTree;
use crate::clock::{monotonic_ns, thread_cpu_ns};
use crate::contention::{OlderWait, Scope};
use crate::cost::{self, ProgramCost, Programs};
use crate::error::KernelError;
use crate::futex::{self, FutexOptions, FutexWaits, KnownPrograms};
use crate::kernel_names::{self, SharedNames};
use crate::libbpf_log::quiet_libbpf;
use crate::spinning::{CpuSampler, sample_cpus};
use crate::stack_budget::StackBudget;
use crate::switches::{self, DoubleBuffered, LeftBuffer};
use goroutines::Goroutines;
pub use look_pace::LookPace;
use look_pace::LookSchedule;
use open_waits::{Classes, Recorded};
use sleep_sites::SleepSites;
pub(crate) use table::Who;
use table::{StackChoice, Threads};
pub(crate) use waiter_on_stack::Lists;

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, clippy::pedantic)]
pub(crate) mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/threads.skel.rs"));
}
use skeleton::types::{thread_counts, thread_end, thread_look};
use skeleton::{ThreadsSkel, ThreadsSkelBuilder};

/// The numbers of `enum thread_scope` in `tables.h`.
const THREADS_OF_ALL: u32 = 0;
const THREADS_OF_TARGETS: u32 = 1;
const THREADS_OF_CGROUP: u32 = 2;

/// Stacks that the first look takes, and each after it: some 15 µs each, so a look takes half a millisecond at most.
const FIRST_STACKS: u32 = 2048;
const STACKS_A_LOOK: u32 = 32;

/// With so small a budget for stacks, the ring buffer that they come through holds as many seconds of them in a quarter of the memory.
const FEW_STACKS_PPM: u32 = 750;
const RECORDS_OF_FEW_STACKS: u32 = 2 << 20;

const PROGRAMS: usize = 4;

impl Programs<PROGRAMS> for ThreadsSkel<'_> {
    fn programs(&self) -> [Option<BorrowedFd<'_>>; PROGRAMS] {
        let programs = &self.progs;
        [
            Some(programs.thread_switch.as_fd()),
            Some(programs.thread_waking.as_fd()),
            Some(programs.thread_contention_begin.as_fd()),
            Some(&programs.sample_cpu).filter(|program| program.autoload()).map(AsFd::as_fd),
        ]
    }

    fn stack_ns(&self) -> u64 {
        self.maps.bss_data.as_deref().map_or(0, |bss| bss.stack_spent_ns)
    }
}

impl DoubleBuffered for ThreadsSkel<'_> {
    fn active_buffer(&mut self) -> Option<&mut u32> {
        Some(&mut self.maps.bss_data.as_deref_mut()?.active_buffer)
    }

    fn generation(&mut self) -> Option<&mut u32> {
        Some(&mut self.maps.data_data.as_deref_mut()?.generation)
    }
}

/// Where an interval [ends](ThreadSource::end_interval).
#[must_use]
pub struct IntervalEnd {
    /// The tables of futexes that were filled until then.
    buffer: Option<LeftBuffer>,
    /// Futex words, by process, for which threads waited at rest.
    words_at_rest: HashSet<(u32, u64)>,
}

/// Watches threads. Dropping it detaches everything.
pub struct ThreadSource {
    // Links go first: nothing may write to the tables when they are unmapped.
    links: Vec<Link>,
    iterator: Link,
    sampler: Option<CpuSampler>,
    not_sampled: Option<String>,
    samples_lost: u64,
    exits: RingBuffer<'static>,
    ended: Rc<RefCell<Vec<thread_end>>>,
    futexes: Option<FutexWaits>,
    skeleton: ThreadsSkel<'static>,
    names: SharedNames,
    threads: Threads,
    sites: SleepSites,
    goroutines: Goroutines,
    programs: KnownPrograms,
    cgroups: CgroupTree,
    cost: ProgramCost<PROGRAMS>,
    counted: thread_counts,
    misses: u64,
    begin_ns: u64,
    /// The length of all intervals since then.
    recorded_ns: u64,
    looks: LookSchedule,
}

impl ThreadSource {
    /// Loads and attaches the programs, and looks at all threads that there are. Waits for futexes are metered if it is said how.
    pub fn start(
        scope: &Scope,
        names: SharedNames,
        futexes: Option<FutexOptions>,
        past_sleeps: Option<BorrowedFd<'_>>,
    ) -> Result<Self, KernelError> {
        let cpus = libbpf_rs::num_possible_cpus()
            .map_err(|error| KernelError::from_libbpf("cannot find out how many CPUs there are", &error))?;
        quiet_libbpf();
        // Without user space nothing spins there that could be told.
        let samples_a_second = futexes.map(|options| options.samples_a_second);
        let asks_for_samples = samples_a_second.is_some();
        let mut not_sampled = None;
        let loaded = load(scope, &names, (futexes, asks_for_samples), past_sleeps, cpus);
        let mut skeleton = match loaded {
            // Kernels may refuse this program alone.
            Err(error) if asks_for_samples => {
                let skeleton = load(scope, &names, (futexes, false), past_sleeps, cpus)?;
                not_sampled = Some(error.to_string());
                skeleton
            }
            loaded => loaded?,
        };
        for pid in scope.pids() {
            let refused = |error| KernelError::from_libbpf("cannot tell the programs what to watch", &error);
            let one = 1_u32.to_ne_bytes();
            skeleton.maps.targets.update(&pid.to_ne_bytes(), &one, MapFlags::ANY).map_err(refused)?;
        }
        if let Some(data) = skeleton.maps.bss_data.as_deref_mut() {
            data.own_children = u32::from(*scope == Scope::Children);
        }
        let ended = Rc::default();
        let exits = read_exits(&skeleton.maps.exits, &ended)?;
        let maps = &skeleton.maps;
        let programs = KnownPrograms::default();
        if let Some(bytes) = futexes.and_then(|options| options.most_program_bytes) {
            programs.processes.borrow_mut().keep_within(bytes);
        }
        let futexes = futexes
            .map(|options| FutexWaits::new(options, programs.clone(), &maps.records, &maps.buffers, cpus))
            .transpose()?;
        if futexes.is_some() {
            // Before anything of them is seen.
            scope.pids().iter().for_each(|pid| programs.processes.borrow_mut().look_at(*pid));
        }
        let links = attach(&mut skeleton)?;
        let sampler = match samples_a_second.filter(|_| not_sampled.is_none()) {
            Some(a_second) => match sample_cpus(&skeleton.progs.sample_cpu, a_second) {
                Ok(links) => Some(CpuSampler::new(links, programs.clone(), &skeleton.maps.cpu_samples)?),
                Err(error) => {
                    not_sampled = Some(format!("the kernel refuses perf events ({error})"));
                    None
                }
            },
            None => None,
        };
        let iterator = attach_one(&mut skeleton.progs.look)?;
        let cost = ProgramCost::new(&skeleton);
        let mut source = Self {
            links,
            iterator,
            sampler,
            not_sampled,
            samples_lost: 0,
            exits,
            ended,
            futexes,
            misses: cost::recursion_misses(&skeleton),
            skeleton,
            names,
            threads: Threads::default(),
            sites: SleepSites::new(programs.clone()),
            goroutines: Goroutines::new(programs.processes.clone()),
            programs,
            cgroups: CgroupTree::find(),
            cost,
            counted: thread_counts::default(),
            begin_ns: monotonic_ns(),
            recorded_ns: 0,
            looks: LookSchedule::at(LookPace::EACH_TICK),
        };
        source.look_at(StackChoice::all(FIRST_STACKS))?;
        source.begin();
        Ok(source)
    }

    /// The first interval began at the last look: what was before is no part of it.
    pub fn begin(&mut self) {
        let begin_ns = self.threads.begin();
        if let Some(sampler) = &self.sampler {
            sampler.begin();
        }
        self.begin_ns = begin_ns;
        self.goroutines.begin(self.begin_ns);
        self.recorded_ns = 0;
        if let Some(data) = self.skeleton.maps.bss_data.as_deref_mut() {
            data.counted_from_ns = self.begin_ns;
        }
    }

    /// How often all threads are looked at from now on.
    pub fn look_at_pace(&mut self, pace: LookPace) {
        self.looks = LookSchedule::at(pace);
    }

    /// Why it is not sampled what CPUs run, if it was asked for.
    pub fn not_sampled(&self) -> Option<&str> {
        self.not_sampled.as_deref()
    }

    /// Under [`Scope::Children`]: what this process starts from here on is not watched.
    pub fn command_started(&mut self) {
        if let Some(data) = self.skeleton.maps.bss_data.as_deref_mut() {
            data.own_children = 0;
        }
    }

    /// Becomes readable when a process waits for a futex for the first time, which may not live for long.
    pub fn news(&self) -> Option<BorrowedFd<'_>> {
        self.futexes.as_ref().map(FutexWaits::news)
    }

    /// Reads what made [`news`](Self::news) readable.
    pub fn take_news(&mut self) {
        if let Some(futexes) = &self.futexes {
            futexes.read_ring();
        }
    }

    /// Waits for kernel locks that began before this source did, each once: for the source that meters them, which saw none of them begin.
    pub fn take_older_waits(&mut self) -> Vec<OlderWait> {
        let caches = || self.skeleton.maps.bss_data.as_deref().map_or(&[][..], |data| &data.caches);
        let classes = Classes { of: &|address| classify(&self.skeleton, address), caches: &caches };
        open_waits::find_older(&mut self.threads, self.begin_ns, &mut self.names.borrow_mut(), &classes)
    }

    /// The processes of the threads in scope.
    pub fn processes(&self) -> Vec<u32> {
        self.threads.processes()
    }

    /// Looks at all threads if it is time; to be called ten times a second. Returns whether a drain is due.
    pub fn tick(&mut self) -> Result<bool, KernelError> {
        self.cost.tick(&self.skeleton);
        if self.looks.is_due(monotonic_ns()) {
            let choice = self.threads.choose_stacks(STACKS_A_LOOK);
            self.look_at(choice)?;
        }
        if let Some(sampler) = &self.sampler {
            sampler.read();
        }
        let Some(futexes) = &self.futexes else { return Ok(false) };
        futexes.read_ring();
        let buffer = switches::active_buffer(&mut self.skeleton);
        Ok(futexes.are_tables_full(buffer))
    }

    /// Ends an interval now: what threads do from now on is part of the next.
    pub fn end_interval(&mut self) -> Result<IntervalEnd, KernelError> {
        let choice = self.threads.choose_stacks(STACKS_A_LOOK);
        self.look_at(choice)?;
        let words_at_rest = self.threads.end_interval(&self.sites);
        let buffer = self.futexes.is_some().then(|| switches::flip(&mut self.skeleton));
        Ok(IntervalEnd { buffer, words_at_rest })
    }

    /// Adds what threads did until then to the interval, and who waits at its end.
    pub fn drain_into(&mut self, end: IntervalEnd, interval: &mut Interval) -> Result<(), KernelError> {
        self.drain_all(end, interval, false)
    }

    /// The same for the last interval, in which the waits that still go on are counted: nobody else will.
    pub fn stop_into(mut self, end: IntervalEnd, interval: &mut Interval) -> Result<(), KernelError> {
        // A wait that has ended since then may be counted already.
        self.look_at(StackChoice::all(0))?;
        self.drain_all(end, interval, true)
    }

    fn drain_all(&mut self, end: IntervalEnd, interval: &mut Interval, is_last: bool) -> Result<(), KernelError> {
        let counted = self.take_counts();
        let IntervalEnd { buffer, words_at_rest: at_rest } = end;
        self.drain_futexes(buffer, counted.runs, &at_rest, interval, is_last);
        interval.losses.add(Loss::ThreadsUntracked, counted.untracked);
        interval.losses.add(Loss::ThreadExitsLost, counted.exits_lost);
        if counted.exits_lost > 0 {
            self.threads.forget_lost();
        }
        let names = Rc::clone(&self.names);
        let mut names = names.borrow_mut();
        self.cgroups.learn(self.threads.cgroups());
        self.sites.add_losses(interval);
        self.threads.drain_into(interval, &self.cgroups, &mut names, &mut self.sites);
        let is_first = self.recorded_ns == 0;
        interval.losses.add(Loss::CpusNotSampled, u64::from(is_first && self.not_sampled.is_some()));
        if let Some(sampler) = &self.sampler {
            sampler.read();
            sampler.drain_into(interval, &self.cgroups);
            let lost = self.skeleton.maps.bss_data.as_deref().map_or(0, |data| data.cpu_samples_lost);
            let before = std::mem::replace(&mut self.samples_lost, lost);
            interval.losses.add(Loss::RunSamplesLost, lost.saturating_sub(before));
        }
        self.goroutines.drain_into(interval, &self.cgroups);
        self.recorded_ns += interval.duration_ns;
        let recorded = Recorded { begin_ns: self.begin_ns, length_ns: self.recorded_ns };
        let mut waits = open_waits::find(&self.threads, recorded, &at_rest, &mut self.sites);
        let mut changed = Vec::new();
        if open_waits::are_in_circles(&waits) {
            changed = read_states(&mut self.skeleton, &self.iterator, StackChoice::all(0))?;
            open_waits::leave_ended_out(&mut waits, Records(&changed), &mut self.sites);
        }
        if is_last {
            // Only while they are attached is it known who still sleeps.
            self.links.clear();
        }
        let caches = || self.skeleton.maps.bss_data.as_deref().map_or(&[][..], |data| &data.caches);
        let classes = Classes { of: &|address| classify(&self.skeleton, address), caches: &caches };
        open_waits::add(&waits, interval, &mut names, &classes);
        if is_last {
            let open = interval.threads.open_waits.clone();
            open_waits::count(&waits, &open, interval, &self.cgroups);
        }
        self.threads.forget_cut();
        for record in Records(&changed) {
            self.threads.see(&record, &mut self.sites);
        }
        self.sites.grow_old();
        let ran = processes_that_ran(interval);
        self.programs.processes.borrow_mut().grow_old(|tgid| counted.untracked > 0 || ran.contains(&tgid));
        Ok(())
    }

    /// Adds the waits for futexes, and what all programs cost.
    fn drain_futexes(
        &mut self,
        buffer: Option<LeftBuffer>,
        runs: [u64; PROGRAMS],
        at_rest: &HashSet<(u32, u64)>,
        interval: &mut Interval,
        is_last: bool,
    ) {
        let mut stack_ns = 0;
        if let (Some(futexes), Some(buffer)) = (&mut self.futexes, buffer) {
            futexes.set_words_at_rest(at_rest.iter().copied());
            stack_ns = futexes.drain_into(buffer.wait(), interval);
            if is_last {
                futexes.count_unfinished(self.threads.futexes(&self.sites), interval);
            }
            let period_ns = longest_period_ns(&mut self.skeleton);
            interval.overhead.sampling_period_ns = interval.overhead.sampling_period_ns.max(period_ns);
        }
        interval.overhead.program_run_ns += self.cost.estimate_ns(&self.skeleton, &runs, stack_ns);
        interval.overhead.program_runs += runs.iter().sum::<u64>();
        let misses = cost::recursion_misses(&self.skeleton);
        let before = std::mem::replace(&mut self.misses, misses);
        interval.losses.add(Loss::ProgramRecursion, misses.saturating_sub(before));
    }

    fn look_at(&mut self, choice: StackChoice) -> Result<(), KernelError> {
        let (begin_ns, begin_cpu_ns) = (monotonic_ns(), thread_cpu_ns());
        let records = read_states(&mut self.skeleton, &self.iterator, choice)?;
        for record in Records(&records) {
            self.threads.see(&record, &mut self.sites);
        }
        // An error is that of a callback, and ours has none.
        let _ = self.exits.consume();
        for end in self.ended.borrow_mut().drain(..) {
            self.threads.end(end, &self.sites);
        }
        self.threads.look_ends(begin_ns, choice, &mut self.names.borrow_mut());
        self.goroutines.look(self.sites.run_go(), &self.threads);
        self.looks.took(thread_cpu_ns().saturating_sub(begin_cpu_ns), monotonic_ns());
        Ok(())
    }

    /// What the programs have counted since the last call.
    fn take_counts(&mut self) -> thread_counts {
        let mut new = counts(&self.skeleton);
        let before = std::mem::replace(&mut self.counted, new);
        for (new, before) in new.runs.iter_mut().zip(before.runs) {
            *new = new.saturating_sub(before);
        }
        new.untracked = new.untracked.saturating_sub(before.untracked);
        new.exits_lost = new.exits_lost.saturating_sub(before.exits_lost);
        new
    }
}

/// What a look at all threads says of each that is not as it was at the look before, for [`Records`].
fn read_states(skeleton: &mut ThreadsSkel<'_>, iterator: &Link, choice: StackChoice) -> Result<Vec<u8>, KernelError> {
    if let Some(data) = skeleton.maps.bss_data.as_deref_mut() {
        data.long_sleep_ns = choice.long_sleep_ns;
        data.long_stacks_left = choice.long_stacks;
        data.stacks_left = choice.stacks;
        data.stack_chance = (f64::from(u32::MAX) * choice.chance) as u32;
    }
    run_iterator(iterator, "cannot read the threads' states")
}

/// The longest since the last call.
fn longest_period_ns(skeleton: &mut ThreadsSkel<'_>) -> u64 {
    let every = skeleton.maps.rodata_data.is_some_and(|rodata| rodata.every_stack != 0);
    let Some(data) = skeleton.maps.data_data.as_deref_mut().filter(|_| !every) else { return 0 };
    std::mem::replace(&mut data.longest_period_ns, data.period_ns)
}

/// The class of the lock at an address, as the programs code it.
fn classify(skeleton: &ThreadsSkel<'_>, address: u64) -> u64 {
    let Some(data) = skeleton.maps.bss_data.as_deref() else { return address };
    // SAFETY: one integer of the mapped memory of a program that only `test_run` below runs.
    unsafe { (&raw const data.asked_address).cast_mut().write_volatile(address) };
    let ran = skeleton.progs.classify.test_run(ProgramInput::default());
    if ran.is_ok() { data.told_class } else { address }
}

/// Fills a structure of the programs' with what they wrote of it: a record may end early.
///
/// # Safety
///
/// Any bytes must be values of the type.
pub(crate) unsafe fn fill<T>(into: &mut T, bytes: &[u8]) {
    let length = bytes.len().min(size_of::<T>());
    // SAFETY: no more than both have; the caller vouches for the values.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut *into).cast::<u8>(), length) };
}

fn counts(skeleton: &ThreadsSkel<'_>) -> thread_counts {
    let mut sum = thread_counts::default();
    let found = skeleton.maps.counts.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY);
    for bytes in found.ok().flatten().unwrap_or_default() {
        let mut one = thread_counts::default();
        // SAFETY: plain integers.
        unsafe { fill(&mut one, &bytes) };
        for (sum, one) in sum.runs.iter_mut().zip(one.runs) {
            *sum += one;
        }
        sum.untracked += one.untracked;
        sum.exits_lost += one.exits_lost;
    }
    sum
}

/// The records that a look has written, one after another.
struct Records<'a>(&'a [u8]);

impl Iterator for Records<'_> {
    type Item = Box<thread_look>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = u32::from_ne_bytes(self.0.get(..4)?.try_into().ok()?) as usize;
        let (record, rest) = self.0.split_at_checked(bytes.max(4))?;
        self.0 = rest;
        let mut look = Box::<thread_look>::default();
        // SAFETY: plain integers.
        unsafe { fill(&mut *look, record) };
        Some(look)
    }
}

fn load(
    scope: &Scope,
    names: &SharedNames,
    (futexes, asks_for_samples): (Option<FutexOptions>, bool),
    past_sleeps: Option<BorrowedFd<'_>>,
    cpus: usize,
) -> Result<ThreadsSkel<'static>, KernelError> {
    let refused = |error| KernelError::from_libbpf("cannot load the programs that watch threads", &error);
    // The skeleton borrows its storage for as long as it lives, which is as long as the process.
    let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = ThreadsSkelBuilder::default().open(storage).map_err(refused)?;
    let cpus = u32::try_from(cpus).unwrap_or(1);
    open.maps.buffers.set_max_entries(cpus * 2).map_err(refused)?;
    open.maps.buffers.set_autocreate(futexes.is_some()).map_err(refused)?;
    open.maps.records.set_autocreate(futexes.is_some()).map_err(refused)?;
    if let Some(FutexOptions { stacks: StackBudget::Share { ppm: ..=FEW_STACKS_PPM }, .. }) = futexes {
        open.maps.records.set_max_entries(RECORDS_OF_FEW_STACKS).map_err(refused)?;
    }
    open.maps.cpu_samples.set_autocreate(asks_for_samples).map_err(refused)?;
    open.progs.sample_cpu.set_autoload(asks_for_samples);
    if let Some(shared) = past_sleeps {
        open.maps.past_sleeps.reuse_fd(shared).map_err(refused)?;
    }
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.with_futexes = u8::from(futexes.is_some());
        rodata.cpus = futex::cpus_of_stacks(cpus);
        match futexes.map(|options| options.stacks) {
            Some(StackBudget::Share { ppm }) => rodata.stack_budget_ppm = ppm,
            Some(StackBudget::Every) => rodata.every_stack = 1,
            None => {}
        }
        rodata.own_tgid = std::process::id();
        rodata.state_of_call = calls::states();
        rodata.with_children = u8::from(scope.follows_children());
        rodata.scope = match scope {
            Scope::Machine => THREADS_OF_ALL,
            Scope::Processes(_) | Scope::Children => THREADS_OF_TARGETS,
            Scope::Cgroup(cgroup) => {
                rodata.scope_cgroup = cgroup.id;
                rodata.scope_cgroup_level = cgroup.level;
                THREADS_OF_CGROUP
            }
        };
        let names = names.borrow();
        kernel_names::tell_programs!(names, rodata);
    }
    open.load().map_err(refused)
}

/// Ends before begins, as everywhere.
fn attach(skeleton: &mut ThreadsSkel<'_>) -> Result<Vec<Link>, KernelError> {
    let programs = &mut skeleton.progs;
    [
        &mut programs.thread_contention_end,
        &mut programs.thread_contention_begin,
        &mut programs.thread_ends,
        &mut programs.thread_waking,
        &mut programs.thread_switch,
        &mut programs.thread_begins,
    ]
    .into_iter()
    .map(attach_one)
    .collect()
}

fn read_exits(exits: &impl MapCore, ended: &Rc<RefCell<Vec<thread_end>>>) -> Result<RingBuffer<'static>, KernelError> {
    let refused = |error| KernelError::from_libbpf("cannot read the ring buffer of ended threads", &error);
    let ended = Rc::clone(ended);
    let mut builder = RingBufferBuilder::new();
    let take = move |bytes: &[u8]| {
        let mut end = thread_end::default();
        // SAFETY: plain integers.
        unsafe { fill(&mut end, bytes) };
        ended.borrow_mut().push(end);
        0
    };
    builder.add(exits, take).map_err(refused)?;
    builder.build().map_err(refused)
}

/// The processes of which a thread has run in an interval.
fn processes_that_ran(interval: &Interval) -> HashSet<u32> {
    let has_run = |time: &&ThreadTime| time.spent.iter().any(|(state, _)| *state == ThreadState::Running);
    let tasks = interval.threads.times.iter().filter(has_run).map(|time| time.task);
    tasks.filter_map(|task| interval.tables.task(task)).map(|task| task.tgid).collect()
}
