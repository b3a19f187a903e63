//! Where the time of every thread in scope goes, and who waits right now: the loader of `threads.bpf.c`.
//!
//! The programs keep each thread's account, exactly. An iterator, read ten times a second, hands over what has changed and the stacks
//! of those that sleep: by these the loader tells what a sleep is for. A sleep that goes on is met by each look, so one that never ends
//! is as visible as one that has.

mod calls;
mod open_waits;
mod sleep_sites;
mod table;
mod waiter_on_stack;

use std::cell::RefCell;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, OpenObject, ProgramInput, ProgramMut, RingBuffer, RingBufferBuilder};
use lockmeter_profile::{Interval, Loss};

use crate::cgroups::CgroupTree;
use crate::contention::Scope;
use crate::cost::{ProgramCost, Programs};
use crate::error::KernelError;
use crate::kernel_names::{self, SharedNames};
use crate::libbpf_log::quiet_libbpf;
use sleep_sites::SleepSites;
use table::{LostThreads, Threads};
pub(crate) use waiter_on_stack::Lists;

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, clippy::pedantic)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/threads.skel.rs"));
}
use skeleton::types::{thread_counts, thread_look, thread_time};
use skeleton::{ThreadsSkel, ThreadsSkelBuilder};

/// The numbers of `enum thread_scope` in `tables.h`.
const THREADS_OF_ALL: u32 = 0;
const THREADS_OF_TARGETS: u32 = 1;
const THREADS_OF_CGROUP: u32 = 2;

/// Stacks that the first look takes, and each after it: some 15 µs each, so a look takes half a millisecond at most.
const FIRST_STACKS: u32 = 2048;
const STACKS_A_LOOK: u32 = 32;

const PROGRAMS: usize = 3;

impl Programs<PROGRAMS> for ThreadsSkel<'_> {
    fn programs(&self) -> [Option<BorrowedFd<'_>>; PROGRAMS] {
        let programs = &self.progs;
        [
            Some(programs.thread_switch.as_fd()),
            Some(programs.thread_waking.as_fd()),
            Some(programs.thread_contention_begin.as_fd()),
        ]
    }

    fn stack_ns(&self) -> u64 {
        0
    }
}

/// Watches threads. Dropping it detaches everything.
pub struct ThreadSource {
    // Links go first: nothing may write to the tables when they are unmapped.
    _links: Vec<Link>,
    iterator: Link,
    exits: RingBuffer<'static>,
    ended: Rc<RefCell<Vec<thread_time>>>,
    skeleton: ThreadsSkel<'static>,
    names: SharedNames,
    threads: Threads,
    sites: SleepSites,
    cgroups: CgroupTree,
    cost: ProgramCost<PROGRAMS>,
    counted: thread_counts,
    sleeps_met: u32,
    begin_ns: u64,
}

impl ThreadSource {
    /// Loads and attaches the programs, and looks at all threads that there are.
    pub fn start(scope: &Scope, names: SharedNames) -> Result<Self, KernelError> {
        KernelError::unless_privileged("cannot watch threads")?;
        quiet_libbpf();
        let mut skeleton = load(scope, &names)?;
        if let Scope::Process(pid) = scope {
            let refused = |error| KernelError::from_libbpf("cannot tell the programs what to watch", &error);
            let one = 1_u32.to_ne_bytes();
            skeleton.maps.targets.update(&pid.to_ne_bytes(), &one, MapFlags::ANY).map_err(refused)?;
        }
        if let Some(data) = skeleton.maps.bss_data.as_deref_mut() {
            data.own_children = u32::from(*scope == Scope::Children);
        }
        let ended = Rc::default();
        let exits = read_exits(&skeleton.maps.exits, &ended)?;
        let links = attach(&mut skeleton)?;
        let iterator = attach_one(&mut skeleton.progs.look)?;
        let cost = ProgramCost::new(&skeleton);
        let mut source = Self {
            _links: links,
            iterator,
            exits,
            ended,
            skeleton,
            names,
            threads: Threads::default(),
            sites: SleepSites::new(),
            cgroups: CgroupTree::find(),
            cost,
            counted: thread_counts::default(),
            sleeps_met: 0,
            begin_ns: now_ns(),
        };
        source.look_at(FIRST_STACKS, 1)?;
        source.begin();
        Ok(source)
    }

