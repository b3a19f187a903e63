//! A mutex: one atomic instruction to lock and one to unlock, an owner that is always known, optimistic spinning in a queue,
//! sleeping on a futex, and handing over to whoever waited too long.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::time::Duration;

use crate::front::{acquisitions, constructors};
use crate::generation::Generation;
use crate::instrument::{Contended, HoldStart, Instrument, Kind, Mode, Unmetered, metered_wait};
use crate::lockdep::Ordered;
use crate::misuse;
use crate::rests::Rest;
use crate::spin_queue::{SpinQueue, Turn};
use crate::spinning::{SPIN_NS, Spinning};
use crate::sync::{
    AtomicU32, Bed, Deadline, FutexDouble, WaitEnd, const_unless_model, fence, mutated, now_ns, yield_now,
};
use crate::threads::{own_slot, owner_number, owner_word};

// The state: the owner's number in the high half, 0 when free; in the low half, on which waiters sleep:
//
// | GRANTED | HEIR | WAKE | LOCKED | meaning
// |---------|------|------|--------|-----------------------------------------------------------------------------
// |         |      |      |        | free
// |         |      |      | x      | held; nobody sleeps, or somebody awake looks after those who do
// |         |      | x    | x      | held; somebody may sleep: releasing wakes one
// |         |      | x    |        | free; the releaser wakes one
// |         | x    | any  | any    | the same, and only the heir may take it
// | x       | x    | x    |        | free for one of those who slept; for anybody, if they are all gone
//
// `sleepers` is counted up before WAKE is looked at and a thread sleeps, and WAKE is taken off a held lock before `sleepers` is
// looked at: one of the two sees the other. (The kernel has a full barrier between entering the call and reading the word.)
//
// WAKE stays when the lock is released: the releaser, who may not touch the lock any more, has seen it in the result and
// wakes one sleeper. Whoever takes the lock next takes WAKE off, because that wake-up is under way; the woken thread is then on
// duty, and puts it on again when it takes the lock and there are more (`sleepers`), or when it goes back to sleep.

/// Somebody holds it.
const LOCKED: u64 = crate::threads::OWNED;
/// Who, and [`LOCKED`]: an owner word.
const OWNER: u64 = LOCKED | !(u32::MAX as u64);
/// Somebody may sleep, and nobody who is awake looks after that.
const WAKE: u64 = 2;
/// Reserved for the waiter that has set this.
const HEIR: u64 = 4;
/// With [`HEIR`]: reserved for whoever slept.
const GRANTED: u64 = 8;

/// Waiting longer makes an heir of a waiter; more often than once in this time nobody inherits, because a lock that is always
/// handed over runs at the speed of the scheduler.
const HANDOFF_AFTER_NS: u64 = 1_000_000;
/// Spinners may pass those who sleep for this long; then one of them is woken all the same.
const PASSING_NS: u64 = 1_000_000;

/// A thread that a lock was granted to comes within so many turns of others (which take 0.4 ms where nothing else runs; an idle CPU may
/// need a tenth of a millisecond to begin), or does not run.
const STAND_BACK: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 1_000 };

/// How a wait may end without the lock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Until {
    pub(crate) deadline: Option<Deadline>,
    pub(crate) interruptible: bool,
}

impl Until {
    /// Whether a waiter may rest as its wait begins.
    pub(crate) fn rest(self) -> Rest {
        if self.deadline.is_some() || self.interruptible { Rest::None } else { Rest::Allowed }
    }

    /// What the end of a sleep means.
    pub(crate) fn ended(self, end: WaitEnd) -> Result<(), NotAcquired> {
        match end {
            WaitEnd::TimedOut => Err(NotAcquired::TimedOut),
            WaitEnd::Interrupted if self.interruptible => Err(NotAcquired::Interrupted),
            WaitEnd::Interrupted | WaitEnd::LookAgain => Ok(()),
        }
    }
}

/// Why a lock was not acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAcquired {
    /// The time was up.
    TimedOut,
    /// A signal handler ran in the waiting thread.
    Interrupted,
}

