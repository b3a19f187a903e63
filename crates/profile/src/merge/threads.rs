//! The threads of several reports as those of one.

use crate::report::{SleepRow, SpinRow, StateTime, ThreadsReport, add_waits};

pub(super) fn add(one: Option<ThreadsReport>, other: Option<ThreadsReport>) -> Option<ThreadsReport> {
    let (mut one, other) = match (one, other) {
        (Some(one), Some(other)) => (one, other),
        (one, other) => return one.or(other),
    };
    one.total_ns = one.total_ns.saturating_add(other.total_ns);
    one.watched_ns = one.watched_ns.saturating_add(other.watched_ns);
    one.rest_ns = one.rest_ns.saturating_add(other.rest_ns);
    one.run_samples = one.run_samples.saturating_add(other.run_samples);
    add_each(&mut one.states, other.states, |one, other| one.state == other.state, add_state);
    add_each(&mut one.sleeps, other.sleeps, is_same_sleep, add_sleep);
    add_each(&mut one.spins, other.spins, is_same_spin, |one, other| one.spun.merge(&other.spun));
    add_waits(&mut one.open_waits, other.open_waits);
    add_waits(&mut one.cut_waits, other.cut_waits);
    one.put_in_order();
    Some(one)
}

fn add_each<Row>(
    all: &mut Vec<Row>,
    more: Vec<Row>,
    is_same: impl Fn(&Row, &Row) -> bool,
    add: impl Fn(&mut Row, Row),
) {
    // Within one report no two are the same.
    let known = all.len();
    for row in more {
        match all[..known].iter_mut().find(|known| is_same(known, &row)) {
            Some(known) => add(known, row),
            None => all.push(row),
        }
    }
}

fn add_state(one: &mut StateTime, other: StateTime) {
    one.total_ns = one.total_ns.saturating_add(other.total_ns);
    one.error_ns = both_errors(one.error_ns, other.error_ns);
}

fn is_same_sleep(one: &SleepRow, other: &SleepRow) -> bool {
    let key = |row: &SleepRow| (row.state, row.at_rest);
    key(one) == key(other) && one.comm == other.comm && one.lock == other.lock && one.stack == other.stack
}

fn add_sleep(one: &mut SleepRow, other: SleepRow) {
    if other.woken_by.is_some() && (one.woken_by.is_none() || other.total_ns > one.total_ns) {
        one.woken_by = other.woken_by;
    }
    one.total_ns = one.total_ns.saturating_add(other.total_ns);
    one.error_ns = both_errors(one.error_ns, other.error_ns);
    one.looks = one.looks.saturating_add(other.looks);
}

fn is_same_spin(one: &SpinRow, other: &SpinRow) -> bool {
    let key = |row: &SpinRow| (row.how, row.happened, row.kind);
    key(one) == key(other) && one.lock == other.lock && one.comm == other.comm && one.stack == other.stack
}

/// Of a sum, where neither says anything about the other.
fn both_errors(one_ns: u64, other_ns: u64) -> u64 {
    (one_ns as f64).hypot(other_ns as f64) as u64
}