    /// The first interval begins now: what was before is no part of it.
    pub fn begin(&mut self) {
        self.threads.begin();
        self.begin_ns = now_ns();
    }

    /// The processes of the threads in scope.
    pub fn processes(&self) -> Vec<u32> {
        self.threads.processes()
    }

    /// Under [`Scope::Children`]: what this process starts from here on is not watched.
    pub fn command_started(&mut self) {
        if let Some(data) = self.skeleton.maps.bss_data.as_deref_mut() {
            data.own_children = 0;
        }
    }

    /// Looks at all threads; to be called ten times a second.
    pub fn look(&mut self) -> Result<(), KernelError> {
        self.cost.tick(&self.skeleton);
        self.look_at(STACKS_A_LOOK, self.sleeps_met)
    }

    /// Adds what threads did since the last call to an interval, and who waits at its end.
    pub fn drain_into(&mut self, interval: &mut Interval) -> Result<(), KernelError> {
        self.drain(interval, false)
    }

    /// The same for the last interval, in which the waits that still go on are counted: nobody else will.
    pub fn stop_into(mut self, interval: &mut Interval) -> Result<(), KernelError> {
        self.drain(interval, true)
    }

    fn drain(&mut self, interval: &mut Interval, is_last: bool) -> Result<(), KernelError> {
        self.look_at(STACKS_A_LOOK, self.sleeps_met)?;
        let lost = self.take_counts(interval);
        self.threads.forget_lost(&lost);
        let names = Rc::clone(&self.names);
        let mut names = names.borrow_mut();
        self.cgroups.learn(self.threads.cgroups());
        self.sites.add_losses(interval);
        self.threads.drain_into(interval, &self.cgroups, &mut names, &mut self.sites);
        let waits = open_waits::find(&self.threads, self.begin_ns, &mut self.sites);
        open_waits::add(&waits, interval, &mut names, &|address| classify(&self.skeleton, address));
        if is_last {
            let open = interval.threads.open_waits.clone();
            open_waits::count(&waits, &open, interval, &self.cgroups);
        }
        self.sites.grow_old();
        Ok(())
    }

    fn look_at(&mut self, stacks: u32, sleeps: u32) -> Result<(), KernelError> {
        if let Some(data) = self.skeleton.maps.bss_data.as_deref_mut() {
            data.stacks_left = stacks;
            // So that all have the same chance, not the first alone.
            data.stack_chance = match sleeps {
                0 => u32::MAX,
                _ => u32::try_from(u64::from(u32::MAX) * u64::from(stacks) / u64::from(sleeps)).unwrap_or(u32::MAX),
            };
            data.sleeps_met = 0;
        }
        let begin_ns = now_ns();
        let mut records = Vec::new();
        let read = Iter::new(&self.iterator).map_err(|error| error.to_string());
        read.and_then(|mut iterator| iterator.read_to_end(&mut records).map_err(|error| error.to_string()))
            .map_err(|why| KernelError::new(crate::ErrorKind::Refused, format!("cannot look at the threads: {why}")))?;
        self.sleeps_met = self.skeleton.maps.bss_data.as_deref().map_or(0, |data| data.sleeps_met);
        for record in Records(&records) {
            self.threads.see(&record, &mut self.sites);
        }
        // An error is that of a callback, and ours has none.
        let _ = self.exits.consume();
        for time in self.ended.borrow_mut().drain(..) {
            self.threads.end(time);
        }
        self.threads.look_ends(begin_ns, &mut self.names.borrow_mut());
        Ok(())
    }