impl core::fmt::Display for NotAcquired {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            NotAcquired::TimedOut => "the lock was not free in time",
            NotAcquired::Interrupted => "a signal interrupted the wait for the lock",
        })
    }
}

impl core::error::Error for NotAcquired {}

/// The mutex without its data: see [`Mutex`](crate::Mutex) for the one with.
#[derive(Debug)]
pub struct RawMutex<I: Instrument = Unmetered> {
    state: FutexDouble,
    spinners: SpinQueue,
    /// The process whose threads wait.
    generation: Generation,
    /// Threads that sleep, or are about to, or have woken up and not looked around yet.
    sleepers: AtomicU32,
    /// When a sleeper was sent a wake-up last, and when the lock was last reserved: the low bits of the clock in microseconds.
    woken_at_us: AtomicU32,
    reserved_at_us: AtomicU32,
    hold_start: I::HoldStart,
    instrument: I,
    order: Ordered,
}

/// What a thread in the slow path is to the lock.
#[derive(Debug, Default, Clone, Copy)]
struct Waiter {
    /// Has set [`HEIR`].
    heir: bool,
    /// Has slept.
    slept: bool,
    /// Has to see to it that those who sleep are woken one day: it was woken itself, or took [`WAKE`] off.
    on_duty: bool,
    /// How often it stood back for a thread that a free lock was granted to.
    stood_back: u32,
    rest: Rest,
}

constructors!(RawMutex, [I: Instrument] RawMutex<I>, made: "mutex", with: "hooks");

impl<I: Instrument> RawMutex<I> {
    const_unless_model! {
        const fn with_order(instrument: I, order: Ordered) -> Self {
            RawMutex {
                state: FutexDouble::new(0),
                spinners: SpinQueue::new(),
                generation: Generation::first(),
                sleepers: AtomicU32::new(0),
                woken_at_us: AtomicU32::new(0),
                reserved_at_us: AtomicU32::new(0),
                hold_start: I::HoldStart::INIT,
                instrument,
                order,
            }
        }
    }

    acquisitions!(
        "Locks it", at_once: lock_at_once, steal: steal, slow: lock_slow(),
        lock, lock_nested, try_lock, lock_for, lock_interruptible, lock_until
    );

    /// Whether somebody holds it.
    pub fn is_locked(&self) -> bool {
        self.state.load(Relaxed) & LOCKED != 0
    }

    /// Unlocks it.
    ///
    /// # Safety
    ///
    /// This thread holds it.
    #[inline]
    pub unsafe fn unlock(&self) {
        self.end_hold();
        let own = owner_word();
        match self.state.compare_exchange(own, 0, mutated!("mutex-release", Relaxed, Release), Relaxed) {
            Ok(_) if misuse::IS_CHECKED && own == 0 => misuse::not_held("mutex"),
            Ok(_) => {}
            Err(state) => self.unlock_slow(own, state),
        }
    }

    /// Unlocks it, and hands it over to a thread that sleeps, if there is one.
    ///
    /// # Safety
    ///
    /// As for [`unlock`](Self::unlock).
    #[inline]
    pub unsafe fn unlock_fair(&self) {
        self.end_hold();
        let own = owner_word();
        if !is_held_by(own, self.state.load(Relaxed)) {
            misuse::not_held("mutex");
        } else if self.sleepers.load(Relaxed) == 0 {
            self.release(own);
        } else {
            self.grant(own);
        }
    }

    /// Unlocks a mutex in this state, in which it is not this thread's, or somebody waits.
    #[cold]
    #[inline(never)]
    fn unlock_slow(&self, own: u64, state: u64) {
        if is_held_by(own, state) {
            self.release(own);
        } else {
            misuse::not_held("mutex");
        }
    }

    /// Takes this thread, which holds it, off the state, and wakes whoever is to be woken.
    fn release(&self, own: u64) {
        let state = self.state.fetch_sub(own, mutated!("mutex-release", Relaxed, Release));
        if state != own {
            self.wake(state);
        }
    }

