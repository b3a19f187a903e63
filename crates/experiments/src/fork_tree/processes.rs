//! Real processes: masters fork a child for each message, and the lock lies in a mapping that all of them share.
//!
//! As the kernel does it: the fork links the child's mappings, in the process that forks, and the exit unlinks them, in the one that
//! ends. So half of those who take the lock live for one message.

use std::cell::UnsafeCell;
use std::io;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

use lock_api::{Mutex, RawMutex};
use lockmeter_locks::rwsem::Policy;
use lockmeter_locks::{RawMutex as OwnMutex, RawRwSem, between_processes};

use super::{Run, WORK, count};
use crate::arithmetic;
use crate::cache_padded::CachePadded;
use crate::processes;
use crate::pthread_locks::{PthreadMutex, PthreadRwLock};

/// Links of a child: 128 mappings (on Debian 12 a shell has 44, perl 49, Python 104, a compiler 114 to 143, and each library that a mailer
/// links brings four or five), each linked once for each of four generations, as the kernel does for exim's daemon, the process of a
/// connection, that of a delivery and that of its transport. What the lock is taken for then lasts some 250 µs; with a link a mapping the
/// fork, which takes about twice that here, would hide the lock.
const LINKS: usize = 512;

/// A lock that works between processes if it lies in memory that they share.
pub trait BetweenProcesses {
    /// Makes it one, where it lies, before anybody uses it.
    fn share(&self) -> io::Result<()> {
        Ok(())
    }
}

impl BetweenProcesses for OwnMutex {}
impl<P: Policy> BetweenProcesses for RawRwSem<P> {}

impl BetweenProcesses for PthreadMutex {
    fn share(&self) -> io::Result<()> {
        PthreadMutex::share(self)
    }
}

impl BetweenProcesses for PthreadRwLock {
    fn share(&self) -> io::Result<()> {
        PthreadRwLock::share(self)
    }
}

/// At the end of a list.
const NONE: u32 = u32::MAX;

/// A place in the list.
struct Link {
    before: u32,
    behind: u32,
}

/// What the lock protects: a list through all links, and what was done to it. Not atomic: without exclusion counts and links get lost.
#[derive(Debug, PartialEq, Eq)]
struct Tree {
    first: u32,
    links: u64,
    unlinks: u64,
    /// How often two neighbours did not know of each other.
    torn: u64,
}

impl Tree {
    const EMPTY: Self = Self { first: NONE, links: 0, unlinks: 0, torn: 0 };

    /// Links one that is not linked.
    fn link(&mut self, all: &[UnsafeCell<Link>], at: u32) {
        write(all, at, Link { before: NONE, behind: self.first });
        if self.first != NONE {
            let behind = read(all, self.first);
            self.torn += u64::from(behind.before != NONE);
            write(all, self.first, Link { before: at, ..behind });
        }
        self.first = at;
        self.links += 1;
    }

    /// Unlinks one that is linked.
    fn unlink(&mut self, all: &[UnsafeCell<Link>], at: u32) {
        let Link { before, behind } = read(all, at);
        if before == NONE {
            self.torn += u64::from(self.first != at);
            self.first = behind;
        } else {
            let neighbour = read(all, before);
            self.torn += u64::from(neighbour.behind != at);
            write(all, before, Link { behind, ..neighbour });
        }
        if behind != NONE {
            let neighbour = read(all, behind);
            self.torn += u64::from(neighbour.before != at);
            write(all, behind, Link { before, ..neighbour });
        }
        self.unlinks += 1;
    }

    /// Whether all that the messages took was done, and undone.
    fn check(&self, messages: u64) -> io::Result<()> {
        let done = messages * LINKS as u64;
        if *self == (Self { first: NONE, links: done, unlinks: done, torn: 0 }) {
            return Ok(());
        }
        let Self { first, links, unlinks, torn } = self;
        let left = if *first == NONE { "is empty" } else { "is not empty" };
        Err(io::Error::other(format!(
            "the lock does not exclude: {messages} messages took {done} links and as many unlinks; {links} and {unlinks} were counted, \
             {torn} neighbours did not know of each other, and the tree {left}"
        )))
    }
}

