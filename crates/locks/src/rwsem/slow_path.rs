//! The slow path: spinning, sleeping, having the lock reserved, and giving up. And the threads that are woken.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::state::{HANDOFF, READER, READER_COUNT, READERS, SLEEPERS, WRITER, WRITERS, is_held, is_read};
use super::{Policy, RawRwSem, ReaderOwner, read_hold_times};
use crate::current_thread::{own_number, owner_word};
use crate::handoff::WaitStart;
use crate::instrument::{CallSite, HoldStart, Instrument, Mode, metered_wait};
use crate::spin_wait::SpinWait;
use crate::sync::{SleepsFor, WaitEnd, mutated};
use crate::thread_number::owner_number;
use crate::wait_limits::{NotAcquired, WaitLimits};

/// A thread in the slow path.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    mode: Mode,
    /// Has set [`HANDOFF`].
    is_successor: bool,
    /// A release has woken it; if it writes, no other writer.
    was_woken: bool,
    start: WaitStart,
}

impl Waiter {
    fn new(mode: Mode) -> Self {
        Waiter { mode, is_successor: false, was_woken: false, start: WaitStart::default() }
    }

    fn reads(&self) -> bool {
        self.mode == Mode::Read
    }

    /// Whether this thread may take a lock in this state.
    fn may_take<P: Policy>(&self, state: u64) -> bool {
        if !P::STEAL && state & SLEEPERS != 0 && !self.was_woken && !self.is_successor {
            return false;
        }
        let readers = mutated!("rwsem-writer-ignores-readers", 0, READER_COUNT);
        let excluded_by = if self.reads() { WRITER } else { WRITER | readers };
        state & excluded_by == 0 && (state & HANDOFF == 0 || self.is_successor)
    }

    /// A lock in this state once this thread has taken it.
    fn taken<P: Policy>(&self, state: u64) -> u64 {
        if self.reads() {
            return (state & !HANDOFF) + READER;
        }
        // The wake-ups that marks on a free lock stand for are under way.
        let none_came = P::STEAL && !self.is_successor;
        // Where a free lock keeps threads out, some sleep that came after those wake-ups.
        let marks =
            if none_came || mutated!("rwsem-woken-drops-marks", !P::STEAL, false) { 0 } else { state & SLEEPERS };
        let others_may_sleep = self.was_woken && !mutated!("rwsem-woken-forgets-others", true, false);
        owner_word() | marks | if others_may_sleep { WRITERS } else { 0 }
    }

    fn mark(&self) -> u64 {
        if self.reads() { READERS } else { WRITERS }
    }

    /// What it waits for, as this is the state.
    fn sleeps_for(&self, state: u64) -> SleepsFor {
        match (self.is_successor, self.reads()) {
            (true, _) if state & WRITER != 0 => SleepsFor::OwnerEnd,
            (true, _) => SleepsFor::ReadersEnd,
            (false, true) => SleepsFor::Read,
            (false, false) => SleepsFor::Exclusive,
        }
    }
}

impl<P: Policy, I: Instrument> RawRwSem<P, I> {
    #[cold]
    #[inline(never)]
    pub(super) fn lock_slow(&self, mode: Mode, limits: WaitLimits, site: impl CallSite) -> Result<(), NotAcquired> {
        // A reader was counted. A writer without an owner word has not tried yet.
        let is_acquired = match mode {
            Mode::Read => self.stay_counted(),
            _ => owner_word() == 0 && self.try_write_slow(),
        };
        if is_acquired {
            return Ok(());
        }
        self.drop_waiters_of_the_parent(0);
        metered_wait(
            &self.instrument,
            &site,
            self.contended(mode),
            || self.wait(Waiter::new(mode), limits),
            |now| match mode {
                Mode::Read if I::HoldStart::IS_TIMED => read_hold_times::begin(core::ptr::from_ref(self).addr(), now),
                Mode::Read => {}
                _ => self.hold_start.begin(now),
            },
        )
    }

    /// The second try of a writer that does not wait.
    pub(super) fn try_write_slow(&self) -> bool {
        self.drop_waiters_of_the_parent(0);
        own_number();
        self.try_take(&Waiter::new(Mode::Write)).is_ok()
    }

    /// Whether the reader that this thread has counted may stay; otherwise it is counted no more.
    pub(super) fn stay_counted(&self) -> bool {
        self.drop_waiters_of_the_parent(READER);
        let mut state = self.state.load(Acquire);
        // Those that sleep beside readers wait for a writer that sleeps.
        let keeps_out = if P::STEAL { WRITER | HANDOFF } else { WRITER | HANDOFF | WRITERS };
        while state & keeps_out != 0 {
            match self.state.compare_exchange_weak(state, state - READER, Relaxed, Acquire) {
                Ok(_) => {
                    // Others may have taken this thread for one that holds the lock.
                    if !mutated!("rwsem-uncounted-reader-wakes-nobody", true, false) {
                        self.wake_after_reader(state - READER);
                    }
                    return false;
                }
                Err(now) => state = now,
            }
        }
        // Readers that come one after another need never have a last one, which would wake a writer. Now it has the lock reserved.
        if P::HANDOFF && state & WRITERS != 0 && !mutated!("rwsem-staying-reader-wakes-no-writer", true, false) {
            let before = self.state.fetch_and(!WRITERS, Relaxed);
            self.wake_sleepers(before & WRITERS);
        }
        self.reader.begin();
        true
    }

