//! A reader-writer semaphore whose readers share no cache line.
//!
//! A central lock, an ordinary reader-writer lock, has a bias towards readers put over it: after some reads without a write,
//! readers count themselves on the CPU they run on, and a writer ends the bias before it queues at the central lock. The idea of
//! a bias that a writer revokes is BRAVO's (Dice and Kogan, USENIX ATC 2019), that of counters per CPU the kernel's
//! `percpu_rw_semaphore`; here the bias ends with `membarrier` and rseq, which hand the count over exactly.

mod bias;
#[cfg(not(any(loom, shuttle)))]
mod counters;
#[cfg(any(loom, shuttle))]
mod model;
#[cfg(all(test, any(loom, shuttle)))]
mod model_checks;
#[cfg(all(test, any(loom, shuttle)))]
mod plain;
#[cfg(not(any(loom, shuttle)))]
mod raw;
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
mod rseq;
#[cfg(not(any(loom, shuttle)))]
mod slots;

#[cfg(not(any(loom, shuttle)))]
pub use raw::{PercpuRwLock, RawPercpuRwSem};
