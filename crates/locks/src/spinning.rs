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

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::sync::{now_ns, spin_loop, ticks, ticks_after_loads, usable_cpus};
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
        })
    }

    /// From now on for readers, of whom it is not known whether they run: for at most `budget_ns` from the first look at the clock on,
    /// and looking at the lock more rarely from the start, unless none comes or goes.
    pub(crate) fn wait_for_readers(&mut self, budget_ns: u64) {
        self.budget_ns = budget_ns;
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
            self.pause_for(1);
            self.look();
            if take() {
                return true;
            }
            self.looked_in_vain();
            if !self.line_stayed {
                self.backoff = self.pauses_in(FIRST_BACKOFF_FOR_SHORT_SECTIONS_NS);
                break;
            }
        }
        // Queueing fetches the line.
        self.has_looked = false;
        false
    }

    /// Before a look at the lock.
    #[inline]
    pub(crate) fn look(&mut self) {
        self.looked_at = ticks();
    }

    /// After a look that did not get the lock.
    #[inline]
    pub(crate) fn looked_in_vain(&mut self) {
        let took = ticks_after_loads().wrapping_sub(self.looked_at);
        // The first in the queue finds the line where queueing has left it, and says nothing.
        if self.has_looked {
            self.line_stayed = took < TICKS_OF_A_FETCH.load(Relaxed);
        }
        self.has_looked = true;
    }

    /// Pauses, longer each time that others have used the lock; false when it is time to stop, because `owner` (a thread's number) does
    /// not run, or because the time is up.
    #[inline]
    pub(crate) fn pause(&mut self, owner: u32) -> bool {
        let pauses = if self.line_stayed { 1 } else { self.next_backoff() };
        self.pause_for(pauses);
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

/// A look that takes so long has fetched the line from another CPU. 0 where looks cannot be timed: then each counts as one that has.
static TICKS_OF_A_FETCH: AtomicU64 = AtomicU64::new(0);

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
