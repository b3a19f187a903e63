//! Numbers of threads that several processes share.

use std::cell::UnsafeCell;
use std::io;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

use crate::rseq_area::Area;
use crate::thread_number::{CAPACITY, ThreadNumber};
use crate::thread_record::{self, record};

/// What a number comes with between processes. Two cache lines, because the kernel writes here whenever the thread changes its CPU.
#[repr(C, align(128))]
struct SharedNumber {
    /// Robust: held by the thread that has the number, for as long as it has it.
    holder: UnsafeCell<libc::pthread_mutex_t>,
    area: Area,
}

/// All numbers, in memory that children share. Never unmapped, so that a late read finds it.
pub(crate) struct SharedNumbers([SharedNumber; CAPACITY]);

// SAFETY: the mutexes are made for many threads, and areas consist of atomics.
unsafe impl Sync for SharedNumbers {}

/// Null: numbers are this process's own.
static SHARED: AtomicPtr<SharedNumbers> = AtomicPtr::new(ptr::null_mut());

/// The largest page that the records are aligned for.
const PAGE_BYTES: libc::c_long = 4096;

/// Puts shared memory with the same contents in the place of the table of records.
fn share_records() -> io::Result<()> {
    let (records, bytes) = thread_record::pages_of_records();
    let shared = map(bytes)?;
    // SAFETY: both are `bytes` long, and no other thread changes them; the records are whole pages of their own, and hold the same before
    // and after.
    let moved = unsafe {
        ptr::copy_nonoverlapping(records.cast::<u8>(), shared.cast(), bytes);
        libc::mremap(shared, bytes, bytes, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, records)
    };
    if moved == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Zeroes that children share.
fn map(bytes: usize) -> io::Result<*mut libc::c_void> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: takes new memory.
    let memory = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
    if memory == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(memory) }
}

impl SharedNumbers {
    /// Those that processes share, if they do.
    pub(crate) fn get() -> Option<&'static Self> {
        // SAFETY: null, or stored after it was filled; never unmapped.
        unsafe { SHARED.load(Acquire).as_ref() }
    }

    /// Numbers that no process uses yet.
    ///
    /// # Errors
    ///
    /// The kernel's, if it refuses the memory, and where pages are larger than 4096 bytes.
    pub(crate) fn new() -> io::Result<&'static Self> {
        // SAFETY: returns a number.
        if unsafe { libc::sysconf(libc::_SC_PAGESIZE) } > PAGE_BYTES {
            let why = "locks cannot be shared between processes where pages are larger than 4096 bytes";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let numbers = map(size_of::<Self>())?.cast::<Self>();
        // SAFETY: an attribute of this function's own; mutexes in new memory that no other thread knows, each initialised once. All-zero is a
        // valid area. Never unmapped.
        unsafe {
            let mut robust: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&raw mut robust);
            libc::pthread_mutexattr_setpshared(&raw mut robust, libc::PTHREAD_PROCESS_SHARED);
            libc::pthread_mutexattr_setrobust(&raw mut robust, libc::PTHREAD_MUTEX_ROBUST);
            for at in 0..CAPACITY {
                libc::pthread_mutex_init((&raw mut (*numbers).0[at].holder).cast(), &raw const robust);
            }
            libc::pthread_mutexattr_destroy(&raw mut robust);
            Ok(&*numbers)
        }
    }

    /// Makes these the numbers of this process, which has one thread, and of all children to come.
    pub(crate) fn begin(&'static self, own: Option<ThreadNumber>) -> io::Result<()> {
        share_records()?;
        if let Some(own) = own {
            self.take(own);
        }
        SHARED.store(ptr::from_ref(self).cast_mut(), Release);
        if let Some(own) = own {
            self.publish_cpu(own);
        }
        Ok(())
    }

    fn of(&self, number: ThreadNumber) -> &SharedNumber {
        &self.0[number.index()]
    }

    /// Takes this number for this thread, if it is nobody's, or that of a thread that is no more.
    pub(crate) fn take(&self, number: ThreadNumber) -> bool {
        let holder = self.of(number).holder.get();
        // SAFETY: an initialised mutex, which this thread does not hold.
        match unsafe { libc::pthread_mutex_trylock(holder) } {
            0 => true,
            libc::EOWNERDEAD if record(number).node.is_in_queue() => {
                // SAFETY: held since just now. Released in the state in which it was found, it can never be taken again.
                unsafe { libc::pthread_mutex_unlock(holder) };
                false
            }
            // SAFETY: held since just now.
            libc::EOWNERDEAD => unsafe { libc::pthread_mutex_consistent(holder) == 0 },
            _ => false,
        }
    }

    /// The thread ends. If the kernel would still write to the thread's area, the number stays its own until the kernel says that it has ended.
    pub(crate) fn give_back(&self, number: ThreadNumber) {
        if self.withdraw_cpu(number) {
            // SAFETY: this thread has held it since it took the number.
            unsafe { libc::pthread_mutex_unlock(self.of(number).holder.get()) };
        }
    }

    /// Lets all see on which CPU this thread, whose number it is, runs; where that is refused, it is not known.
    pub(crate) fn publish_cpu(&self, number: ThreadNumber) {
        let area = &self.of(number).area;
        // SAFETY: the number is this thread's; the areas are never unmapped.
        let moved = unsafe { area.move_here() };
        // No need to wait for threads that read through the pointer just now: what it may point to is never unmapped.
        record(number).publish_cpu(if moved { area.cpu() } else { ptr::null_mut() });
    }

    /// Ends that; false if the kernel still writes to the area.
    pub(crate) fn withdraw_cpu(&self, number: ThreadNumber) -> bool {
        let was_published = record(number).is_cpu_known();
        record(number).publish_cpu(ptr::null_mut());
        !was_published || self.of(number).area.move_back()
    }
}

