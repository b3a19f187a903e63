//! Models of the reader-writer semaphore.

use std::time::Duration;

use super::{Arc, Guarded, all, check, check_three};
use crate::Unmetered;
use crate::rwsem::{NoHandoff, NoQueue, NoSteal, Policy, RawRwSem, ReadersOwn, Standard};

struct Locked<P: Policy> {
    rwsem: RawRwSem<P>,
    guarded: Guarded,
}

fn locked<P: Policy>() -> Arc<Locked<P>> {
    Arc::new(Locked { rwsem: RawRwSem::with(Unmetered), guarded: Guarded::new() })
}

fn writes<P: Policy>(locked: &Arc<Locked<P>>, times: u32) -> Box<dyn FnOnce() + Send> {
    let locked = Arc::clone(locked);
    Box::new(move || {
        for _ in 0..times {
            locked.rwsem.write();
            locked.guarded.write();
            // SAFETY: locked above.
            unsafe { locked.rwsem.unlock_write() };
        }
    })
}

fn reads<P: Policy>(locked: &Arc<Locked<P>>, times: u32) -> Box<dyn FnOnce() + Send> {
    let locked = Arc::clone(locked);
    Box::new(move || {
        for _ in 0..times {
            locked.rwsem.read();
            let _seen = locked.guarded.read();
            // SAFETY: locked above.
            unsafe { locked.rwsem.unlock_read() };
        }
    })
}

fn assert_usable<P: Policy>(locked: &Locked<P>, writes: u32) {
    locked.rwsem.write();
    assert_eq!(locked.guarded.read(), writes);
    // SAFETY: locked above.
    unsafe { locked.rwsem.unlock_write() };
    assert!(!locked.rwsem.is_locked());
}

#[test]
fn two_writers_exclude_each_other_and_both_come_through() {
    check(3, || {
        let locked = locked::<Standard>();
        all(vec![writes(&locked, 1), writes(&locked, 1)]);
        assert_usable(&locked, 2);
    });
}

#[test]
fn a_reader_and_a_writer_exclude_each_other_and_both_come_through() {
    check(3, || {
        let locked = locked::<Standard>();
        all(vec![writes(&locked, 1), reads(&locked, 2)]);
        assert_usable(&locked, 1);
    });
}

#[test]
fn three_writers_come_through() {
    check_three(|| {
        let locked = locked::<Standard>();
        all(vec![writes(&locked, 1), writes(&locked, 1), writes(&locked, 1)]);
        assert_usable(&locked, 3);
    });
}

#[test]
fn two_readers_and_a_writer_come_through() {
    check_three(|| {
        let locked = locked::<Standard>();
        all(vec![writes(&locked, 1), reads(&locked, 1), reads(&locked, 1)]);
        assert_usable(&locked, 1);
    });
}

#[test]
fn two_writers_and_a_reader_come_through_without_handoff() {
    check_three(|| {
        let locked = locked::<NoHandoff>();
        all(vec![writes(&locked, 1), reads(&locked, 1), writes(&locked, 1)]);
        assert_usable(&locked, 2);
    });
}

#[test]
fn two_writers_and_a_reader_come_through_under_every_other_policy() {
    fn come_through<P: Policy>() {
        check_three(|| {
            let locked = locked::<P>();
            all(vec![writes(&locked, 1), reads(&locked, 1), writes(&locked, 1)]);
            assert_usable(&locked, 2);
        });
    }
    come_through::<NoSteal>();
    come_through::<NoQueue>();
    come_through::<ReadersOwn>();
}

/// The one that sleeps leaves its mark, which keeps others out of the free lock: also one that has given up since.
#[test]
fn a_free_lock_that_keeps_threads_out_lets_one_in_though_all_who_slept_have_given_up() {
    check_three(|| {
        let locked = locked::<NoSteal>();
        let timed: Box<dyn FnOnce() + Send> = {
            let locked = Arc::clone(&locked);
            Box::new(move || {
                if locked.rwsem.write_for(Duration::ZERO).is_ok() {
                    // SAFETY: locked above.
                    unsafe { locked.rwsem.unlock_write() };
                }
            })
        };
        all(vec![writes(&locked, 1), timed, reads(&locked, 1)]);
        assert_usable(&locked, 1);
    });
}

