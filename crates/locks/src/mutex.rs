//! A mutex: one atomic instruction to lock and one to unlock, an owner that is always known, optimistic spinning in a queue,
//! sleeping on a futex, and a handoff to a thread that has waited too long.
//!
//! A thread that waits spins while the owner runs, at most for [`SPIN_NS`](crate::spin_wait::SPIN_NS), and then sleeps. A release wakes one
//! sleeping thread, which competes for the lock with all others: a thread that comes may take the free lock before it (stealing). The woken thread
//! spins and sleeps again; after a millisecond it has the lock reserved, and is the next to have it.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;

use crate::current_thread::{own_number, owner_word};
use crate::generation::Generation;
use crate::handoff::{LastHandoff, WaitStart};
use crate::instrument::{CallSite, Contended, HoldStart, Instrument, Kind, Mode, NoCallSite, Unmetered, metered_wait};
use crate::lock_methods::{acquisitions, constructors};
use crate::lockdep::Ordered;
use crate::misuse;
use crate::spin_queue::SpinQueue;
use crate::spin_wait::SpinWait;
use crate::sync::{Deadline, FutexDouble, SleepsFor, WaitEnd, const_unless_model, mutated, now_ns};
use crate::thread_number::{OWNED, owner_number};
use crate::wait_limits::{NotAcquired, WaitLimits};

// The state: the owner's number in the high half, 0 when free, on which the successor sleeps; in the low half, on which the others sleep:
//
// | GRANTED | HANDOFF | WAITERS | LOCKED | meaning
// |---------|---------|---------|--------|--------------------------------------------------------------------------
// |         |         |         |        | free; a woken thread may be on its way
// |         |         |         | x      | held; the release wakes no thread
// |         |         | x       | x      | held; the release wakes one thread
// |         | x       | x       | x      | held; the release wakes the successor, which has set HANDOFF
// |         | x       | any     |        | free for the successor alone
// | x       |         | any     |        | free for threads that were woken: `unlock_fair` is waking one
//
// Every thread that goes to sleep sets WAITERS, and every release clears it. So the woken thread must assume that others still sleep: it
// sets WAITERS again when it takes the lock, or when it goes back to sleep. That costs at most one wake-up of no thread, at the end.

/// A thread holds it.
const LOCKED: u64 = OWNED;
/// Which thread, and [`LOCKED`]: an owner word.
const OWNER: u64 = LOCKED | !(u32::MAX as u64);
/// Threads may sleep.
const WAITERS: u64 = 2;
/// Reserved for the successor: the waiter that has set this.
const HANDOFF: u64 = 4;
/// Free for threads that were woken alone.
const GRANTED: u64 = 8;

/// The mutex without its data: see [`Mutex`](crate::Mutex) for the one with.
#[derive(Debug)]
pub struct RawMutex<I: Instrument = Unmetered> {
    state: FutexDouble,
    spinners: SpinQueue,
    /// The process whose threads wait.
    generation: Generation,
    last_handoff: LastHandoff,
    hold_start: I::HoldStart,
    instrument: I,
    order: Ordered,
}

/// A thread in the slow path.
#[derive(Debug, Default, Clone, Copy)]
struct Waiter {
    /// Has set [`HANDOFF`].
    is_successor: bool,
    /// A release has woken it, and no other thread.
    was_woken: bool,
    start: WaitStart,
}

impl Waiter {
    /// Whether this thread may take a lock in this state.
    fn may_take(&self, state: u64) -> bool {
        let is_reserved = match state & (HANDOFF | GRANTED) {
            0 => false,
            GRANTED => !self.was_woken,
            _ => !self.is_successor,
        };
        state & LOCKED == 0 && !is_reserved
    }

    fn sleeps_for(&self) -> SleepsFor {
        if self.is_successor { SleepsFor::OwnerEnd } else { SleepsFor::Exclusive }
    }
}

constructors!(RawMutex, [I: Instrument] RawMutex<I>, made: "mutex", with: "hooks");

