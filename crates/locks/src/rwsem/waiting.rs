//! The slow path: spinning, being passed for too long, sleeping, and giving up.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::state::{HEIR, READERS, WRITER, WRITERS, is_held, is_read};
use super::{Policy, RawRwSem, holds};
use crate::instrument::{HoldStart, Instrument, Mode, metered_wait};
use crate::mutex::{NotAcquired, Until};
use crate::rests::Rest;
use crate::sync::{Bed, WaitEnd, now_ns, yield_now};
use crate::threads::{owner_number, owner_word, short};

/// Waiting longer makes an heir of a waiter; more often than once in this time nobody inherits, because a lock that is always
/// handed over runs at the speed of the scheduler.
const HANDOFF_AFTER_NS: u64 = 1_000_000;

/// In which it is noted when a lock was reserved.
const RESERVED_AT_NS: u64 = 65_536;

fn reserved_at(ns: u64) -> u16 {
    (ns / RESERVED_AT_NS) as u16
}

/// How often a thread stands back for those who slept, where the lock may not be stolen, before it takes them for gone.
const STAND_BACK: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 100 };

/// A thread in the slow path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiter {
    pub(super) mode: Mode,
    /// Has set [`HEIR`].
    pub(super) heir: bool,
    /// Has slept.
    pub(super) slept: bool,
    /// Has to see to it that writers that sleep are woken one day: it was woken in their place, or took [`WRITERS`] off.
    pub(super) on_duty: bool,
    pub(super) stood_back: u32,
    pub(super) begun_ns: Option<u64>,
    pub(super) rest: Rest,
}

impl Waiter {
    pub(super) fn new(mode: Mode) -> Self {
        Waiter { mode, heir: false, slept: false, on_duty: false, stood_back: 0, begun_ns: None, rest: Rest::None }
    }

    pub(super) fn reads(&self) -> bool {
        self.mode == Mode::Read
    }
}

impl<P: Policy, I: Instrument> RawRwSem<P, I> {
    #[cold]
    #[inline(never)]
    pub(super) fn lock_slow(&self, mode: Mode, until: Until) -> Result<(), NotAcquired> {
        if mode != Mode::Read {
            self.drop_waiters_of_the_parent(0);
        }
        // A writer without a word has not tried yet; for another it is too soon for a look.
        let at_once = if mode == Mode::Read { self.keep_count() } else { owner_word() == 0 && self.take_first() };
        if at_once {
            return Ok(());
        }
        metered_wait(
            &self.instrument,
            self.contended(mode),
            || self.wait(mode, until),
            |now| match mode {
                Mode::Read if I::HoldStart::IS_TIMED => holds::begin(core::ptr::from_ref(self).addr(), now),
                Mode::Read => {}
                _ => self.hold_start.begin(now),
            },
        )
    }

    fn wait(&self, mode: Mode, until: Until) -> Result<(), NotAcquired> {
        let rest = if P::YIELD { until.rest() } else { Rest::None };
        let mut waiter = Waiter { rest, ..Waiter::new(mode) };
        let result = loop {
            if self.spin(&mut waiter) {
                break Ok(());
            }
            if P::HANDOFF {
                self.inherit(&mut waiter);
            }
            // Counted before WRITERS is looked at, so that whoever takes the mark off knows of us.
            if !waiter.reads() {
                self.sleeping_writers.fetch_add(1, SeqCst);
            }
            let slept = self.sleep(&mut waiter, until);
            if !waiter.reads() {
                self.sleeping_writers.fetch_sub(1, SeqCst);
            }
            if let Err(why) = slept {
                self.give_up(&waiter);
                break Err(why);
            }
        };
        if result.is_ok() && mode == Mode::Read {
            self.last_reader.store(short(owner_number(owner_word())), Relaxed);
        }
        result
    }

    /// Has the lock reserved, if this waiter was passed for too long.
    fn inherit(&self, waiter: &mut Waiter) {
        let now = now_ns();
        let begun_ns = *waiter.begun_ns.get_or_insert(now);
        let passed_for_long =
            waiter.slept && now.saturating_sub(begun_ns) > HANDOFF_AFTER_NS && self.was_not_reserved_lately(now);
        let mut state = self.state.load(Relaxed);
        while !waiter.heir && state & HEIR == 0 && is_held(state) {
            // A writer that sleeps is woken by the last reader, and while readers may come there need not be a last one.
            let kept_out_by_readers = !waiter.reads() && is_read(state);
            if !kept_out_by_readers && !passed_for_long {
                return;
            }
            // Readers that come and go change the state all the time.
            match self.state.compare_exchange_weak(state, state | HEIR, Relaxed, Relaxed) {
                Ok(_) => {
                    waiter.heir = true;
                    self.reserved_at.store(reserved_at(now), Relaxed);
                }
                Err(now) => state = now,
            }
        }
    }

    /// The low bits come round every four seconds, and then err once.
    fn was_not_reserved_lately(&self, now: u64) -> bool {
        #[cfg(shuttle)]
        if crate::sync::long_ago() {
            return true;
        }
        let units = reserved_at(now).wrapping_sub(self.reserved_at.load(Relaxed));
        u64::from(units) * RESERVED_AT_NS > HANDOFF_AFTER_NS
    }

    /// Sleeps, unless the lock could be had, until there is a reason to look again or none to wait any longer.
    fn sleep(&self, waiter: &mut Waiter, until: Until) -> Result<(), NotAcquired> {
        let (bed, mark) = match (waiter.heir, waiter.reads()) {
            // The heir is woken for its own mark.
            (true, _) => (Bed::Heir, 0),
            (false, true) => (Bed::Readers, READERS),
            (false, false) => (Bed::Line, WRITERS),
        };
        loop {
            let state = self.state.load(Relaxed);
            if Self::may_take(state, waiter) {
                return Ok(());
            }
            if !is_held(state) && state & HEIR == 0 {
                // For those who slept. Nobody may sleep on a free lock: they may have given up.
                waiter.stood_back += 1;
                waiter.slept |= waiter.stood_back > STAND_BACK;
                yield_now();
                return Ok(());
            }
            // The mark of the writers stays if an heir goes to bed with their duty.
            let marked = state | mark | if waiter.on_duty { WRITERS } else { 0 };
            if marked != state && self.state.compare_exchange(state, marked, SeqCst, Relaxed).is_err() {
                continue;
            }
            waiter.on_duty = false;
            let end = self.state.wait(marked as u32, bed, until.deadline);
            (waiter.slept, waiter.rest) = (true, Rest::Had);
            waiter.on_duty = bed == Bed::Line && end == WaitEnd::LookAgain;
            return until.ended(end);
        }
    }

    /// Leaves without the lock, and without a trace.
    fn give_up(&self, waiter: &Waiter) {
        let mut state = self.state.load(Relaxed);
        loop {
            // We may have been woken in the place of another writer. No mark is taken off: somebody may fall asleep by it now.
            let others = if self.sleeping_writers.load(SeqCst) == 0 { 0 } else { WRITERS };
            let left = (state | others) & if waiter.heir { !HEIR } else { !0 };
            if left == state && state & (WRITER | HEIR) != 0 {
                return;
            }
            match self.state.compare_exchange_weak(state, left, Relaxed, Relaxed) {
                Ok(_) => {
                    self.wake(left);
                    if left & (WRITER | HEIR) == 0 && is_held(left) {
                        self.wake_beside_readers(left);
                    }
                    return;
                }
                Err(now) => state = now,
            }
        }
    }
}
