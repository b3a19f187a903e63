//! A reader-writer semaphore after the design of 2013 (Linux's `kernel/locking/rwsem.c`, Tim Chen's and Waiman Long's work):
//! writers are known as owners, waiters spin in a queue while the owner runs, the free lock may be stolen from those who sleep,
//! and is handed over to who waited too long.

mod holds;
mod policy;
mod spinning_in_turn;
mod state;
mod taking;
mod waiting;
mod waking;

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;

use crate::front::{acquisitions, constructors};
use crate::generation::Generation;
use crate::instrument::{Contended, HoldStart, Instrument, Kind, Mode, Unmetered};
use crate::lockdep::Ordered;
use crate::misuse;
use crate::mutex::{NotAcquired, Until};
use crate::spin_queue::SpinQueue;
use crate::sync::{AtomicU16, AtomicU32, Bed, Deadline, FutexDouble, const_unless_model, mutated, now_ns};
use crate::threads::{UNKNOWN, owner_word, short};

pub use policy::{NoHandoff, NoReaderSpin, NoSpin, NoSteal, NoYield, Policy, Standard};
use state::{HEIR, OWNER, READER, READER_COUNT, READERS, WRITER, is_held};

/// The semaphore without its data: see [`RwLock`](crate::RwLock) for the one with.
#[derive(Debug)]
pub struct RawRwSem<P: Policy = Standard, I: Instrument = Unmetered> {
    state: FutexDouble,
    spinners: SpinQueue,
    /// The process whose threads wait.
    generation: Generation,
    /// Writers that sleep, or are about to, or have woken up and not looked around yet.
    sleeping_writers: AtomicU32,
    /// The reader that took it last after a wait: a hint, for spinners.
    last_reader: AtomicU16,
    /// When a writer that slept was sent a wake-up last: the low bits of the clock in microseconds.
    woken_at_us: AtomicU32,
    /// When it was last reserved: the low bits of the clock in units for which there is room.
    reserved_at: AtomicU16,
    hold_start: I::HoldStart,
    instrument: I,
    order: Ordered,
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
                sleeping_writers: AtomicU32::new(0),
                last_reader: AtomicU16::new(short(UNKNOWN)),
                woken_at_us: AtomicU32::new(0),
                reserved_at: AtomicU16::new(0),
                hold_start: I::HoldStart::INIT,
                instrument,
                order,
                policy: PhantomData,
            }
        }
    }

    acquisitions!(
        "Locks it for writing", at_once: write_at_once, steal: take_first, slow: lock_slow(Mode::Write),
        write, write_nested, try_write, write_for, write_interruptible, write_until
    );

    acquisitions!(
        "Locks it for reading", at_once: read_at_once, steal: keep_count, slow: lock_slow(Mode::Read),
        read, read_nested, try_read, read_for, read_interruptible, read_until
    );

    /// Joins readers that hold it, whoever waits: for a thread that may hold it for reading already, and would wait for itself
    /// if it waited for a writer. Where nobody reads, as [`try_read`](Self::try_read).
    pub fn try_read_again(&self) -> bool {
        self.drop_waiters_of_the_parent(0);
        let mut state = self.state.load(Relaxed);
        while state & WRITER == 0 && state & READER_COUNT != 0 {
            match self.state.compare_exchange_weak(state, state + READER, Acquire, Relaxed) {
                Ok(_) => {
                    self.order.acquired_by_try();
                    return true;
                }
                Err(now) => state = now,
            }
        }
        self.try_read()
    }

    /// Whether anybody holds it.
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

    /// Unlocks a semaphore in this state, in which it is not this thread's for writing, or somebody waits.
    #[cold]
    #[inline(never)]
    fn unlock_write_slow(&self, own: u64, state: u64) {
        if own == 0 || state & OWNER != own {
            return misuse::not_held("semaphore");
        }
        // While nobody else can have it.
        self.drop_waiters_of_the_parent(0);
        let state = self.state.fetch_sub(own, mutated!("rwsem-write-release", Relaxed, Release));
        if state != own {
            self.wake(state - own);
        }
    }

    /// Unlocks it after writing, in the place of the thread that holds it.
    ///
    /// # Safety
    ///
    /// A thread holds it for writing and has left the unlocking to the caller.
    pub unsafe fn unlock_write_for_owner(&self) {
        self.end_write_hold();
        self.drop_waiters_of_the_parent(0);
        let owner = self.state.load(Relaxed) & OWNER;
        let state = self.state.fetch_sub(owner, Release);
        if state != owner {
            self.wake(state - owner);
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
        let state = self.state.fetch_sub(READER, mutated!("rwsem-read-release", Relaxed, Release));
        let left = state.wrapping_sub(READER);
        // Somebody waits, or nobody held it, and more than the count has changed.
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
        self.wake(state - READER);
    }

    /// Makes a reader of the writer that holds it; no writer gets in between.
    ///
    /// # Safety
    ///
    /// This thread holds it for writing.
    pub unsafe fn downgrade(&self) {
        self.tell_write_hold();
        let own = owner_word();
        let mut state = self.state.load(Relaxed);
        loop {
            let wakes_readers = state & (READERS | HEIR) == READERS;
            let mut shared = state - own + mutated!("rwsem-downgrade-unlocks", 0, READER);
            if wakes_readers {
                shared &= !READERS;
            }
            match self.state.compare_exchange_weak(state, shared, Release, Relaxed) {
                Ok(_) if wakes_readers => return self.state.wake(Bed::Readers, u32::MAX),
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
    }

    fn contended(&self, mode: Mode) -> Contended {
        Contended { lock: core::ptr::from_ref(self).addr(), kind: Kind::RwSem, mode }
    }

    #[inline(always)]
    fn end_write_hold(&self) {
        self.order.release();
        self.tell_write_hold();
    }

    #[inline(always)]
    fn tell_write_hold(&self) {
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
            && let Some(since) = holds::end(core::ptr::from_ref(self).addr())
        {
            self.instrument.released(self.contended(Mode::Read), now_ns().saturating_sub(since));
        }
    }

    #[inline(always)]
    fn write_at_once(&self) -> bool {
        let own = owner_word();
        own != 0 && self.state.compare_exchange(0, own, Acquire, Relaxed).is_ok()
    }

    /// Counts a reader, whatever the state: an addition never fails, where two threads that read at the same time make each
    /// other's compare-and-swap fail. True if that is all; otherwise the reader is counted, and [`keep_count`](Self::keep_count)
    /// says whether it may stay.
    #[inline(always)]
    fn read_at_once(&self) -> bool {
        let state = self.state.fetch_add(READER, mutated!("rwsem-read-acquire", Relaxed, Acquire));
        state & !READER_COUNT == 0
    }
}
