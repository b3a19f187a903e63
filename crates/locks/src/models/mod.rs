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

#[cfg(loom)]
pub(crate) use loom::{sync::Arc, thread};
#[cfg(shuttle)]
pub(crate) use shuttle::{sync::Arc, thread};

/// Runs `model` in every interleaving with at most `preemptions` switches that no thread asked for.
#[cfg(loom)]
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// Runs `model` in as many random schedules as `LOCKMETER_SCHEDULES` says.
#[cfg(shuttle)]
fn check(_preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let schedules = std::env::var("LOCKMETER_SCHEDULES").ok().and_then(|number| number.parse().ok()).unwrap_or(3_000);
    let model = std::sync::Arc::new(model);
    let again = std::sync::Arc::clone(&model);
    shuttle::check_random(move || model(), schedules);
    // Few, ill-timed preemptions find what many random ones do not.
    shuttle::check_pct(move || again(), schedules, 3);
}

/// The same for three threads. Loom then has them sleep at once, because the interleavings of three that spin and queue are
/// too many; shuttle does both.
fn check_three(model: impl Fn() + Send + Sync + 'static) {
    let model = std::sync::Arc::new(model);
    let again = std::sync::Arc::clone(&model);
    check(2, move || {
        crate::sync::set_usable_cpus(1);
        again();
    });
    #[cfg(shuttle)]
    check(2, move || {
        crate::sync::set_usable_cpus(2);
        model();
    });
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
