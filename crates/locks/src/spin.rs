//! A spinlock: for sections so short that sleeping cannot pay. Waiters queue, and spin each on a word of their own; the first
//! spins on the lock. Releasing is one store that wakes no thread, so a waiter cannot sleep until it is woken.
//!
//! A queue whose order is strict collapses when there are more threads than CPUs: a waiter that does not run gets its turn, and
//! all others wait for the scheduler. So the turn is only the right to poll the lock: the lock itself may be
//! taken by any thread that finds it free, and a waiter whose time in the queue is up leaves it and queues again.
//!
//! Between two times in the queue a waiter does what the lock's [`Relax`] says. By default that is nothing: a waiter keeps its CPU, as those of
//! `pthread_spin_lock` do. Where there may be more threads than CPUs, [`YieldCpu`] lets the thread run that holds the lock.

use core::convert::Infallible;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::generation::Generation;
use crate::instrument::{CallSite, Contended, HoldStart, Instrument, Kind, Mode, NoCallSite, Unmetered, metered_wait};
use crate::lock_methods::constructors;
use crate::lockdep::Ordered;
use crate::spin_queue::SpinQueue;
use crate::spin_wait::SpinWait;
use crate::sync::{AtomicU32, const_unless_model, mutated, now_ns, spin_loop, yield_now};
use crate::thread_number::UNKNOWN;

// The state: 0 free, LOCKED held.

/// A thread holds it.
const LOCKED: u32 = 1;

/// What a waiter of a [`RawSpin`] does between two times in the queue of spinners.
pub trait Relax: Send + Sync + 'static {
    /// Is called each time.
    fn relax();
}

/// Nothing: a waiter never gives up its CPU.
#[derive(Debug, Clone, Copy, Default)]
pub struct BusyWait;

impl Relax for BusyWait {
    fn relax() {
        spin_loop();
    }
}

/// Lets another thread run on this CPU (`sched_yield`).
#[derive(Debug, Clone, Copy, Default)]
pub struct YieldCpu;

impl Relax for YieldCpu {
    fn relax() {
        yield_now();
    }
}

/// The spinlock without its data: see [`SpinMutex`](crate::SpinMutex) for the one with.
#[derive(Debug)]
pub struct RawSpin<I: Instrument = Unmetered, R: Relax = BusyWait> {
    state: AtomicU32,
    spinners: SpinQueue,
    /// The process whose threads wait.
    generation: Generation,
    hold_start: I::HoldStart,
    instrument: I,
    order: Ordered,
    relax: PhantomData<R>,
}

constructors!(RawSpin, [I: Instrument] RawSpin<I>, made: "spinlock", with: "hooks");

impl<I: Instrument, R: Relax> RawSpin<I, R> {
    const_unless_model! {
        /// A free spinlock with its hooks, and another policy than [`BusyWait`].
        #[must_use]
        #[track_caller]
        pub const fn with_policy(instrument: I) -> Self {
            Self::with_order(instrument, Ordered::made_here())
        }
    }

    const_unless_model! {
        pub(crate) const fn with_order(instrument: I, order: Ordered) -> Self {
            RawSpin {
                state: AtomicU32::new(0),
                spinners: SpinQueue::new(),
                generation: Generation::first(),
                hold_start: I::HoldStart::INIT,
                instrument,
                order,
                relax: PhantomData,
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
        if !self.lock_fast() {
            self.lock_slow(NoCallSite);
        }
    }

    /// Locks it, with hooks for this call.
    #[inline]
    #[track_caller]
    pub fn lock_at(&self, site: &impl CallSite) {
        self.order.acquire(0);
        if !self.lock_fast() {
            self.lock_slow(site);
        }
    }

    /// Locks it if it is free.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> bool {
        let locked = self.lock_fast();
        if locked {
            self.order.acquired_by_try();
        }
        locked
    }

    #[inline(always)]
    fn lock_fast(&self) -> bool {
        self.state.compare_exchange(0, LOCKED, mutated!("spin-acquire", Relaxed, Acquire), Relaxed).is_ok()
    }

    /// Whether a thread holds it.
    pub fn is_locked(&self) -> bool {
        self.state.load(Relaxed) != 0
    }

    /// Unlocks it.
    ///
    /// # Safety
    ///
    /// It is locked, by the caller or by a thread that has left the unlocking to it.
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
    fn lock_slow(&self, site: impl CallSite) {
        // In a forked child the threads that were queued are not there.
        self.generation.enter(|| self.spinners.drop_all());
        let wait = || {
            self.wait();
            Ok::<(), Infallible>(())
        };
        let Ok(()) = metered_wait(&self.instrument, &site, self.contended(), wait, |now| self.hold_start.begin(now));
    }

    fn wait(&self) {
        while !self.spin() {
            R::relax();
        }
    }

    /// Spins in the queue for a bounded time; true with the lock.
    fn spin(&self) -> bool {
        let Some(mut spinning) = SpinWait::begin() else { return self.take() };
        let Some(_turn) = self.spinners.enter(|before| !spinning.pause(before.get())) else { return self.take() };
        while !self.take() {
            // The owner is not known: to write its number would cost a release as much as the lock itself.
            if !spinning.pause(UNKNOWN) {
                return false;
            }
        }
        true
    }

    fn take(&self) -> bool {
        self.state.load(Relaxed) == 0 && self.lock_fast()
    }
}