fn read(all: &[UnsafeCell<Link>], at: u32) -> Link {
    // SAFETY: the one that is here holds the lock; without exclusion, which the race is to notice, a link is some process's all the same.
    unsafe { all[at as usize].get().read() }
}

fn write(all: &[UnsafeCell<Link>], at: u32, link: Link) {
    // SAFETY: as above.
    unsafe { all[at as usize].get().write(link) };
}

/// What a master has done.
#[derive(Default)]
struct Done {
    messages: AtomicU64,
    /// From the beginning of the run.
    begin_ns: AtomicU64,
    end_ns: AtomicU64,
}

/// What all processes of a run share. The lock and what it protects begin a cache line, as among the threads.
struct Office<M> {
    tree: CachePadded<Mutex<M, Tree>>,
    start: CachePadded<AtomicBool>,
    stop: CachePadded<AtomicBool>,
}

/// A mapping that this process shares with children, unmapped at the end.
struct SharedMemory {
    start: *mut libc::c_void,
    bytes: usize,
}

impl SharedMemory {
    fn map(bytes: usize) -> io::Result<Self> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: takes new memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes.max(1), access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self { start, bytes: bytes.max(1) })
        }
    }

    /// `values` at the beginning of a mapping of their own.
    fn holding<T>(values: impl ExactSizeIterator<Item = T>) -> io::Result<(Self, *const [T])> {
        let length = values.len();
        let memory = Self::map(length * size_of::<T>())?;
        let place = memory.start.cast::<T>();
        for (at, value) in values.enumerate() {
            // SAFETY: pages are aligned for everything here, and there is room for all values.
            unsafe { place.add(at).write(value) };
        }
        Ok((memory, ptr::slice_from_raw_parts(place, length)))
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped by this value, whose user no longer looks at it.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

/// What each process of a run has in its hands.
struct Shared<'a, M> {
    office: &'a Office<M>,
    links: &'a [UnsafeCell<Link>],
    done: &'a [Done],
    begun: Instant,
}

pub(super) fn run<M: RawMutex + BetweenProcesses>(masters: usize, slice: Duration) -> io::Result<Run> {
    let office = Office {
        tree: CachePadded(Mutex::<M, Tree>::new(Tree::EMPTY)),
        start: CachePadded(AtomicBool::new(false)),
        stop: CachePadded(AtomicBool::new(false)),
    };
    let no_link = || UnsafeCell::new(Link { before: NONE, behind: NONE });
    let (_office_memory, offices) = SharedMemory::holding([office].into_iter())?;
    let (_links_memory, links) = SharedMemory::holding((0..masters * LINKS).map(|_| no_link()))?;
    let (_done_memory, done) = SharedMemory::holding((0..masters).map(|_| Done::default()))?;
    // SAFETY: written just now, and mapped to the end of this function.
    let (office, links, done) = unsafe { (&(&*offices)[0], &*links, &*done) };
    // SAFETY: nobody else knows of the lock.
    unsafe { office.tree.0.raw() }.share()?;
    let shared = Shared { office, links, done, begun: Instant::now() };
    let switches = processes::context_switches_of_children();
    // In a process of its own, so that the bench's stays as it was: sharing locks cannot be taken back.
    let parent = processes::fork(|| between_processes::share_with_children().is_ok() && shared.deliver(slice))?;
    if !processes::wait(parent)? {
        return Err(io::Error::other(
            "a process of the race of locks failed: locks cannot be shared here, or processes cannot be had",
        ));
    }
    let messages = done.iter().map(|done| done.messages.load(Relaxed)).sum::<u64>();
    // No process of the run is left. Where the lock is broken it may look locked, so it is not asked.
    // SAFETY: nobody else is left to look.
    unsafe { &*office.tree.0.data_ptr() }.check(messages)?;
    let begin_ns = done.iter().map(|done| done.begin_ns.load(Relaxed)).min().unwrap_or(0);
    let end_ns = done.iter().map(|done| done.end_ns.load(Relaxed)).max().unwrap_or(0);
    let (messages, elapsed) = (count(messages.max(1)), Duration::from_nanos(end_ns.saturating_sub(begin_ns)));
    Ok(Run {
        per_second: messages / elapsed.as_secs_f64().max(f64::MIN_POSITIVE),
        switches_per_message: count(processes::context_switches_of_children() - switches) / messages,
    })
}

