//! Threads that sleep in the kernel until a lock is released.

use std::sync::mpsc;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

/// A thread of a test, known to the kernel by its number.
pub struct Sleeper<'scope, T> {
    thread: ScopedJoinHandle<'scope, T>,
    id: libc::pid_t,
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
        Self { thread, id: receiver.recv().unwrap() }
    }

    /// Waits until it sleeps for a futex.
    pub fn await_sleep(&self) {
        let path = format!("/proc/self/task/{}/syscall", self.id);
        let futex = format!("{} ", libc::SYS_futex);
        while !std::fs::read_to_string(&path).expect("the thread lives").starts_with(&futex) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for its end.
    pub fn join(self) -> T {
        self.thread.join().unwrap()
    }
}