#[test]
fn a_downgrade_lets_no_writer_in() {
    check_three(|| {
        let locked = locked::<Standard>();
        let downgrades: Box<dyn FnOnce() + Send> = {
            let locked = Arc::clone(&locked);
            Box::new(move || {
                locked.rwsem.write();
                locked.guarded.write();
                let before = locked.guarded.read();
                // SAFETY: locked for writing above.
                unsafe { locked.rwsem.downgrade() };
                assert_eq!(locked.guarded.read(), before, "a writer came in between");
                // SAFETY: locked for reading by the downgrade.
                unsafe { locked.rwsem.unlock_read() };
            })
        };
        all(vec![downgrades, writes(&locked, 1), reads(&locked, 1)]);
        assert_usable(&locked, 2);
    });
}

#[test]
fn a_timed_writer_that_gives_up_leaves_readers_and_writers_their_way() {
    check_three(|| {
        let locked = locked::<Standard>();
        let timed: Box<dyn FnOnce() + Send> = {
            let locked = Arc::clone(&locked);
            Box::new(move || {
                if locked.rwsem.write_for(Duration::ZERO).is_ok() {
                    // SAFETY: locked above.
                    unsafe { locked.rwsem.unlock_write() };
                }
            })
        };
        all(vec![reads(&locked, 1), timed, writes(&locked, 1)]);
        assert_usable(&locked, 1);
    });
}

/// It was woken for the first of the two releases in vain, and the second is its own.
#[cfg(shuttle)]
#[test]
fn a_woken_reader_that_waits_long_is_passed_by_one_writer() {
    check(0, || {
        let locked = locked::<Standard>();
        locked.rwsem.write();
        // SAFETY: locked by this thread, first above and then by each try that succeeds.
        let unlock = || unsafe { locked.rwsem.unlock_write() };
        let passed =
            super::times_passed(reads(&locked, 1), || locked.rwsem.sleepers(), unlock, || locked.rwsem.try_write());
        assert!(passed <= 1, "a reader that waits was passed {passed} times");
        assert_usable(&locked, 0);
    });
}

#[cfg(shuttle)]
#[test]
fn a_writer_that_sleeps_is_passed_by_no_reader() {
    check(0, || {
        let locked = locked::<Standard>();
        locked.rwsem.read();
        // SAFETY: locked by this thread, first above and then by each try that succeeds.
        let unlock = || unsafe { locked.rwsem.unlock_read() };
        let passed =
            super::times_passed(writes(&locked, 1), || locked.rwsem.sleepers(), unlock, || locked.rwsem.try_read());
        assert_eq!(passed, 0, "a writer that sleeps was passed by readers");
        assert_usable(&locked, 1);
    });
}

#[cfg(shuttle)]
#[test]
fn readers_that_wait_for_a_writer_come_in_at_once_whether_they_sleep_or_not() {
    check(0, || {
        let locked = locked::<Standard>();
        let both_are_in = Arc::new(shuttle::sync::Barrier::new(2));
        locked.rwsem.write();
        let reader = || -> Box<dyn FnOnce() + Send> {
            let (locked, both_are_in) = (Arc::clone(&locked), Arc::clone(&both_are_in));
            Box::new(move || {
                locked.rwsem.read();
                both_are_in.wait();
                // SAFETY: locked above.
                unsafe { locked.rwsem.unlock_read() };
            })
        };
        let unlocks: Box<dyn FnOnce() + Send> = {
            let locked = Arc::clone(&locked);
            Box::new(move || {
                locked.guarded.write();
                // SAFETY: locked by this thread, in which the first of all bodies runs.
                unsafe { locked.rwsem.unlock_write() };
            })
        };
        all(vec![unlocks, reader(), reader()]);
        assert_usable(&locked, 1);
    });
}

