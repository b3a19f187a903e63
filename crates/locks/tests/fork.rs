//! Locks that a thread holds while it forks, and that others wait for: in the child those others do not exist.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use lock_api::RawRwLock as _;
use lockmeter_locks::rwsem::Standard;
use lockmeter_locks::{RawMutex, RawPercpuRwSem, RawRwSem, RawSpin, Unmetered};

/// A lock with readers or without, as far as these tests go.
trait Lock: Sync {
    fn lock(&self);
    fn try_lock(&self) -> bool;
    unsafe fn unlock(&self);
    fn read(&self) {
        self.lock();
    }
    unsafe fn unlock_read(&self) {
        // SAFETY: the caller's obligation.
        unsafe { self.unlock() }
    }
}

macro_rules! exclusive {
    ($($lock:ty)+) => {
        $(
            impl Lock for $lock {
                fn lock(&self) {
                    <$lock>::lock(self);
                }
                fn try_lock(&self) -> bool {
                    <$lock>::try_lock(self)
                }
                unsafe fn unlock(&self) {
                    // SAFETY: the caller's obligation.
                    unsafe { <$lock>::unlock(self) }
                }
            }
        )+
    };
}

macro_rules! shared {
    ($($lock:ty)+) => {
        $(
            impl Lock for $lock {
                fn lock(&self) {
                    self.lock_exclusive();
                }
                fn try_lock(&self) -> bool {
                    self.try_lock_exclusive()
                }
                unsafe fn unlock(&self) {
                    // SAFETY: the caller's obligation.
                    unsafe { self.unlock_exclusive() }
                }
                fn read(&self) {
                    self.lock_shared();
                }
                unsafe fn unlock_read(&self) {
                    // SAFETY: the caller's obligation.
                    unsafe { self.unlock_shared() }
                }
            }
        )+
    };
}

exclusive!(RawMutex RawSpin);
shared!(RawRwSem RawPercpuRwSem<RawRwSem>);

/// Waiters of the parent, so many that some sleep while others are queued.
const WAITERS: usize = 4;
const FORKS: usize = 30;
/// Longer than a waiter is passed before the lock is reserved for it.
const HOLD: Duration = Duration::from_millis(2);
const ROUNDS: u64 = 500;

/// How a lock is taken and released.
type Way<L> = (fn(&L), unsafe fn(&L));

struct Counted<L> {
    lock: L,
    count: UnsafeCell<u64>,
}

// SAFETY: the count is changed under the lock alone.
unsafe impl<L: Lock> Sync for Counted<L> {}

impl<L: Lock> Counted<L> {
    fn increment(&self) {
        self.lock.lock();
        // SAFETY: this thread holds the lock.
        unsafe { *self.count.get() += 1 };
        // SAFETY: this thread holds the lock.
        unsafe { self.lock.unlock() };
    }

    fn look(&self) -> u64 {
        self.lock.read();
        // SAFETY: this thread holds the lock.
        let count = unsafe { *self.count.get() };
        // SAFETY: this thread holds the lock.
        unsafe { self.lock.unlock_read() };
        count
    }
}

/// In a forked child whose thread holds the lock, for reading or writing: it is released and used, by one thread and by several.
fn child_uses<L: Lock + 'static>(counted: &'static Counted<L>, unlock: unsafe fn(&L)) -> bool {
    // SAFETY: the thread that forked holds it.
    unsafe { unlock(&counted.lock) };
    if !counted.lock.try_lock() {
        return false;
    }
    // SAFETY: just locked.
    unsafe { counted.lock.unlock() };
    let before = counted.look();
    for _ in 0..ROUNDS {
        counted.increment();
    }
    let threads: Vec<_> = (0..WAITERS)
        .map(|_| {
            thread::spawn(|| {
                for _ in 0..ROUNDS {
                    counted.increment();
                    counted.look();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    counted.look() == before + ROUNDS * (WAITERS as u64 + 1)
}

/// Forks while this thread holds the lock and others wait for it, as handlers of `pthread_atfork` do.
/// `readers`: whether some of those read. One that reads while the process forks holds the lock in the child for ever.
fn forks_with_it_held<L: Lock + 'static>(lock: L, by: Way<L>, readers: bool) {
    let counted: &'static Counted<L> = Box::leak(Box::new(Counted { lock, count: UnsafeCell::new(0) }));
    let (hold, unlock) = by;
    let stop = AtomicBool::new(false);
    let failed = thread::scope(|scope| {
        for waiter in 0..WAITERS {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    counted.increment();
                    if readers && waiter % 2 == 0 {
                        counted.look();
                    }
                }
            });
        }
        let failed = (0..FORKS).filter(|_| {
            hold(&counted.lock);
            thread::sleep(HOLD);
            // SAFETY: the child uses the lock, and what the C library keeps in order over a fork.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // A child that hangs is ended.
                // SAFETY: takes a number.
                unsafe { libc::alarm(30) };
                let is_right = child_uses(counted, unlock);
                // SAFETY: ends the process.
                unsafe { libc::_exit(i32::from(!is_right)) };
            }
            // SAFETY: locked above.
            unsafe { unlock(&counted.lock) };
            let mut status = -1;
            // SAFETY: the child's number, and a place for its status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            status != 0
        });
        // All but the first that fail would only take time.
        let failed = failed.take(1).count();
        stop.store(true, Relaxed);
        failed
    });
    assert_eq!(failed, 0, "a child hung or lost a count");
}

#[test]
fn a_mutex_held_over_a_fork_works_in_the_child() {
    forks_with_it_held(RawMutex::new(), (Lock::lock, RawMutex::unlock_here), false);
}

#[test]
fn a_spinlock_held_over_a_fork_works_in_the_child() {
    forks_with_it_held(RawSpin::new(), (Lock::lock, RawSpin::unlock_here), false);
}

#[test]
fn a_semaphore_held_for_writing_over_a_fork_works_in_the_child() {
    forks_with_it_held(RawRwSem::new(), (Lock::lock, RawRwSem::unlock_here), true);
}

#[test]
fn a_semaphore_held_for_reading_over_a_fork_works_in_the_child() {
    forks_with_it_held(RawRwSem::<Standard, _>::with(Unmetered), (Lock::read, RawRwSem::unlock_read_here), false);
}

#[test]
fn a_percpu_semaphore_held_for_writing_over_a_fork_works_in_the_child() {
    forks_with_it_held(
        RawPercpuRwSem::over(RawRwSem::new()),
        (Lock::lock, RawPercpuRwSem::<RawRwSem>::unlock_here),
        true,
    );
}

/// As plain functions.
trait UnlockHere: Lock {
    unsafe fn unlock_here(&self) {
        // SAFETY: the caller's obligation.
        unsafe { Lock::unlock(self) }
    }
    unsafe fn unlock_read_here(&self) {
        // SAFETY: the caller's obligation.
        unsafe { Lock::unlock_read(self) }
    }
}

impl<L: Lock> UnlockHere for L {}
