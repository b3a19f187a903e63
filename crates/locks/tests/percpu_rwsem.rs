//! The per-CPU reader-writer semaphore on the real machine: by rseq and membarrier where they are, and in stripes.

mod passing;
mod sleepers;

use std::cell::UnsafeCell;
use std::env;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use lock_api::RawRwLock as _;
use lock_api::RawRwLockDowngrade as _;
use lock_api::RawRwLockTimed as _;
use lockmeter_locks::{RawPercpuRwSem, RawRwSem};

type Raw = RawPercpuRwSem;

const BY_RSEQ: fn() -> Raw = || Raw::over(RawRwSem::new());
const STRIPED: fn() -> Raw = || Raw::striped(RawRwSem::new());
const BOTH: [fn() -> Raw; 2] = [BY_RSEQ, STRIPED];

/// The bias stays away then.
const ORDER_CHECKED: bool = cfg!(feature = "lockdep");

/// Far more than a lock is read before its bias begins, which is after about a thousand reads, as chance has it.
const MOST_READS_UNTIL_BIASED: u32 = 20_000;

fn read(lock: &Raw) {
    lock.lock_shared();
    // SAFETY: locked above.
    unsafe { lock.unlock_shared() };
}

fn biased(new: fn() -> Raw) -> Raw {
    let lock = new();
    read_until_biased(&lock);
    lock
}

fn read_until_biased(lock: &Raw) {
    let is_biased = (0..MOST_READS_UNTIL_BIASED).any(|_| {
        read(lock);
        lock.is_biased() || ORDER_CHECKED
    });
    assert!(is_biased, "still not biased after {MOST_READS_UNTIL_BIASED} reads without a write");
}

/// Two words that only a writer changes, both.
struct Protected(UnsafeCell<[u64; 2]>);

// SAFETY: the tests touch it with a lock held.
unsafe impl Sync for Protected {}

impl Protected {
    fn read(&self) -> u64 {
        let at = self.0.get().cast::<u64>();
        // SAFETY: both words are in there; the lock is what the test checks.
        let (second, first) = unsafe { (at.add(1).read_volatile(), at.read_volatile()) };
        assert_eq!(first, second, "a reader ran beside a writer");
        first
    }
    fn write(&self) {
        let at = self.0.get().cast::<u64>();
        // SAFETY: as above.
        unsafe {
            at.write_volatile(at.read_volatile() + 1);
            at.add(1).write_volatile(at.add(1).read_volatile() + 1);
        }
    }
}

/// Readers, most of them biased, beside writers that come now and then, in more threads than CPUs.
fn readers_and_writers_stay_apart(new: fn() -> Raw) {
    const WRITES: u64 = 300;
    // Where the readers hardly get to run, the writers go on until they did.
    const MOST_WRITES: u64 = 100 * WRITES;
    let (lock, protected, done) = (new(), Protected(UnsafeCell::new([0; 2])), AtomicBool::new(false));
    let (ends, reads, writes) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let is_enough = || ends.load(Relaxed) > 20 && reads.load(Relaxed) > 100_000;
    thread::scope(|scope| {
        let (lock, protected, done) = (&lock, &protected, &done);
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    lock.lock_shared();
                    protected.read();
                    // SAFETY: locked above.
                    unsafe { lock.unlock_shared() };
                    reads.fetch_add(1, Relaxed);
                }
            });
        }
        let writers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for written in 0..MOST_WRITES {
                        if written >= WRITES && is_enough() {
                            break;
                        }
                        // Time enough for the bias to begin again.
                        thread::sleep(Duration::from_micros(500));
                        ends.fetch_add(u64::from(lock.is_biased()), Relaxed);
                        lock.lock_exclusive();
                        protected.write();
                        // SAFETY: locked above.
                        unsafe { lock.unlock_exclusive() };
                        writes.fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Relaxed);
    });
    assert_eq!(protected.read(), writes.load(Relaxed), "a write was lost");
    assert!(
        ends.load(Relaxed) > 20,
        "only {} writes found the lock biased: this tested too little",
        ends.load(Relaxed)
    );
    assert!(reads.load(Relaxed) > 100_000, "only {} reads", reads.load(Relaxed));
    assert!(lock.try_lock_exclusive(), "a hold was left behind");
}

#[test]
fn readers_and_writers_stay_apart_by_rseq() {
    readers_and_writers_stay_apart(BY_RSEQ);
}

#[test]
fn readers_and_writers_stay_apart_in_stripes() {
    readers_and_writers_stay_apart(STRIPED);
}

#[test]
fn without_rseq_the_lock_falls_back_to_stripes_by_itself() {
    // glibc reads this before main, so it takes another process.
    let status = Command::new(env::current_exe().unwrap())
        .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
        .args(["--exact", "readers_and_writers_stay_apart_by_rseq", "--test-threads=1"])
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stdout));
}

/// Readers that come and go keep the bias away, once a writer waits, and then wait behind it.
#[test]
fn a_writer_that_sleeps_is_passed_by_no_reader() {
    for new in BOTH {
        let lock = biased(new);
        lock.lock_shared();
        let waits = || {
            lock.lock_exclusive();
            // SAFETY: locked by this thread.
            unsafe { lock.unlock_exclusive() };
        };
        // SAFETY: locked by this thread, first above and then by each try that succeeds.
        let passed = passing::times_passed(waits, || unsafe { lock.unlock_shared() }, || lock.try_lock_shared());
        assert_eq!(passed, 0, "a writer that sleeps was passed by readers");
    }
}

