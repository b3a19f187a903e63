//! The bias under loom (every interleaving of two or three threads, up to a number of preemptions) and shuttle (random
//! schedules of more).

#[cfg(loom)]
use loom::{cell::UnsafeCell, sync::Arc, thread};
#[cfg(shuttle)]
use shuttle::{sync::Arc, thread};

use super::bias::Biased;
use super::plain::Plain;

/// What a lock protects, and whether it does.
#[cfg(loom)]
struct Protected(UnsafeCell<u32>);

#[cfg(loom)]
impl Protected {
    fn new() -> Self {
        Protected(UnsafeCell::new(0))
    }
    fn read(&self) {
        // SAFETY: loom fails the test if a writer has it at the same time.
        self.0.with(|value| unsafe { value.read() });
    }
    fn write(&self) {
        // SAFETY: loom fails the test if anybody has it at the same time.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }
}

/// Shuttle does not look into cells: readers and writers say that they are there.
#[cfg(shuttle)]
struct Protected(shuttle::sync::atomic::AtomicI32);

#[cfg(shuttle)]
impl Protected {
    fn new() -> Self {
        Protected(shuttle::sync::atomic::AtomicI32::new(0))
    }
    fn read(&self) {
        use core::sync::atomic::Ordering::SeqCst;
        assert!(self.0.fetch_add(1, SeqCst) >= 0, "a reader beside a writer");
        thread::yield_now();
        self.0.fetch_sub(1, SeqCst);
    }
    fn write(&self) {
        use core::sync::atomic::Ordering::SeqCst;
        assert_eq!(self.0.swap(-1000, SeqCst), 0, "a writer beside somebody");
        thread::yield_now();
        assert_eq!(self.0.swap(0, SeqCst), -1000, "somebody came in beside a writer");
    }
}

struct Lock {
    biased: Biased<Plain>,
    protected: Protected,
}

impl Lock {
    fn new() -> Arc<Self> {
        Arc::new(Lock { biased: Biased::new(Plain::new(), false), protected: Protected::new() })
    }

    fn read(&self) {
        assert!(self.biased.lock_shared(Plain::lock_shared));
        self.protected.read();
        // SAFETY: locked above.
        unsafe { self.biased.unlock_shared() };
    }

    fn write(&self) {
        assert!(self.biased.lock_exclusive(Plain::lock_exclusive));
        self.written();
    }

    fn try_write(&self) {
        if self.biased.try_lock_exclusive() {
            self.written();
        }
    }

    fn written(&self) {
        self.protected.write();
        // SAFETY: both callers have locked it.
        unsafe { self.biased.central().unlock_exclusive() };
    }

    /// Nobody is counted anywhere: a writer gets in at once.
    fn assert_free(&self) {
        assert!(self.biased.try_lock_exclusive(), "a hold was left behind");
        // SAFETY: locked above.
        unsafe { self.biased.central().unlock_exclusive() };
        assert!(self.biased.central().is_free());
    }
}

/// Runs each of `threads`, all at once, and then finds the lock free.
fn run_all(threads: &'static [fn(&Lock)]) {
    let body = move || {
        let lock = Lock::new();
        let started: Vec<_> = threads[1..]
            .iter()
            .map(|work| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || work(&lock))
            })
            .collect();
        threads[0](&lock);
        started.into_iter().for_each(|thread| thread.join().unwrap());
        lock.assert_free();
    };
    #[cfg(loom)]
    {
        let mut model = loom::model::Builder::new();
        // More finds nothing new in these, and takes hours.
        model.preemption_bound = Some(if threads.len() > 2 { 2 } else { 3 });
        model.check(body);
    }
    #[cfg(shuttle)]
    {
        let schedules =
            std::env::var("LOCKMETER_SCHEDULES").ok().and_then(|number| number.parse().ok()).unwrap_or(3_000);
        shuttle::check_random(body, schedules);
    }
}

#[test]
fn a_writer_is_alone_while_a_reader_begins_and_uses_the_bias() {
    run_all(&[|lock| (0..3).for_each(|_| lock.read()), |lock| lock.write()]);
}

#[test]
fn two_writers_end_the_bias_at_once_and_both_get_in() {
    run_all(&[
        |lock| {
            lock.read();
            lock.write();
        },
        |lock| {
            lock.read();
            lock.write();
        },
    ]);
}

#[test]
fn a_trying_writer_leaves_no_trace_beside_a_reader() {
    run_all(&[|lock| (0..2).for_each(|_| lock.read()), |lock| (0..2).for_each(|_| lock.try_write())]);
}

#[test]
fn readers_that_come_and_go_while_the_bias_begins_and_ends_are_all_counted() {
    run_all(&[|lock| (0..2).for_each(|_| lock.read()), |lock| (0..2).for_each(|_| lock.read()), |lock| lock.write()]);
}

#[test]
fn a_reader_may_hold_the_lock_twice() {
    run_all(&[
        |lock| {
            // The second hold by try, as a writer may wait in between.
            assert!(lock.biased.lock_shared(Plain::lock_shared));
            let twice = lock.biased.try_lock_shared();
            lock.protected.read();
            for _ in 0..=u32::from(twice) {
                // SAFETY: locked above, as often.
                unsafe { lock.biased.unlock_shared() };
            }
        },
        |lock| {
            lock.read();
            lock.write();
        },
    ]);
}

#[cfg(shuttle)]
#[test]
fn many_readers_and_writers_exclude_each_other() {
    run_all(&[
        |lock| (0..6).for_each(|_| lock.read()),
        |lock| (0..6).for_each(|_| lock.read()),
        |lock| (0..6).for_each(|_| lock.read()),
        |lock| (0..3).for_each(|_| lock.write()),
        |lock| (0..3).for_each(|_| lock.try_write()),
    ]);
}
