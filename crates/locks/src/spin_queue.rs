//! A queue of spinners: the first in it spins on the lock, the others each on a word of their own, so that a lock's cache line
//! moves between its holder and one waiter only.
//!
//! The algorithm is that of Linux's `kernel/locking/osq_lock.c`: an MCS queue that can be left at any time. A queued thread whose
//! time is up, or that sees that the one before it does not run, unlinks itself, so that a preempted spinner stalls no thread for
//! longer than those behind it spin. The nodes are those of the threads' records, which are never freed: a thread that
//! leaves may still read the node of one that has left.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use crate::current_thread;
use crate::sync::{AtomicU16, const_unless_model, mutated, spin_loop, yield_now};
use crate::thread_number::{SHORT_UNKNOWN, ThreadNumber, UNKNOWN};
use crate::thread_record::record;

/// The queue: the number of the last thread in it, or 0.
#[derive(Debug)]
pub(crate) struct SpinQueue {
    tail: AtomicU16,
}

/// Being first in a queue.
#[derive(Debug)]
#[must_use]
pub(crate) struct Turn<'a> {
    queue: &'a SpinQueue,
    own: ThreadNumber,
}

impl SpinQueue {
    const_unless_model! {
        pub(crate) const fn new() -> Self {
            SpinQueue { tail: AtomicU16::new(SHORT_UNKNOWN) }
        }
    }

    /// Drops all that are queued: they are threads of another process.
    pub(crate) fn drop_all(&self) {
        self.tail.store(SHORT_UNKNOWN, Relaxed);
    }

    /// Queues until first. `None` if `gives_up` said so, which is called again and again with the thread before, or if this thread has no
    /// node to queue with.
    pub(crate) fn enter(&self, mut gives_up: impl FnMut(ThreadNumber) -> bool) -> Option<Turn<'_>> {
        let own = current_thread::own_number()?;
        let node = &record(own).node;
        if node.busy.load(Relaxed) != 0 {
            return None;
        }
        node.busy.store(1, Relaxed);
        node.next.store(UNKNOWN, Relaxed);
        node.is_first.store(0, Relaxed);
        // Publishes the node; and what the last spinner did before it left is seen.
        let Some(prev) = ThreadNumber::new(self.tail.swap(own.short(), AcqRel).into()) else {
            return Some(Turn { queue: self, own });
        };
        node.prev.store(prev.get(), Relaxed);
        // Behind the store to `prev`: a thread that finds us through `next` may unlink itself, and then writes our `prev`.
        record(prev).node.next.store(own.get(), Release);
        loop {
            if node.is_first.load(Acquire) != 0 {
                return Some(Turn { queue: self, own });
            }
            let prev = ThreadNumber::new(node.prev.load(Relaxed)).unwrap_or(prev);
            if gives_up(prev) {
                let turn = self.unlink(own);
                if turn.is_none() {
                    node.busy.store(0, Relaxed);
                }
                return turn;
            }
        }
    }

    /// Leaves the middle of the queue, unless it became our turn meanwhile.
    fn unlink(&self, own: ThreadNumber) -> Option<Turn<'_>> {
        let node = &record(own).node;
        let mut neighbour = NeighbourWait::new();
        // The one before must not give us the turn any more.
        let prev = loop {
            let prev = node.prev.load(Acquire);
            if let Some(before) = ThreadNumber::new(prev) {
                let next = &record(before).node.next;
                if next.load(Relaxed) == own.get() && next.compare_exchange(own.get(), UNKNOWN, AcqRel, Relaxed).is_ok()
                {
                    break prev;
                }
            }
            // It gives us the turn just now, or it leaves itself and gives us another one before us.
            if node.is_first.load(Acquire) != 0 {
                return Some(Turn { queue: self, own });
            }
            neighbour.wait();
        };
        // The one behind must not leave before it has another one before it.
        if let Some(next) = self.next_or_last(own, prev) {
            if !mutated!("queue-unlink-keeps-prev", true, false) {
                record(next).node.prev.store(prev, Release);
            }
            if let Some(prev) = ThreadNumber::new(prev) {
                record(prev).node.next.store(next.get(), Release);
            }
        }
        None
    }

    /// The one behind `own`, taken out of its `next`; or `None` after `last` took our place as the tail.
    fn next_or_last(&self, own: ThreadNumber, last: u32) -> Option<ThreadNumber> {
        let node = &record(own).node;
        let last = ThreadNumber::new(last).map_or(SHORT_UNKNOWN, ThreadNumber::short);
        let mut neighbour = NeighbourWait::new();
        loop {
            if self.tail.load(Relaxed) == own.short()
                && self.tail.compare_exchange(own.short(), last, SeqCst, Relaxed).is_ok()
            {
                return None;
            }
            // Taken by an exchange: the one behind may be leaving, and take itself out.
            if node.next.load(Relaxed) != UNKNOWN
                && let Some(next) = ThreadNumber::new(node.next.swap(UNKNOWN, AcqRel))
            {
                return Some(next);
            }
            neighbour.wait();
        }
    }
}

#[cfg(all(test, any(loom, shuttle)))]
impl Turn<'_> {
    /// Whether no thread is queued behind this one.
    pub(crate) fn is_last(&self) -> bool {
        self.queue.tail.load(SeqCst) == self.own.short()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(next) = self.queue.next_or_last(self.own, UNKNOWN) {
            record(next).node.is_first.store(1, mutated!("queue-turn-release", Relaxed, Release));
        }
        record(self.own).node.busy.store(0, Relaxed);
    }
}

/// Waiting for another thread to make its next few steps: it is in the middle of them, unless it was preempted there.
struct NeighbourWait {
    spins: u32,
}

impl NeighbourWait {
    /// Those steps take less; a thread that takes longer does not run.
    const SPINS: u32 = 64;

    fn new() -> Self {
        NeighbourWait { spins: 0 }
    }

    fn wait(&mut self) {
        if self.spins < Self::SPINS {
            self.spins += 1;
            spin_loop();
        } else {
            yield_now();
        }
    }
}