#[cfg(shuttle)]
fn until_asleep(locked: &Locked<Standard>, threads: usize) {
    while locked.rwsem.sleepers() < threads {
        shuttle::thread::yield_now();
    }
}

#[cfg(shuttle)]
#[test]
fn a_downgrade_lets_a_reader_in_that_sleeps_beside_a_writer() {
    check(0, || {
        let locked = locked::<Standard>();
        let both_are_in = Arc::new(shuttle::sync::Barrier::new(2));
        locked.rwsem.write();
        let reader: Box<dyn FnOnce() + Send> = {
            let (locked, both_are_in) = (Arc::clone(&locked), Arc::clone(&both_are_in));
            Box::new(move || {
                locked.rwsem.read();
                both_are_in.wait();
                // SAFETY: locked above.
                unsafe { locked.rwsem.unlock_read() };
            })
        };
        let downgrades: Box<dyn FnOnce() + Send> = {
            let locked = Arc::clone(&locked);
            Box::new(move || {
                until_asleep(&locked, 2);
                // SAFETY: locked by this thread, in which the first of all bodies runs.
                unsafe { locked.rwsem.downgrade() };
                both_are_in.wait();
                // SAFETY: locked for reading by the downgrade.
                unsafe { locked.rwsem.unlock_read() };
            })
        };
        all(vec![downgrades, reader, writes(&locked, 1)]);
        assert_usable(&locked, 1);
    });
}

#[cfg(shuttle)]
#[test]
fn a_writer_that_sleeps_beside_readers_keeps_those_out_that_come() {
    check(0, || {
        let locked = locked::<Standard>();
        locked.rwsem.write();
        let reads_on: Box<dyn FnOnce() + Send> = {
            let locked = Arc::clone(&locked);
            Box::new(move || {
                until_asleep(&locked, 1);
                // SAFETY: locked by this thread, in which the first of all bodies runs.
                unsafe { locked.rwsem.downgrade() };
                while locked.rwsem.try_read() {
                    // SAFETY: locked twice, by the try and before; once it stays locked.
                    unsafe { locked.rwsem.unlock_read() };
                    shuttle::thread::yield_now();
                }
                // SAFETY: locked for reading.
                unsafe { locked.rwsem.unlock_read() };
            })
        };
        all(vec![reads_on, writes(&locked, 1)]);
        assert_usable(&locked, 1);
    });
}

#[cfg(shuttle)]
#[test]
fn a_crowd_of_readers_writers_and_timed_ones_comes_through() {
    crowd_comes_through::<Standard>();
}

#[cfg(shuttle)]
#[test]
fn a_crowd_that_does_not_steal_comes_through() {
    crowd_comes_through::<NoSteal>();
}

#[cfg(shuttle)]
fn crowd_comes_through<P: Policy>() {
    check(0, || {
        let locked = locked::<P>();
        let timed = |locked: &Arc<Locked<P>>| -> Box<dyn FnOnce() + Send> {
            let locked = Arc::clone(locked);
            Box::new(move || {
                if locked.rwsem.write_for(Duration::ZERO).is_ok() {
                    // SAFETY: locked above.
                    unsafe { locked.rwsem.downgrade() };
                    let _seen = locked.guarded.read();
                    // SAFETY: locked for reading by the downgrade.
                    unsafe { locked.rwsem.unlock_read() };
                }
                if locked.rwsem.read_for(Duration::ZERO).is_ok() {
                    let _seen = locked.guarded.read();
                    // SAFETY: locked above.
                    unsafe { locked.rwsem.unlock_read() };
                }
            })
        };
        all(vec![writes(&locked, 2), reads(&locked, 2), writes(&locked, 1), reads(&locked, 2), timed(&locked)]);
        assert_usable(&locked, 3);
    });
}
