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
//! A waiter watches the lock like that before it queues, which writes to the line itself. Where sections last, most waits end then, and
//! the queue costs them nothing.
//!
//! Where a thread is back before the lock could have been passed on and back, because sections and what lies between them are shorter
//! than the way of a line from one CPU to another, the lock does most if one thread at a time has it to itself for a while. Then who has to
//! wait stays away for as long as many fetches take, before its first look, and again while it spins and nobody follows it. It stays away for
//! longer where reads, of which some locks draw a few, are known to follow each other as quickly.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::rests::Rest;
use crate::spin_queue::Turn;
use crate::sync::{const_unless_model, now_ns, spin_loop, ticks, ticks_after_loads, usable_cpus};
use crate::threads::{self, Record, Slot, record};

/// As long as going to sleep and waking up takes, both sides together: who spins this long in vain has lost half.
pub const SPIN_NS: u64 = 20_000;

/// Before the first look at the clock and at the owner: most critical sections are over by then.
pub const BEFORE_LOOKING_NS: u32 = 300;

/// The longest time between two looks at the lock. A look takes the lock's cache line from its owner, who may lock again.
pub const LONGEST_BACKOFF_NS: u32 = 1_000;

/// How long a waiter watches a lock that is not passed on before it queues.
pub const WATCHING_NS: u32 = 1_500;

/// Before the second look: about as long as the line takes to come and go. Looking sooner makes threads with empty sections take
/// the line from each other all the time (a fifth of their throughput).
pub const FIRST_BACKOFF_NS: u32 = 60;

/// The same where sections are short: a thread that is left alone so long uses the lock some fifty times.
const FIRST_BACKOFF_FOR_SHORT_SECTIONS_NS: u32 = 250;

/// The same for a writer that readers keep out. Readers that read at the same time take the line from each other at every step, so
/// while the writer stays away from it the others are quicker than all of them together were: with empty sections by a sixth to a
/// third, and with 100 ns nothing is lost.
pub(crate) const FIRST_BACKOFF_FOR_READERS_NS: u32 = 500;

/// For how many fetches a waiter leaves a lock with short sections to the thread that has it, before its first look and while it spins alone.
const FETCHES_LEFT_ALONE: u64 = 40;

/// And for how many times as long as it has not had to wait before: where readers seldom meet a writer, they take the line from each other all
/// that time.
const ROUNDS_LEFT_ALONE: u64 = 2;
/// That part is no longer than so many fetches.
const MOST_FETCHES_FOR_ROUNDS: u64 = 120;
/// So many where reads are known to follow each other quickly: what lies between two waits is then not work of its own, but reads that each
/// take the line from another thread.
const MOST_FETCHES_FOR_QUICK_READS: u64 = 800;

/// One thread's spinning for one lock.
pub(crate) struct Spinning {
    own: Option<Slot>,
    pauses_per_us: u32,
    /// Pauses before the next look, if others have used the lock since the last.
    backoff: u32,
    pauses: u32,
    has_looked: bool,
    /// When it began, in the processor's ticks.
    begun: u64,
    /// When the last look began, in the processor's ticks.
    looked_at: u64,
    /// Whether the last look found the line where the one before had left it.
    line_stayed: bool,
    until_ns: u64,
    budget_ns: u64,
    /// For how long the lock is better left alone, where sections are so short; 0 elsewhere.
    alone_ticks: u64,
}

