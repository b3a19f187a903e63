//! What the first write after much reading costs a `PercpuRwSem`, beside the one system call in it.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use lock_api::RawRwLock;
use lockmeter_locks::{RawPercpuRwSem, RawRwSem};
use lockmeter_statistics::{Estimate, Random, median};

/// Writes in a round, and as many bare barriers.
const WRITES: usize = 100;
/// More reads than begin the bias.
const READS: usize = 1_000;

/// One row.
#[derive(Debug)]
pub struct Row {
    pub readers: usize,
    /// Medians of the medians of rounds.
    pub write_ns: f64,
    pub barrier_ns: f64,
    /// Write in barriers.
    pub ratio: Option<Estimate>,
}

/// With this many threads that read all the time.
pub fn measure(readers: usize, rounds: usize, random: &mut Random) -> Row {
    let lock = RawPercpuRwSem::over(RawRwSem::new());
    let done = AtomicBool::new(false);
    let (mut writes_ns, mut barriers_ns) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    (0..READS).for_each(|_| read(&lock));
                }
            });
        }
        for _ in 0..rounds {
            let mut write_first = [true, false];
            random.shuffle(&mut write_first);
            for writes in write_first {
                let times: Vec<f64> =
                    (0..WRITES).map(|_| if writes { write_ns(&lock) } else { barrier_ns(&lock) }).collect();
                if writes { writes_ns.push(median(times)) } else { barriers_ns.push(median(times)) }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let ratios: Vec<f64> = writes_ns.iter().zip(&barriers_ns).map(|(write, barrier)| write / barrier).collect();
    let ratio = Estimate::of(&ratios, random);
    Row { readers, write_ns: median(writes_ns), barrier_ns: median(barriers_ns), ratio }
}

fn read(lock: &RawPercpuRwSem) {
    lock.lock_shared();
    // SAFETY: locked above.
    unsafe { black_box(lock).unlock_shared() };
}

/// Reads until the lock is biased: other readers may be slow to begin it while they share a CPU with this thread.
fn bias(lock: &RawPercpuRwSem) {
    while !lock.is_biased() {
        read(lock);
    }
}

/// A write that ends the bias.
fn write_ns(lock: &RawPercpuRwSem) -> f64 {
    bias(lock);
    let begin = Instant::now();
    lock.lock_exclusive();
    let taken = begin.elapsed();
    // SAFETY: locked above.
    unsafe { lock.unlock_exclusive() };
    taken.as_nanos() as f64
}

/// A barrier in the same circumstances.
fn barrier_ns(lock: &RawPercpuRwSem) -> f64 {
    const PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 7;
    bias(lock);
    let begin = Instant::now();
    // SAFETY: takes no pointers. The lock has registered this process for it.
    let refused = unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED_RSEQ, 0, 0) };
    let taken = begin.elapsed();
    assert_eq!(refused, 0, "membarrier is refused: the lock counts in stripes here, and this row says nothing");
    taken.as_nanos() as f64
}
