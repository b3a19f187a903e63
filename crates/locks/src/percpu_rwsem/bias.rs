//! An ordinary lock biased towards its readers: while the bias lasts they are counted per CPU and do not touch the lock.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::read_samples;
use crate::sync::{AtomicU32, const_unless_model, mutated, yield_now};

#[cfg(not(any(loom, shuttle)))]
use super::counters::Counters;
#[cfg(any(loom, shuttle))]
use super::model::Counters;

/// The lock under the bias. Reads are fungible: any thread may release any read hold.
pub(crate) trait Central {
    fn try_lock_shared(&self) -> bool;
    /// # Safety
    ///
    /// Somebody's read hold is given up for it.
    unsafe fn unlock_shared(&self);
    fn try_lock_exclusive(&self) -> bool;
}

// How the readers that there are, are counted. Let p be the sum of the counters, c the read holds of the central lock:
//
// | phase    | count | readers there are | who unlocks        | a writer
// |----------|-------|-------------------|--------------------|-----------------------------------------------
// | CLOSED   | 0     | c                 | the central lock   | takes the central lock
// | OPENING  | ≤ 0   | p + count + c - 1 | count              | waits: the one hold is the bias's own
// | OPEN     | 0     | p + c - 1         | the counter        | closes the counters
// | CLOSING  | ≤ 0   | p + count + c - 1 | count              | waits
// | DRAINING | > 0   | count + c - 1     | count              | waits for the last, who releases the bias's own hold
//
// So the central lock has a read hold whenever somebody may be counted elsewhere, and keeps writers out by itself. Read holds
// are not owned: a reader that came in through a counter may be the one to release a hold of the central lock, and the other
// way round, which is why p may be negative. In a phase with a hold of the bias's own, c - 1 is at least the number of threads
// that saw CLOSED and are about to unlock the central lock.
const PHASE: u32 = 7;
const CLOSED: u32 = 0;
const OPENING: u32 = 1;
const OPEN: u32 = 2;
const CLOSING: u32 = 3;
const DRAINING: u32 = 4;
/// One reader; the bits from here up are the count, as a number that may be negative.
const READER: u32 = 8;

/// The bias begins after this many reads of the central lock with no write in between: about when they have cost as much more
/// than counting, 0.03 µs each between two threads, as ending the bias will cost, some 30 µs where other threads run. So
/// whenever the next write comes, the bias has at worst doubled the price, and where every hundredth access writes it hardly
/// ever begins (after 256 reads it did after every thirteenth write).
#[cfg(not(any(loom, shuttle)))]
const QUIET_READS: u32 = 1024;
#[cfg(any(loom, shuttle))]
const QUIET_READS: u32 = 1;

/// A lock under a bias. What every reader reads lies behind the central lock's cache line, which readers of the central lock
/// take from each other: reading first and then changing would miss the cache twice.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Biased<C> {
    /// Reads of the central lock since the last write; lossy.
    quiet_reads: AtomicU32,
    /// Writers that found the central lock taken: the bias does not begin while there is one. They change that lock's line, too.
    writers: AtomicU32,
    central: C,
    padding: Padding,
    counters: Counters,
    bias: AtomicU32,
}

/// With the semaphore's own words behind its state, a cache line.
type Padding = [u64; 6];

/// Has the compiler lay out the code for counted readers: with jumps around what follows, a pair took a tenth longer.
#[cold]
#[inline]
fn unlikely() {}

fn count(bias: u32) -> i32 {
    bias.cast_signed() >> READER.trailing_zeros()
}

fn with_count(phase: u32, count: i64) -> u32 {
    let readers = i32::try_from(count).expect("no machine has so many readers").cast_unsigned();
    phase | readers.wrapping_mul(READER)
}

impl<C: Central> Biased<C> {
    const_unless_model! {
        pub(crate) const fn new(central: C, striped: bool) -> Self {
            Biased {
                quiet_reads: AtomicU32::new(0),
                writers: AtomicU32::new(0),
                central,
                padding: [0; 6],
                counters: Counters::new(striped),
                bias: AtomicU32::new(CLOSED),
            }
        }
    }

    pub(crate) const fn central(&self) -> &C {
        &self.central
    }

    /// Takes it for reading: counts, or has `wait` take the central lock, which may give up.
    #[inline(always)]
    pub(crate) fn lock_shared(&self, wait: impl FnOnce(&C) -> bool) -> bool {
        if self.counters.enter_at_once() {
            return true;
        }
        unlikely();
        // Under many writes the bias stays away, and this way should be as short as the central lock's own.
        if self.phase() == CLOSED { self.lock_centrally(wait) } else { self.lock_shared_slow(wait) }
    }

    #[inline(always)]
    pub(crate) fn try_lock_shared(&self) -> bool {
        self.lock_shared(C::try_lock_shared)
    }

    /// # Safety
    ///
    /// There is a read hold, and it is given up.
    #[inline(always)]
    pub(crate) unsafe fn unlock_shared(&self) {
        if self.counters.leave_at_once() {
            return;
        }
        unlikely();
        if self.phase() == CLOSED {
            // SAFETY: all readers are counted there, one of which is the caller's.
            unsafe { self.central.unlock_shared() }
        } else {
            // SAFETY: the same obligation.
            unsafe { self.unlock_shared_slow() }
        }
    }