impl<M: RawMutex> Shared<'_, M> {
    /// The masters' parent; true if all went well.
    fn deliver(&self, slice: Duration) -> bool {
        let masters: Vec<_> = (0..self.done.len()).map(|number| processes::fork(|| self.master(number))).collect();
        self.office.start.0.store(true, Release);
        std::thread::sleep(slice);
        self.office.stop.0.store(true, Release);
        let ended = masters.into_iter().map(|master| master.and_then(processes::wait));
        // All of them are waited for.
        ended.fold(true, |well, ended| well & matches!(ended, Ok(true)))
    }

    /// Forks for one message after another.
    fn master(&self, number: usize) -> bool {
        let own = number * LINKS..(number + 1) * LINKS;
        let own = || own.clone().map(|at| u32::try_from(at).unwrap_or(NONE));
        while !self.office.start.0.load(Acquire) {
            std::thread::yield_now();
        }
        let done = &self.done[number];
        done.begin_ns.store(self.now_ns(), Relaxed);
        let mut messages = 0;
        while !self.office.stop.0.load(Relaxed) {
            for at in own() {
                arithmetic::steps(WORK);
                self.office.tree.0.lock().link(self.links, at);
            }
            let exit = || {
                for at in own() {
                    arithmetic::steps(WORK);
                    self.office.tree.0.lock().unlink(self.links, at);
                }
                true
            };
            // SAFETY: this process was forked with one thread, and has started none.
            let child = unsafe { processes::fork_alone(exit) };
            if !matches!(child.and_then(processes::wait), Ok(true)) {
                return false;
            }
            messages += 1;
        }
        done.end_ns.store(self.now_ns(), Relaxed);
        done.messages.store(messages, Relaxed);
        true
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(count: usize) -> Vec<UnsafeCell<Link>> {
        (0..count).map(|_| UnsafeCell::new(Link { before: NONE, behind: NONE })).collect()
    }

    #[test]
    fn what_was_linked_and_unlinked_in_any_order_leaves_nothing() {
        let (all, mut tree) = (links(LINKS), Tree::EMPTY);
        let numbers = || 0..u32::try_from(LINKS).unwrap();
        numbers().for_each(|at| tree.link(&all, at));
        assert!(tree.check(1).is_err(), "nothing is unlinked yet");
        numbers().filter(|at| at % 3 == 0).for_each(|at| tree.unlink(&all, at));
        numbers().rev().filter(|at| at % 3 != 0).for_each(|at| tree.unlink(&all, at));
        tree.check(1).unwrap();
        assert!(tree.check(2).is_err(), "a message is missing");
    }

    /// What a lock that does not exclude does, one after the other: two look, and both write.
    #[test]
    fn lost_counts_and_lost_links_are_noticed() {
        let all = links(LINKS * 2);
        let mut tree = Tree::EMPTY;
        tree.link(&all, 0);
        let seen_by_other = Tree { ..tree };
        tree.link(&all, 1);
        // The other has not seen that.
        tree = seen_by_other;
        tree.link(&all, 2);
        assert!(tree.torn > 0);
        let lost_count = Tree { first: NONE, links: LINKS as u64 - 1, unlinks: LINKS as u64, torn: 0 };
        let said = lost_count.check(1).unwrap_err().to_string();
        assert!(said.contains("511 and 512 were counted") && said.contains("is empty"), "{said}");
    }
}
