//! The model checkers' atomics, and a futex made of their mutex and condition variable.

use core::ops::Deref;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32};
#[cfg(loom)]
use loom::sync::{Condvar, Mutex};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicPtr, AtomicU32};
#[cfg(shuttle)]
use shuttle::sync::{Condvar, Mutex};

use super::{Deadline, WaitEnd};

/// A word that threads can sleep on.
#[derive(Debug)]
pub(crate) struct FutexWord {
    word: AtomicU32,
    /// How many wake-ups were sent, under the lock that the kernel's hash bucket stands for.
    wakes: Mutex<Sleepers>,
    woken: Condvar,
}

#[derive(Debug)]
struct Sleepers {
    asleep: u32,
    /// Wake-ups sent and not yet taken: a sleeper leaves only with one, so that a lost one shows as a deadlock.
    wakes: u32,
}

impl Deref for FutexWord {
    type Target = AtomicU32;

    fn deref(&self) -> &AtomicU32 {
        &self.word
    }
}

impl FutexWord {
    pub(crate) fn new(value: u32) -> Self {
        FutexWord {
            word: AtomicU32::new(value),
            wakes: Mutex::new(Sleepers { asleep: 0, wakes: 0 }),
            woken: Condvar::new(),
        }
    }

    pub(crate) fn wait(&self, expected: u32, deadline: Option<Deadline>) -> WaitEnd {
        let mut sleepers = self.wakes.lock().unwrap();
        if self.word.load(core::sync::atomic::Ordering::Relaxed) != expected {
            return WaitEnd::LookAgain;
        }
        if deadline.is_some_and(time_is_up) {
            return WaitEnd::TimedOut;
        }
        sleepers.asleep += 1;
        while sleepers.wakes == 0 {
            sleepers = self.woken.wait(sleepers).unwrap();
        }
        sleepers.asleep -= 1;
        sleepers.wakes -= 1;
        WaitEnd::LookAgain
    }

    pub(crate) fn wake(&self, count: i32) {
        let mut sleepers = self.wakes.lock().unwrap();
        let woken = (sleepers.asleep - sleepers.wakes).min(count as u32);
        sleepers.wakes += woken;
        for _ in 0..woken {
            self.woken.notify_one();
        }
    }
}

/// Whether the model says that a deadline passes now. Loom has no dice: there it always does, at the first look.
fn time_is_up(_deadline: Deadline) -> bool {
    #[cfg(loom)]
    return true;
    #[cfg(shuttle)]
    return shuttle::rand::Rng::gen_bool(&mut shuttle::rand::thread_rng(), 0.5);
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

pub(crate) fn usable_cpus() -> u32 {
    2
}
