//! Locks between real processes. Each check runs in a process of its own, which shares its locks with the children that it forks.

use std::cell::UnsafeCell;
use std::process::ExitCode;
use std::ptr;
use std::time::{Duration, Instant};

use lockmeter_locks::{NotAcquired, RawMutex, RawRwSem, RawSpin, between_processes};

const CHECKS: [(&str, fn()); 9] = [
    ("more processes than CPUs exclude each other by a mutex", || {
        exclude_each_other(RawMutex::lock, RawMutex::unlock_any)
    }),
    ("by a semaphore", || exclude_each_other(RawRwSem::write, RawRwSem::unlock_any)),
    ("by a spinlock", || exclude_each_other(RawSpin::lock, RawSpin::unlock_any)),
    ("readers of other processes see what a writer left in order", readers_see_no_writer_at_work),
    ("a process that sleeps for a lock is woken by another that releases it", a_sleeper_is_woken),
    ("a wait with a limit ends in time and leaves no trace", a_timed_wait_leaves_no_trace),
    ("children take numbers of their own, and nothing of those that were killed stays taken", numbers_come_back),
    ("more children come and go than there are numbers", more_children_than_numbers),
    ("a process with threads is refused, and nothing is shared", threads_are_refused),
];

fn main() -> ExitCode {
    if cfg!(feature = "lockdep") {
        println!("SKIPPED: locks whose order is checked cannot be shared between processes");
        return ExitCode::SUCCESS;
    }
    let mut failed = 0;
    for (name, check) in CHECKS {
        let passed = child(check).wait();
        println!("{name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += u32::from(!passed);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A forked process.
struct Child(libc::pid_t);

/// A check that hangs is a failure.
const PATIENCE_S: u32 = 300;

/// Runs `body` in a forked process, which ends well unless that panics.
fn child(body: impl FnOnce()) -> Child {
    // SAFETY: this process has one thread, so that the child finds all memory in order.
    match unsafe { libc::fork() } {
        -1 => panic!("cannot fork: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: numbers alone.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::alarm(PATIENCE_S);
            }
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            // SAFETY: ends the process at once, so that its number is given back by nobody.
            unsafe { libc::_exit(i32::from(result.is_err())) }
        }
        id => Child(id),
    }
}

impl Child {
    /// Whether it ended well.
    fn wait(self) -> bool {
        self.status() == 0
    }

    fn status(self) -> i32 {
        let mut status = 0;
        // SAFETY: a child of ours that nobody waited for.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
        status
    }

    /// Waits until it sleeps in the kernel for a futex.
    fn await_futex(&self) {
        let path = format!("/proc/{}/syscall", self.0);
        let futex = format!("{} ", libc::SYS_futex);
        while !std::fs::read_to_string(&path).expect("the child lives").starts_with(&futex) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// In memory that this process shares with children.
fn shared<T>(value: T) -> &'static T {
    // SAFETY: new memory, large enough, aligned to pages, and never unmapped.
    unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let place = libc::mmap(ptr::null_mut(), size_of::<T>(), libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(place, libc::MAP_FAILED);
        let place = place.cast::<T>();
        place.write(value);
        &*place
    }
}

/// Releasing, by the name under which all locks have it.
trait UnlockAny {
    fn unlock_any(&self);
}

impl UnlockAny for RawMutex {
    fn unlock_any(&self) {
        // SAFETY: the caller holds it.
        unsafe { self.unlock() }
    }
}

impl UnlockAny for RawRwSem {
    fn unlock_any(&self) {
        // SAFETY: the caller holds it for writing.
        unsafe { self.unlock_write() }
    }
}

impl UnlockAny for RawSpin {
    fn unlock_any(&self) {
        // SAFETY: the caller holds it.
        unsafe { self.unlock() }
    }
}

trait New {
    const NEW: Self;
}

impl New for RawMutex {
    const NEW: Self = RawMutex::new();
}

impl New for RawRwSem {
    const NEW: Self = RawRwSem::new();
}

impl New for RawSpin {
    const NEW: Self = RawSpin::new();
}

const PROCESSES: u64 = 8;

fn exclude_each_other<L: New + 'static>(lock: fn(&L), unlock: fn(&L)) {
    const ROUNDS: u64 = 20_000;
    between_processes::share_with_children().expect("one thread");
    let protected = shared((L::NEW, UnsafeCell::new(0_u64)));
    let count = || {
        for round in 0..ROUNDS {
            lock(&protected.0);
            let counter = protected.1.get();
            // SAFETY: the lock is held. Not atomic: two at a time would lose counts.
            unsafe {
                let before = counter.read_volatile();
                if round % 1_000 == 0 {
                    // The others run out of patience, and sleep.
                    std::thread::sleep(Duration::from_micros(100));
                }
                counter.write_volatile(before + 1);
            }
            unlock(&protected.0);
        }
    };
    let children: Vec<_> = (0..PROCESSES).map(|_| child(count)).collect();
    assert!(children.into_iter().all(Child::wait));
    // SAFETY: all who counted have ended.
    assert_eq!(unsafe { *protected.1.get() }, PROCESSES * ROUNDS);
}

fn readers_see_no_writer_at_work() {
    const ROUNDS: u64 = 10_000;
    between_processes::share_with_children().expect("one thread");
    let protected = shared((RawRwSem::new(), UnsafeCell::new([0_u64; 2])));
    let work = |writes: bool| {
        for _ in 0..ROUNDS {
            if writes {
                protected.0.write();
                // SAFETY: held for writing.
                unsafe {
                    let pair = protected.1.get();
                    (*pair)[0] += 1;
                    std::hint::spin_loop();
                    (*pair)[1] += 1;
                    protected.0.unlock_write();
                }
            } else {
                protected.0.read();
                // SAFETY: held for reading.
                unsafe {
                    let pair = protected.1.get().read_volatile();
                    protected.0.unlock_read();
                    assert_eq!(pair[0], pair[1], "a reader came in beside a writer");
                }
            }
        }
    };
    let children: Vec<_> = (0..PROCESSES).map(|number| child(|| work(number % 2 == 0))).collect();
    assert!(children.into_iter().all(Child::wait));
    // SAFETY: all who counted have ended.
    assert_eq!(unsafe { *protected.1.get() }, [PROCESSES / 2 * ROUNDS; 2]);
    assert!(!protected.0.is_locked());
}

fn a_sleeper_is_woken() {
    between_processes::share_with_children().expect("one thread");
    let (mutex, semaphore) = shared((RawMutex::new(), RawRwSem::new()));
    mutex.lock();
    semaphore.write();
    let sleepers = [
        child(|| {
            mutex.lock();
            mutex.unlock_any();
        }),
        child(|| {
            semaphore.read();
            // SAFETY: locked above.
            unsafe { semaphore.unlock_read() };
        }),
        child(|| {
            semaphore.write();
            semaphore.unlock_any();
        }),
    ];
    sleepers.iter().for_each(Child::await_futex);
    mutex.unlock_any();
    semaphore.unlock_any();
    assert!(sleepers.into_iter().all(Child::wait));
    assert!(!mutex.is_locked() && !semaphore.is_locked());
}

fn a_timed_wait_leaves_no_trace() {
    const LIMIT: Duration = Duration::from_millis(20);
    between_processes::share_with_children().expect("one thread");
    let mutex = shared(RawMutex::new());
    mutex.lock();
    let waits = || {
        let begun = Instant::now();
        assert_eq!(mutex.lock_for(LIMIT), Err(NotAcquired::TimedOut));
        assert!(begun.elapsed() >= LIMIT);
    };
    assert!(child(waits).wait());
    mutex.unlock_any();
    assert!(child(|| assert!(mutex.try_lock())).wait(), "a trace of the wait keeps others out");
}

/// What a child is numbered as; 0 is none.
fn number() -> u32 {
    between_processes::own_number().unwrap_or(0)
}

fn numbers_come_back() {
    between_processes::share_with_children().expect("one thread");
    let (mutex, told) = shared((RawMutex::new(), UnsafeCell::new(0_u32)));
    let own = number();
    let use_lock = || {
        mutex.lock();
        // SAFETY: locked just now; the parent looks when the child has ended.
        unsafe { *told.get() = number() };
        mutex.unlock_any();
    };
    let mut numbers = Vec::new();
    for ends_badly in [false, true, true, false] {
        let ended = child(|| {
            use_lock();
            if ends_badly {
                // SAFETY: ends this process.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
        })
        .status();
        assert_eq!(ended, if ends_badly { libc::SIGKILL } else { 0 });
        // SAFETY: nobody else is left.
        numbers.push(unsafe { *told.get() });
    }
    assert!(numbers.iter().all(|number| *number == numbers[0] && *number != own && *number != 0), "{own}: {numbers:?}");
    assert_eq!(number(), own, "a parent keeps its number");
    // And while the first lives the second gets another.
    mutex.lock();
    let first = child(use_lock);
    first.await_futex();
    let second = child(|| assert!(number() != own && number() != numbers[0] && number() != 0));
    assert!(second.wait());
    mutex.unlock_any();
    assert!(first.wait());
}

fn more_children_than_numbers() {
    const MORE_THAN_NUMBERS: u32 = 8_192 + 100;
    between_processes::share_with_children().expect("one thread");
    let mutex = shared(RawMutex::new());
    let use_lock = || {
        mutex.lock();
        mutex.unlock_any();
        // Without the panic's output of thousands.
        if number() == 0 {
            // SAFETY: ends this process.
            unsafe { libc::_exit(2) };
        }
    };
    for at in 0..MORE_THAN_NUMBERS {
        assert!(child(use_lock).wait(), "child {at} has no number");
    }
}

fn threads_are_refused() {
    let (begin, end) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begin.wait();
            end.wait();
        });
        begin.wait();
        let refused = between_processes::share_with_children();
        end.wait();
        let refused = refused.expect_err("there was another thread");
        assert!(refused.to_string().contains("more than one"), "{refused}");
    });
    between_processes::share_with_children().expect("the thread has ended");
    between_processes::share_with_children().expect("what is shared already is shared");
}
