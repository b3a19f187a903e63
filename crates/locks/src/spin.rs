//! A spinlock: for sections so short that sleeping cannot pay. Waiters queue, and spin each on a word of its own; the first
//! spins on the lock.
//!
//! A queue whose order is strict collapses when there are more threads than CPUs: a waiter that does not run gets its turn, and
//! all others wait for the scheduler. So the turn is only the right to be the one who looks at the lock: the lock itself may be
//! taken by anybody who finds it free, and whoever waits in the queue leaves it when those before do not move, and lets
//! another thread have the CPU for a moment. Nobody sleeps until woken, so releasing is one store that wakes nobody.
//!
//! That moment is a nap, not a yield: a thread that yields gives up what is left of its share of the CPU, and the one that has the lock, which
//! never yields, gets it. With eight threads on two CPUs some did not get the lock once in 70 ms.

use core::convert::Infallible;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::front::constructors;
use crate::generation::Generation;
use crate::instrument::{Contended, HoldStart, Instrument, Kind, Mode, Unmetered, metered_wait};
use crate::lockdep::Ordered;
use crate::rests::Rest;
use crate::spin_queue::SpinQueue;
use crate::spinning::Spinning;
use crate::sync::{AtomicU32, const_unless_model, mutated, nap, now_ns};

// The state: 0 free, LOCKED held.

/// Somebody holds it.
const LOCKED: u32 = 1;

/// Longer than any section that is worth a spinlock: who waits longer waits for a thread that does not run.
const BEFORE_NAPPING_NS: u64 = 10_000;

/// The spinlock without its data: see [`SpinMutex`](crate::SpinMutex) for the one with.
#[derive(Debug)]
pub struct RawSpin<I: Instrument = Unmetered> {
    state: AtomicU32,
    spinners: SpinQueue,
    /// The process whose threads wait.
    generation: Generation,
    hold_start: I::HoldStart,
    instrument: I,
    order: Ordered,
}

constructors!(RawSpin, [I: Instrument] RawSpin<I>, made: "spinlock", with: "hooks");

impl<I: Instrument> RawSpin<I> {
    const_unless_model! {
        const fn with_order(instrument: I, order: Ordered) -> Self {
            RawSpin {
                state: AtomicU32::new(0),
                spinners: SpinQueue::new(),
                generation: Generation::first(),
                hold_start: I::HoldStart::INIT,
                instrument,
                order,
            }
        }
    }

    /// Locks it.
    #[inline]
    #[track_caller]
    pub fn lock(&self) {
        self.lock_nested(0);
    }

    /// Locks it inside of another of its class: `subclass` makes a class of its own, for the order of locks.
    #[inline]
    #[track_caller]
    pub fn lock_nested(&self, subclass: u8) {
        self.order.acquire(subclass);
        if !self.lock_at_once() {
            self.lock_slow();
        }
    }

    /// Locks it if it is free.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> bool {
        let locked = self.lock_at_once();
        if locked {
            self.order.acquired_by_try();
        }
        locked
    }

    #[inline(always)]
    fn lock_at_once(&self) -> bool {
        self.state.compare_exchange(0, LOCKED, mutated!("spin-acquire", Relaxed, Acquire), Relaxed).is_ok()
    }

    /// Whether somebody holds it.
    pub fn is_locked(&self) -> bool {
        self.state.load(Relaxed) != 0
    }

    /// Unlocks it.
    ///
    /// # Safety
    ///
    /// It is locked, by the caller or by somebody who has left the unlocking to it.
    #[inline]
    pub unsafe fn unlock(&self) {
        self.order.release();
        #[cfg(not(lockmeter_without_hooks))]
        if let Some(since) = self.hold_start.end() {
            self.instrument.released(self.contended(), now_ns().saturating_sub(since));
        }
        self.state.store(0, mutated!("spin-release", Relaxed, Release));
    }

    fn contended(&self) -> Contended {
        Contended { lock: core::ptr::from_ref(self).addr(), kind: Kind::Spin, mode: Mode::Exclusive }
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self) {
        // In a forked child those who were queued are not there.
        self.generation.enter(|| self.spinners.drop_all());
        let wait = || {
            self.wait();
            Ok::<(), Infallible>(())
        };
        let Ok(()) = metered_wait(&self.instrument, self.contended(), wait, |now| self.hold_start.begin(now));
    }

    fn wait(&self) {
        let mut rest = Rest::Allowed;
        while !self.spin(rest) {
            // Whoever we wait for needs a CPU.
            nap();
            rest = Rest::Had;
        }
    }

    /// Spins in the queue until it pays no more; true with the lock.
    fn spin(&self, rest: Rest) -> bool {
        let Some(mut spinning) = Spinning::new(BEFORE_NAPPING_NS) else { return self.take() };
        if spinning.watch(rest, || self.take()) {
            return true;
        }
        let turn = self.spinners.enter(|before| !spinning.pause(before.number()));
        if turn.is_none() {
            return self.take();
        }
        loop {
            spinning.look();
            if self.take() {
                return true;
            }
            spinning.looked_in_vain();
            // The owner is not known: its number would cost a release as much as the lock itself.
            if !spinning.pause_in_turn(crate::threads::UNKNOWN, turn.as_ref()) {
                return false;
            }
        }
    }

    fn take(&self) -> bool {
        self.state.load(Relaxed) == 0 && self.lock_at_once()
    }
}