impl<I: Instrument> RawMutex<I> {
    const_unless_model! {
        const fn with_order(instrument: I, order: Ordered) -> Self {
            RawMutex {
                state: FutexDouble::new(0),
                spinners: SpinQueue::new(),
                generation: Generation::first(),
                last_handoff: LastHandoff::never(),
                hold_start: I::HoldStart::INIT,
                instrument,
                order,
            }
        }
    }

    acquisitions!(
        "Locks it", fast: lock_fast, try_slow: try_lock_slow, slow: lock_slow(),
        lock, lock_nested, lock_at, try_lock, lock_for, lock_interruptible, lock_until
    );

    /// Whether a thread holds it.
    pub fn is_locked(&self) -> bool {
        self.state.load(Relaxed) & LOCKED != 0
    }

    #[inline(always)]
    fn lock_fast(&self) -> bool {
        let own = owner_word();
        own != 0 && self.state.compare_exchange(0, own, mutated!("mutex-acquire", Relaxed, Acquire), Relaxed).is_ok()
    }

    fn try_lock_slow(&self) -> bool {
        self.drop_waiters_of_the_parent();
        own_number();
        self.try_take(&Waiter::default()).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, limits: WaitLimits, site: impl CallSite) -> Result<(), NotAcquired> {
        // A thread without an owner word has not tried yet.
        if owner_word() == 0 && self.try_lock_slow() {
            return Ok(());
        }
        self.drop_waiters_of_the_parent();
        metered_wait(&self.instrument, &site, self.contended(), || self.wait(limits), |now| self.hold_start.begin(now))
    }

    fn wait(&self, limits: WaitLimits) -> Result<(), NotAcquired> {
        let mut waiter = Waiter::default();
        loop {
            if self.spin(&waiter) {
                return Ok(());
            }
            let Some(state) = self.prepare_to_sleep(&mut waiter) else { return Ok(()) };
            let end = self.state.wait(state, waiter.sleeps_for(), limits.deadline);
            waiter.was_woken |= end == WaitEnd::Woken && !waiter.is_successor;
            if let Err(why) = limits.after_sleep(end) {
                self.give_up(&waiter);
                return Err(why);
            }
        }
    }

    /// Takes it if this thread may. Otherwise: the state in which it may not.
    fn try_take(&self, waiter: &Waiter) -> Result<(), u64> {
        let mut state = self.state.load(Relaxed);
        while waiter.may_take(state) {
            let others_may_sleep = waiter.was_woken && !mutated!("mutex-woken-forgets-others", true, false);
            let waiters = if others_may_sleep { WAITERS } else { state & WAITERS };
            let order = mutated!("mutex-acquire-slow", Relaxed, Acquire);
            match self.state.compare_exchange_weak(state, owner_word() | waiters, order, Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => state = now,
            }
        }
        Err(state)
    }

    /// Spins in the queue of spinners while the owner runs; true with the lock.
    fn spin(&self, waiter: &Waiter) -> bool {
        if self.try_take(waiter).is_ok() {
            return true;
        }
        if waiter.is_successor {
            return false;
        }
        let Some(mut spinning) = SpinWait::begin() else { return false };
        let Some(_turn) = self.spinners.enter(|before| !spinning.pause(before.get())) else { return false };
        loop {
            let Err(state) = self.try_take(waiter) else { return true };
            if state & (HANDOFF | GRANTED) != 0 || !spinning.pause(owner_number(state)) {
                return false;
            }
        }
    }

    /// Announces in the state that this thread sleeps, and has the lock reserved for it if it has waited too long. `None` if it took the lock
    /// instead, else the state on which it is to sleep.
    fn prepare_to_sleep(&self, waiter: &mut Waiter) -> Option<u64> {
        let is_due = self.last_handoff.is_due(&mut waiter.start) && waiter.was_woken;
        loop {
            let Err(state) = self.try_take(waiter) else { return None };
            let reserves = is_due && state & (LOCKED | HANDOFF) == LOCKED && mutated!("mutex-no-handoff", false, true);
            let announced = state | WAITERS | if reserves { HANDOFF } else { 0 };
            if announced != state && self.state.compare_exchange(state, announced, Relaxed, Relaxed).is_err() {
                continue;
            }
            if reserves {
                waiter.is_successor = true;
                self.last_handoff.reserved_now();
            }
            return Some(announced);
        }
    }

