//! A mutex: one atomic instruction to lock and one to unlock, optimistic spinning in a queue, sleeping on a futex, and handing
//! over to whoever waited too long.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;

use crate::instrument::{Contended, HoldStart, Instrument, Kind, Mode, Unmetered};
use crate::spin_queue::SpinQueue;
use crate::spinning::{SPIN_NS, Spinning};
use crate::sync::{AtomicU32, Deadline, FutexWord, WaitEnd, const_unless_model, now_ns, yield_now};
use crate::threads;

// The state word:
//
// | HEIR | SPINNER | AWAKE | LOCKED | waiters | meaning
// |------|---------|-------|--------|---------|------------------------------------------------------------------
// |      |         |       |        | 0       | free
// |      |         |       | x      | 0       | held; spinners may be about
// |      | any     | any   | any    | n       | n threads sleep, or are about to, or were woken and do not have it yet
// |      |         | x     | any    | ≥ 1     | one of the n was woken: releasing wakes no other
// |      | x       |       | any    | ≥ 1     | the first spinner will take it: releasing wakes nobody
// | x    | any     | x     | any    | ≥ 1     | the woken one waited too long: nobody else may take it
//
// A fast unlock must see nothing but LOCKED, which is why spinners leave no mark while nobody sleeps.

/// Somebody holds it.
const LOCKED: u32 = 1;
/// A waiter was sent a wake-up and has neither taken the lock nor gone back to sleep.
const AWAKE: u32 = 2;
/// The first of the queued spinners is about to take the lock, though others sleep.
const SPINNER: u32 = 4;
/// Reserved for the awake waiter.
const HEIR: u32 = 8;
/// One waiter; the bits from here up are their number.
const WAITER: u32 = 16;

/// In [`RawMutex::wakes`]: a wake-up was sent and not yet taken.
const WAKE: u32 = 1;
/// Whoever takes it is the heir.
const WAKE_HEIR: u32 = 2;
/// One wake-up; the bits from here up number them, so that a waiter knows one that was sent before it came.
const WAKE_NUMBER: u32 = 4;

/// Waiting longer makes an heir of a waiter that is woken; more often than once in this time nobody inherits, because a lock
/// that is always handed over runs at the speed of the scheduler.
const HANDOFF_AFTER_NS: u64 = 1_000_000;
/// Spinners may pass those who sleep for this long; then the first of them is woken all the same.
const PASSING_NS: u64 = 1_000_000;

/// How a wait may end without the lock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Until {
    pub(crate) deadline: Option<Deadline>,
    pub(crate) interruptible: bool,
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
    state: FutexWord,
    /// The number of the thread that holds it, or held it last, or [`threads::UNKNOWN`]: a hint for spinners.
    owner: AtomicU32,
    spinners: SpinQueue,
    /// [`WAKE`], if one was sent and not yet taken; another is sent only after [`AWAKE`] was set for it.
    wakes: FutexWord,
    /// When a wake-up was last sent, and when the lock was last reserved: the low bits of the clock in microseconds.
    woken_at_us: AtomicU32,
    reserved_at_us: AtomicU32,
    hold_start: I::HoldStart,
    instrument: I,
}

/// What a waiting thread has done to the state word and must take back.
#[derive(Debug, Default, Clone, Copy)]
struct Marks {
    /// Counted as a waiter.
    waiter: bool,
    /// Has [`AWAKE`].
    awake: bool,
    /// Has [`SPINNER`].
    spinner: bool,
    /// Has [`HEIR`].
    heir: bool,
    /// The wake-ups as they were before this became a waiter: one that was there then is another's.
    wakes_before: u32,
}

impl Marks {
    /// The state without them.
    fn cleared(&self, state: u32) -> u32 {
        let mut state = state;
        if self.waiter {
            state -= WAITER;
        }
        for (has, bit) in [(self.awake, AWAKE), (self.spinner, SPINNER), (self.heir, HEIR)] {
            if has {
                state &= !bit;
            }
        }
        state
    }

    /// Whether the holder of these marks may take a lock in this state.
    fn may_take(&self, state: u32) -> bool {
        state & LOCKED == 0 && (state & HEIR == 0 || self.heir)
    }
}

impl RawMutex {
    const_unless_model! {
        /// A free mutex.
        #[must_use]
        #[allow(clippy::new_without_default)]
        pub const fn new() -> Self {
            Self::with(Unmetered)
        }
    }
}

