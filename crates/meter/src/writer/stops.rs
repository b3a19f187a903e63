//! Times in which the process was stopped by a signal are no part of its waits and holds. The recorder sees them, within milliseconds.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::{clock, segment};
use crate::layout::{Lost, Process};

/// In a shorter time nobody stops a process and has it go on. The recorder sees no shorter one either.
pub(super) const LEAST_NS: u64 = 1_000_000;

/// The time from one tick to another in which the process was not stopped.
#[inline]
pub(super) fn between_ns_running(from: u64, to: u64) -> u64 {
    let ns = clock::between_ns(from, to);
    let header = segment::header();
    if ns < LEAST_NS || header.stop_count.load(Acquire) == 0 {
        return ns;
    }
    leave_stops_out(header, ns, to)
}

#[cold]
#[inline(never)]
fn leave_stops_out(header: &Process, ns: u64, ended: u64) -> u64 {
    let to_ns = clock::monotonic_ns().saturating_sub(clock::between_ns(ended, clock::ticks()));
    let from_ns = to_ns.saturating_sub(ns);
    let stopped = header.stops.iter().map(|stop| {
        let (since, until) = (stop.since_ns.load(Relaxed), stop.until_ns.load(Relaxed));
        until.min(to_ns).saturating_sub(since.max(from_ns))
    });
    let stopped = stopped.fold(0, u64::saturating_add);
    if stopped > 0 {
        segment::lose(Lost::Stopped);
    }
    ns.saturating_sub(stopped)
}
