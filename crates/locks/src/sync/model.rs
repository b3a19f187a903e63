//! The model checkers' atomics, and a futex made of their mutex and condition variable.

use core::ops::Deref;
use core::sync::atomic::Ordering::Relaxed;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, fence};
#[cfg(loom)]
use loom::sync::{Condvar, Mutex};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, fence};
#[cfg(shuttle)]
use shuttle::sync::{Condvar, Mutex};

use super::{Deadline, SleepsFor, WaitEnd};

/// Called in forked children alone, and models have none.
pub(crate) fn is_alone() -> bool {
    false
}

/// A double word on whose halves threads can sleep.
#[derive(Debug)]
pub(crate) struct FutexDouble {
    word: AtomicU64,
    queue: WaitQueue,
}

impl Deref for FutexDouble {
    type Target = AtomicU64;

    fn deref(&self) -> &AtomicU64 {
        &self.word
    }
}

impl FutexDouble {
    pub(crate) fn new(value: u64) -> Self {
        FutexDouble { word: AtomicU64::new(value), queue: WaitQueue::new() }
    }

    pub(crate) fn wait(&self, expected: u64, kind: SleepsFor, deadline: Option<Deadline>) -> WaitEnd {
        let half = |word: u64| if kind == SleepsFor::OwnerEnd { word >> 32 } else { u64::from(word as u32) };
        self.queue.wait(|| half(self.word.load(Relaxed)) == half(expected), kind, deadline)
    }

    pub(crate) fn wake(&self, kind: SleepsFor, count: u32) -> u32 {
        self.queue.wake(kind, count)
    }

    #[cfg(all(test, shuttle))]
    pub(crate) fn sleepers(&self) -> usize {
        self.queue.sleepers.lock().unwrap().asleep.len()
    }
}

/// What the kernel keeps of a futex: who sleeps on it, in order. A sleeper leaves only when it is woken, so that a lost wake-up
/// shows as a deadlock.
#[derive(Debug)]
struct WaitQueue {
    sleepers: Mutex<Sleepers>,
    woken: Condvar,
}

#[derive(Debug, Default)]
struct Sleepers {
    next: u32,
    asleep: Vec<(u32, SleepsFor)>,
}

impl WaitQueue {
    fn new() -> Self {
        WaitQueue { sleepers: Mutex::new(Sleepers::default()), woken: Condvar::new() }
    }

    fn wait(&self, is_expected: impl Fn() -> bool, kind: SleepsFor, deadline: Option<Deadline>) -> WaitEnd {
        let mut sleepers = self.sleepers.lock().unwrap();
        // As in the kernel, between entering the call and reading the word.
        fence(core::sync::atomic::Ordering::SeqCst);
        if !is_expected() {
            return WaitEnd::ValueChanged;
        }
        if deadline.is_some_and(time_is_up) {
            return WaitEnd::TimedOut;
        }
        let own = sleepers.next;
        sleepers.next += 1;
        sleepers.asleep.push((own, kind));
        while sleepers.asleep.iter().any(|&(sleeper, _)| sleeper == own) {
            sleepers = self.woken.wait(sleepers).unwrap();
        }
        WaitEnd::Woken
    }

    fn wake(&self, kind: SleepsFor, count: u32) -> u32 {
        let mut sleepers = self.sleepers.lock().unwrap();
        let mut left = count;
        sleepers.asleep.retain(|&(_, sleeps_for)| {
            let stays = left == 0 || sleeps_for != kind;
            left -= u32::from(!stays);
            stays
        });
        if left < count {
            self.woken.notify_all();
        }
        count - left
    }
}

/// Whether the model says that a deadline passes now. Loom has no dice: there it always does, at the first check.
fn time_is_up(_deadline: Deadline) -> bool {
    #[cfg(loom)]
    return true;
    #[cfg(shuttle)]
    return shuttle::rand::Rng::gen_bool(&mut shuttle::rand::thread_rng(), 0.5);
}

#[cfg(shuttle)]
std::thread_local! {
    /// All threads of a model run in one of the system's.
    static CHANCE_OF_HANDOFF: std::cell::Cell<f64> = const { std::cell::Cell::new(SELDOM) };
}

/// Most of what is checked is what happens in time.
#[cfg(shuttle)]
const SELDOM: f64 = 0.1;

/// Whether a thread is said to have waited long, though time does not pass.
#[cfg(shuttle)]
pub(crate) fn is_handoff_due() -> bool {
    shuttle::rand::Rng::gen_bool(&mut shuttle::rand::thread_rng(), CHANCE_OF_HANDOFF.get())
}

/// From now on, in this model, every thread has waited long; or few have.
#[cfg(shuttle)]
pub(crate) fn set_all_wait_long(all: bool) {
    CHANCE_OF_HANDOFF.set(if all { 1.0 } else { SELDOM });
}

/// Time does not pass in a model.
pub(crate) fn now_ns() -> u64 {
    0
}

/// A spin in a model is worth another thread's step.
pub(crate) fn spin_loop() {
    yield_now();
}

pub(crate) fn yield_now() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
}

std::thread_local! {
    /// All threads of a model run in one of the system's.
    static CPUS: std::cell::Cell<u32> = const { std::cell::Cell::new(2) };
}

/// With one CPU nobody spins.
pub(crate) fn set_usable_cpus(cpus: u32) {
    CPUS.set(cpus);
}

pub(crate) fn usable_cpus() -> u32 {
    CPUS.get()
}
