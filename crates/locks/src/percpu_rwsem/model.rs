//! Counters for the model checkers: rseq and membarrier as they really behave, on two CPUs.
//!
//! A sequence begins at some point of its CPU's time, looks at the gate whenever it likes (what it sees may be old), and then
//! changes the counter, unless a barrier reached its CPU in between: then it starts again. A barrier reaches one CPU after the
//! other, at any moment. A mutex stands for a CPU's time, which is what the interrupt and the last instruction of a sequence
//! are ordered by.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

#[cfg(loom)]
use loom::sync::Mutex;
#[cfg(shuttle)]
use shuttle::sync::Mutex;

use crate::sync::{AtomicU32, mutated};

#[derive(Debug, Default)]
struct Cpu {
    /// Barriers that have reached it.
    barriers: u32,
    /// What its counter says.
    count: i64,
}

/// A lock's counters.
#[derive(Debug)]
pub(super) struct Counters {
    /// 0: closed.
    gate: AtomicU32,
    cpus: [Mutex<Cpu>; 2],
}

/// Readers come in on one CPU and leave on the other, as a thread that the kernel moves does.
const ENTRY: usize = 0;
const EXIT: usize = 1;

impl Counters {
    pub(super) fn new(_striped: bool) -> Self {
        Counters { gate: AtomicU32::new(0), cpus: [Mutex::new(Cpu::default()), Mutex::new(Cpu::default())] }
    }

    fn count(&self, cpu: usize, change: i64) -> bool {
        loop {
            let begun = self.cpus[cpu].lock().unwrap().barriers;
            // Acquire, as every load is on x86-64.
            if self.gate.load(Acquire) == 0 {
                return false;
            }
            let mut cpu = self.cpus[cpu].lock().unwrap();
            if cpu.barriers == begun {
                cpu.count += change;
                return true;
            }
        }
    }

    pub(super) fn enter_at_once(&self) -> bool {
        self.count(ENTRY, 1)
    }

    pub(super) fn leave_at_once(&self) -> bool {
        self.count(EXIT, -1)
    }

    pub(super) fn enter(&self) -> bool {
        self.enter_at_once()
    }

    pub(super) fn leave(&self) -> bool {
        self.leave_at_once()
    }

    pub(super) fn serve_this_thread(&self) -> bool {
        true
    }

    pub(super) fn prepare(&self) -> bool {
        true
    }

    pub(super) fn open(&self) {
        self.cpus[ENTRY].lock().unwrap().count = 1;
        self.gate.store(1, core::sync::atomic::Ordering::Release);
    }

    pub(super) fn close(&self) -> i64 {
        self.gate.store(0, Relaxed);
        if mutated!("percpu-no-barrier", false, true) {
            for cpu in &self.cpus {
                cpu.lock().unwrap().barriers += 1;
            }
        }
        self.cpus.iter().map(|cpu| core::mem::take(&mut cpu.lock().unwrap().count)).sum()
    }
}
