//! A reader-writer semaphore after the design of 2013 (Linux's `kernel/locking/rwsem.c`, Tim Chen's and Waiman Long's work):
//! writers are known as owners, waiters spin in a queue while the owner runs, a free lock may be stolen from those who sleep,
//! and is handed over to a thread that has waited too long.

mod policy;
mod read_hold_times;
mod slow_path;
mod state;

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;

use crate::current_thread::owner_word;
use crate::generation::Generation;
use crate::handoff::LastHandoff;
use crate::instrument::{CallSite, Contended, HoldStart, Instrument, Kind, Mode, NoCallSite, Unmetered};
use crate::lock_methods::{acquisitions, constructors};
use crate::lockdep::Ordered;
use crate::misuse;
use crate::spin_queue::SpinQueue;
use crate::sync::{Deadline, FutexDouble, SleepsFor, const_unless_model, is_alone, mutated, now_ns};
use crate::wait_limits::{NotAcquired, WaitLimits};

pub use policy::{
    LastReader, NoHandoff, NoQueue, NoReaderSpin, NoSpin, NoSteal, Policy, ReaderOwner, ReadersOwn, Standard,
    UnknownReader,
};
use state::{HANDOFF, OWNER, READER, READER_COUNT, READERS, SLEEPERS, WRITER, is_held};

/// The semaphore without its data: see [`RwLock`](crate::RwLock) for the one with.
#[derive(Debug)]
pub struct RawRwSem<P: Policy = Standard, I: Instrument = Unmetered> {
    state: FutexDouble,
    spinners: SpinQueue,
    /// The process whose threads wait.
    generation: Generation,
    last_handoff: LastHandoff,
    hold_start: I::HoldStart,
    instrument: I,
    order: Ordered,
    reader: P::Reader,
    policy: PhantomData<P>,
}

constructors!(RawRwSem, [P: Policy, I: Instrument] RawRwSem<P, I>, made: "semaphore", with: "policy and hooks");

impl<P: Policy, I: Instrument> RawRwSem<P, I> {
    const_unless_model! {
        const fn with_order(instrument: I, order: Ordered) -> Self {
            RawRwSem {
                state: FutexDouble::new(0),
                spinners: SpinQueue::new(),
                generation: Generation::first(),
                last_handoff: LastHandoff::never(),
                hold_start: I::HoldStart::INIT,
                instrument,
                order,
                reader: P::Reader::NONE,
                policy: PhantomData,
            }
        }
    }

    acquisitions!(
        "Locks it for writing", fast: write_fast, try_slow: try_write_slow, slow: lock_slow(Mode::Write),
        write, write_nested, write_at, try_write, write_for, write_interruptible, write_until
    );

    acquisitions!(
        "Locks it for reading", fast: read_fast, try_slow: stay_counted, slow: lock_slow(Mode::Read),
        read, read_nested, read_at, try_read, read_for, read_interruptible, read_until
    );

    /// Joins readers that hold it, whichever threads wait: for a thread that may hold it for reading already, and would wait for itself
    /// if it waited for a writer. Where nobody reads, as [`try_read`](Self::try_read).
    pub fn try_read_again(&self) -> bool {
        self.drop_waiters_of_the_parent(0);
        let mut state = self.state.load(Relaxed);
        while state & WRITER == 0 && state & READER_COUNT != 0 {
            match self.state.compare_exchange_weak(state, state + READER, Acquire, Relaxed) {
                Ok(_) => {
                    self.reader.begin();
                    self.order.acquired_by_try();
                    return true;
                }
                Err(now) => state = now,
            }
        }
        self.try_read()
    }

    /// Whether any thread holds it.
    pub fn is_locked(&self) -> bool {
        is_held(self.state.load(Relaxed))
    }

    /// Whether a writer holds it.
    pub fn is_locked_for_writing(&self) -> bool {
        self.state.load(Relaxed) & WRITER != 0
    }

    /// Unlocks it after writing.
    ///
    /// # Safety
    ///
    /// This thread holds it for writing.
    #[inline]
    pub unsafe fn unlock_write(&self) {
        self.end_write_hold();
        let own = owner_word();
        match self.state.compare_exchange(own, 0, mutated!("rwsem-write-release", Relaxed, Release), Relaxed) {
            Ok(_) if misuse::IS_CHECKED && own == 0 => misuse::not_held("semaphore"),
            Ok(_) => {}
            Err(state) => self.unlock_write_slow(own, state),
        }
    }

    /// Unlocks a semaphore in this state, in which it is not this thread's for writing, or others wait.
    #[cold]
    #[inline(never)]
    fn unlock_write_slow(&self, own: u64, state: u64) {
        if own == 0 || state & OWNER != own {
            return misuse::not_held("semaphore");
        }
        self.release_write();
    }

    /// Unlocks it after writing, in the place of the thread that holds it.
    ///
    /// # Safety
    ///
    /// A thread holds it for writing and has left the unlocking to the caller.
    pub unsafe fn unlock_write_for_owner(&self) {
        self.end_write_hold();
        self.release_write();
    }

