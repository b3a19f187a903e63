//! Threads that link and unlink as forks and exits do, without the forks between: the sharper race, in which nothing but the lock counts.

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lock_api::{Mutex, RawMutex};

use super::{Run, WORK, count};
use crate::apart::Apart;
use crate::arithmetic;
use crate::processes::context_switches_of_threads;

/// Mappings of a small process.
const MAPPINGS: usize = 24;

/// The tree: which child links which mapping.
type Tree = Vec<(usize, usize)>;

pub(super) fn run<M: RawMutex + Send + Sync>(threads: usize, slice: Duration) -> io::Result<Run> {
    // Lock and tree lie alike whatever the lock's size: elsewhere the one or the other lock may share a line with the tree, and is
    // then up to a sixth faster.
    let tree: Apart<Mutex<M, Tree>> = Apart(Mutex::new(Vec::new()));
    let tree = &tree.0;
    let (start, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let switches = context_switches_of_threads();
    let (messages, elapsed) = std::thread::scope(|scope| {
        let (start, stop) = (&start, &stop);
        let worker = |child: usize| {
            move || {
                start.wait();
                let (begin, mut messages) = (Instant::now(), 0_u64);
                while !stop.load(Ordering::Relaxed) {
                    deliver(tree, child);
                    messages += 1;
                }
                (messages, begin, Instant::now())
            }
        };
        let workers: Vec<_> = (0..threads).map(|child| scope.spawn(worker(child))).collect();
        start.wait();
        std::thread::sleep(slice);
        stop.store(true, Ordering::Relaxed);
        // A panic in a worker is a bug, and the scope passes it on.
        let done: Vec<_> = workers.into_iter().filter_map(|worker| worker.join().ok()).collect();
        let begin = done.iter().map(|(_, begin, _)| *begin).min();
        let end = done.iter().map(|(.., end)| *end).max();
        let elapsed = begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin);
        (done.iter().map(|(messages, ..)| *messages).sum::<u64>(), elapsed)
    });
    if !tree.lock().is_empty() {
        return Err(io::Error::other(
            "the lock does not exclude: a thread unlinked all that it had linked, and the tree is not empty",
        ));
    }
    let messages = count(messages.max(1));
    Ok(Run {
        per_second: messages / elapsed.as_secs_f64().max(f64::MIN_POSITIVE),
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