    /// Takes it for writing: ends the bias and has `wait` take the central lock, which may give up.
    #[inline(always)]
    pub(crate) fn lock_exclusive(&self, wait: impl FnOnce(&C) -> bool) -> bool {
        let locked = self.central.try_lock_exclusive() || self.lock_exclusive_slow(wait);
        // A store that is not needed would hold up the unlocking instruction (2 ns of a pair).
        if locked && self.quiet_reads.load(Relaxed) != 0 {
            self.quiet_reads.store(0, Relaxed);
        }
        locked
    }

    #[inline(always)]
    pub(crate) fn try_lock_exclusive(&self) -> bool {
        self.lock_exclusive(C::try_lock_exclusive)
    }

    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn is_open(&self) -> bool {
        self.phase() == OPEN
    }

    #[inline(always)]
    fn phase(&self) -> u32 {
        self.bias.load(Acquire) & PHASE
    }

    #[cold]
    #[inline(never)]
    fn lock_shared_slow(&self, wait: impl FnOnce(&C) -> bool) -> bool {
        if self.phase() == OPEN && self.counters.enter() {
            return true;
        }
        self.lock_centrally(wait)
    }

    #[inline(always)]
    fn lock_centrally(&self, wait: impl FnOnce(&C) -> bool) -> bool {
        let locked = wait(&self.central);
        if locked {
            self.read_quietly();
        }
        locked
    }

    /// Counts the read, or rather a few reads now and then: the count is shared.
    #[inline(always)]
    fn read_quietly(&self) {
        if read_samples::is_sample() {
            self.count_quiet_reads();
        }
    }

    /// Begins the bias after enough reads. The caller has a read hold of the central lock.
    #[cold]
    #[inline(never)]
    fn count_quiet_reads(&self) {
        // Those that come at the same time may count as one. That delays the bias, no more.
        let reads = self.quiet_reads.load(Relaxed).saturating_add(read_samples::weight());
        self.quiet_reads.store(reads, Relaxed);
        // Counted readers are not told apart, so that the order of locks could not be checked: then all use the central lock.
        if reads >= QUIET_READS && cfg!(not(feature = "lockdep")) {
            self.open();
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_exclusive_slow(&self, wait: impl FnOnce(&C) -> bool) -> bool {
        // Either the thread that opens the counters sees us here afterwards, and closes them, or this change comes after its load, and we
        // see them open.
        self.writers.fetch_add(1, AcqRel);
        self.close();
        let locked = wait(&self.central);
        self.writers.fetch_sub(1, AcqRel);
        locked
    }

    /// Begins the bias: the caller's read hold of the central lock becomes the bias's own, and the caller is counted instead.
    #[cold]
    #[inline(never)]
    fn open(&self) {
        self.quiet_reads.store(0, Relaxed);
        if self.writers.load(Relaxed) != 0 || !self.counters.serve_this_thread() || !self.counters.prepare() {
            return;
        }
        if self.bias.compare_exchange(CLOSED, OPENING, Acquire, Relaxed).is_err() {
            return;
        }
        self.counters.open();
        let owed = count(self.bias.swap(OPEN, AcqRel));
        for _ in owed..0 {
            // SAFETY: somebody unlocked while the counters were being opened, and left it to us.
            unsafe { self.unlock_shared_slow() };
        }
        // A change of nothing, because only a change is sure to see the newest value.
        if mutated!("percpu-bias-ignores-writers", false, self.writers.fetch_add(0, AcqRel) != 0) {
            self.close();
        }
    }

    /// Ends the bias, if nobody else does already. From here on readers come in through the central lock.
    #[cold]
    fn close(&self) {
        // A load first: an exchange that fails takes the line from all readers, too.
        if self.bias.load(Acquire) != OPEN || self.bias.compare_exchange(OPEN, CLOSING, AcqRel, Acquire).is_err() {
            return;
        }
        let counted = self.counters.close();
        let mut bias = self.bias.load(Acquire);
        let readers = loop {
            let readers = counted + i64::from(count(bias));
            let closed = if readers > 0 { with_count(DRAINING, readers) } else { CLOSED };
            match self.bias.compare_exchange_weak(bias, closed, AcqRel, Acquire) {
                Ok(_) => break readers,
                Err(now) => bias = now,
            }
        };
        // Those whom the counters count below zero have holds of the central lock, as has the bias itself.
        for _ in mutated!("percpu-borrowed-holds-kept", readers.max(0), readers)..=0 {
            // SAFETY: see above.
            unsafe { self.central.unlock_shared() };
        }
    }

    /// # Safety
    ///
    /// There is a read hold, and it is given up.
    #[cold]
    #[inline(never)]
    unsafe fn unlock_shared_slow(&self) {
        let mut bias = self.bias.load(Acquire);
        loop {
            let fewer = match bias & PHASE {
                CLOSED => {
                    // SAFETY: all readers are counted there, one of which is the caller's.
                    unsafe { self.central.unlock_shared() };
                    return;
                }
                OPEN => {
                    if self.counters.leave() {
                        return;
                    }
                    if self.counters.serve_this_thread() {
                        // Being closed this moment.
                        yield_now();
                    } else {
                        // Not registered for rseq: leaves another way.
                        self.close();
                    }
                    bias = self.bias.load(Acquire);
                    continue;
                }
                DRAINING if count(bias) == 1 => CLOSED,
                _ => bias.wrapping_sub(READER),
            };
            match self.bias.compare_exchange_weak(bias, fewer, AcqRel, Acquire) {
                Ok(_) if mutated!("percpu-drained-unseen", false, fewer == CLOSED) => {
                    // SAFETY: the bias's own hold.
                    unsafe { self.central.unlock_shared() };
                    return;
                }
                Ok(_) => return,
                Err(now) => bias = now,
            }
        }
    }
}
