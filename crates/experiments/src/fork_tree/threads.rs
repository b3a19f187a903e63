//! Threads that link and unlink as forks and exits do, without the forks between: the sharper race, in which nothing but the lock counts.

use std::hint::black_box;
use std::io;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_api::{Mutex, RawMutex, RawRwLock, RwLock};
use lockmeter_statistics::ThreadsInStep;

use super::{Run, WORK, count};
use crate::arithmetic;
use crate::cache_padded::CachePadded;
use crate::processes::context_switches_of_threads;

/// Mappings of a small process.
const MAPPINGS: usize = 24;

/// The tree: which child links which mapping.
pub type Tree = Vec<(usize, usize)>;

/// A tree under a lock.
pub trait GuardedTree: Send + Sync {
    /// An empty one.
    fn new() -> Self;
    /// Changes it.
    fn write<T>(&self, change: impl FnOnce(&mut Tree) -> T) -> T;
    /// Looks at it, beside others where the lock lets readers in.
    fn read<T>(&self, look: impl FnOnce(&Tree) -> T) -> T;
}

impl<M: RawMutex + Send + Sync> GuardedTree for Mutex<M, Tree> {
    fn new() -> Self {
        Self::new(Tree::new())
    }

    fn write<T>(&self, change: impl FnOnce(&mut Tree) -> T) -> T {
        change(&mut self.lock())
    }

    fn read<T>(&self, look: impl FnOnce(&Tree) -> T) -> T {
        look(&self.lock())
    }
}

impl<R: RawRwLock + Send + Sync> GuardedTree for RwLock<R, Tree> {
    fn new() -> Self {
        Self::new(Tree::new())
    }

    fn write<T>(&self, change: impl FnOnce(&mut Tree) -> T) -> T {
        change(&mut self.write())
    }

    fn read<T>(&self, look: impl FnOnce(&Tree) -> T) -> T {
        look(&self.read())
    }
}

impl GuardedTree for std::sync::Mutex<Tree> {
    fn new() -> Self {
        Self::new(Tree::new())
    }

    fn write<T>(&self, change: impl FnOnce(&mut Tree) -> T) -> T {
        change(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn read<T>(&self, look: impl FnOnce(&Tree) -> T) -> T {
        look(&self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl GuardedTree for std::sync::RwLock<Tree> {
    fn new() -> Self {
        Self::new(Tree::new())
    }

    fn write<T>(&self, change: impl FnOnce(&mut Tree) -> T) -> T {
        change(&mut self.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn read<T>(&self, look: impl FnOnce(&Tree) -> T) -> T {
        look(&self.read().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(super) fn run<G: GuardedTree>(threads: usize, reads_percent: u32, slice: Duration) -> io::Result<Run> {
    // Lock and tree lie alike whatever the lock's size: elsewhere the one or the other lock may share a line with the tree, and is
    // then up to a sixth faster.
    let tree: CachePadded<G> = CachePadded(G::new());
    let tree = &tree.0;
    let switches = context_switches_of_threads();
    let work = |child, stop: &AtomicBool| {
        let (mut messages, mut reads) = (0_u64, Reads { percent: reads_percent, due: 0 });
        while !stop.load(Ordering::Relaxed) {
            deliver(tree, child, &mut reads);
            messages += 1;
        }
        messages
    };
    let done = ThreadsInStep { threads, length: slice, settling: Duration::ZERO }.run(|child| child, work);
    if !tree.read(Vec::is_empty) {
        return Err(io::Error::other(
            "the lock does not exclude: a thread unlinked all that it had linked, and the tree is not empty",
        ));
    }
    let messages = count(done.results.iter().sum::<u64>().max(1));
    Ok(Run {
        per_second: messages / done.until_ended.as_secs_f64().max(f64::MIN_POSITIVE),
        switches_per_message: count(context_switches_of_threads() - switches) / messages,
    })
}

/// How many reads there are between two writes.
struct Reads {
    percent: u32,
    /// In hundredths of a write.
    due: u32,
}

impl Reads {
    /// The number of reads before the next write: so that of all acquisitions the percentage are reads.
    fn next(&mut self) -> u32 {
        let writes_percent = 100 - self.percent.min(99);
        self.due += self.percent.min(99);
        let reads = self.due / writes_percent;
        self.due %= writes_percent;
        reads
    }
}

/// A child is forked, and exits; others look at the tree in between.
fn deliver(tree: &impl GuardedTree, child: usize, reads: &mut Reads) {
    let mut reads_before_a_write = || {
        for _ in 0..reads.next() {
            arithmetic::steps(WORK);
            black_box(tree.read(|links| links.iter().filter(|(of, _)| *of == child).count()));
        }
        arithmetic::steps(WORK);
    };
    for mapping in 0..MAPPINGS {
        reads_before_a_write();
        tree.write(|links| links.push((child, mapping)));
    }
    for mapping in 0..MAPPINGS {
        reads_before_a_write();
        tree.write(|links| {
            if let Some(at) = links.iter().rposition(|link| *link == (child, mapping)) {
                links.swap_remove(at);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_hundred_acquisitions_as_many_read_as_asked() {
        for percent in [0, 1, 50, 80, 99] {
            let mut reads = Reads { percent, due: 0 };
            let (all, writes) = (10_000, 10_000 * (100 - percent) / 100);
            let read: u32 = (0..writes).map(|_| reads.next()).sum();
            assert_eq!(read, all - writes, "{percent} %");
        }
    }
}