    /// Unlocks it in the place of the thread that holds it.
    ///
    /// # Safety
    ///
    /// A thread holds it and has left the unlocking to the caller.
    pub unsafe fn unlock_for_owner(&self) {
        self.end_hold();
        let owner = self.state.load(Relaxed) & OWNER;
        let state = self.state.fetch_sub(owner, Release);
        if state != owner {
            self.wake(state);
        }
    }

    fn contended(&self) -> Contended {
        Contended { lock: core::ptr::from_ref(self).addr(), kind: Kind::Mutex, mode: Mode::Exclusive }
    }

    #[inline(always)]
    fn end_hold(&self) {
        self.order.release();
        #[cfg(not(lockmeter_without_hooks))]
        if let Some(since) = self.hold_start.end() {
            self.instrument.released(self.contended(), now_ns().saturating_sub(since));
        }
    }

    #[inline(always)]
    fn lock_at_once(&self) -> bool {
        let own = owner_word();
        own != 0 && self.state.compare_exchange(0, own, mutated!("mutex-acquire", Relaxed, Acquire), Relaxed).is_ok()
    }

    /// Takes it, from under those who sleep if there are such, if it is free.
    fn steal(&self) -> bool {
        self.drop_waiters_of_the_parent();
        own_slot();
        self.take(Waiter::default(), 0)
    }

    /// In a forked child: those who waited are not there.
    #[inline]
    fn drop_waiters_of_the_parent(&self) {
        self.generation.enter(|| {
            self.spinners.drop_all();
            self.sleepers.store(0, Relaxed);
            self.state.fetch_and(OWNER, Relaxed);
        });
    }

    /// Whether this waiter may take a lock in this state.
    fn may_take(&self, state: u64, waiter: Waiter) -> bool {
        state & LOCKED == 0
            && (state & HEIR == 0
                || waiter.heir
                || state & GRANTED != 0 && (waiter.slept || self.sleepers.load(Relaxed) == 0))
    }

    /// Takes it if this waiter may, with `wake`: [`WAKE`] or nothing.
    fn take(&self, waiter: Waiter, wake: u64) -> bool {
        let mut state = self.state.load(Relaxed);
        while self.may_take(state, waiter) {
            match self.state.compare_exchange_weak(
                state,
                owner_word() | wake,
                mutated!("mutex-acquire-slow", Relaxed, Acquire),
                Relaxed,
            ) {
                Ok(_) if state & WAKE == 0 => return true,
                Ok(_) => {
                    // Somebody is being woken.
                    self.woken_at_us.store(low_us(now_ns()), Relaxed);
                    return true;
                }
                Err(now) => state = now,
            }
        }
        false
    }

    /// Takes it if this waiter may, and puts [`WAKE`] on again if it is on duty and others sleep: more than `itself`, 1 while it
    /// counts as one that sleeps.
    fn take_over(&self, waiter: Waiter, itself: u32) -> bool {
        if !self.may_take(self.state.load(Relaxed), waiter) {
            return false;
        }
        let on_duty = waiter.on_duty && !mutated!("mutex-duty-forgotten", true, false);
        let wake = if on_duty && self.sleepers.load(SeqCst) > itself { WAKE } else { 0 };
        self.take(waiter, wake)
    }

    /// The same for the first of the spinners, who leaves its duty to the next.
    fn take_over_in_turn(&self, waiter: Waiter, turn: &mut Option<Turn<'_>>) -> bool {
        let keeps_duty = !waiter.on_duty || turn.is_none() || self.is_overdue();
        if keeps_duty {
            return self.take_over(waiter, 0);
        }
        let taken = self.take(waiter, 0);
        if taken && !turn.take().is_some_and(Turn::leave_on_duty) && self.sleepers.load(SeqCst) != 0 {
            // Nobody is behind us. As long as we hold it, WAKE comes in time.
            self.state.fetch_or(WAKE, Relaxed);
        }
        taken
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, until: Until) -> Result<(), NotAcquired> {
        self.drop_waiters_of_the_parent();
        // A thread without a word has not tried yet; for another it is too soon for a look.
        if owner_word() == 0 && self.steal() {
            return Ok(());
        }
        metered_wait(&self.instrument, self.contended(), || self.wait(until), |now| self.hold_start.begin(now))
    }

