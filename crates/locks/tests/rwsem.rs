//! The reader-writer semaphore on the real machine.

mod passing;
mod sleepers;

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use lock_api::RwLock as AnyRwLock;
use lockmeter_locks::rwsem::{
    NoHandoff, NoQueue, NoReaderSpin, NoSpin, NoSteal, Policy, ReaderOwner, ReadersOwn, Standard,
};
use lockmeter_locks::{RawRwSem, RwLock, RwLockWriteGuard, Unmetered};
use sleepers::Sleeper;

/// Writers and readers, more of them than CPUs, with every way to lock; nobody must see a write half done.
fn mixed<P: Policy>() {
    let pair: AnyRwLock<RawRwSem<P>, (u64, u64)> = AnyRwLock::new((0, 0));
    let inside = AtomicI64::new(0);
    thread::scope(|scope| {
        for thread in 0..6_u64 {
            let (pair, inside) = (&pair, &inside);
            scope.spawn(move || {
                for round in 0..10_000_u64 {
                    if (thread + round) % 3 == 0 {
                        let mut written = pair.write();
                        assert_eq!(inside.swap(-1, Relaxed), 0, "a writer came in while somebody was inside");
                        written.0 += 1;
                        written.1 += 1;
                        inside.store(0, Relaxed);
                    } else if let Some(read) = pair.try_read_for(Duration::from_millis(50)) {
                        assert!(inside.fetch_add(1, Relaxed) >= 0, "a reader came in while a writer was inside");
                        assert_eq!(read.0, read.1);
                        inside.fetch_sub(1, Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(pair.read().0, 20_000);
    assert!(pair.try_write().is_some());
}

#[test]
fn readers_and_writers_exclude_each_other_under_every_policy() {
    mixed::<Standard>();
    mixed::<NoSpin>();
    mixed::<NoHandoff>();
    mixed::<NoReaderSpin>();
    mixed::<NoQueue>();
    mixed::<NoSteal>();
    mixed::<ReadersOwn>();
}

/// As small as a mutex: with data of a few words beside it, a writer then touches one cache line where it would else touch two.
#[cfg(not(feature = "lockdep"))]
#[test]
fn a_semaphore_is_small() {
    assert!(size_of::<RawRwSem>() <= 16, "the fields have grown: docs/use/lock-library.md says 16 bytes");
}

#[test]
fn a_downgraded_writer_lets_readers_in_and_no_writer() {
    let number = RwLock::new(1);
    let written = number.write();
    thread::scope(|scope| {
        let mut reader = Sleeper::start(scope, || *number.read());
        reader.await_sleep();
        let mut writer = Sleeper::start(scope, || *number.write() = 3);
        writer.await_sleep();
        let read = RwLockWriteGuard::downgrade(written);
        assert_eq!(reader.join(), 1);
        writer.await_sleep();
        assert_eq!(*read, 1, "a writer came in");
        drop(read);
        writer.join();
    });
    assert_eq!(*number.read(), 3);
}

#[test]
fn a_timed_writer_that_gives_up_lets_readers_in_again() {
    let lock = RwLock::new(());
    let read = lock.read();
    thread::scope(|scope| {
        scope.spawn(|| assert!(lock.try_write_for(Duration::from_millis(30)).is_none()));
        // By now the writer has had the lock reserved, and this one has to wait until it gives up.
        thread::sleep(Duration::from_millis(10));
        scope.spawn(|| assert!(lock.try_read_for(Duration::from_secs(10)).is_some()));
    });
    drop(read);
    assert!(lock.try_write().is_some());
}

/// How often writers pass a reader that waits for them.
fn times_writers_pass_a_reader<P: Policy>() -> usize {
    let lock = RawRwSem::<P>::with(Unmetered);
    lock.write();
    let waits = || {
        lock.read();
        // SAFETY: locked by this thread.
        unsafe { lock.unlock_read() };
    };
    // SAFETY: locked by this thread, first above and then by each try that succeeds.
    passing::times_passed(waits, || unsafe { lock.unlock_write() }, || lock.try_write())
}

/// How often readers pass a writer that waits for them.
fn times_readers_pass_a_writer<P: Policy>() -> usize {
    let lock = RawRwSem::<P>::with(Unmetered);
    lock.read();
    let waits = || {
        lock.write();
        // SAFETY: locked by this thread.
        unsafe { lock.unlock_write() };
    };
    // SAFETY: locked by this thread, first above and then by each try that succeeds.
    passing::times_passed(waits, || unsafe { lock.unlock_read() }, || lock.try_read())
}

/// The reader was woken for the first of the two releases in vain, and the second is its own. Without handoffs it would be passed more often.
#[test]
fn a_reader_that_waits_long_is_passed_by_one_writer() {
    for round in 0..10 {
        let passed = times_writers_pass_a_reader::<Standard>();
        assert!(passed <= 1, "a reader that waits was passed {passed} times in round {round}");
    }
    let passed = (0..20).map(|_| times_writers_pass_a_reader::<NoHandoff>());
    assert!(passed.max() > Some(1), "this test cannot fail");
}

#[test]
fn a_writer_that_sleeps_is_passed_by_no_reader() {
    for round in 0..10 {
        let passed = times_readers_pass_a_writer::<Standard>();
        assert_eq!(passed, 0, "a writer that sleeps was passed by readers in round {round}");
    }
    let passed = (0..20).map(|_| times_readers_pass_a_writer::<NoHandoff>());
    assert!(passed.max() > Some(1), "this test cannot fail");
}

/// A thread that comes waits behind those that sleep, where it may steal nothing; a lock that may be stolen is.
#[test]
fn without_stealing_no_thread_passes_one_that_sleeps() {
    for round in 0..10 {
        assert_eq!(times_writers_pass_a_reader::<NoSteal>(), 0, "a reader that sleeps was passed in round {round}");
        assert_eq!(times_readers_pass_a_writer::<NoSteal>(), 0, "a writer that sleeps was passed in round {round}");
    }
    assert!((0..20).map(|_| times_writers_pass_a_reader::<Standard>()).max() > Some(0), "this test cannot fail");
}

/// All that sleep have given up, and nobody is woken: the marks that they left keep nobody out for good.
#[test]
fn without_stealing_a_lock_is_free_after_all_who_slept_have_given_up() {
    let lock = RawRwSem::<NoSteal>::with(Unmetered);
    for reads in [false, true] {
        lock.write();
        thread::scope(|scope| {
            scope.spawn(|| {
                let wait = Duration::from_millis(5);
                assert!(if reads { lock.read_for(wait) } else { lock.write_for(wait) }.is_err());
            });
        });
        // SAFETY: locked above, and by the tries.
        unsafe {
            lock.unlock_write();
            assert!(lock.try_read());
            lock.unlock_read();
            assert!(lock.try_write());
            lock.unlock_write();
        }
    }
}

/// Of readers: who owns the lock, by how often each begins and ends.
#[derive(Default)]
struct Balance;

static BEGUN: AtomicI64 = AtomicI64::new(0);
static ENDED: AtomicI64 = AtomicI64::new(0);

impl ReaderOwner for Balance {
    const NONE: Self = Balance;

    fn begin(&self) {
        BEGUN.fetch_add(1, Relaxed);
    }

    fn end(&self) {
        ENDED.fetch_add(1, Relaxed);
    }

    fn number(&self) -> u32 {
        0
    }
}

struct Counted;

impl Policy for Counted {
    type Reader = Balance;
}

#[test]
fn whichever_way_readers_come_in_each_becomes_owner_once() {
    let lock = RawRwSem::<Counted>::with(Unmetered);
    let begun = || BEGUN.load(Relaxed);
    lock.read();
    assert!(lock.try_read() && lock.try_read_again() && lock.read_for(Duration::from_secs(1)).is_ok());
    assert_eq!(begun(), 4);
    // SAFETY: read four times.
    (0..4).for_each(|_| unsafe { lock.unlock_read() });
    lock.write();
    thread::scope(|scope| {
        let mut reader = Sleeper::start(scope, || lock.read());
        reader.await_sleep();
        assert!(!lock.try_read() && lock.read_for(Duration::ZERO).is_err());
        assert_eq!(begun(), 4, "nobody else had the lock");
        // SAFETY: locked above.
        unsafe { lock.downgrade() };
        reader.join();
    });
    assert_eq!(begun(), 6);
    // SAFETY: read by the downgrade, and by the thread.
    (0..2).for_each(|_| unsafe { lock.unlock_read() });
    assert_eq!(ENDED.load(Relaxed), 6);
    assert!(!lock.is_locked());
}

#[test]
fn a_signal_interrupts_a_wait_that_asked_for_it() {
    extern "C" fn nothing(_signal: libc::c_int) {}
    let lock = RawRwSem::new();
    lock.write();
    // SAFETY: the handler does nothing; without SA_RESTART, and with no other user of the signal in this program.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let lock = &lock;
        let waiter = scope.spawn(move || {
            // SAFETY: has no preconditions.
            sender.send(unsafe { libc::pthread_self() }).unwrap();
            lock.write_interruptible()
        });
        let thread = receiver.recv().unwrap();
        while !waiter.is_finished() {
            thread::sleep(Duration::from_millis(5));
            // SAFETY: the thread is not joined yet.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
        }
        assert_eq!(waiter.join().unwrap(), Err(lockmeter_locks::NotAcquired::Interrupted));
    });
    // SAFETY: locked above.
    unsafe { lock.unlock_write() };
    assert!(lock.try_write());
}