    /// A waiter leaves without the lock. What a release has woken it for another thread does: it has set [`WAITERS`] since.
    fn give_up(&self, waiter: &Waiter) {
        if waiter.is_successor {
            let state = self.state.fetch_and(!HANDOFF, Relaxed);
            if state & LOCKED == 0 && !mutated!("mutex-successor-gives-up-silently", true, false) {
                self.state.wake(SleepsFor::Exclusive, 1);
            }
        }
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

    /// Unlocks a mutex in this state, in which it is not this thread's, or others wait.
    #[cold]
    #[inline(never)]
    fn unlock_slow(&self, own: u64, state: u64) {
        if is_held_by(own, state) {
            self.release();
        } else {
            misuse::not_held("mutex");
        }
    }

    /// Unlocks it in the place of the thread that holds it.
    ///
    /// # Safety
    ///
    /// A thread holds it and has left the unlocking to the caller.
    pub unsafe fn unlock_for_owner(&self) {
        self.end_hold();
        self.release();
    }

    /// Takes the owner off the state and wakes the thread that is next. After the first step another thread may have the lock, and free its
    /// memory: from there on only the address is used.
    fn release(&self) {
        let state = self.state.fetch_and(HANDOFF, mutated!("mutex-release", Relaxed, Release));
        if state & HANDOFF != 0 {
            self.state.wake(mutated!("mutex-wakes-the-wrong-one", SleepsFor::Exclusive, SleepsFor::OwnerEnd), 1);
        } else if state & WAITERS != 0 && !mutated!("mutex-wakes-nobody", true, false) {
            self.state.wake(SleepsFor::Exclusive, 1);
        }
    }

    /// Unlocks it, and lets no thread have it before one that sleeps, if one does.
    ///
    /// # Safety
    ///
    /// As for [`unlock`](Self::unlock); and the mutex must stay where it is until this returns.
    #[inline]
    pub unsafe fn unlock_fair(&self) {
        self.end_hold();
        let own = owner_word();
        let state = self.state.load(Relaxed);
        if !is_held_by(own, state) {
            misuse::not_held("mutex");
        } else if state & (WAITERS | HANDOFF) != WAITERS || !self.grant(state) {
            self.release();
        }
    }

    /// Releases it for a thread that sleeps. False if it was not in this state any more.
    #[cold]
    #[inline(never)]
    fn grant(&self, mut state: u64) -> bool {
        if self.state.compare_exchange(state, GRANTED, Release, Relaxed).is_err() {
            return false;
        }
        if self.state.wake(SleepsFor::Exclusive, 1) == 0 && !mutated!("mutex-grant-to-nobody", true, false) {
            // All who slept have given up. Others may sleep since, because it was granted.
            state = self.state.load(Relaxed);
            while state & GRANTED != 0 {
                match self.state.compare_exchange_weak(state, 0, Relaxed, Relaxed) {
                    Ok(_) if state & WAITERS == 0 => break,
                    Ok(_) => {
                        self.state.wake(SleepsFor::Exclusive, 1);
                        break;
                    }
                    Err(now) => state = now,
                }
            }
        }
        true
    }

    /// In a forked child: the threads that waited are not there.
    #[inline]
    fn drop_waiters_of_the_parent(&self) {
        self.generation.enter(|| {
            self.spinners.drop_all();
            self.state.fetch_and(OWNER, Relaxed);
        });
    }

    #[cfg(all(test, shuttle))]
    pub(crate) fn sleepers(&self) -> usize {
        self.state.sleepers()
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
}

/// Whether the thread with this owner word, which has read this state, holds the lock. No other thread can change that.
fn is_held_by(own: u64, state: u64) -> bool {
    own != 0 && state & OWNER == own
}
