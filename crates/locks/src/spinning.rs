//! How long to spin, and when not to.
//!
//! Spinning pays while the owner runs on another CPU. User space is not told when the kernel takes a thread off its CPU; what
//! it can know is where the kernel last let a thread run (rseq's `cpu_id`, which [`threads`](crate::threads) reads through a
//! guarded pointer). A thread whose last CPU is *ours* cannot run now, because we do: then spinning stops at once. Otherwise
//! it probably runs, and spinning is bounded by time, so that a mistake costs little more than the sleep it was to save.
//!
//! How often to look at the lock meanwhile depends on how long its sections are, which the time of a look tells. One that has to
//! fetch the lock's cache line says that others have used the lock since the last look: sections are short, looking takes the line
//! from those who use it, and the next look is to come twice as late. One that finds the line where the last look left it says that
//! the same owner is still in its section, and costs nobody anything: it may be repeated at once, and then sees the release at once.
//!
//! The first such look comes before queueing, which writes to the line itself. In sections that last, most waits end then, and
//! the queue costs them nothing.
//!
//! Where most waits of a thread's begin with a fetch, sections are shorter than the way of a line from one CPU to another. Then the
//! lock does most if one thread at a time has it to itself for a while: a spinner whom nobody follows stays away for as long as many
//! such fetches take.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::spin_queue::Turn;
use crate::sync::{const_unless_model, now_ns, spin_loop, ticks, ticks_after_loads, usable_cpus};
use crate::threads::{self, Slot, record};

/// As long as going to sleep and waking up takes, both sides together: who spins this long in vain has lost half.
pub const SPIN_NS: u64 = 20_000;

/// Before the first look at the clock and at the owner: most critical sections are over by then.
pub const BEFORE_LOOKING_NS: u32 = 300;

/// The longest time between two looks at the lock. A look takes the lock's cache line from its owner, who may lock again.
pub const LONGEST_BACKOFF_NS: u32 = 1_000;

/// Before the second look: about as long as the line takes to come and go. Looking sooner makes threads with empty sections take
/// the line from each other all the time (a fifth of their throughput).
pub const FIRST_BACKOFF_NS: u32 = 60;

/// The same where the look before queueing has shown that sections are short: a thread that is left alone so long uses the lock some
/// fifty times.
pub const FIRST_BACKOFF_FOR_SHORT_SECTIONS_NS: u32 = 250;

/// The same for a writer that readers keep out. Readers that read at the same time take the line from each other at every step, so
/// while the writer stays away from it the others are quicker than all of them together were: with empty sections by a sixth to a
/// third, and with 100 ns nothing is lost.
pub(crate) const FIRST_BACKOFF_FOR_READERS_NS: u32 = 500;

/// How many times what a fetch takes a spinner leaves a lock with short sections to the thread that has it. Of 80 times the locks did more with
/// empty sections on one processor, and lost up to a sixth where the data beside the lock was used by others as well.
const FETCHES_LEFT_ALONE: u32 = 20;

/// The same for a writer that readers keep out.
const FETCHES_LEFT_TO_READERS: u32 = 40;

/// One thread's spinning for one lock.
pub(crate) struct Spinning {
    own: Option<Slot>,
    pauses_per_us: u32,
    /// Pauses before the next look, if others have used the lock since the last.
    backoff: u32,
    pauses: u32,
    has_looked: bool,
    /// When the last look began, in the processor's ticks.
    looked_at: u64,
    /// Whether the last look found the line where the one before had left it.
    line_stayed: bool,
    until_ns: u64,
    budget_ns: u64,
    /// What the first look cost where sections are short, as they are usually; 0 elsewhere.
    fetch_ticks: u64,
    fetches_left_alone: u32,
}

impl Spinning {
    /// `None` where spinning cannot pay.
    pub(crate) fn new(budget_ns: u64) -> Option<Self> {
        let own = threads::own_slot();
        let pauses_per_us = pauses_per_us();
        (usable_cpus() > 1).then_some(Spinning {
            own,
            pauses_per_us,
            backoff: (pauses_per_us * FIRST_BACKOFF_NS / 1_000).max(1),
            pauses: 0,
            has_looked: false,
            looked_at: 0,
            line_stayed: false,
            until_ns: 0,
            budget_ns,
            fetch_ticks: 0,
            fetches_left_alone: FETCHES_LEFT_ALONE,
        })
    }

