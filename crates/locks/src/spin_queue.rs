//! A queue of spinners: the first in it spins on the lock, the others each on a word of their own, so that a lock's cache line
//! moves between its holder and one waiter only.
//!
//! The algorithm is that of Linux's `kernel/locking/osq_lock.c`: an MCS queue that can be left at any time. A queued thread that
//! loses patience, or sees that the one before it does not run, unlinks itself, so that a preempted spinner stalls nobody for
//! longer than the patience of those behind it. The places are the threads' records, which are never freed: a thread that
//! leaves may still look at the place of one that has left.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use crate::sync::{AtomicU16, AtomicU32, const_unless_model, mutated, spin_loop, yield_now};
use crate::threads::{self, Slot, UNKNOWN, record, short};

/// Others are before this thread.
const NOT_YET: u32 = 0;
/// It is this thread's turn.
const OWN_TURN: u32 = 1;
/// The same, and the one before has left it a duty.
const ON_DUTY: u32 = 2;

/// A thread's place in a queue. A thread is in one queue at a time.
#[derive(Debug)]
pub(crate) struct Node {
    /// The thread behind.
    next: AtomicU32,
    /// The thread before.
    prev: AtomicU32,
    /// [`NOT_YET`], [`OWN_TURN`] or [`ON_DUTY`].
    turn: AtomicU32,
    /// 1: in use. Only its own thread looks; true there only in a signal handler.
    busy: AtomicU32,
}

impl Node {
    const_unless_model! {
        pub(crate) const fn new() -> Self {
            Node {
                next: AtomicU32::new(UNKNOWN),
                prev: AtomicU32::new(UNKNOWN),
                turn: AtomicU32::new(NOT_YET),
                busy: AtomicU32::new(0),
            }
        }
    }
}

impl Node {
    /// A thread has it anew: it is in no queue. The one that had it before may have been, in the process that this one was forked from.
    #[cfg(any(feature = "std", feature = "preload", loom, shuttle))]
    pub(crate) fn leave_behind(&self) {
        self.busy.store(0, Relaxed);
    }

    /// Whether its thread is in a queue, or died there.
    #[cfg(all(feature = "std", not(feature = "preload"), not(any(loom, shuttle))))]
    pub(crate) fn is_in_queue(&self) -> bool {
        self.busy.load(Relaxed) != 0
    }
}

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
    own: Slot,
}

impl SpinQueue {
    const_unless_model! {
        pub(crate) const fn new() -> Self {
            SpinQueue { tail: AtomicU16::new(short(UNKNOWN)) }
        }
    }

    /// Drops all that are queued: they are threads of another process.
    pub(crate) fn drop_all(&self) {
        self.tail.store(short(UNKNOWN), Relaxed);
    }

    /// Queues until first. `None` if `lost_patience`, which is asked again and again with the thread before, said so, or if
    /// this thread has no place to queue with.
    pub(crate) fn enter(&self, mut lost_patience: impl FnMut(Slot) -> bool) -> Option<Turn<'_>> {
        let own = threads::own_slot()?;
        let node = &record(own).node;
        if node.busy.load(Relaxed) != 0 {
            return None;
        }
        node.busy.store(1, Relaxed);
        node.next.store(UNKNOWN, Relaxed);
        node.turn.store(NOT_YET, Relaxed);
        // Publishes the node; and what the last spinner did before it left is seen.
        let Some(prev) = Slot::from_number(self.tail.swap(short(own.number()), AcqRel).into()) else {
            return Some(Turn { queue: self, own });
        };
        node.prev.store(prev.number(), Relaxed);
        // Behind the store to `prev`: who finds us through `next` may unlink itself, and then writes our `prev`.
        record(prev).node.next.store(own.number(), Release);
        loop {
            if node.turn.load(Acquire) != NOT_YET {
                return Some(Turn { queue: self, own });
            }
            let prev = Slot::from_number(node.prev.load(Relaxed)).unwrap_or(prev);
            if lost_patience(prev) {
                let turn = self.unlink(own);
                if turn.is_none() {
                    node.busy.store(0, Relaxed);
                }
                return turn;
            }
        }
    }

    /// Leaves the middle of the queue, unless it became our turn meanwhile.
    fn unlink(&self, own: Slot) -> Option<Turn<'_>> {
        let node = &record(own).node;
        let mut patience = Stall::new();
        // The one before must not give us the turn any more.
        let prev = loop {
            let prev = node.prev.load(Acquire);
            if let Some(before) = Slot::from_number(prev) {
                let next = &record(before).node.next;
                if next.load(Relaxed) == own.number()
                    && next.compare_exchange(own.number(), UNKNOWN, AcqRel, Relaxed).is_ok()
                {
                    break prev;
                }
            }
            // It gives us the turn just now, or it leaves itself and gives us another one before us.
            if node.turn.load(Acquire) != NOT_YET {
                return Some(Turn { queue: self, own });
            }
            patience.wait();
        };
        // The one behind must not leave before it has another one before it.
        if let Some(next) = self.next_or_last(own, prev) {
            if !mutated!("queue-unlink-keeps-prev", true, false) {
                record(next).node.prev.store(prev, Release);
            }
            if let Some(prev) = Slot::from_number(prev) {
                record(prev).node.next.store(next.number(), Release);
            }
        }
        None
    }

    /// The one behind `own`, taken out of its `next`; or `None` after `last` took our place as the tail.
    fn next_or_last(&self, own: Slot, last: u32) -> Option<Slot> {
        let node = &record(own).node;
        let mut patience = Stall::new();
        loop {
            if self.tail.load(Relaxed) == short(own.number())
                && self.tail.compare_exchange(short(own.number()), short(last), SeqCst, Relaxed).is_ok()
            {
                return None;
            }
            // Taken by an exchange: the one behind may be leaving, and take itself out.
            if node.next.load(Relaxed) != UNKNOWN
                && let Some(next) = Slot::from_number(node.next.swap(UNKNOWN, AcqRel))
            {
                return Some(next);
            }
            patience.wait();
        }
    }
}

impl Turn<'_> {
    /// Whether another spinner is queued behind this one.
    pub(crate) fn has_successor(&self) -> bool {
        self.queue.tail.load(SeqCst) != short(self.own.number())
    }
}

impl Turn<'_> {
    /// Whether the one before has left its duty to this one.
    pub(crate) fn is_on_duty(&self) -> bool {
        record(self.own).node.turn.load(Relaxed) == ON_DUTY
    }

    /// Ends the turn and leaves a duty to the next; false if there is none.
    pub(crate) fn leave_on_duty(self) -> bool {
        core::mem::ManuallyDrop::new(self).leave(ON_DUTY)
    }

    fn leave(&self, turn: u32) -> bool {
        let next = self.queue.next_or_last(self.own, UNKNOWN);
        if let Some(next) = next {
            record(next).node.turn.store(turn, mutated!("queue-turn-release", Relaxed, Release));
        }
        record(self.own).node.busy.store(0, Relaxed);
        next.is_some()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.leave(OWN_TURN);
    }
}

/// Waiting for another thread to make its next few steps: it is in the middle of them, unless it was preempted there.
struct Stall {
    spins: u32,
}

impl Stall {
    /// Those steps take less; a thread that takes longer does not run.
    const SPINS: u32 = 64;

    fn new() -> Self {
        Stall { spins: 0 }
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
