//! The locks that a thread holds.

use std::cell::RefCell;
use std::collections::HashSet;

use super::graph::{Edge, LockClass, Node, Site, graph};
use super::report;

#[derive(Debug, Clone, Copy)]
struct Held {
    /// Its address, which tells the locks of a class apart.
    lock: usize,
    node: Node,
    since: Site,
}

#[derive(Debug, Default)]
struct OfThread {
    held: Vec<Held>,
    /// Orders that this thread knows to be noted, so that taking locks as always needs no lock.
    known: HashSet<(Node, Node)>,
}

std::thread_local! {
    static OF_THREAD: RefCell<OfThread> = RefCell::default();
}

/// The thread is about to wait for this lock, or to take it: checks the order, before it may be too late.
pub(super) fn acquire(class: &LockClass, subclass: u8, at: Site) {
    let node = Node { class: class.number(), subclass };
    // A thread that is ending has no place for this any more.
    let new = OF_THREAD.try_with_borrow_mut(|thread| {
        let edges =
            thread.held.iter().map(|held| Edge { from: held.node, held_since: held.since, to: node, taken_at: at });
        edges.filter(|edge| !thread.known.contains(&(edge.from, edge.to))).collect::<Vec<_>>()
    });
    for edge in new.unwrap_or_default() {
        let circle = graph().note(edge);
        let _ = OF_THREAD.try_with_borrow_mut(|thread| thread.known.insert((edge.from, edge.to)));
        if let Some(back) = circle {
            // Without any lock, and outside of the thread's own record: the hook may panic, or use locks.
            report::report(edge, &back);
        }
    }
    push(class, subclass, at);
}

/// The thread has this lock, or will have it.
pub(super) fn push(class: &LockClass, subclass: u8, at: Site) {
    let node = Node { class: class.number(), subclass };
    let held = Held { lock: std::ptr::from_ref(class).addr(), node, since: at };
    let _ = OF_THREAD.try_with_borrow_mut(|thread| thread.held.push(held));
}

/// The thread gives this lock back. One that was unlocked by another thread stays with the one that locked it.
pub(super) fn release(class: &LockClass) {
    let lock = std::ptr::from_ref(class).addr();
    let _ = OF_THREAD.try_with_borrow_mut(|thread| {
        if let Some(place) = thread.held.iter().rposition(|held| held.lock == lock) {
            thread.held.remove(place);
        }
    });
}

/// `try_with` and `borrow_mut` in one.
trait TryWithBorrowMut<T> {
    fn try_with_borrow_mut<R>(&'static self, of: impl FnOnce(&mut T) -> R) -> Option<R>;
}

impl<T> TryWithBorrowMut<T> for std::thread::LocalKey<RefCell<T>> {
    fn try_with_borrow_mut<R>(&'static self, of: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.try_with(|cell| cell.try_borrow_mut().ok().map(|mut value| of(&mut value))).ok().flatten()
    }
}
