//! Models of the queue of spinners: a turn is as exclusive as a lock, no matter who leaves the queue meanwhile.

use super::{Arc, Guarded, all, check};
use crate::spin_queue::SpinQueue;

struct Queued {
    queue: SpinQueue,
    guarded: Guarded,
}

/// Waits for its turn, or leaves after `polls` polls.
fn waits(queued: &Arc<Queued>, polls: u32) -> Box<dyn FnOnce() + Send> {
    let queued = Arc::clone(queued);
    Box::new(move || {
        let mut polled = 0;
        let turn = queued.queue.enter(|_before| {
            polled += 1;
            crate::sync::yield_now();
            polled >= polls
        });
        if turn.is_some() {
            queued.guarded.write();
        }
    })
}

fn assert_empty(queued: &Queued) {
    let turn = queued.queue.enter(|_before| panic!("a thread is still in the queue"));
    assert!(turn.is_some_and(|turn| turn.is_last()));
}

fn queued() -> Arc<Queued> {
    Arc::new(Queued { queue: SpinQueue::new(), guarded: Guarded::new() })
}

#[test]
fn two_threads_take_turns_or_leave() {
    check(4, || {
        let queued = queued();
        all(vec![waits(&queued, 2), waits(&queued, 2)]);
        assert_empty(&queued);
    });
}

// Two are all that loom gets through: the third's waiting for the other two has no end there.
#[cfg(shuttle)]
#[test]
fn three_threads_take_turns_and_leave_the_middle() {
    check(2, || {
        let queued = queued();
        all(vec![waits(&queued, 2), waits(&queued, 1), waits(&queued, 2)]);
        assert_empty(&queued);
    });
}

#[cfg(shuttle)]
#[test]
fn five_threads_take_turns_and_leave_anywhere() {
    check(0, || {
        let queued = queued();
        all((1..=5).map(|polls| waits(&queued, polls)).collect());
        assert_empty(&queued);
    });
}

#[cfg(shuttle)]
#[test]
fn all_whose_time_is_up_leave_while_the_first_keeps_its_turn() {
    check(0, || {
        let queued = queued();
        let turn = queued.queue.enter(|_before| unreachable!("no thread is in the queue"));
        // The first of these runs in this thread, which is in the queue already.
        all([0, 1, 2, 3].map(|polls| waits(&queued, polls)).into());
        assert!(turn.is_some_and(|turn| turn.is_last()));
    });
}