    /// From now on for readers, of whom it is not known whether they run: for at most `budget_ns` from the first look at the clock on,
    /// and looking at the lock more rarely from the start, unless none comes or goes.
    pub(crate) fn wait_for_readers(&mut self, budget_ns: u64) {
        self.budget_ns = budget_ns;
        self.fetches_left_alone = FETCHES_LEFT_TO_READERS;
        if !self.line_stayed {
            self.backoff = self.backoff.max(self.pauses_in(FIRST_BACKOFF_FOR_READERS_NS));
        }
    }

    /// Watches the lock before queueing, until its line has to be fetched or enough time has passed; true as soon as `take` has it.
    pub(crate) fn watch(&mut self, mut take: impl FnMut() -> bool) -> bool {
        if self.own.is_none() || !looks_are_timed() {
            return false;
        }
        // The try that failed has fetched the line: even the first look tells whether the lock was used since.
        self.has_looked = true;
        while self.pauses < self.pauses_in(BEFORE_LOOKING_NS) {
            let is_first = self.pauses == 0;
            self.pause_for(1);
            self.look();
            if take() {
                return true;
            }
            let took = self.looked_in_vain();
            if is_first {
                self.first_look_took(took);
            }
            if !self.line_stayed {
                self.backoff = self.pauses_in(FIRST_BACKOFF_FOR_SHORT_SECTIONS_NS);
                break;
            }
        }
        // Queueing fetches the line.
        self.has_looked = false;
        false
    }

    fn first_look_took(&mut self, ticks: u64) {
        let Some(own) = self.own else { return };
        let sections = &record(own).sections;
        sections.met(!self.line_stayed);
        if !self.line_stayed && sections.are_short() {
            // One that takes much longer was interrupted.
            self.fetch_ticks = ticks.min(LONGEST_FETCH * TICKS_OF_A_FETCH.load(Relaxed));
        }
    }

    /// Before a look at the lock.
    #[inline]
    pub(crate) fn look(&mut self) {
        self.looked_at = ticks();
    }

    /// After a look that did not get the lock: the ticks that it took.
    #[inline]
    pub(crate) fn looked_in_vain(&mut self) -> u64 {
        let took = ticks_after_loads().wrapping_sub(self.looked_at);
        // The first in the queue finds the line where queueing has left it, and says nothing.
        if self.has_looked {
            self.line_stayed = took < TICKS_OF_A_FETCH.load(Relaxed);
        }
        self.has_looked = true;
        took
    }

    /// [`pause`](Self::pause) for the first in the queue, who leaves a lock with short sections alone for longer while nobody is behind it.
    #[inline]
    pub(crate) fn pause_in_turn(&mut self, owner: u32, turn: Option<&Turn<'_>>) -> bool {
        if self.fetch_ticks == 0 || turn.is_none_or(Turn::has_successor) {
            return self.pause(owner);
        }
        self.leave_alone();
        self.goes_on(owner)
    }

    #[cold]
    fn leave_alone(&mut self) {
        let (begun, enough) = (ticks(), u64::from(self.fetches_left_alone) * self.fetch_ticks);
        while ticks().wrapping_sub(begun) < enough {
            self.pause_for(1);
        }
    }

    /// Pauses, longer each time that others have used the lock; false when it is time to stop, because `owner` (a thread's number) does
    /// not run, or because the time is up.
    #[inline]
    pub(crate) fn pause(&mut self, owner: u32) -> bool {
        let pauses = if self.line_stayed { 1 } else { self.next_backoff() };
        self.pause_for(pauses);
        self.goes_on(owner)
    }

    /// Whether it is not time to stop.
    #[inline]
    fn goes_on(&mut self, owner: u32) -> bool {
        if cfg!(any(loom, shuttle)) {
            return self.pauses < 3;
        }
        self.pauses < self.pauses_per_us * BEFORE_LOOKING_NS / 1_000 || self.worth_it(owner)
    }

    fn pause_for(&mut self, pauses: u32) {
        for _ in 0..pauses {
            spin_loop();
        }
        self.pauses += pauses;
    }

    fn next_backoff(&mut self) -> u32 {
        let backoff = self.backoff;
        self.backoff = (backoff * 2).min(self.pauses_in(LONGEST_BACKOFF_NS));
        backoff
    }

    /// At least one.
    fn pauses_in(&self, ns: u32) -> u32 {
        (self.pauses_per_us * ns / 1_000).max(1)
    }

    #[cold]
    fn worth_it(&mut self, owner: u32) -> bool {
        let now = now_ns();
        if self.until_ns == 0 {
            self.until_ns = now + self.budget_ns;
        }
        now < self.until_ns && !self.is_preempted(owner)
    }

    /// Whether a thread is known not to run: its last CPU is the one on which we run.
    fn is_preempted(&self, thread: u32) -> bool {
        let (Some(own), Some(other)) = (self.own, Slot::from_number(thread)) else { return false };
        own != other && record(own).cpu().is_some_and(|here| record(other).cpu() == Some(here))
    }
}