impl<I: Instrument> RawMutex<I> {
    const_unless_model! {
        /// A free mutex with its hooks.
        #[must_use]
        pub const fn with(instrument: I) -> Self {
            RawMutex {
                state: FutexWord::new(0),
                owner: AtomicU32::new(threads::UNKNOWN),
                spinners: SpinQueue::new(),
                wakes: FutexWord::new(0),
                woken_at_us: AtomicU32::new(0),
                reserved_at_us: AtomicU32::new(0),
                hold_start: I::HoldStart::INIT,
                instrument,
            }
        }
    }

    /// Locks it.
    #[inline]
    pub fn lock(&self) {
        if !self.lock_at_once() {
            let _acquired = self.lock_slow(Until::default());
        }
    }

    /// Locks it if it can be had at once.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.lock_at_once() || self.steal()
    }

    /// Locks it unless `timeout` is over before.
    ///
    /// # Errors
    ///
    /// [`NotAcquired::TimedOut`].
    #[inline]
    pub fn lock_for(&self, timeout: Duration) -> Result<(), NotAcquired> {
        if self.lock_at_once() {
            return Ok(());
        }
        self.lock_slow(Until { deadline: Some(Deadline::after(timeout)), interruptible: false })
    }

    /// Locks it unless a signal handler runs in this thread while it sleeps.
    ///
    /// # Errors
    ///
    /// [`NotAcquired::Interrupted`].
    #[inline]
    pub fn lock_interruptible(&self) -> Result<(), NotAcquired> {
        if self.lock_at_once() {
            return Ok(());
        }
        self.lock_slow(Until { deadline: None, interruptible: true })
    }

    /// Whether somebody holds it.
    pub fn is_locked(&self) -> bool {
        self.state.load(Relaxed) & LOCKED != 0
    }

    /// Unlocks it.
    ///
    /// # Safety
    ///
    /// It is locked, by this call's thread or by one that has left the unlocking to it.
    #[inline]
    pub unsafe fn unlock(&self) {
        if let Some(since) = self.hold_start.end() {
            self.instrument.released(self.contended(), now_ns().saturating_sub(since));
        }
        if self.state.compare_exchange(LOCKED, 0, Release, Relaxed).is_err() {
            self.unlock_slow(false);
        }
    }

    /// Unlocks it, and hands it over to the waiter that is woken, if there is one.
    ///
    /// # Safety
    ///
    /// As for [`unlock`](Self::unlock).
    #[inline]
    pub unsafe fn unlock_fair(&self) {
        if let Some(since) = self.hold_start.end() {
            self.instrument.released(self.contended(), now_ns().saturating_sub(since));
        }
        if self.state.compare_exchange(LOCKED, 0, Release, Relaxed).is_err() {
            self.unlock_slow(true);
        }
    }

    fn contended(&self) -> Contended {
        Contended { lock: core::ptr::from_ref(self).addr(), kind: Kind::Mutex, mode: Mode::Exclusive }
    }

    #[inline(always)]
    fn lock_at_once(&self) -> bool {
        let locked = self.state.compare_exchange(0, LOCKED, Acquire, Relaxed).is_ok();
        if locked {
            self.owner.store(threads::own_number(), Relaxed);
        }
        locked
    }

    /// Takes it from under the waiters, if it is free.
    fn steal(&self) -> bool {
        self.take(&Marks::default())
    }

    /// Takes it if these marks allow it, and takes them back.
    fn take(&self, marks: &Marks) -> bool {
        let mut state = self.state.load(Relaxed);
        while marks.may_take(state) {
            match self.state.compare_exchange_weak(state, marks.cleared(state) | LOCKED, Acquire, Relaxed) {
                Ok(_) => {
                    self.owner.store(threads::own_number(), Relaxed);
                    return true;
                }
                Err(now) => state = now,
            }
        }
        false
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, until: Until) -> Result<(), NotAcquired> {
        if self.steal() {
            return Ok(());
        }
        if !I::ENABLED {
            return self.wait(until);
        }
        let begun = now_ns();
        self.instrument.contended_begin(self.contended());
        let result = self.wait(until);
        let now = now_ns();
        match result {
            Ok(()) => {
                self.instrument.acquired(self.contended(), now.saturating_sub(begun));
                self.hold_start.begin(now);
            }
            Err(_) => self.instrument.given_up(self.contended(), now.saturating_sub(begun)),
        }
        result
    }

    fn wait(&self, until: Until) -> Result<(), NotAcquired> {
        let mut marks = Marks::default();
        let mut begun_ns = None;
        loop {
            if self.spin(&mut marks) {
                return Ok(());
            }
            let now = now_ns();
            let begun_ns = *begun_ns.get_or_insert(now);
            let starved = now.saturating_sub(begun_ns) > HANDOFF_AFTER_NS;
            if self.lie_down(&mut marks, starved, now) {
                return Ok(());
            }
            if let Err(why) = self.sleep(&mut marks, until) {
                self.give_up(&marks);
                return Err(why);
            }
        }
    }

    /// Spins in the queue of spinners while it may pay; true with the lock.
    fn spin(&self, marks: &mut Marks) -> bool {
        let Some(mut spinning) = Spinning::new(SPIN_NS) else { return self.take(marks) };
        // The heir is alone in wanting it, and needs no turn.
        let turn = (!marks.heir).then(|| self.spinners.enter(|before| !spinning.pause(before.number())));
        if turn.as_ref().is_some_and(Option::is_none) {
            // Those before us, or the owner, take too long.
            return self.take(marks);
        }
        loop {
            if self.take(marks) {
                return true;
            }
            let state = self.state.load(Relaxed);
            if state & HEIR != 0 && !marks.heir {
                return false;
            }
            if state >= WAITER && state & (SPINNER | AWAKE) == 0 && !marks.waiter && !self.is_overdue() {
                // Only the first spinner does this, and it is no waiter yet, so that the mark has one owner.
                marks.spinner = self.state.compare_exchange(state, state | SPINNER, Relaxed, Relaxed).is_ok();
            }
            if !spinning.pause(self.owner.load(Relaxed)) {
                break;
            }
        }
        if marks.spinner {
            // Before our turn is over: the next spinner may want the mark.
            return self.unmark_spinner(marks);
        }
        false
    }

    /// Takes the mark of the spinner back, or the lock if it is free: who released it meanwhile relied on us.
    fn unmark_spinner(&self, marks: &mut Marks) -> bool {
        loop {
            if self.take(marks) {
                return true;
            }
            let state = self.state.load(Relaxed);
            if marks.may_take(state) {
                continue;
            }
            if self.state.compare_exchange(state, state & !SPINNER, Relaxed, Relaxed).is_ok() {
                marks.spinner = false;
                return false;
            }
        }
    }

    /// Whether those who sleep were passed by spinners for too long.
    fn is_overdue(&self) -> bool {
        is_past(&self.woken_at_us, now_ns(), PASSING_NS)
    }

    /// Becomes a waiter who may sleep, or the heir; true with the lock instead, if it has become free.
    fn lie_down(&self, marks: &mut Marks, starved: bool, now: u64) -> bool {
        let inherit = starved && marks.awake && !marks.heir && is_past(&self.reserved_at_us, now, HANDOFF_AFTER_NS);
        loop {
            if self.take(marks) {
                return true;
            }
            let state = self.state.load(Relaxed);
            if marks.may_take(state) {
                continue;
            }
            if !marks.waiter {
                // Acquire: the state is read after it.
                marks.wakes_before = self.wakes.load(Acquire);
            }
            let mut lying = if marks.waiter { state } else { state + WAITER };
            if inherit || marks.heir {
                lying |= HEIR;
            } else if marks.awake {
                lying &= !AWAKE;
            }
            // Release: the wake-ups were read before it.
            if self.state.compare_exchange(state, lying, Release, Relaxed).is_ok() {
                marks.waiter = true;
                if inherit {
                    marks.heir = true;
                    self.reserved_at_us.store(low_us(now), Relaxed);
                }
                marks.awake = marks.heir;
                return false;
            }
        }
    }

    /// Sleeps until there is a reason to look again, or none to wait any longer.
    fn sleep(&self, marks: &mut Marks, until: Until) -> Result<(), NotAcquired> {
        if marks.heir {
            let state = self.state.load(Relaxed);
            if marks.may_take(state) {
                return Ok(());
            }
            return ended(self.state.wait(state, until.deadline), until);
        }
        loop {
            let wakes = self.wakes.load(Relaxed);
            if wakes != marks.wakes_before && self.take_wake(wakes, marks) {
                return Ok(());
            }
            ended(self.wakes.wait(wakes, until.deadline), until)?;
        }
    }

    /// Leaves without the lock, and without a trace.
    fn give_up(&self, marks: &Marks) {
        let mut marks = *marks;
        loop {
            // Acquire: whoever is counted in it has looked at the wake-ups before we do.
            let state = self.state.load(Acquire);
            if !marks.awake && state & AWAKE != 0 {
                // A wake-up that came after us may be meant for us alone: those who came after it leave it alone.
                let wakes = self.wakes.load(Relaxed);
                if wakes != marks.wakes_before && self.take_wake(wakes, &mut marks) {
                    continue;
                }
                if state / WAITER == 1 {
                    // It is on its way to us.
                    yield_now();
                    continue;
                }
            }
            if self.state.compare_exchange(state, marks.cleared(state), Relaxed, Relaxed).is_ok() {
                break;
            }
        }
        if marks.awake {
            // Whoever released it relied on us.
            self.wake_somebody();
        }
    }

    /// Unlocks while others want it. Once it is free somebody else may free its memory, too: from there on its address is used
    /// in system calls alone.
    #[cold]
    #[inline(never)]
    fn unlock_slow(&self, fair: bool) {
        let mut woken = false;
        let mut state = self.state.load(Relaxed);
        loop {
            let nobody_comes = state >= WAITER && state & (AWAKE | SPINNER) == 0;
            let next = match (nobody_comes, fair) {
                (true, false) => state | AWAKE,
                (true, true) => state | AWAKE | HEIR,
                (false, _) => state & !LOCKED,
            };
            if let Err(now) = self.state.compare_exchange_weak(state, next, Release, Relaxed) {
                state = now;
                continue;
            }
            if !nobody_comes {
                break;
            }
            self.send_wake(if fair { WAKE | WAKE_HEIR } else { WAKE });
            woken = true;
            state = next;
        }
        if woken {
            self.wakes.wake(1);
        } else if state & HEIR != 0 {
            // It sleeps on the state itself, which has changed.
            self.state.wake(1);
        }
    }

    /// Puts down a wake-up, after [`AWAKE`] was set for whoever takes it.
    fn send_wake(&self, kind: u32) {
        self.woken_at_us.store(low_us(now_ns()), Relaxed);
        // Nobody else sends one meanwhile.
        let number = (self.wakes.load(Relaxed) & !(WAKE_NUMBER - 1)).wrapping_add(WAKE_NUMBER);
        self.wakes.store(number | kind, Release);
    }

    /// Takes this wake-up, if nobody else did.
    fn take_wake(&self, wake: u32, marks: &mut Marks) -> bool {
        let taken =
            wake & WAKE != 0 && self.wakes.compare_exchange(wake, wake & !(WAKE | WAKE_HEIR), Acquire, Relaxed).is_ok();
        if taken {
            marks.awake = true;
            marks.heir = wake & WAKE_HEIR != 0;
        }
        taken
    }

    /// Wakes somebody, if the lock is free and nobody else is going to take it.
    fn wake_somebody(&self) {
        let mut state = self.state.load(Relaxed);
        while state >= WAITER && state & (LOCKED | AWAKE | SPINNER) == 0 {
            match self.state.compare_exchange_weak(state, state | AWAKE, Relaxed, Relaxed) {
                Ok(_) => {
                    self.send_wake(WAKE);
                    return self.wakes.wake(1);
                }
                Err(now) => state = now,
            }
        }
    }
}

fn ended(end: WaitEnd, until: Until) -> Result<(), NotAcquired> {
    match end {
        WaitEnd::TimedOut => Err(NotAcquired::TimedOut),
        WaitEnd::Interrupted if until.interruptible => Err(NotAcquired::Interrupted),
        WaitEnd::Interrupted | WaitEnd::LookAgain => Ok(()),
    }
}

fn low_us(ns: u64) -> u32 {
    (ns / 1_000) as u32
}

/// Whether `at_us` lies longer back than `span_ns`. The clock's low bits come round every 71 minutes, and then err once.
fn is_past(at_us: &AtomicU32, now: u64, span_ns: u64) -> bool {
    u64::from(low_us(now).wrapping_sub(at_us.load(Relaxed))) * 1_000 > span_ns
}
