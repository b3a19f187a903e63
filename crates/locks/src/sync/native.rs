//! The machine's own atomics, and Linux's futexes.

use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

pub(crate) use core::hint::spin_loop;
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64};

use super::{Deadline, SleepsFor, WaitEnd};

/// A double word on whose halves threads can sleep.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct FutexDouble(AtomicU64);

impl Deref for FutexDouble {
    type Target = AtomicU64;

    #[inline]
    fn deref(&self) -> &AtomicU64 {
        &self.0
    }
}

impl FutexDouble {
    pub(crate) const fn new(value: u64) -> Self {
        FutexDouble(AtomicU64::new(value))
    }

    /// The half of the word on which threads of this kind sleep.
    fn half(&self, kind: SleepsFor) -> *mut u32 {
        let is_high = kind == SleepsFor::OwnerEnd;
        self.0.as_ptr().cast::<u32>().wrapping_add(usize::from(is_high != cfg!(target_endian = "big")))
    }

    /// Sleeps while the half for this kind is as in `expected`, until woken or `deadline`.
    pub(crate) fn wait(&self, expected: u64, kind: SleepsFor, deadline: Option<Deadline>) -> WaitEnd {
        if cfg!(miri) {
            // The kernel reads one half of a word of which we change both: miri takes that for our own access, and forbids it.
            let is_over = deadline.is_some_and(|deadline| deadline.at_ns <= now_ns());
            yield_now();
            return if is_over { WaitEnd::TimedOut } else { WaitEnd::Woken };
        }
        let expected = if kind == SleepsFor::OwnerEnd { expected >> 32 } else { expected };
        futex_wait(self.half(kind), expected as u32, kind, deadline)
    }

    /// Wakes at most `count` of the threads that sleep for this, the one that has slept longest first, and says how many. Uses the
    /// address alone.
    #[inline]
    pub(crate) fn wake(&self, kind: SleepsFor, count: u32) -> u32 {
        futex_wake(self.half(kind), kind, count)
    }
}

/// [`libc::FUTEX_PRIVATE_FLAG`] while all who wait for locks are threads of this process, which makes futexes cheaper; 0 from
/// [`let_others_wait`] on.
static PRIVATE_FLAG: AtomicI32 = AtomicI32::new(libc::FUTEX_PRIVATE_FLAG);

/// From now on threads of other processes may sleep on words that lie in memory shared with them.
#[cfg(feature = "std")]
pub(crate) fn let_others_wait() {
    PRIVATE_FLAG.store(0, Relaxed);
}

fn futex_wait(word: *mut u32, expected: u32, kind: SleepsFor, deadline: Option<Deadline>) -> WaitEnd {
    const NS_PER_S: u64 = 1_000_000_000;
    let until = deadline.map(|deadline| libc::timespec {
        tv_sec: libc::time_t::try_from(deadline.at_ns / NS_PER_S).unwrap_or(libc::time_t::MAX),
        tv_nsec: (deadline.at_ns % NS_PER_S) as _,
    });
    // WAIT_BITSET takes a point on the monotonic clock; WAIT would take a span, which starts anew after a signal.
    // SAFETY: the word and the time outlive the call; errno is this thread's.
    let error = unsafe {
        let result = libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAIT_BITSET | PRIVATE_FLAG.load(Relaxed),
            expected,
            until.as_ref().map_or(ptr::null(), ptr::from_ref),
            ptr::null::<u32>(),
            kind as u32,
        );
        if result == 0 { 0 } else { *libc::__errno_location() }
    };
    match error {
        0 => WaitEnd::Woken,
        libc::ETIMEDOUT => WaitEnd::TimedOut,
        libc::EINTR => WaitEnd::Interrupted,
        _ => WaitEnd::ValueChanged,
    }
}

fn futex_wake(word: *mut u32, kind: SleepsFor, count: u32) -> u32 {
    let count = count.min(i32::MAX as u32);
    // SAFETY: the address is only looked up, so that a word that is gone by now does no harm.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAKE_BITSET | PRIVATE_FLAG.load(Relaxed),
            count,
            ptr::null::<libc::timespec>(),
            ptr::null::<u32>(),
            kind as u32,
        )
    };
    u32::try_from(woken).unwrap_or(0)
}

/// Nanoseconds on the monotonic clock.
pub(crate) fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Lets another thread run on this CPU.
pub(crate) fn yield_now() {
    // SAFETY: has no preconditions.
    unsafe { libc::sched_yield() };
}

/// Whether this process is known to have a single thread.
pub(crate) fn is_alone() -> bool {
    if cfg!(miri) {
        return false;
    }
    // A folder has two links of its own, and one from each folder in it.
    const LINKS_OF_ONE_THREAD: libc::nlink_t = 3;
    // SAFETY: an all-zero status is a valid one, which the call fills; errno is this thread's.
    unsafe {
        let errno = *libc::__errno_location();
        let mut threads: libc::stat = core::mem::zeroed();
        let failed = libc::stat(c"/proc/self/task".as_ptr(), &raw mut threads);
        *libc::__errno_location() = errno;
        failed == 0 && threads.st_nlink == LINKS_OF_ONE_THREAD
    }
}

/// How many CPUs this process may use; at least one.
pub(crate) fn usable_cpus() -> u32 {
    /// 0: not asked yet.
    static CPUS: AtomicU32 = AtomicU32::new(0);
    let known = CPUS.load(Relaxed);
    if known != 0 {
        return known;
    }
    // Those of the main thread: the one that asks may be bound to a single CPU while others are not.
    // SAFETY: an all-zero set is a valid, empty one, and the call fills no more than its size.
    let cpus = unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        match libc::sched_getaffinity(libc::getpid(), size_of::<libc::cpu_set_t>(), &raw mut set) {
            0 => libc::CPU_COUNT(&set) as u32,
            // More CPUs than the set has room for.
            _ => 2,
        }
    };
    CPUS.store(cpus.max(1), Relaxed);
    cpus.max(1)
}