/// How long the sections are that a thread's waits have met of late.
#[derive(Debug)]
pub(crate) struct Sections {
    /// In how many waits of [`WHOLE`] the first look had to fetch the line. Only its own thread writes it.
    short: AtomicU32,
}

/// A share of one.
const WHOLE: u32 = 1 << 16;
/// About so many waits count; of the first ones as many are long.
const WAITS_REMEMBERED: u32 = 16;
/// From this share on, in sixteenths, sections are short. Empty ones have nearly all of them, those of 100 ns none or a third, by the
/// processor.
const SHORT_SIXTEENTHS: u32 = 9;

impl Sections {
    const_unless_model! {
        pub(crate) const fn new() -> Self {
            Sections { short: AtomicU32::new(0) }
        }
    }

    fn met(&self, a_short_one: bool) {
        let short = self.short.load(Relaxed);
        let added = if a_short_one { WHOLE / WAITS_REMEMBERED } else { 0 };
        self.short.store(short - short / WAITS_REMEMBERED + added, Relaxed);
    }

    fn are_short(&self) -> bool {
        self.short.load(Relaxed) > WHOLE / 16 * SHORT_SIXTEENTHS
    }
}

/// A look that takes so long has fetched the line from another CPU. 0 where looks cannot be timed: then each counts as one that has.
static TICKS_OF_A_FETCH: AtomicU64 = AtomicU64::new(0);
/// In so many of these a fetch is done, if nothing comes between.
const LONGEST_FETCH: u64 = 8;

/// Models do without the time, and go on as after a fetch.
fn looks_are_timed() -> bool {
    TICKS_OF_A_FETCH.load(Relaxed) != 0 || cfg!(any(loom, shuttle))
}

/// Finds out [`TICKS_OF_A_FETCH`], from what looks at a line that stays take on average. Where the clock's steps were as long as such a look
/// (10 ns), they took one step or two, at most three, and fetches from the nearest CPU four or more. The shortest of a few says nothing
/// there: it took one step in one process and two in the next.
fn time_a_look() {
    const LOOKS: u64 = 32;
    let line = AtomicU32::new(0);
    let looks = || {
        (0..LOOKS).map(|_| {
            // As a spinner does.
            spin_loop();
            let begun = ticks();
            core::hint::black_box(&line).load(Relaxed);
            ticks_after_loads().wrapping_sub(begun)
        })
    };
    // The shortest of a few, for those of a thread that was preempted meanwhile.
    let shortest: u64 = (0..3).map(|_| looks().sum()).min().unwrap_or(0);
    TICKS_OF_A_FETCH.store(shortest * 7 / (4 * LOOKS), Relaxed);
}

/// How many pauses make a microsecond: from 7 to some 300, by the processor.
pub(crate) fn pauses_per_us() -> u32 {
    /// 0: not measured yet.
    static PAUSES: AtomicU32 = AtomicU32::new(0);
    const MEASURED: u32 = 128;
    let known = PAUSES.load(Relaxed);
    if known != 0 || cfg!(any(loom, shuttle)) {
        return known.max(1);
    }
    time_a_look();
    // The shortest of a few: a thread that is preempted meanwhile finds pauses long.
    let shortest_ns = (0..3)
        .map(|_| {
            let begun = now_ns();
            (0..MEASURED).for_each(|_| spin_loop());
            now_ns() - begun
        })
        .min();
    let pauses = u64::from(MEASURED) * 1_000 / shortest_ns.unwrap_or(0).max(1);
    let pauses = pauses.clamp(5, 500) as u32;
    PAUSES.store(pauses, Relaxed);
    pauses
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn sections_are_short_once_most_waits_have_met_short_ones() {
        let sections = Sections::new();
        let waits = (1..100).find(|_| {
            sections.met(true);
            sections.are_short()
        });
        // 1 - (15/16)^14 is the first of these above 9/16.
        assert_eq!(waits, Some(13));
    }

    #[test]
    fn sections_of_which_a_third_seem_short_are_not() {
        let sections = Sections::new();
        for wait in 0..1_000 {
            sections.met(wait % 3 == 0);
            assert!(!sections.are_short(), "after {wait} waits");
        }
    }

    #[test]
    fn sections_that_become_longer_are_short_no_more() {
        let sections = Sections::new();
        (0..1_000).for_each(|_| sections.met(true));
        assert!(sections.are_short());
        let waits = (1..100).find(|_| {
            sections.met(false);
            !sections.are_short()
        });
        assert_eq!(waits, Some(9));
    }
}
