//! Threads that link and unlink as forks and exits do, without the forks between: the sharper race, in which nothing but the lock counts.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_api::{Mutex, RawMutex};
use lockmeter_statistics::ThreadsInStep;

use super::{Run, WORK, count};
use crate::arithmetic;
use crate::cache_padded::CachePadded;
use crate::processes::context_switches_of_threads;

/// Mappings of a small process.
const MAPPINGS: usize = 24;

/// The tree: which child links which mapping.
type Tree = Vec<(usize, usize)>;

pub(super) fn run<M: RawMutex + Send + Sync>(threads: usize, slice: Duration) -> io::Result<Run> {
    // Lock and tree lie alike whatever the lock's size: elsewhere the one or the other lock may share a line with the tree, and is
    // then up to a sixth faster.
    let tree: CachePadded<Mutex<M, Tree>> = CachePadded(Mutex::new(Vec::new()));
    let tree = &tree.0;
    let switches = context_switches_of_threads();
    let work = |child, stop: &AtomicBool| {
        let mut messages = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            deliver(tree, child);
            messages += 1;
        }
        messages
    };
    let done = ThreadsInStep { threads, length: slice, settling: Duration::ZERO }.run(|child| child, work);
    if !tree.lock().is_empty() {
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

/// A child is forked, and exits.
fn deliver<M: RawMutex>(tree: &Mutex<M, Tree>, child: usize) {
    for mapping in 0..MAPPINGS {
        arithmetic::steps(WORK);
        tree.lock().push((child, mapping));
    }
    for mapping in 0..MAPPINGS {
        arithmetic::steps(WORK);
        let mut links = tree.lock();
        if let Some(at) = links.iter().rposition(|link| *link == (child, mapping)) {
            links.swap_remove(at);
        }
    }
}