impl Spinning {
    /// `None` where spinning cannot pay.
    pub(crate) fn new(budget_ns: u64) -> Option<Self> {
        let own = threads::own_slot();
        let pauses_per_us = pauses_per_us();
        let begun = ticks();
        (usable_cpus() > 1).then_some(Spinning {
            own,
            pauses_per_us,
            backoff: (pauses_per_us * FIRST_BACKOFF_NS / 1_000).max(1),
            pauses: 0,
            has_looked: false,
            begun,
            looked_at: begun,
            line_stayed: false,
            until_ns: 0,
            budget_ns,
            alone_ticks: 0,
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

    /// Watches the lock before queueing, until enough time has passed; true as soon as `take` has it. Where sections are shorter than passing
    /// the lock on takes, it leaves it alone instead, and looks once. A waiter that is allowed to rests first, if it is time to.
    pub(crate) fn watch(&mut self, rest: Rest, mut take: impl FnMut() -> bool) -> bool {
        let Some(own) = self.own else { return false };
        if !looks_are_timed() {
            return false;
        }
        let Record { sections, rests, .. } = record(own);
        if rests.rest(rest, own, self.looked_at) {
            self.look();
            if take() {
                return true;
            }
        }
        if let Some(alone_ticks) = sections.better_left_alone(self.looked_at, TICKS_OF_A_FETCH.load(Relaxed)) {
            self.alone_ticks = alone_ticks;
            self.backoff = self.pauses_in(FIRST_BACKOFF_FOR_SHORT_SECTIONS_NS);
            self.leave_alone();
            self.look();
            return take();
        }
        // The try that failed has fetched the line: even the first look tells whether the lock was used since.
        self.has_looked = true;
        let (mut looks, mut all_fetched) = (0, true);
        while self.pauses < self.pauses_in(WATCHING_NS) {
            self.pause_for(1);
            self.look();
            if take() {
                return true;
            }
            let took = self.looked_in_vain();
            looks += 1;
            all_fetched &= !self.line_stayed;
            if looks == LOOKS_IN_A_ROW && all_fetched {
                sections.fetched_in_a_row(TICKS_OF_A_FETCH.load(Relaxed));
            }
            if !self.line_stayed {
                sections.fetch_took(took);
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
        if self.alone_ticks == 0 || turn.is_none_or(Turn::has_successor) {
            return self.pause(owner);
        }
        self.leave_alone();
        self.goes_on(owner)
    }

    #[cold]
    fn leave_alone(&mut self) {
        let begun = ticks();
        while ticks().wrapping_sub(begun) < self.alone_ticks {
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

impl Drop for Spinning {
    fn drop(&mut self) {
        if let Some(own) = self.own {
            let Record { sections, .. } = record(own);
            sections.waited(|| ticks().wrapping_sub(self.begun));
            sections.last_look.store(self.looked_at, Relaxed);
        }
    }
}

/// What a thread's waits of late tell of the sections that it met. Only the thread itself writes any of it.
#[derive(Debug)]
pub(crate) struct Sections {
    /// When it looked at a lock last, in ticks.
    last_look: AtomicU64,
    /// What a fetch takes, in ticks; 0: not known.
    fetch_ticks: AtomicU32,
    /// How much speaks for short sections.
    signs: AtomicU32,
    /// Waits in which locks are still to be left alone before it finds out anew.
    left_alone: AtomicU32,
    /// Reads that are being timed, or whether some are to be: see [`TIMED`].
    timed_reads: AtomicU32,
    /// When they began, in ticks, and later by as long as it has waited since.
    timed_since: AtomicU64,
    /// For so many waits to come its reads are known to come quickly one after another.
    quick_reads: AtomicU32,
}

/// A thread is back soon if so many fetches were not done since the look that gave it the lock. Three are on its way: the lock's, the release's
/// and that of the try that failed. One is left for the section and what comes after it: less than passing the lock on and back takes.
const FETCHES_UNTIL_BACK: u64 = 4;
/// And so many looks at a line that is there: what those three instructions take besides.
const LOOKS_UNTIL_BACK: u64 = 2;
/// So many looks in a row each had to fetch the line and found the lock held: it was passed on in between each time.
const LOOKS_IN_A_ROW: u32 = 3;
/// From so many times the quickest fetch on, lines are slow, and looks that fetch are no sign: a processor fetches the line for the release
/// while a long section still goes on.
const SLOW_FETCH: u64 = 2;
/// A sign weighs as much as so many waits without one. Where nearly all sections are read, hardly one wait in ten shows a sign though they are empty;
/// with sections of 100 ns, where lines are quick, one in thirty does at most.
const WEIGHT_OF_A_SIGN: u32 = 20;
const ENOUGH_SIGNS: u32 = 5 * WEIGHT_OF_A_SIGN;
/// While locks are left alone their users come back late, whatever the sections are. So a thread leaves them alone so often, and then finds out
/// anew.
const WAITS_LEFT_ALONE: u32 = 128;

/// Waits tell little of readers, who seldom have to wait. Where reads are drawn at random, at least so many are timed after a wait, from one that is
/// drawn to another.
const READS_TIMED: u32 = 128;
/// In `timed_reads`: they were, and not until the next wait again.
const NOT_TIMED: u32 = 0;
/// From the next drawn one on, as the thread has waited.
const NEXT_TIMED: u32 = 1;
/// They are; from here up, so many have been.
const TIMED: u32 = 2;
/// Reads are quick if there were fewer fetches than so many for each, and for what comes between two, waits left out: so are half of the groups
/// or more where two readers have empty sections, and one to six in a hundred with sections of 100 ns. While they are, a wait without a sign
/// says nothing against short sections.
const FETCHES_A_READ: u64 = 2;
/// After so many waits that is not known any more: most locks draw no reads, and the thread may be at another.
const WAITS_OF_QUICK_READS: u32 = 16;

impl Sections {
    const_unless_model! {
        pub(crate) const fn new() -> Self {
            Sections {
                last_look: AtomicU64::new(0),
                fetch_ticks: AtomicU32::new(0),
                signs: AtomicU32::new(0),
                left_alone: AtomicU32::new(0),
                timed_reads: AtomicU32::new(0),
                timed_since: AtomicU64::new(0),
                quick_reads: AtomicU32::new(0),
            }
        }
    }

    /// The last of so many reads of locks that readers count themselves in was drawn.
    pub(crate) fn reads_were_drawn(&self, reads: u32) {
        let timed = self.timed_reads.load(Relaxed);
        if timed != NOT_TIMED {
            self.time_reads(timed, reads, ticks());
        }
    }

    fn time_reads(&self, timed: u32, reads: u32, now: u64) {
        if timed == NEXT_TIMED {
            self.timed_since.store(now, Relaxed);
            self.timed_reads.store(TIMED, Relaxed);
            return;
        }
        let timed = timed + reads;
        let reads = timed - TIMED;
        if reads < READS_TIMED {
            self.timed_reads.store(timed, Relaxed);
            return;
        }
        let took = now.wrapping_sub(self.timed_since.load(Relaxed));
        let quick = took < u64::from(reads) * FETCHES_A_READ * u64::from(self.fetch_ticks.load(Relaxed));
        self.quick_reads.store(if quick { WAITS_OF_QUICK_READS } else { 0 }, Relaxed);
        self.timed_reads.store(NOT_TIMED, Relaxed);
    }

    /// The next wait is of another kind.
    pub(crate) fn forget(&self) {
        for known in [&self.signs, &self.left_alone, &self.quick_reads] {
            known.store(0, Relaxed);
        }
    }

    /// It has waited for so many ticks, which reads that are timed are not to be blamed for.
    fn waited(&self, took: impl FnOnce() -> u64) {
        match self.timed_reads.load(Relaxed) {
            NOT_TIMED => self.timed_reads.store(NEXT_TIMED, Relaxed),
            NEXT_TIMED => {}
            _ => self.timed_since.store(self.timed_since.load(Relaxed).wrapping_add(took()), Relaxed),
        }
    }

    /// Whether the thread has looked at a lock since then.
    pub(crate) fn has_looked_since(&self, since: u64) -> bool {
        let last_look = self.last_look.load(Relaxed);
        last_look != 0 && last_look.wrapping_sub(since).cast_signed() >= 0
    }

    /// Once a wait, which begins `now`: for how long the lock is better left alone, if it is.
    fn better_left_alone(&self, now: u64, quickest_fetch: u64) -> Option<u64> {
        let fetch_ticks = u64::from(self.fetch_ticks.load(Relaxed));
        let round = now.wrapping_sub(self.last_look.load(Relaxed));
        let quick_reads = self.quick_reads.load(Relaxed);
        let reads_are_quick = quick_reads != 0;
        if reads_are_quick {
            self.quick_reads.store(quick_reads - 1, Relaxed);
        }
        let most_fetches = if reads_are_quick { MOST_FETCHES_FOR_QUICK_READS } else { MOST_FETCHES_FOR_ROUNDS };
        let alone =
            FETCHES_LEFT_ALONE * fetch_ticks + round.saturating_mul(ROUNDS_LEFT_ALONE).min(most_fetches * fetch_ticks);
        let left = self.left_alone.load(Relaxed);
        if left > 0 {
            self.left_alone.store(left - 1, Relaxed);
            return Some(alone);
        }
        // Of what a look took that fetched, the look itself is no fetch.
        let look = quickest_fetch * FOURTHS / FOURTHS_OF_A_FETCH;
        let is_soon = round < FETCHES_UNTIL_BACK * fetch_ticks.saturating_sub(look) + LOOKS_UNTIL_BACK * look;
        let signs = self.signs.load(Relaxed);
        let signs = if is_soon { signs + WEIGHT_OF_A_SIGN } else { signs.saturating_sub(u32::from(!reads_are_quick)) };
        let short = signs >= ENOUGH_SIGNS;
        self.signs.store(if short { 0 } else { signs }, Relaxed);
        if short {
            self.left_alone.store(WAITS_LEFT_ALONE, Relaxed);
        }
        short.then_some(alone)
    }

    /// [`LOOKS_IN_A_ROW`] had to fetch.
    fn fetched_in_a_row(&self, quickest_fetch: u64) {
        if u64::from(self.fetch_ticks.load(Relaxed)) < SLOW_FETCH * quickest_fetch {
            self.signs.store(self.signs.load(Relaxed) + WEIGHT_OF_A_SIGN, Relaxed);
        }
    }

    /// Follows the median: one fetch in some takes many times as long, because something came between.
    fn fetch_took(&self, ticks: u64) {
        const STEPS: u32 = 16;
        let (known, ticks) = (self.fetch_ticks.load(Relaxed), u32::try_from(ticks).unwrap_or(u32::MAX));
        let step = known / STEPS + 1;
        let next = if known == 0 {
            ticks
        } else if ticks > known {
            known + step
        } else {
            known - step
        };
        self.fetch_ticks.store(next, Relaxed);
    }
}

/// A look that takes so long has fetched the line from another CPU. 0 where looks cannot be timed: then each counts as one that has.
static TICKS_OF_A_FETCH: AtomicU64 = AtomicU64::new(0);
/// From so many fourths of what a look at a line that stays takes on, a look has fetched. Where the clock's steps were as long as such a
/// look (10 ns), looks took one step or two, at most three, and fetches from the nearest CPU four or more.
const FOURTHS_OF_A_FETCH: u64 = 7;
const FOURTHS: u64 = 4;

/// Models do without the time, and go on as after a fetch.
fn looks_are_timed() -> bool {
    TICKS_OF_A_FETCH.load(Relaxed) != 0 || cfg!(any(loom, shuttle))
}

/// Finds out [`TICKS_OF_A_FETCH`], from what looks at a line that stays take on average. The shortest of a few says nothing where the
/// clock's steps are as long: it took one step in one process and two in the next.
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
    TICKS_OF_A_FETCH.store(shortest * FOURTHS_OF_A_FETCH / (FOURTHS * LOOKS), Relaxed);
}

/// So many of the processor's ticks are a microsecond.
static TICKS_PER_US: AtomicU64 = AtomicU64::new(0);

/// How many of the processor's ticks are so many microseconds, about.
pub(crate) fn ticks_in_us(us: u64) -> u64 {
    us * TICKS_PER_US.load(Relaxed)
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
    let shortest = (0..3).map(|_| {
        let (begun, begun_ticks) = (now_ns(), ticks());
        (0..MEASURED).for_each(|_| spin_loop());
        (now_ns() - begun, ticks().wrapping_sub(begun_ticks))
    });
    let (shortest_ns, its_ticks) = shortest.min().unwrap_or((0, 0));
    let shortest_ns = shortest_ns.max(1);
    TICKS_PER_US.store(its_ticks * 1_000 / shortest_ns, Relaxed);
    let pauses = u64::from(MEASURED) * 1_000 / shortest_ns;
    let pauses = pauses.clamp(5, 500) as u32;
    PAUSES.store(pauses, Relaxed);
    pauses
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// A look takes 50 ticks then.
    const QUICKEST: u64 = 88;
    /// Where lines are quick, and slow: what a fetch takes, the look with it, and the shortest round.
    const QUICK: u64 = 150;
    const SHORTEST_QUICK: u64 = 400;
    const SLOW: u64 = 550;
    const SHORTEST_SLOW: u64 = 1_600;
    /// That of a thread whose acquisitions mostly need not wait.
    const LONG_ROUND: u64 = 5_000;

    /// A thread that waits now and then.
    struct Waits {
        sections: Sections,
        now: u64,
    }

    impl Waits {
        fn where_fetches_take(ticks: u64) -> Self {
            let sections = Sections::new();
            sections.fetch_ticks.store(ticks as u32, Relaxed);
            Waits { sections, now: 1_000_000 }
        }

        fn wait(&mut self, round: u64) -> Option<u64> {
            self.sections.last_look.store(self.now, Relaxed);
            self.now += round;
            self.sections.better_left_alone(self.now, QUICKEST)
        }

        /// In how many of 1,000 waits it leaves the lock alone, of which one in `each` comes after a round of so many ticks.
        fn left_alone(&mut self, round: u64, each: u64) -> usize {
            (0..1_000).filter(|at| self.wait(if at % each == 0 { round } else { LONG_ROUND }).is_some()).count()
        }
    }

    #[test]
    fn locks_that_are_wanted_again_before_they_could_be_passed_on_are_left_alone() {
        // 4 waits find out, 129 leave it alone.
        assert_eq!(Waits::where_fetches_take(QUICK).left_alone(SHORTEST_QUICK, 1), 7 * 129 + (1_000 - 7 * 133 - 4));
        assert!(Waits::where_fetches_take(SLOW).left_alone(SHORTEST_SLOW, 1) > 900);
    }

    #[test]
    fn a_sign_in_ten_waits_is_enough() {
        assert!(Waits::where_fetches_take(QUICK).left_alone(SHORTEST_QUICK, 10) > 500);
    }

    #[test]
    fn a_sign_in_thirty_waits_is_none() {
        assert_eq!(Waits::where_fetches_take(QUICK).left_alone(SHORTEST_QUICK, 30), 0);
    }

    #[test]
    fn locks_are_not_left_alone_where_sections_and_what_comes_between_take_longer_than_passing_on() {
        // 100 ns and more, by a clock of 2.5 GHz.
        assert_eq!(Waits::where_fetches_take(QUICK).left_alone(SHORTEST_QUICK + 250, 1), 0);
        assert!(Waits::where_fetches_take(SLOW).left_alone(SHORTEST_SLOW + 250, 1) > 900);
        assert_eq!(Waits::where_fetches_take(SLOW).left_alone(SHORTEST_SLOW + 2_500, 1), 0);
    }

    #[test]
    fn looks_that_all_fetch_say_that_sections_are_short_where_lines_are_quick() {
        let left_alone = |fetch| {
            let mut waits = Waits::where_fetches_take(fetch);
            let wait = |_: &u32| {
                let left = waits.wait(LONG_ROUND).is_some();
                if !left {
                    waits.sections.fetched_in_a_row(QUICKEST);
                }
                left
            };
            (0..1_000).filter(wait).count()
        };
        assert!(left_alone(QUICK) > 900);
        assert_eq!(left_alone(SLOW), 0);
    }

    #[test]
    fn who_seldom_waits_leaves_a_lock_alone_for_longer() {
        let mut waits = Waits::where_fetches_take(QUICK);
        while waits.wait(SHORTEST_QUICK).is_none() {}
        assert_eq!(waits.wait(0), Some(40 * QUICK));
        assert_eq!(waits.wait(5_000), Some(40 * QUICK + 10_000));
        assert_eq!(waits.wait(1_000_000), Some(160 * QUICK));
    }

    /// Reads of which one in 16 is drawn, and waits of so many ticks between them, until it is known how quick they are.
    fn read_with_waits(waits: &mut Waits, ticks_a_read: u64, wait: u64) {
        waits.sections.waited(|| wait);
        while let timed @ 1.. = waits.sections.timed_reads.load(Relaxed) {
            waits.sections.time_reads(timed, 16, waits.now);
            if waits.sections.timed_reads.load(Relaxed) != NOT_TIMED {
                waits.now += 16 * ticks_a_read + wait;
                waits.sections.waited(|| wait);
            }
        }
    }

    #[test]
    fn quick_readers_leave_a_lock_alone_for_longer() {
        let mut waits = Waits::where_fetches_take(QUICK);
        read_with_waits(&mut waits, FETCHES_A_READ * QUICK - 1, 10_000);
        while waits.wait(SHORTEST_QUICK).is_none() {}
        assert_eq!(waits.wait(1_000_000), Some(840 * QUICK));
        read_with_waits(&mut waits, FETCHES_A_READ * QUICK + 1, 0);
        assert_eq!(waits.wait(1_000_000), Some(160 * QUICK));
    }

    #[test]
    fn signs_of_quick_readers_add_up_however_seldom_they_are() {
        let mut waits = Waits::where_fetches_take(QUICK);
        let mut left_alone = 0;
        for wait in 0..1_000 {
            read_with_waits(&mut waits, QUICK, 0);
            left_alone += u32::from(waits.wait(if wait % 30 == 0 { SHORTEST_QUICK } else { LONG_ROUND }).is_some());
        }
        assert!(left_alone > 400, "{left_alone}");
    }

    #[test]
    fn quick_reads_are_forgotten() {
        let mut waits = Waits::where_fetches_take(QUICK);
        read_with_waits(&mut waits, QUICK, 0);
        assert_eq!(waits.left_alone(SHORTEST_QUICK, 30), 0);
        assert_eq!(waits.sections.quick_reads.load(Relaxed), 0);
        while waits.wait(SHORTEST_QUICK).is_none() {}
        waits.sections.forget();
        assert_eq!(waits.wait(SHORTEST_QUICK), None);
    }

    #[test]
    fn reads_are_timed_after_a_wait_and_then_no_more() {
        let sections = Sections::new();
        let timed_after = |reads| {
            sections.reads_were_drawn(reads);
            sections.timed_reads.load(Relaxed)
        };
        assert_eq!(timed_after(1), NOT_TIMED);
        sections.waited(|| 0);
        assert_eq!(timed_after(100), TIMED);
        assert_eq!(timed_after(READS_TIMED - 1), TIMED + READS_TIMED - 1);
        assert_eq!(timed_after(1), NOT_TIMED);
    }

    #[test]
    fn longer_sections_are_found_out() {
        let mut waits = Waits::where_fetches_take(QUICK);
        assert!(waits.left_alone(SHORTEST_QUICK, 1) > 900);
        (0..WAITS_LEFT_ALONE).for_each(|_| {
            waits.wait(LONG_ROUND);
        });
        assert_eq!(waits.left_alone(LONG_ROUND, 1), 0);
    }

    #[test]
    fn what_a_fetch_takes_follows_the_machine_and_no_single_one() {
        let sections = Sections::new();
        (0..50).for_each(|_| sections.fetch_took(100));
        assert!((90..=110).contains(&sections.fetch_ticks.load(Relaxed)));
        sections.fetch_took(100_000);
        assert!((90..=120).contains(&sections.fetch_ticks.load(Relaxed)));
        (0..50).for_each(|_| sections.fetch_took(300));
        assert!((270..=330).contains(&sections.fetch_ticks.load(Relaxed)));
    }
}
