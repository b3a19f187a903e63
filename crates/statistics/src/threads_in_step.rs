//! Threads that begin together and work until they are stopped.

use std::panic::resume_unwind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How many threads work, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct ThreadsInStep {
    /// All at once.
    pub threads: usize,
    /// From their start until they are told to stop.
    pub length: Duration,
    /// They are there for so long before they begin.
    pub settling: Duration,
}

/// What the threads returned, and how long they worked.
#[derive(Debug)]
pub struct ThreadResults<T> {
    /// Thread by thread.
    pub results: Vec<T>,
    /// From when the first began until they were told to stop. Where threads outnumber CPUs, the one that starts them may run last, by
    /// milliseconds.
    pub until_stopped: Duration,
    /// From when the first began until the last had stopped, which takes as long as one more turn of each where they outnumber CPUs.
    pub until_ended: Duration,
}

impl ThreadsInStep {
    /// Each thread gets ready, which does not count, waits for the others, and works until it sees the flag.
    pub fn run<R, T: Send>(
        self,
        get_ready: impl Fn(usize) -> R + Sync,
        work: impl Fn(R, &AtomicBool) -> T + Sync,
    ) -> ThreadResults<T> {
        let (start, stop) = (Barrier::new(self.threads + 1), AtomicBool::new(false));
        let worker = |number: usize| {
            let ready = get_ready(number);
            start.wait();
            let begin = Instant::now();
            (work(ready, &stop), begin, Instant::now())
        };
        thread::scope(|scope| {
            let worker = &worker;
            let workers: Vec<_> = (0..self.threads).map(|number| scope.spawn(move || worker(number))).collect();
            thread::sleep(self.settling);
            start.wait();
            thread::sleep(self.length);
            stop.store(true, Ordering::Relaxed);
            let stopped = Instant::now();
            let (mut results, mut first_begin, mut last_end) = (Vec::new(), stopped, stopped);
            for worker in workers {
                let (result, begin, end) = worker.join().unwrap_or_else(|panic| resume_unwind(panic));
                results.push(result);
                first_begin = first_begin.min(begin);
                last_end = last_end.max(end);
            }
            ThreadResults { results, until_stopped: stopped - first_begin, until_ended: last_end - first_begin }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_work_until_they_are_stopped_and_getting_ready_does_not_count() {
        let (length, settling) = (Duration::from_millis(20), Duration::from_millis(30));
        let begin = Instant::now();
        let done = ThreadsInStep { threads: 3, length, settling }.run(
            |number| number * 10,
            |ready, stop| {
                while !stop.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                ready
            },
        );
        let elapsed = begin.elapsed();
        assert_eq!(done.results, [0, 10, 20]);
        assert!(done.until_ended >= done.until_stopped, "{done:?}");
        assert!(done.until_ended + settling <= elapsed, "{done:?} of {elapsed:?}");
    }

    #[test]
    #[should_panic(expected = "a worker's own words")]
    fn a_thread_that_fails_fails_them_all() {
        let once = ThreadsInStep { threads: 2, length: Duration::from_millis(1), settling: Duration::ZERO };
        once.run(|number| number, |number, _| assert!(number == 0, "a worker's own words"));
    }
}
