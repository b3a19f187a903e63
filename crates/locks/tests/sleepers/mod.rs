//! Threads that sleep in the kernel until a lock is released.

use std::sync::mpsc;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

/// A thread of a test, known to the kernel by its number.
pub struct Sleeper<'scope, T> {
    thread: ScopedJoinHandle<'scope, T>,
    id: libc::pid_t,
    /// How often it had given up its CPU of itself when it was last seen asleep.
    switches: u64,
}

impl<'scope, T: Send + 'scope> Sleeper<'scope, T> {
    /// Starts a thread that will sleep.
    pub fn start<'env>(scope: &'scope Scope<'scope, 'env>, body: impl FnOnce() -> T + Send + 'scope) -> Self {
        let (sender, receiver) = mpsc::channel();
        let thread = scope.spawn(move || {
            // SAFETY: takes nothing and returns a number.
            sender.send(unsafe { libc::gettid() }).unwrap();
            body()
        });
        Self { thread, id: receiver.recv().unwrap(), switches: 0 }
    }

    /// Waits until it sleeps for a futex.
    pub fn await_sleep(&mut self) {
        while !self.sleeps_for_a_futex() {
            assert!(!self.thread.is_finished(), "the thread ended instead of waiting");
            thread::sleep(Duration::from_millis(1));
        }
        self.switches = self.voluntary_switches().expect("it sleeps");
    }

    /// Waits until it has been awake since the last time and sleeps for a futex again; false if it ends instead.
    pub fn sleeps_again(&mut self) -> bool {
        loop {
            match self.voluntary_switches() {
                None => return false,
                Some(switches) if switches != self.switches && self.sleeps_for_a_futex() => {
                    self.switches = switches;
                    return true;
                }
                Some(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn sleeps_for_a_futex(&self) -> bool {
        let futex = format!("{} ", libc::SYS_futex);
        std::fs::read_to_string(format!("/proc/self/task/{}/syscall", self.id))
            .is_ok_and(|call| call.starts_with(&futex))
    }

    /// `None`: it has ended.
    fn voluntary_switches(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/self/task/{}/status", self.id)).ok()?;
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Some(count.expect("the kernel counts switches").trim().parse().unwrap())
    }

    /// Waits for its end.
    pub fn join(self) -> T {
        self.thread.join().unwrap()
    }
}
