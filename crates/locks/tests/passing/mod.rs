//! How often other threads take a lock while one waits for it.

use std::thread;
use std::time::Duration;

use crate::sleepers::Sleeper;

/// A lock that is not handed over can be taken by others for ever; here they stop after this many times.
pub const MANY: usize = 10;

/// Longer than a thread waits before the lock is reserved for it.
const LONG: Duration = Duration::from_millis(2);

/// How often this thread, which holds the lock, has it again before the one that `waits` for it: it releases the lock while the other sleeps,
/// and tries at once to take it again. Both run on one CPU, where the other does not preempt this one when it is woken.
pub fn times_passed(waits: impl FnOnce() + Send, unlock: impl Fn(), try_lock: impl Fn() -> bool) -> usize {
    let cpus = stay_on_this_cpu();
    let passed = thread::scope(|scope| {
        let mut waiter = Sleeper::start(scope, || {
            never_preempt_others();
            waits();
        });
        waiter.await_sleep();
        thread::sleep(LONG);
        let mut passed = 0;
        loop {
            unlock();
            if passed == MANY || !try_lock() {
                break;
            }
            if !waiter.sleeps_again() {
                // It had the lock in between.
                unlock();
                break;
            }
            passed += 1;
        }
        waiter.join();
        passed
    });
    // SAFETY: a set that the kernel has filled.
    assert_eq!(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const cpus) }, 0);
    passed
}

fn never_preempt_others() {
    let normal = libc::sched_param { sched_priority: 0 };
    // SAFETY: reads `normal`.
    assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const normal) }, 0);
}

/// The CPUs that this thread could run on before.
fn stay_on_this_cpu() -> libc::cpu_set_t {
    // SAFETY: sets of this function's own; an all-zero set is an empty one.
    unsafe {
        let mut before: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut before), 0);
        let mut only: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().try_into().unwrap(), &mut only);
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const only), 0);
        before
    }
}
