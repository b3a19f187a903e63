//! The record of each thread that has a number: its node in queues of spinners, and on which CPU it runs.
//!
//! Records are never freed, so that a late read of the record of a thread that has ended reads a record all the same.

// Without thread-local storage no thread has a record.
#![cfg_attr(not(any(feature = "std", loom, shuttle)), allow(dead_code))]

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::generation;
use crate::queue_node::QueueNode;
use crate::sync::{AtomicPtr, AtomicU32, const_unless_model};
use crate::thread_number::{CAPACITY, ThreadNumber};

/// Two cache lines, so that spinning on one record disturbs no other thread.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct ThreadRecord {
    pub(crate) node: QueueNode,
    /// 0: free; else the [mark](generation::process_mark) of the process whose thread has it. Once numbers are shared with other
    /// processes, their robust mutexes say whose it is.
    process: AtomicU32,
    /// How many threads read through `cpu` just now: its thread does not end meanwhile.
    cpu_readers: AtomicU32,
    /// The `cpu_id` of its rseq area: the CPU on which the kernel last let it run. Null: not known.
    cpu: AtomicPtr<u32>,
}

#[cfg(not(any(loom, shuttle)))]
static RECORDS: Pages<[ThreadRecord; CAPACITY]> = Pages([const { ThreadRecord::new() }; CAPACITY]);

/// Fills whole pages, so that these can be mapped anew: see [`between_processes`](crate::between_processes).
#[cfg(not(any(loom, shuttle)))]
#[repr(C, align(4096))]
struct Pages<T>(T);

#[cfg(not(any(loom, shuttle)))]
impl<T> core::ops::Deref for Pages<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(loom)]
loom::lazy_static! {
    static ref RECORDS: Vec<ThreadRecord> = (0..CAPACITY).map(|_| ThreadRecord::new()).collect();
}
#[cfg(shuttle)]
shuttle::lazy_static! {
    static ref RECORDS: Vec<ThreadRecord> = (0..CAPACITY).map(|_| ThreadRecord::new()).collect();
}

/// Where the records lie, and how many bytes of whole pages they fill.
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
pub(crate) fn pages_of_records() -> (*mut core::ffi::c_void, usize) {
    (core::ptr::from_ref(&RECORDS).cast_mut().cast(), size_of_val(&RECORDS))
}

/// The record of the thread with this number.
pub(crate) fn record(number: ThreadNumber) -> &'static ThreadRecord {
    &RECORDS[number.index()]
}

/// No record before this one was free at the last search. A hint, so that thousands of threads are quick to start.
static FIRST_FREE: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

/// The first free number from the hint on, round and round, that `take` took.
pub(crate) fn find_number(take: impl Fn(ThreadNumber) -> bool) -> Option<ThreadNumber> {
    // Models start from nothing each time.
    let first = if cfg!(any(loom, shuttle)) { 0 } else { FIRST_FREE.load(Relaxed) as usize };
    let number = (first..CAPACITY).chain(0..first).map(ThreadNumber::at_index).find(|&number| take(number))?;
    FIRST_FREE.store(number.get(), Relaxed);
    Some(number)
}

/// The number is free again.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn number_is_free(number: ThreadNumber) {
    FIRST_FREE.fetch_min(number.get() - 1, Relaxed);
}

impl ThreadRecord {
    const_unless_model! {
        const fn new() -> Self {
            ThreadRecord {
                node: QueueNode::new(),
                process: AtomicU32::new(0),
                cpu_readers: AtomicU32::new(0),
                cpu: AtomicPtr::new(core::ptr::null_mut()),
            }
        }
    }

    /// The CPU on which the thread runs, or ran last.
    pub(crate) fn cpu(&self) -> Option<u32> {
        if !self.is_of_this_process() {
            // Of a thread that this process was forked without.
            return None;
        }
        // Either the ending thread sees that we read, and waits, or we see that it has withdrawn the pointer.
        self.cpu_readers.fetch_add(1, SeqCst);
        let cpu = self.cpu.load(SeqCst);
        let number = if cpu.is_null() {
            None
        } else {
            // SAFETY: the area lives while its thread does, which does not end while somebody reads; the kernel writes it
            // meanwhile, as an aligned word.
            Some(unsafe { cpu.read_volatile() })
        };
        self.cpu_readers.fetch_sub(1, Release);
        number
    }

    /// From now on its thread's CPU is read from here; null: not known.
    #[cfg(all(feature = "std", not(any(loom, shuttle))))]
    pub(crate) fn publish_cpu(&self, cpu: *mut u32) {
        self.cpu.store(cpu, SeqCst);
    }

    #[cfg(all(feature = "std", not(any(loom, shuttle))))]
    pub(crate) fn is_cpu_known(&self) -> bool {
        !self.cpu.load(Relaxed).is_null()
    }

    /// The thread ends, or has no such area any more.
    #[cfg(all(feature = "std", not(any(loom, shuttle))))]
    fn withdraw_cpu(&self) {
        self.cpu.store(core::ptr::null_mut(), SeqCst);
        while self.is_of_this_process() && self.cpu_readers.load(SeqCst) != 0 {
            crate::sync::yield_now();
        }
    }

    pub(crate) fn is_of_this_process(&self) -> bool {
        // Models have one process, and read nothing without need.
        cfg!(any(loom, shuttle)) || self.process.load(Relaxed) == generation::process_mark()
    }

    /// Takes it, if it is free.
    pub(crate) fn take_if_free(&self) -> bool {
        (cfg!(any(loom, shuttle)) || self.process.load(Relaxed) == 0)
            && self.process.compare_exchange(0, generation::process_mark(), Acquire, Relaxed).is_ok()
    }

    /// A thread of this process has it, which is in no queue.
    #[cfg(any(feature = "std", loom, shuttle))]
    pub(crate) fn begin(&self) {
        if !cfg!(any(loom, shuttle)) {
            self.process.store(generation::process_mark(), Relaxed);
            self.node.reset();
        }
    }

    /// Its thread ends.
    #[cfg(all(feature = "std", not(any(loom, shuttle))))]
    pub(crate) fn give_back(&self) {
        self.withdraw_cpu();
        self.process.store(0, Release);
    }

    /// In a forked child, by the thread that forked: no other thread of the parent is here. Threads that the child has started since
    /// keep their records.
    #[cold]
    #[cfg(any(feature = "std", loom, shuttle))]
    pub(crate) fn forget_threads_of_the_parent(own: Option<ThreadNumber>) {
        let now = generation::process_mark();
        for (index, record) in RECORDS.iter().enumerate() {
            // Reading takes no memory, and most records were never used.
            let process = record.process.load(Relaxed);
            if process == 0 || process == now {
                continue;
            }
            record.cpu_readers.store(0, Relaxed);
            if own.is_some_and(|own| own.index() == index) {
                record.process.store(now, Release);
            } else {
                record.cpu.store(core::ptr::null_mut(), Relaxed);
                record.process.store(0, Release);
            }
        }
    }
}