    /// Takes the writer off the state and wakes the threads that are next. After the exchange another thread may have the lock, and free its
    /// memory: from there on only the address is used.
    fn release_write(&self) {
        // While no other thread can have it.
        self.drop_waiters_of_the_parent(0);
        let mut state = self.state.load(Relaxed);
        loop {
            let marks = if state & HANDOFF != 0 { HANDOFF | SLEEPERS } else { 0 };
            let marks = if P::STEAL { marks } else { marks | SLEEPERS };
            let released = state & (READER_COUNT | marks);
            let order = mutated!("rwsem-write-release", Relaxed, Release);
            match self.state.compare_exchange_weak(state, released, order, Relaxed) {
                // Where readers are counted the successor goes back to sleep until their end.
                Ok(_) if state & HANDOFF != 0 => return self.wake_successor_of_writer(),
                // Readers that are counted already hold it now, and need not wake the others.
                Ok(_) if mutated!("rwsem-counted-reader-is-to-wake-others", is_held(released), false) => return,
                Ok(_) => return self.wake_next(state),
                Err(now) => state = now,
            }
        }
    }

    /// Unlocks it after reading.
    ///
    /// # Safety
    ///
    /// The caller holds it for reading.
    #[inline]
    pub unsafe fn unlock_read(&self) {
        self.end_read_hold();
        self.reader.end();
        let state = self.state.fetch_sub(READER, mutated!("rwsem-read-release", Relaxed, Release));
        let left = state.wrapping_sub(READER);
        // A thread waits, or none held it, and more than the count has changed.
        if left & !READER_COUNT != 0 && !mutated!("rwsem-last-reader-wakes-nobody", true, false) {
            self.unlock_read_slow(state);
        }
    }

    /// What is left to do after the state was this and a reader was taken off.
    #[cold]
    #[inline(never)]
    fn unlock_read_slow(&self, state: u64) {
        if state & READER_COUNT == 0 {
            self.state.fetch_add(READER, Relaxed);
            return misuse::not_held("semaphore");
        }
        self.wake_after_reader(state - READER);
    }

    /// Makes a reader of the writer that holds it; no writer gets in between.
    ///
    /// # Safety
    ///
    /// This thread holds it for writing.
    pub unsafe fn downgrade(&self) {
        self.report_write_hold();
        let own = owner_word();
        let mut state = self.state.load(Relaxed);
        loop {
            // Writers sleep on: one that was woken now would have the lock reserved before the readers are in.
            let woken = mutated!("rwsem-downgrade-wakes-writers", SLEEPERS, READERS);
            let marks = if state & HANDOFF == 0 { woken } else { 0 };
            let shared = (state - own + mutated!("rwsem-downgrade-unlocks", 0, READER)) & !marks;
            match self.state.compare_exchange_weak(state, shared, Release, Relaxed) {
                // It may read, or goes back to sleep until the readers' end.
                Ok(_) if state & HANDOFF != 0 && mutated!("rwsem-downgrade-forgets-successor", true, false) => return,
                Ok(_) if state & HANDOFF != 0 => return self.wake_successor_of_writer(),
                Ok(_) => {
                    self.reader.begin();
                    self.wake_sleepers(state & marks);
                    return;
                }
                Err(now) => state = now,
            }
        }
    }

    fn wake_successor_of_writer(&self) {
        self.state.wake(SleepsFor::OwnerEnd, 1);
    }

    /// In a forked child: the threads that waited are not there. `counted` is what this thread has added to the count of readers, and may
    /// have to take off again.
    #[inline]
    fn drop_waiters_of_the_parent(&self, counted: u64) {
        self.generation.enter(|| {
            self.spinners.drop_all();
            let state = self.state.fetch_and(OWNER | READER_COUNT, Relaxed);
            // Beside a writer, readers are counted that have not read the state yet. Those of the parent never will.
            let others = (state & READER_COUNT).saturating_sub(counted);
            if state & WRITER != 0 && others != 0 && is_alone() {
                self.state.fetch_sub(others, Relaxed);
            }
        });
    }

    #[cfg(all(test, shuttle))]
    pub(crate) fn sleepers(&self) -> usize {
        self.state.sleepers()
    }

    fn contended(&self, mode: Mode) -> Contended {
        Contended { lock: core::ptr::from_ref(self).addr(), kind: Kind::RwSem, mode }
    }

    #[inline(always)]
    fn end_write_hold(&self) {
        self.order.release();
        self.report_write_hold();
    }

    #[inline(always)]
    fn report_write_hold(&self) {
        #[cfg(not(lockmeter_without_hooks))]
        if let Some(since) = self.hold_start.end() {
            self.instrument.released(self.contended(Mode::Write), now_ns().saturating_sub(since));
        }
    }

    #[inline(always)]
    fn end_read_hold(&self) {
        self.order.release();
        #[cfg(not(lockmeter_without_hooks))]
        if I::HoldStart::IS_TIMED
            && let Some(since) = read_hold_times::end(core::ptr::from_ref(self).addr())
        {
            self.instrument.released(self.contended(Mode::Read), now_ns().saturating_sub(since));
        }
    }

    #[inline(always)]
    fn write_fast(&self) -> bool {
        let own = owner_word();
        own != 0 && self.state.compare_exchange(0, own, Acquire, Relaxed).is_ok()
    }

    /// Counts a reader, whatever the state: an addition never fails, where two threads that read at the same time make each
    /// other's compare-and-swap fail. True if that is all; otherwise the reader is counted, and
    /// [`stay_counted`](Self::stay_counted) says whether it may stay.
    #[inline(always)]
    fn read_fast(&self) -> bool {
        let state = self.state.fetch_add(READER, mutated!("rwsem-read-acquire", Relaxed, Acquire));
        let is_acquired = state & !READER_COUNT == 0;
        if is_acquired {
            self.reader.begin();
        }
        is_acquired
    }
}
