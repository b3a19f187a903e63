//! Whether a thread may have the semaphore, and the exchange that gives it.

use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use super::state::{HEIR, OWNER, READER, READER_COUNT, READERS, WRITER, WRITERS, is_held, taken_from};
use super::waiting::Waiter;
use super::{Policy, RawRwSem};
use crate::instrument::{Instrument, Mode};
use crate::mutex::low_us;
use crate::sync::{Bed, is_alone, mutated, now_ns};
use crate::threads::{own_slot, owner_word};

impl<P: Policy, I: Instrument> RawRwSem<P, I> {
    /// Whether the reader that this thread has counted may stay; otherwise it is counted no more.
    pub(super) fn keep_count(&self) -> bool {
        self.drop_waiters_of_the_parent(READER);
        let mut state = self.state.load(Acquire);
        loop {
            let passes_nobody = P::STEAL || state & (WRITERS | READERS) == 0;
            if state & (WRITER | HEIR) == 0 && passes_nobody {
                self.call_readers(state);
                return true;
            }
            match self.state.compare_exchange_weak(state, state - READER, Relaxed, Acquire) {
                Ok(_) => {
                    // Others may have taken us for one who holds it.
                    if !mutated!("rwsem-uncounted-reader-wakes-nobody", true, false) {
                        self.wake(state - READER);
                    }
                    return false;
                }
                Err(now) => state = now,
            }
        }
    }

    /// Wakes the readers that sleep, where a reader was counted before the writer let go, who then saw no free lock and woke nobody:
    /// readers may now hold it one after another for ever. Takes off a mark that wakes readers in vain, too. The caller has the
    /// lock, in this state.
    fn call_readers(&self, state: u64) {
        if state & READERS != 0
            && !mutated!("rwsem-staying-reader-calls-nobody", true, false)
            && self.state.fetch_and(!READERS, Relaxed) & READERS != 0
        {
            self.state.wake(Bed::Readers, u32::MAX);
        }
    }

    /// Whether this waiter may take a lock in this state.
    pub(super) fn may_take(state: u64, waiter: &Waiter) -> bool {
        let readers = mutated!("rwsem-writer-ignores-readers", 0, READER_COUNT);
        let in_the_way = if waiter.reads() { WRITER } else { WRITER | readers };
        let passes_nobody = P::STEAL || waiter.slept || waiter.heir || state & (WRITERS | READERS) == 0;
        state & in_the_way == 0 && (state & HEIR == 0 || waiter.heir) && passes_nobody
    }

    /// Takes it if this waiter may.
    pub(super) fn take(&self, waiter: &Waiter) -> bool {
        self.take_or_see(waiter).is_ok()
    }

    /// Takes it if this waiter may, or says in which state it may not: another look would be another way for the line.
    pub(super) fn take_or_see(&self, waiter: &Waiter) -> Result<(), u64> {
        let mut state = self.state.load(Relaxed);
        while Self::may_take(state, waiter) {
            // A reader that joins others wakes nobody, and takes no mark off.
            let mut taken = if is_held(state) { state } else { taken_from(state) };
            if waiter.heir {
                taken &= !HEIR;
            }
            if waiter.on_duty
                && self.sleeping_writers.load(SeqCst) != 0
                && !mutated!("rwsem-duty-forgotten", true, false)
            {
                taken |= WRITERS;
            }
            taken += if waiter.reads() { READER } else { owner_word() };
            match self.state.compare_exchange_weak(state, taken, Acquire, Relaxed) {
                Ok(_) => {
                    if state & WRITERS != 0 && !is_held(state) {
                        // One of them is being woken.
                        self.woken_at_us.store(low_us(now_ns()), Relaxed);
                    }
                    return Ok(());
                }
                Err(now) => state = now,
            }
        }
        Err(state)
    }

    /// The first try of a writer that has not waited.
    pub(super) fn take_first(&self) -> bool {
        self.drop_waiters_of_the_parent(0);
        own_slot();
        self.take(&Waiter::new(Mode::Write))
    }

    /// In a forked child: those who waited are not there. `counted` is what this thread has added to the count of readers, and may
    /// have to take off again.
    #[inline]
    pub(super) fn drop_waiters_of_the_parent(&self, counted: u64) {
        self.generation.enter(|| {
            self.spinners.drop_all();
            self.sleeping_writers.store(0, Relaxed);
            let state = self.state.fetch_and(OWNER | READER_COUNT, Relaxed);
            // Beside a writer, readers are counted that have not looked yet. Those of the parent will never look.
            let others = (state & READER_COUNT).saturating_sub(counted);
            if state & WRITER != 0 && others != 0 && is_alone() {
                self.state.fetch_sub(others, Relaxed);
            }
        });
    }
}