#[cfg(all(test, not(any(feature = "lockdep", miri))))]
mod tests {
    use super::*;
    use crate::spin_queue::SpinQueue;
    use crate::{PercpuRwLock, between_processes, sync};

    /// Runs `body` in a forked process; whether it came to its end with `true`.
    fn holds_in_child(body: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child uses no lock but ours, and allocates with glibc's allocator, which is in order after a fork.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(60);
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
                libc::_exit(i32::from(!result.unwrap_or(false)));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            status == 0
        }
    }

    /// For a child of the test, which has but one thread.
    fn share() -> u32 {
        between_processes::share_with_children().unwrap();
        between_processes::own_number().unwrap()
    }

    fn cpu_of(number: u32) -> Option<u32> {
        record(ThreadNumber::new(number).unwrap()).cpu()
    }

    fn run_on(cpu: usize) -> bool {
        // SAFETY: a set of this function's own.
        unsafe {
            let mut only: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut only);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const only) == 0
        }
    }

    fn current_cpu() -> u32 {
        // SAFETY: asks for a number.
        unsafe { libc::sched_getcpu() }.try_into().unwrap()
    }

    /// Makes sure that it is the child's CPU that its parent sees, kept up to date by the kernel, and not the parent's own.
    #[test]
    fn other_processes_read_the_cpu_of_a_thread() {
        let read = holds_in_child(|| {
            let own = share();
            if cpu_of(own).is_none() {
                eprintln!("SKIPPED: rseq cannot be moved here, so that no CPU is known");
                return true;
            }
            let shared = map(4096).unwrap().cast::<u32>();
            let [child_number, stage] = [0, 1].map(|at| {
                // SAFETY: inside of a mapping that nobody unmaps.
                unsafe { sync::AtomicU32::from_ptr(shared.add(at)) }
            });
            let await_stage = |wanted| {
                while stage.load(Acquire) != wanted {
                    sync::yield_now();
                }
            };
            // SAFETY: this process has one thread.
            let child = unsafe { libc::fork() };
            if child == 0 {
                child_number.store(between_processes::own_number().unwrap(), Release);
                let here = current_cpu() as usize;
                for cpu in [here, here ^ 1, here] {
                    // Where there is no other it stays.
                    assert!(run_on(cpu) || run_on(here));
                    stage.store(current_cpu() + 1, Release);
                    await_stage(0);
                }
                // SAFETY: ends this process.
                unsafe { libc::_exit(0) }
            }
            let mut right = run_on(current_cpu() as usize);
            for _ in 0..3 {
                let on = loop {
                    match stage.load(Acquire) {
                        0 => sync::yield_now(),
                        stage => break stage - 1,
                    }
                };
                right &= cpu_of(child_number.load(Acquire)) == Some(on) && cpu_of(own) == Some(current_cpu());
                stage.store(0, Release);
            }
            // SAFETY: the child waits for nothing more.
            right && unsafe { libc::waitpid(child, ptr::null_mut(), 0) } == child
        });
        assert!(read);
    }

    #[test]
    fn a_number_whose_thread_was_killed_in_a_queue_is_not_given_out_again() {
        let retired = holds_in_child(|| {
            let own = share();
            let die_in_queue = || {
                let queue = SpinQueue::new();
                let _turn = queue.enter(|_| false);
                // SAFETY: ends this process, in the queue.
                unsafe { libc::_exit(0) }
            };
            let next_is = |number| holds_in_child(|| between_processes::own_number() == Some(number));
            // Twice, so that the one that nobody may have is seen not to be the next but one either.
            next_is(own + 1) && holds_in_child(die_in_queue) && next_is(own + 2) && next_is(own + 2)
        });
        assert!(retired);
    }

    /// Makes sure that what uses glibc's area sees that it is gone, also in the middle of a hold, and has it again in a child.
    #[test]
    fn readers_per_cpu_and_glibc_do_without_an_area_that_was_moved() {
        let fine = holds_in_child(|| {
            let lock = PercpuRwLock::new(0);
            for _ in 0..100_000 {
                drop(lock.read());
            }
            let held = lock.read();
            share();
            // Does not fail.
            current_cpu();
            drop(held);
            *lock.write() += 1;
            (0..1_000).for_each(|_| drop(lock.read()));
            *lock.read() == 1 && holds_in_child(|| lock.try_write().is_some())
        });
        assert!(fine);
    }
}
