//! Where threads meet: a lock, what it protects, and the loops they run.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lockmeter_statistics::ResourceUsage;

use crate::contender::Lock;
use crate::waits::Waits;
use crate::work;

/// A cache line and its neighbour, which Intel's prefetcher fetches with it.
#[repr(align(128))]
struct OwnLines<T>(T);

/// A new lock and two counters that only writers change, both in the same write: a reader that sees them differ was not
/// alone with readers.
pub struct LockUnderTest<L> {
    lock: OwnLines<L>,
    protected: OwnLines<UnsafeCell<[u64; 2]>>,
}

// SAFETY: `protected` is touched only inside sections of the lock.
unsafe impl<L: Lock> Sync for LockUnderTest<L> {}
// SAFETY: both parts may move to another thread.
unsafe impl<L: Lock> Send for LockUnderTest<L> {}

/// What each thread does between two checks of whether to stop.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Of 100 acquisitions, how many read.
    pub read_percent: u32,
    /// Steps of work with the lock held.
    pub inside: u32,
    /// Whether to take the time of each wait: costs two readings of the clock an acquisition.
    pub timed: bool,
}

/// What one thread did in a slice.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub acquisitions: u64,
    pub writes: u64,
    pub waited_ns: u64,
    pub longest_wait_ns: u64,
    pub waits: Waits,
    pub context_switches: u64,
}

/// A lock under test whose lock is not named in its type.
pub trait Measured: Send + Sync {
    /// Locks and unlocks under `load` until told to stop.
    fn contend(&self, load: Load, seed: u64, stop: &AtomicBool) -> Tally;
    /// Write pairs with nothing between them, until told to stop; how many.
    fn write_pairs(&self, stop: &AtomicBool) -> u64;
    /// Read pairs, likewise.
    fn read_pairs(&self, stop: &AtomicBool) -> u64;
    /// How many writes the protected counters have seen; fails where a write was lost or torn.
    fn writes(&self) -> u64;
}

/// Pairs between two checks of whether to stop.
const BATCH: u32 = 1_000;

impl<L: Lock> LockUnderTest<L> {
    /// As a contender's `lock`.
    pub fn boxed() -> Box<dyn Measured> {
        Box::new(Self { lock: OwnLines(L::new()), protected: OwnLines(UnsafeCell::new([0; 2])) })
    }

    #[inline(always)]
    fn write(&self, inside: u32) -> u64 {
        let counters = self.protected.0.get().cast::<u64>();
        // SAFETY: both lie in `protected`; this section has it alone if the lock is a lock, which is what the bench checks.
        unsafe {
            let before = counters.read_volatile();
            counters.write_volatile(before + 1);
            let done = work::steps(inside, before);
            counters.add(1).write_volatile(counters.add(1).read_volatile() + 1);
            done
        }
    }

    #[inline(always)]
    fn read(&self, inside: u32) -> u64 {
        let counters = self.protected.0.get().cast::<u64>();
        // SAFETY: both lie in `protected`, which nobody writes during a shared section.
        let (first, second, done) = unsafe {
            let second = counters.add(1).read_volatile();
            let done = work::steps(inside, second);
            (counters.read_volatile(), second, done)
        };
        assert_eq!(first, second, "a reader ran beside a writer");
        done
    }

    #[inline(always)]
    fn contend_as<const TIMED: bool>(&self, load: Load, seed: u64, stop: &AtomicBool) -> Tally {
        let mut tally = Tally::default();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        // Uniform between nothing and twice the work inside, so that threads do not fall into step.
        let outside_bound = u64::from(load.inside) * 2 + 1;
        while !stop.load(Ordering::Relaxed) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let reads = (random & 0xffff_ffff) * 100 < u64::from(load.read_percent) << 32;
            let begin = TIMED.then(Instant::now);
            let (mut waited_ns, mut done) = (0, 0);
            let mut section = |work: &dyn Fn() -> u64| {
                if let Some(begin) = begin {
                    waited_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
                }
                done = work();
            };
            if reads {
                self.lock.0.shared(|| section(&|| self.read(load.inside)));
            } else {
                self.lock.0.exclusive(|| section(&|| self.write(load.inside)));
                tally.writes += 1;
            }
            tally.acquisitions += 1;
            if TIMED {
                tally.waited_ns += waited_ns;
                tally.waits.add(waited_ns);
                tally.longest_wait_ns = tally.longest_wait_ns.max(waited_ns);
            }
            work::steps(u32::try_from(((random >> 32) * outside_bound) >> 32).unwrap_or(0), done);
        }
        tally
    }
}

impl<L: Lock> Measured for LockUnderTest<L> {
    fn contend(&self, load: Load, seed: u64, stop: &AtomicBool) -> Tally {
        let before = context_switches();
        let mut tally = if load.timed {
            self.contend_as::<true>(load, seed, stop)
        } else {
            self.contend_as::<false>(load, seed, stop)
        };
        tally.context_switches = context_switches() - before;
        tally
    }

    fn write_pairs(&self, stop: &AtomicBool) -> u64 {
        let lock = black_box(&self.lock.0);
        let mut pairs = 0;
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..BATCH {
                lock.exclusive(|| {});
            }
            pairs += u64::from(BATCH);
        }
        pairs
    }

    fn read_pairs(&self, stop: &AtomicBool) -> u64 {
        let lock = black_box(&self.lock.0);
        let mut pairs = 0;
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..BATCH {
                lock.shared(|| {});
            }
            pairs += u64::from(BATCH);
        }
        pairs
    }

    fn writes(&self) -> u64 {
        // SAFETY: all threads of the slice have ended.
        let [first, second] = unsafe { *self.protected.0.get() };
        assert_eq!(first, second, "a write was cut short");
        first
    }
}

/// Of this thread so far, wanted or not.
fn context_switches() -> u64 {
    ResourceUsage::of(libc::RUSAGE_THREAD).context_switches()
}