#[test]
fn a_reader_that_waits_long_is_passed_by_one_writer() {
    for new in BOTH {
        let lock = new();
        lock.lock_exclusive();
        let waits = || read(&lock);
        // SAFETY: locked by this thread, first above and then by each try that succeeds.
        let passed = passing::times_passed(waits, || unsafe { lock.unlock_exclusive() }, || lock.try_lock_exclusive());
        assert!(passed <= 1, "a reader that waits was passed {passed} times");
    }
}

#[test]
fn any_thread_may_release_a_read_hold() {
    for new in BOTH {
        let lock = biased(new);
        (0..100).for_each(|_| lock.lock_shared());
        thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: the holds taken above, of which nobody else knows.
                (0..60).for_each(|_| unsafe { lock.unlock_shared() });
            });
        });
        assert!(!lock.try_lock_exclusive(), "forty readers hold it");
        // SAFETY: the rest of them.
        (0..40).for_each(|_| unsafe { lock.unlock_shared() });
        assert!(lock.try_lock_exclusive());
    }
}

#[test]
fn threads_that_end_leave_nothing_behind() {
    for new in BOTH {
        let lock = biased(new);
        for _ in 0..200 {
            thread::scope(|scope| {
                scope.spawn(|| read(&lock));
            });
        }
        assert!(lock.try_lock_exclusive());
    }
}

#[test]
fn a_timed_writer_gives_up_and_the_lock_goes_on() {
    for new in BOTH {
        let lock = biased(new);
        lock.lock_shared();
        let begin = Instant::now();
        assert!(!lock.try_lock_exclusive_for(Duration::from_millis(20)));
        assert!(begin.elapsed() >= Duration::from_millis(20));
        assert!(lock.try_lock_shared_for(Duration::from_millis(20)), "readers get in after the writer has given up");
        // SAFETY: the two holds taken above.
        (0..2).for_each(|_| unsafe { lock.unlock_shared() });
        read_until_biased(&lock);
        assert!(lock.try_lock_exclusive_for(Duration::from_millis(20)));
    }
}

#[test]
fn a_downgraded_writer_lets_readers_in_and_no_writer() {
    for new in BOTH {
        let lock = biased(new);
        lock.lock_exclusive();
        assert!(!lock.try_lock_shared());
        // SAFETY: locked above.
        unsafe { lock.downgrade() };
        assert!(lock.try_lock_shared());
        assert!(!lock.try_lock_exclusive());
        // SAFETY: the two holds there are.
        (0..2).for_each(|_| unsafe { lock.unlock_shared() });
        assert!(lock.try_lock_exclusive());
    }
}

#[test]
fn ten_thousand_locks_are_biased_at_once_and_their_counters_are_used_again() {
    for new in BOTH {
        for _ in 0..2 {
            let locks: Vec<Raw> = (0..10_000).map(|_| biased(new)).collect();
            assert!(locks.iter().step_by(97).all(Raw::try_lock_exclusive), "one lock's readers count for another's");
        }
    }
}

#[test]
fn a_child_of_fork_can_end_a_bias_of_its_parent() {
    let lock = biased(BY_RSEQ);
    // SAFETY: the child calls nothing but the lock and _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let locked = lock.try_lock_exclusive();
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!locked)) };
    }
    let mut status = 0;
    // SAFETY: writes the status of our child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child could not lock, or died");
    assert!(lock.is_biased() || ORDER_CHECKED, "the child's lock is a copy");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_thread_without_rseq_reads_and_gives_back_a_hold_that_was_counted() {
    let lock = biased(BY_RSEQ);
    thread::scope(|scope| {
        scope.spawn(|| {
            lock.lock_shared();
            unregister_rseq();
            read(&lock);
            // SAFETY: the first hold, counted on a CPU.
            unsafe { lock.unlock_shared() };
        });
    });
    assert!(lock.try_lock_exclusive(), "a hold was left behind");
}

/// As a thread is whose registration the kernel refused.
#[cfg(target_arch = "x86_64")]
fn unregister_rseq() {
    const UNREGISTER: libc::c_int = 1;
    const SIGNATURE: u32 = 0x5305_3053;
    /// What glibc 2.35 and later register, whatever they say the size is.
    const SIZE: u32 = 32;
    // SAFETY: glibc's own area of this thread, found as its manual says.
    unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        if offset.is_null() {
            return;
        }
        let thread: *mut u8;
        std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) thread);
        let result = libc::syscall(libc::SYS_rseq, thread.offset(*offset), SIZE, UNREGISTER, SIGNATURE);
        assert_eq!(result, 0, "rseq refuses: {}", std::io::Error::last_os_error());
    }
}

#[test]
fn a_lock_is_small_beside_its_counters() {
    // The documentation states it: 104 bytes, and 8 for each CPU while it is read often.
    assert!(size_of::<Raw>() <= 104 || ORDER_CHECKED, "{} bytes", size_of::<Raw>());
}