    fn wait(&self, mut waiter: Waiter, limits: WaitLimits) -> Result<(), NotAcquired> {
        loop {
            if self.spin(&waiter) {
                break;
            }
            let Some(state) = self.prepare_to_sleep(&mut waiter) else { break };
            let end = self.state.wait(state, waiter.sleeps_for(state), limits.deadline);
            waiter.was_woken |= end == WaitEnd::Woken && !waiter.is_successor;
            if let Err(why) = limits.after_sleep(end) {
                self.give_up(&waiter);
                return Err(why);
            }
        }
        if waiter.is_successor && waiter.reads() {
            // Others sleep because the lock was reserved, and no reader need be the last.
            self.wake_beside_readers();
        }
        Ok(())
    }

    /// Takes it if this thread may. Otherwise: the state in which it may not.
    fn try_take(&self, waiter: &Waiter) -> Result<(), u64> {
        let mut state = self.state.load(Relaxed);
        while waiter.may_take::<P>(state) {
            match self.state.compare_exchange_weak(state, waiter.taken::<P>(state), Acquire, Relaxed) {
                Ok(_) => {
                    if waiter.reads() {
                        self.reader.begin();
                    }
                    return Ok(());
                }
                Err(now) => state = now,
            }
        }
        Err(state)
    }

    /// Spins in the queue of spinners while the owner runs, and for a bounded time while readers hold the lock; true with the lock.
    fn spin(&self, waiter: &Waiter) -> bool {
        if self.try_take(waiter).is_ok() {
            return true;
        }
        if waiter.is_successor || !P::SPIN {
            return false;
        }
        let Some(mut spinning) = SpinWait::begin() else { return false };
        let turn = P::QUEUE.then(|| self.spinners.enter(|before| !spinning.pause(before.get())));
        if let Some(None) = turn {
            return false;
        }
        loop {
            let Err(state) = self.try_take(waiter) else { return true };
            let stops = state & HANDOFF != 0 || is_read(state) && !P::READER_SPIN;
            let owner = if is_read(state) { self.reader.number() } else { owner_number(state) };
            if stops || !spinning.pause(owner) {
                return false;
            }
        }
    }

    /// Announces in the state that this thread sleeps, and has the lock reserved for it if it must be. `None` if it took the lock instead,
    /// else the state on which it is to sleep.
    fn prepare_to_sleep(&self, waiter: &mut Waiter) -> Option<u64> {
        let is_due = self.last_handoff.is_due(&mut waiter.start) && waiter.was_woken;
        loop {
            let Err(state) = self.try_take(waiter) else { return None };
            // The last reader wakes a writer, and while readers may come there need not be a last one.
            let must_reserve = is_due || !waiter.reads() && is_read(state);
            let reserves = P::HANDOFF && must_reserve && state & HANDOFF == 0 && is_held(state);
            let reserves = reserves && mutated!("rwsem-no-handoff", false, true);
            let announced = state | waiter.mark() | if reserves { HANDOFF } else { 0 };
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

    /// A waiter leaves without the lock. What a release has woken it for another thread does: it has set its mark since.
    fn give_up(&self, waiter: &Waiter) {
        if !waiter.is_successor {
            return;
        }
        let mut state = self.state.load(Relaxed);
        loop {
            // A writer that holds it wakes the others. Readers need not: some may sleep beside them because the lock was reserved.
            let marks = if state & WRITER == 0 { SLEEPERS } else { 0 };
            match self.state.compare_exchange_weak(state, state & !(HANDOFF | marks), Relaxed, Relaxed) {
                Ok(_) if mutated!("rwsem-successor-gives-up-silently", true, false) => return,
                Ok(_) => {
                    self.wake_sleepers(state & marks);
                    return;
                }
                Err(now) => state = now,
            }
        }
    }

    /// Wakes those who sleep beside readers, of which this thread is one.
    fn wake_beside_readers(&self) {
        let state = self.state.fetch_and(!SLEEPERS, Relaxed);
        self.wake_sleepers(state);
    }

    /// Wakes the threads that are next, after the last reader has left the lock in this state. Its memory may be gone by now, because another
    /// thread may have had the lock, and freed it: only the address is used.
    pub(super) fn wake_after_reader(&self, state: u64) {
        if is_held(state) {
            return;
        }
        if state & HANDOFF != 0 {
            self.state.wake(SleepsFor::ReadersEnd, 1);
        } else {
            self.wake_next(state);
        }
    }

    /// After a release in this state: wakes those that are next, and where nothing is left to steal, sees to it that there are some.
    pub(super) fn wake_next(&self, state: u64) {
        let woken = self.wake_sleepers(state);
        if !P::STEAL && state & SLEEPERS != 0 && woken == 0 && !mutated!("rwsem-free-for-nobody", true, false) {
            self.let_anybody_take();
        }
    }

    /// All who slept have given up, and the marks that they left keep all others out. Some may sleep since, because of these.
    #[cold]
    fn let_anybody_take(&self) {
        let mut state = self.state.load(Relaxed);
        while !is_held(state) && state & HANDOFF == 0 && state & SLEEPERS != 0 {
            match self.state.compare_exchange_weak(state, state & !SLEEPERS, Relaxed, Relaxed) {
                Ok(_) => {
                    self.wake_sleepers(state);
                    return;
                }
                Err(now) => state = now,
            }
        }
    }

    /// Wakes all readers and one writer, where the marks in this state say that there may be some. Uses the address alone. Returns how many
    /// there were.
    pub(super) fn wake_sleepers(&self, state: u64) -> u32 {
        let readers = if state & READERS != 0 { self.state.wake(SleepsFor::Read, u32::MAX) } else { 0 };
        let writers = if state & WRITERS != 0 { self.state.wake(SleepsFor::Exclusive, 1) } else { 0 };
        readers + writers
    }
}
