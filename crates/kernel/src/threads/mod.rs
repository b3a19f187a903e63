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
use libbpf_rs::{Iter, Link, MapCore, MapFlags, OpenObject, ProgramInput, RingBuffer, RingBufferBuilder};
use lockmeter_profile::{Interval, Loss};

use crate::attaching::attach_one;
use crate::cgroups::CgroupTree;
use crate::clock::monotonic_ns;
use crate::contention::Scope;
use crate::cost::{ProgramCost, Programs};
use crate::error::KernelError;
use crate::kernel_names::{self, SharedNames};
use crate::libbpf_log::quiet_libbpf;
use open_waits::Classes;
use sleep_sites::SleepSites;
use table::Threads;
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
            begin_ns: monotonic_ns(),
        };
        source.look_at(FIRST_STACKS, 1)?;
        source.begin();
        Ok(source)
    }

    /// The first interval begins now: what was before is no part of it.
    pub fn begin(&mut self) {
        self.threads.begin();
        self.begin_ns = monotonic_ns();
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
        if self.take_counts(interval) > 0 {
            self.threads.forget_lost();
        }
        let names = Rc::clone(&self.names);
        let mut names = names.borrow_mut();
        self.cgroups.learn(self.threads.cgroups());
        self.sites.add_losses(interval);
        self.threads.drain_into(interval, &self.cgroups, &mut names, &mut self.sites);
        let waits = open_waits::find(&self.threads, self.begin_ns, &mut self.sites);
        let caches = || self.skeleton.maps.bss_data.as_deref().map_or(&[][..], |data| &data.caches);
        let classes = Classes { of: &|address| classify(&self.skeleton, address), caches: &caches };
        open_waits::add(&waits, interval, &mut names, &classes);
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
        let begin_ns = monotonic_ns();
        let mut records = Vec::new();
        let read = Iter::new(&self.iterator).map_err(|error| error.to_string());
        read.and_then(|mut iterator| iterator.read_to_end(&mut records).map_err(|error| error.to_string())).map_err(
            |why| KernelError::new(crate::ErrorKind::Refused, format!("cannot read the threads' states: {why}")),
        )?;
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

    /// Adds what the programs counted since the last call. Returns how many threads have ended without a word.
    fn take_counts(&mut self, interval: &mut Interval) -> u64 {
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
        exits
    }
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
unsafe fn fill<T>(into: &mut T, bytes: &[u8]) {
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

fn read_exits(exits: &impl MapCore, ended: &Rc<RefCell<Vec<thread_time>>>) -> Result<RingBuffer<'static>, KernelError> {
    let refused = |error| KernelError::from_libbpf("cannot read the ring buffer of ended threads", &error);
    let ended = Rc::clone(ended);
    let mut builder = RingBufferBuilder::new();
    let take = move |bytes: &[u8]| {
        let mut time = thread_time::default();
        // SAFETY: plain integers.
        unsafe { fill(&mut time, bytes) };
        ended.borrow_mut().push(time);
        0
    };
    builder.add(exits, take).map_err(refused)?;
    builder.build().map_err(refused)
}