    fn wait(&self, until: Until) -> Result<(), NotAcquired> {
        let mut waiter = Waiter { rest: until.rest(), ..Waiter::default() };
        let mut begun_ns = None;
        loop {
            if self.spin(&mut waiter) {
                return Ok(());
            }
            let now = now_ns();
            let begun_ns = *begun_ns.get_or_insert(now);
            if waiter.slept && now.saturating_sub(begun_ns) > HANDOFF_AFTER_NS {
                self.inherit(&mut waiter, now);
            }
            // Counted before WAKE is set, so that whoever takes WAKE off knows of us.
            self.sleepers.fetch_add(1, SeqCst);
            let slept = self.sleep(&mut waiter, until);
            // What is granted to those who slept is taken before this one counts as none of them: a spinner would take it then.
            let granted =
                slept.is_ok() && waiter.slept && self.state.load(Relaxed) & GRANTED != 0 && self.take_over(waiter, 1);
            self.sleepers.fetch_sub(1, SeqCst);
            if granted {
                return Ok(());
            }
            if let Err(why) = slept {
                self.give_up(waiter);
                return Err(why);
            }
        }
    }

    /// Spins in the queue of spinners while it may pay; true with the lock.
    fn spin(&self, waiter: &mut Waiter) -> bool {
        let Some(mut spinning) = Spinning::new(SPIN_NS) else { return self.take_over(*waiter, 0) };
        let mut turn = None;
        // The heir is alone in wanting it, and needs no turn.
        if !waiter.heir {
            if spinning.watch(waiter.rest, || self.take_over(*waiter, 0)) {
                return true;
            }
            turn = self.spinners.enter(|before| !spinning.pause(before.number()));
            let Some(turn) = &turn else {
                // Those before us, or the owner, take too long.
                return self.take_over(*waiter, 0);
            };
            waiter.on_duty |= turn.is_on_duty();
        }
        loop {
            spinning.look();
            if self.take_over_in_turn(*waiter, &mut turn) {
                return true;
            }
            spinning.looked_in_vain();
            let state = self.state.load(Relaxed);
            if state & HEIR != 0 && !waiter.heir {
                return false;
            }
            self.stand_in(state, *waiter);
            if state & (WAKE | LOCKED) == WAKE | LOCKED
                && turn.as_ref().is_some_and(Turn::has_successor)
                && !self.is_overdue()
                && self.state.compare_exchange(state, state & !WAKE, SeqCst, Relaxed).is_ok()
            {
                // There is always a spinner to take the lock, so the owner need wake nobody.
                fence(SeqCst);
                waiter.on_duty = true;
            }
            if !spinning.pause_in_turn(owner_number(state), turn.as_ref()) {
                return false;
            }
        }
    }

    /// Has the owner wake one of those who sleep, where whoever is on duty for them has not come for too long: woken, or preempted while
    /// it spun, it waits for a CPU. All others would sleep until it had one.
    fn stand_in(&self, state: u64, waiter: Waiter) {
        if state & (HEIR | WAKE | LOCKED) == LOCKED
            && !waiter.on_duty
            && self.sleepers.load(Relaxed) != 0
            && self.is_overdue()
        {
            // In another state there may be no need; this one looks again soon.
            let _marked = self.state.compare_exchange(state, state | WAKE, Relaxed, Relaxed);
        }
    }

    /// Whether those who sleep were passed by spinners for too long.
    fn is_overdue(&self) -> bool {
        is_past(&self.woken_at_us, now_ns(), PASSING_NS)
    }

    /// Has the lock reserved, if nobody else has and it was not too lately.
    fn inherit(&self, waiter: &mut Waiter, now: u64) {
        if waiter.heir || !is_past(&self.reserved_at_us, now, HANDOFF_AFTER_NS) {
            return;
        }
        let state = self.state.load(Relaxed);
        if state & (LOCKED | HEIR) == LOCKED
            && self.state.compare_exchange(state, state | HEIR, Relaxed, Relaxed).is_ok()
        {
            waiter.heir = true;
            self.reserved_at_us.store(low_us(now), Relaxed);
        }
    }

