//! A load whose hold and think times are known, over any mutex: what handing that mutex over costs here is read off it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_api::{Mutex, RawMutex};
use lockmeter_statistics::ThreadsInStep;

use crate::breakpoint::race::Work;

/// Words that a lock protects.
#[derive(Debug, Clone, Copy)]
pub struct Data {
    /// How many are written in a section.
    pub words: usize,
    /// Bytes from one to the next.
    pub stride: usize,
}

impl Data {
    /// The first word of each cache line of this many bytes.
    pub const fn lines_of(bytes: usize) -> Self {
        Self { words: bytes.div_ceil(CACHE_LINE), stride: CACHE_LINE }
    }
}

/// Bytes.
const CACHE_LINE: usize = 64;
const WORD: usize = size_of::<u64>();

/// Threads that take one lock, hold it and compute, again and again.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Computed under the lock.
    pub hold: Work,
    /// What every section writes: lines that a new holder finds in another CPU's cache.
    pub data: Data,
    /// Computed between two acquisitions.
    pub think: Work,
    /// Threads at once.
    pub threads: usize,
    /// How long one run lasts.
    pub slice: Duration,
}

/// Nanoseconds from one acquisition to the next, all threads in_step.
pub fn acquisition_ns<M: RawMutex + Send + Sync>(load: Load) -> f64 {
    let stride = load.data.stride.div_ceil(WORD).max(1);
    let lock: Mutex<M, Vec<u64>> = Mutex::new(vec![0; load.data.words * stride]);
    let in_step = ThreadsInStep { threads: load.threads, length: load.slice, settling: Duration::ZERO };
    let work = |(), stop: &AtomicBool| {
        let mut acquisitions = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            let mut data = lock.lock();
            data.iter_mut().step_by(stride).for_each(|word| *word += 1);
            load.hold.run();
            drop(data);
            load.think.run();
            acquisitions += 1;
        }
        acquisitions
    };
    let done = in_step.run(|_| (), work);
    done.until_ended.as_secs_f64() * 1e9 / done.results.iter().sum::<u64>().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pthread_locks::PthreadMutex;

    /// Makes sure that holds exclude each other: threads with a CPU each are no faster than one hold after another.
    #[test]
    fn threads_that_only_hold_are_no_faster_than_one() {
        let hold = Work::lasting(Duration::from_micros(20));
        let data = Data { words: 4, stride: 4096 };
        let load = |threads| Load {
            hold,
            data,
            think: Work::lasting(Duration::ZERO),
            threads,
            slice: Duration::from_millis(20),
        };
        let (one, two) = (acquisition_ns::<PthreadMutex>(load(1)), acquisition_ns::<PthreadMutex>(load(2)));
        // A CPU may be twice as fast as when the steps were counted, not more.
        assert!(one > 10_000.0 && two > 10_000.0, "{one} {two}");
    }
}
