//! Models of the spinlock.

use super::{Arc, Guarded, all, check};
use crate::RawSpin;

struct Locked {
    spin: RawSpin,
    guarded: Guarded,
}

fn add_one(locked: &Arc<Locked>) -> Box<dyn FnOnce() + Send> {
    let locked = Arc::clone(locked);
    Box::new(move || {
        locked.spin.lock();
        locked.guarded.write();
        // SAFETY: locked above.
        unsafe { locked.spin.unlock() };
    })
}

fn come_through(threads: u32, preemptions: usize) {
    check(preemptions, move || {
        let locked = Arc::new(Locked { spin: RawSpin::new(), guarded: Guarded::new() });
        all((0..threads).map(|_| add_one(&locked)).collect());
        locked.spin.lock();
        assert_eq!(locked.guarded.read(), threads);
        // SAFETY: locked above.
        unsafe { locked.spin.unlock() };
        assert!(!locked.spin.is_locked());
    });
}

#[test]
fn two_threads_exclude_each_other() {
    come_through(2, 3);
}

#[cfg(shuttle)]
#[test]
fn five_threads_exclude_each_other() {
    come_through(5, 0);
}