    /// What the programs counted since the last call.
    fn take_counts(&mut self, interval: &mut Interval) -> LostThreads {
        let now = counts(&self.skeleton);
        let before = std::mem::replace(&mut self.counted, now);
        let mut runs = [0; PROGRAMS];
        for (runs, (now, before)) in runs.iter_mut().zip(now.runs.iter().zip(before.runs)) {
            *runs = now.saturating_sub(before);
        }
        interval.overhead.program_run_ns += self.cost.estimate_ns(&self.skeleton, &runs, 0);
        interval.overhead.program_runs += runs.iter().sum::<u64>();
        interval.losses.add(Loss::ThreadsUntracked, now.untracked.saturating_sub(before.untracked));
        let exits = now.exits_lost.saturating_sub(before.exits_lost);
        interval.losses.add(Loss::ThreadExitsLost, exits);
        LostThreads { exits }
    }
}

/// The class of the lock at an address, as the programs code it, and the caches that they met.
fn classify(skeleton: &ThreadsSkel<'_>, address: u64) -> (u64, Vec<u64>) {
    let Some(data) = skeleton.maps.bss_data.as_deref() else { return (address, Vec::new()) };
    // SAFETY: one integer of the mapped memory of a program that only `test_run` below runs.
    unsafe { (&raw const data.asked_address).cast_mut().write_volatile(address) };
    match skeleton.progs.classify.test_run(ProgramInput::default()) {
        Ok(_) => (data.told_class, data.caches.to_vec()),
        Err(_) => (address, Vec::new()),
    }
}

fn counts(skeleton: &ThreadsSkel<'_>) -> thread_counts {
    let mut sum = thread_counts::default();
    let found = skeleton.maps.counts.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY);
    for bytes in found.ok().flatten().unwrap_or_default() {
        let mut one = thread_counts::default();
        let length = bytes.len().min(size_of::<thread_counts>());
        // SAFETY: plain integers, of which any bytes are values; no more than both have.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut one).cast::<u8>(), length) };
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
        let length = record.len().min(size_of::<thread_look>());
        // SAFETY: plain integers, of which any bytes are values; no more than both have.
        unsafe { std::ptr::copy_nonoverlapping(record.as_ptr(), (&raw mut *look).cast::<u8>(), length) };
        Some(look)
    }
}

/// The clock of the programs.
fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

fn load(scope: &Scope, names: &SharedNames) -> Result<ThreadsSkel<'static>, KernelError> {
    let refused = |error| KernelError::from_libbpf("cannot load the programs that watch threads", &error);
    // The skeleton borrows its storage for as long as it lives, which is as long as the process.
    let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = ThreadsSkelBuilder::default().open(storage).map_err(refused)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.own_tgid = std::process::id();
        rodata.state_of_call = calls::states();
        rodata.scope = match scope {
            Scope::Machine => THREADS_OF_ALL,
            Scope::Process(_) | Scope::Children => THREADS_OF_TARGETS,
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

fn attach_one(program: &mut ProgramMut<'_>) -> Result<Link, KernelError> {
    program.attach().map_err(|error| {
        KernelError::from_libbpf(&format!("cannot attach {}", program.name().to_string_lossy()), &error)
    })
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
    .map(|program| attach_one(program))
    .collect()
}

fn read_exits(exits: &impl MapCore, ended: &Rc<RefCell<Vec<thread_time>>>) -> Result<RingBuffer<'static>, KernelError> {
    let refused = |error| KernelError::from_libbpf("cannot read the ring buffer of ended threads", &error);
    let ended = Rc::clone(ended);
    let mut builder = RingBufferBuilder::new();
    let take = move |bytes: &[u8]| {
        let mut time = thread_time::default();
        let length = bytes.len().min(size_of::<thread_time>());
        // SAFETY: plain integers, of which any bytes are values; no more than both have.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut time).cast::<u8>(), length) };
        ended.borrow_mut().push(time);
        0
    };
    builder.add(exits, take).map_err(refused)?;
    builder.build().map_err(refused)
}
