//! Intervals that are kept in little memory.

mod synthetic;

use lockmeter_profile::Loss;
use lockmeter_profile::recording::PackedInterval;
use synthetic::{REALISTIC, interval};

/// Makes sure that an interval becomes again what it was, in a third of its memory at most.
#[test]
fn a_packed_interval_is_small_and_becomes_again_what_it_was() {
    let interval = interval(7, REALISTIC);
    let packed = PackedInterval::of(&interval);
    assert_eq!(packed.unpack().as_ref(), Some(&interval));
    assert_eq!((packed.start_unix_ns(), packed.duration_ns()), (interval.start_unix_ns, interval.duration_ns));
    assert!(packed.memory_bytes() * 3 < interval.memory_bytes(), "{} B", packed.memory_bytes());
}

/// Makes sure that one which no recording can hold leaves a trace.
#[test]
fn of_one_that_is_too_large_its_losses_are_kept() {
    let mut large = interval(7, REALISTIC);
    large.totals = (0..600_000).map(|at| large.totals[at % large.totals.len()]).collect();
    let kept = PackedInterval::of(&large).unpack().unwrap();
    assert!(kept.totals.is_empty() && kept.duration_ns == large.duration_ns);
    assert_eq!(kept.losses.get(Loss::IntervalTooLarge), 1);
}