    /// Sleeps, unless the lock could be had, until there is a reason to look again or none to wait any longer.
    fn sleep(&self, waiter: &mut Waiter, until: Until) -> Result<(), NotAcquired> {
        loop {
            let state = self.state.load(Relaxed);
            if self.may_take(state, *waiter) {
                return Ok(());
            }
            if state & (LOCKED | GRANTED) == GRANTED {
                // For one that slept. Nobody may sleep on a free lock: that one may have given up.
                waiter.stood_back += 1;
                waiter.slept |= waiter.stood_back > STAND_BACK;
                yield_now();
                return Ok(());
            }
            if state & WAKE == 0 && self.state.compare_exchange(state, state | WAKE, Relaxed, Relaxed).is_err() {
                continue;
            }
            let bed = if waiter.heir { Bed::Heir } else { Bed::Line };
            let end = self.state.wait((state | WAKE) as u32, bed, until.deadline);
            (waiter.slept, waiter.rest) = (true, Rest::Had);
            waiter.on_duty |= end == WaitEnd::LookAgain;
            return until.ended(end);
        }
    }

    /// Leaves without the lock, and without a trace.
    fn give_up(&self, waiter: Waiter) {
        let mut state = self.state.load(Relaxed);
        loop {
            // We may have been woken, and then another must be. WAKE is not taken off: somebody may fall asleep by it just now.
            let wake = if self.sleepers.load(SeqCst) == 0 { 0 } else { WAKE };
            let reserved = if waiter.heir || state & GRANTED != 0 && wake == 0 { HEIR | GRANTED } else { 0 };
            let left = state & !reserved | wake;
            if left == state && state & LOCKED != 0 {
                return;
            }
            match self.state.compare_exchange_weak(state, left, Relaxed, Relaxed) {
                Ok(_) if state & LOCKED == 0 => return self.wake(left),
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
    }

    /// Releases it for those who sleep alone.
    #[cold]
    #[inline(never)]
    fn grant(&self, own: u64) {
        let mut state = self.state.load(Relaxed);
        loop {
            let reserved = if state & HEIR == 0 { HEIR | GRANTED } else { 0 };
            let released = (state - own) | reserved | WAKE;
            match self.state.compare_exchange_weak(state, released, Release, Relaxed) {
                Ok(_) => return self.state.wake(if reserved == 0 { Bed::Heir } else { Bed::Line }, 1),
                Err(now) => state = now,
            }
        }
    }

    /// Wakes the one who is to be woken when a lock in this state is released. Its memory may be gone by now: somebody else may
    /// have had the lock, and freed it. The address alone is used.
    #[cold]
    #[inline(never)]
    fn wake(&self, state: u64) {
        if state & HEIR != 0 && state & GRANTED == 0 {
            self.state.wake(mutated!("mutex-wakes-the-wrong-one", Bed::Line, Bed::Heir), 1);
        } else if state & WAKE != 0 && !mutated!("mutex-wakes-nobody", true, false) {
            self.state.wake(Bed::Line, 1);
        }
    }
}

/// Whether the thread with this word, whose look at the state this is, holds the lock. Nobody else can change that.
fn is_held_by(own: u64, state: u64) -> bool {
    own != 0 && state & OWNER == own
}

pub(crate) fn low_us(ns: u64) -> u32 {
    (ns / 1_000) as u32
}

/// Whether `at_us` lies longer back than `span_ns`. The clock's low bits come round every 71 minutes, and then err once.
pub(crate) fn is_past(at_us: &AtomicU32, now: u64, span_ns: u64) -> bool {
    #[cfg(shuttle)]
    if crate::sync::long_ago() {
        return true;
    }
    u64::from(low_us(now).wrapping_sub(at_us.load(Relaxed))) * 1_000 > span_ns
}
