//! The locks under the model checkers: every interleaving of two or three threads (loom, which knows weak memory, too), and random
//! schedules of more (shuttle).
//!
//!     RUSTFLAGS="--cfg loom" cargo test -p lockmeter-locks --lib --release --target-dir target/loom
//!     RUSTFLAGS="--cfg shuttle" cargo test -p lockmeter-locks --lib --release --target-dir target/shuttle
//!
//! A lost wake-up shows as a deadlock, a missing ordering as a race on [`Guarded`].

mod guarded;
mod mutex;
mod rwsem;
mod spin;
mod spin_queue;

use guarded::Guarded;
#[cfg(shuttle)]
use std::sync::atomic::Ordering::Relaxed;

#[cfg(loom)]
pub(crate) use loom::{sync::Arc, thread};
#[cfg(shuttle)]
pub(crate) use shuttle::{sync::Arc, thread};

/// Runs `model` where waiters sleep at once, and where they spin and queue first.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let model = std::sync::Arc::new(model);
    check_with_cpus(1, preemptions, std::sync::Arc::clone(&model));
    check_with_cpus(2, preemptions, model);
}

/// The same for three threads. Loom then has them sleep at once, because the interleavings of three that spin and queue are
/// too many; shuttle does both.
fn check_three(model: impl Fn() + Send + Sync + 'static) {
    let model = std::sync::Arc::new(model);
    check_with_cpus(1, 2, std::sync::Arc::clone(&model));
    #[cfg(shuttle)]
    check_with_cpus(2, 2, model);
}

/// Every interleaving with at most `preemptions` switches that no thread asked for.
#[cfg(loom)]
fn check_with_cpus(cpus: u32, preemptions: usize, model: std::sync::Arc<impl Fn() + Send + Sync + 'static>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(move || {
        crate::sync::set_usable_cpus(cpus);
        model();
    });
}

/// As many random schedules as `LOCKMETER_SCHEDULES` says.
#[cfg(shuttle)]
fn check_with_cpus(cpus: u32, _preemptions: usize, model: std::sync::Arc<impl Fn() + Send + Sync + 'static>) {
    let schedules = std::env::var("LOCKMETER_SCHEDULES").ok().and_then(|number| number.parse().ok()).unwrap_or(3_000);
    let on_cpus = move || {
        crate::sync::set_usable_cpus(cpus);
        model();
    };
    let again = on_cpus.clone();
    shuttle::check_random(on_cpus, schedules);
    // Few, ill-timed preemptions find what many random ones do not.
    shuttle::check_pct(again, schedules, 3);
}

/// How often the thread that holds a lock has it again before the one that `waits`, where every wait is long: it releases the lock when the
/// other sleeps, and tries at once to take it again.
#[cfg(shuttle)]
fn times_passed(
    waits: Box<dyn FnOnce() + Send>,
    sleepers: impl Fn() -> usize,
    unlock: impl Fn(),
    try_lock: impl Fn() -> bool,
) -> u32 {
    /// Enough to see that there is no bound.
    const LIMIT: u32 = 5;
    crate::sync::set_all_wait_long(true);
    let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let waiter = thread::spawn({
        let ended = Arc::clone(&ended);
        move || {
            waits();
            ended.store(true, Relaxed);
        }
    });
    let sleeps = || {
        while sleepers() == 0 && !ended.load(Relaxed) {
            thread::yield_now();
        }
        !ended.load(Relaxed)
    };
    let mut passed = 0;
    sleeps();
    loop {
        unlock();
        if passed == LIMIT || !try_lock() {
            break;
        }
        if !sleeps() {
            // It had the lock in between.
            unlock();
            break;
        }
        passed += 1;
    }
    waiter.join().unwrap();
    crate::sync::set_all_wait_long(false);
    passed
}

/// Starts threads and waits for all of them.
fn all(bodies: Vec<Box<dyn FnOnce() + Send>>) {
    let mut bodies = bodies.into_iter();
    let first = bodies.next();
    let threads: Vec<_> = bodies.map(thread::spawn).collect();
    // The model's own thread is one of them: every thread costs interleavings.
    first.into_iter().for_each(|body| body());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
