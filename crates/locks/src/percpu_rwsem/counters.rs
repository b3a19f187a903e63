//! A lock's readers, counted where they run. Counting works while the counters are open; closing them says how many there are.
//!
//! Two ways to count, chosen when the counters are first needed: [`rseq`](super::rseq), which changes a CPU's counter without
//! an atomic instruction and closes with a barrier in all threads; and stripes, which need neither rseq nor membarrier, change
//! the counter with one compare-and-swap on a line that is rarely shared, and close by freezing each counter.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicPtr, AtomicU64};

#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::rseq;
use super::slots::{self, Slot};

/// Other processors than x86-64 count in stripes.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod rseq {
    use super::{AtomicPtr, AtomicU64};

    pub(super) fn increment_at_once(_gate: &AtomicPtr<AtomicU64>) -> bool {
        false
    }
    pub(super) fn decrement_at_once(_gate: &AtomicPtr<AtomicU64>) -> bool {
        false
    }
    pub(super) fn increment(_gate: &AtomicPtr<AtomicU64>) -> bool {
        false
    }
    pub(super) fn decrement(_gate: &AtomicPtr<AtomicU64>) -> bool {
        false
    }
    pub(super) fn registered_here() -> bool {
        false
    }
    pub(super) fn is_available() -> bool {
        false
    }
    pub(super) fn barrier() {
        unreachable!("no gate is ever open")
    }
}

/// In a stripe: closed. The bits below are its count, which may be negative.
const FROZEN: u64 = 1 << 63;
/// In the address of the counters: they are stripes.
const STRIPED: usize = 1;

/// A lock's counters, as seen from the lock.
#[derive(Debug)]
pub(super) struct Counters {
    /// CPU 0's counter while the counters are open and counted by rseq, else null. Fast paths look at nothing else.
    gate: AtomicPtr<AtomicU64>,
    /// CPU 0's counter, with [`STRIPED`] in its address; null until the lock first needs counters, and unchanged from then on.
    home: AtomicPtr<AtomicU64>,
    /// Whether to do without rseq even where it is.
    striped: bool,
}

impl Counters {
    pub(super) const fn new(striped: bool) -> Self {
        Counters { gate: AtomicPtr::new(ptr::null_mut()), home: AtomicPtr::new(ptr::null_mut()), striped }
    }

    /// Counts one more here if they are open and counted by rseq.
    #[inline(always)]
    pub(super) fn enter_at_once(&self) -> bool {
        rseq::increment_at_once(&self.gate)
    }

    /// Counts one less here if they are open and counted by rseq.
    #[inline(always)]
    pub(super) fn leave_at_once(&self) -> bool {
        rseq::decrement_at_once(&self.gate)
    }

    /// Counts one more here if they are open, which the caller believes.
    pub(super) fn enter(&self) -> bool {
        match self.home() {
            Some((slot, true)) => add_to_stripe(slot, 1),
            Some((_, false)) => rseq::increment(&self.gate),
            None => false,
        }
    }

    /// Counts one less here if they are open, which the caller believes.
    pub(super) fn leave(&self) -> bool {
        match self.home() {
            Some((slot, true)) => add_to_stripe(slot, -1),
            Some((_, false)) => rseq::decrement(&self.gate),
            None => false,
        }
    }

    /// Whether this thread can count in them when they are open.
    pub(super) fn serve_this_thread(&self) -> bool {
        match self.home() {
            Some((_, striped)) => striped || rseq::registered_here(),
            None => self.striped || !rseq::is_available() || rseq::registered_here(),
        }
    }

    /// Gets memory for them if they have none. False: there is none to be had.
    pub(super) fn prepare(&self) -> bool {
        if self.home().is_some() {
            return true;
        }
        let Some(slot) = Slot::allocate() else { return false };
        let striped = self.striped || !rseq::is_available();
        if striped {
            slot.counters().for_each(|stripe| stripe.store(FROZEN, Relaxed));
        }
        let home = slot.as_ptr().map_addr(|address| address | if striped { STRIPED } else { 0 });
        if self.home.compare_exchange(ptr::null_mut(), home, Release, Relaxed).is_err() {
            // SAFETY: nobody has heard of it.
            unsafe { slot.free() };
        }
        true
    }

    /// Opens them with a count of 1. For one thread at a time, after [`prepare`](Self::prepare), while they are closed.
    pub(super) fn open(&self) {
        let Some((slot, striped)) = self.home() else { return };
        if striped {
            for (cpu, stripe) in slot.counters().enumerate() {
                stripe.store(u64::from(cpu == 0), Release);
            }
        } else {
            slot.counter(0).store(1, Relaxed);
            self.gate.store(slot.as_ptr(), Release);
        }
    }

    /// Closes them and says what they counted. For one thread at a time, while they are open.
    pub(super) fn close(&self) -> i64 {
        let Some((slot, striped)) = self.home() else { return 0 };
        if striped {
            return slot.counters().map(|stripe| signed(stripe.fetch_or(FROZEN, AcqRel))).sum();
        }
        self.gate.store(ptr::null_mut(), SeqCst);
        rseq::barrier();
        // Nobody changes them now: see `rseq`.
        slot.counters().fold(0_i64, |sum, counter| sum.wrapping_add(counter.swap(0, Acquire).cast_signed()))
    }

    /// Where they are, and whether as stripes.
    fn home(&self) -> Option<(Slot, bool)> {
        let home = self.home.load(Acquire);
        // SAFETY: came from a slot, which is freed when the lock is dropped.
        let slot = unsafe { Slot::from_ptr(home.map_addr(|address| address & !STRIPED))? };
        Some((slot, home.addr() & STRIPED != 0))
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        if let Some((slot, _)) = self.home() {
            // SAFETY: this was the only reference to the lock they belong to.
            unsafe { slot.free() };
        }
    }
}

/// False if the stripe of this thread's CPU is closed.
fn add_to_stripe(slot: Slot, change: i64) -> bool {
    let stripe = slot.counter(current_cpu());
    let mut count = stripe.load(Relaxed);
    while count & FROZEN == 0 {
        let changed = count.wrapping_add_signed(change) & !FROZEN;
        match stripe.compare_exchange_weak(count, changed, AcqRel, Relaxed) {
            Ok(_) => return true,
            Err(now) => count = now,
        }
    }
    false
}

/// The count in a stripe, as a number that may be negative.
fn signed(stripe: u64) -> i64 {
    (stripe << 1).cast_signed() >> 1
}

/// Only a hint: the thread may be elsewhere already.
fn current_cpu() -> u32 {
    #[cfg(not(miri))]
    // SAFETY: has no preconditions.
    let cpu = u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0);
    #[cfg(miri)]
    let cpu = 0;
    cpu % slots::cpus()
}
