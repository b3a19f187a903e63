//! Waiting awake: in the queue of spinners, whose first looks at the lock and after those who sleep.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::state::{HEIR, WRITER, WRITERS, is_read};
use super::waiting::Waiter;
use super::{Policy, RawRwSem};
use crate::instrument::Instrument;
use crate::mutex::is_past;
use crate::spin_queue::Turn;
use crate::spinning::{SPIN_NS, Spinning};
use crate::sync::{fence, mutated, now_ns};
use crate::threads::owner_number;

/// Spinners may pass writers that sleep for this long; then one of those is woken all the same.
const PASSING_NS: u64 = 1_000_000;

/// How long a writer waits awake for readers, of whom it is not known whether they run.
const READER_SPIN_NS: u64 = 10_000;

impl<P: Policy, I: Instrument> RawRwSem<P, I> {
    /// As [`take_or_see`](Self::take_or_see), for the first of the spinners, who leaves its duty to the next.
    fn take_in_turn(&self, waiter: &Waiter, turn: &mut Option<Turn<'_>>) -> Result<(), u64> {
        if !waiter.on_duty || turn.is_none() || self.is_overdue() {
            return self.take_or_see(waiter);
        }
        self.take_or_see(&Waiter { on_duty: false, ..*waiter })?;
        if !turn.take().is_some_and(Turn::leave_on_duty)
            && self.sleeping_writers.load(SeqCst) != 0
            && !mutated!("rwsem-last-spinner-forgets", true, false)
        {
            // Nobody is behind us. As long as we hold it, the mark comes in time.
            self.state.fetch_or(WRITERS, Relaxed);
        }
        Ok(())
    }

    /// Whether writers that sleep were passed by spinners for too long.
    fn is_overdue(&self) -> bool {
        is_past(&self.woken_at_us, now_ns(), PASSING_NS)
    }

    /// While spinners are queued there is always one to take the lock, so the owner need wake no writer: `turn` takes their mark off,
    /// and with it the duty to have them woken.
    fn relieve_the_owner(&self, state: u64, waiter: &mut Waiter, turn: Option<&Turn<'_>>) {
        if state & (WRITERS | WRITER | HEIR) == WRITERS | WRITER
            && P::STEAL
            && turn.is_some_and(Turn::has_successor)
            && !self.is_overdue()
            && self.state.compare_exchange(state, state & !WRITERS, SeqCst, Relaxed).is_ok()
        {
            fence(SeqCst);
            waiter.on_duty = true;
        }
    }

    /// Spins in the queue of spinners while it may pay; true with the lock.
    pub(super) fn spin(&self, waiter: &mut Waiter) -> bool {
        if !P::SPIN {
            return self.take(waiter);
        }
        let Some(mut spinning) = Spinning::new(SPIN_NS) else { return self.take(waiter) };
        let mut turn = None;
        // The heir is alone in wanting it, and needs no turn.
        if !waiter.heir {
            if spinning.watch(waiter.rest, || self.take(waiter)) {
                return true;
            }
            turn = self.spinners.enter(|before| !spinning.pause(before.number()));
            let Some(turn) = &turn else {
                // Those before us, or the owner, take too long.
                return self.take(waiter);
            };
            waiter.on_duty |= turn.is_on_duty();
        }
        loop {
            spinning.look();
            let Err(state) = self.take_in_turn(waiter, &mut turn) else { return true };
            spinning.looked_in_vain();
            let reserved = state & HEIR != 0 && !waiter.heir;
            let owner = match is_read(state) {
                false => owner_number(state),
                true if P::READER_SPIN => {
                    if !waiter.reads() {
                        spinning.wait_for_readers(READER_SPIN_NS);
                    }
                    self.last_reader.load(Relaxed).into()
                }
                true => return false,
            };
            self.relieve_the_owner(state, waiter, turn.as_ref());
            if reserved || !spinning.pause_in_turn(owner, turn.as_ref()) {
                return false;
            }
        }
    }
}
