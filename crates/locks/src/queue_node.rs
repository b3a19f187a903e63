//! A thread's node in a [queue of spinners](crate::spin_queue). A thread is in one queue at a time.

#[cfg(any(feature = "std", loom, shuttle))]
use core::sync::atomic::Ordering::Relaxed;

use crate::sync::{AtomicU32, const_unless_model};
use crate::thread_number::UNKNOWN;

#[derive(Debug)]
pub(crate) struct QueueNode {
    /// The thread behind.
    pub(crate) next: AtomicU32,
    /// The thread before.
    pub(crate) prev: AtomicU32,
    /// 1: first in the queue.
    pub(crate) is_first: AtomicU32,
    /// 1: in use. Only its own thread reads it; true there only in a signal handler.
    pub(crate) busy: AtomicU32,
}

impl QueueNode {
    const_unless_model! {
        pub(crate) const fn new() -> Self {
            QueueNode {
                next: AtomicU32::new(UNKNOWN),
                prev: AtomicU32::new(UNKNOWN),
                is_first: AtomicU32::new(0),
                busy: AtomicU32::new(0),
            }
        }
    }

    /// A new thread has the node: it is in no queue. The thread that had it before may have been, in the process that this one was forked
    /// from.
    #[cfg(any(feature = "std", loom, shuttle))]
    pub(crate) fn reset(&self) {
        self.busy.store(0, Relaxed);
    }

    /// Whether its thread is in a queue, or died there.
    #[cfg(all(feature = "std", not(any(loom, shuttle))))]
    pub(crate) fn is_in_queue(&self) -> bool {
        self.busy.load(Relaxed) != 0
    }
}
