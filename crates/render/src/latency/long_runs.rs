//! Single runs that were longer than asked for, and what they waited for.

use lockmeter_profile::Mode;
use lockmeter_profile::latency::{LongRunRow, RunWaitRow};

use crate::columns::{Cell, Column, Unit};
use crate::stacks::chain;
use crate::table::DEFAULT_FRAMES;
use crate::units::{duration, time_of_day};

type LongRunColumn = Column<LongRunRow, ()>;

/// Every column there is, in the order of the exports.
#[rustfmt::skip]
pub const COLUMNS: &[LongRunColumn] = &[
    LongRunColumn::new("begin_unix_ns", Unit::Count, |run, ()| Cell::Count(run.begin_unix_ns)).headed("BEGAN (UTC)")
        .in_words(|run, _| time_of_day(run.begin_unix_ns)),
    LongRunColumn::new("cpu", Unit::Id, |run, ()| Cell::Id(run.cpu)).headed("CPU"),
    LongRunColumn::new("run_ns", Unit::Nanoseconds, |run, ()| Cell::Nanoseconds(run.run_ns)).headed("RAN"),
    LongRunColumn::new("asleep_ns", Unit::Nanoseconds, |run, ()| match run.kind {
        lockmeter_profile::Kind::Work => Cell::Nanoseconds(run.asleep_ns),
        _ => Cell::Missing,
    }).headed("ASLEEP"),
    LongRunColumn::new("delay_ns", Unit::Nanoseconds, |run, ()| run.delay_ns.map_or(Cell::Missing, Cell::Nanoseconds))
        .headed("DELAY").expendable(0),
    LongRunColumn::new("lock_wait_ns", Unit::Nanoseconds, |run, ()| match run.waits.len() {
        0 => Cell::Missing,
        _ => Cell::Nanoseconds(run.waits.iter().map(|wait| wait.total_ns).fold(0, u64::saturating_add)),
    }).headed("LOCKS"),
    LongRunColumn::new("kind", Unit::Name, |run, ()| Cell::Name(run.kind.name())).headed("KIND"),
    LongRunColumn::new("name", Unit::Name, |run, ()| Cell::Name(&run.name)).headed("NAME"),
    LongRunColumn::new("detail", Unit::Name, |run, ()| match run.detail.as_str() {
        "" => Cell::Missing,
        detail => Cell::Name(detail),
    }).headed("HANDLER, MODULE").expendable(1),
    LongRunColumn::new("task", Unit::Name, |run, ()| Cell::name(run.task.as_ref().map(|task| task.comm.as_str())))
        .headed("TASK").expendable(2),
    LongRunColumn::new("tgid", Unit::Id, |run, ()| {
        run.task.as_ref().and_then(|task| task.tgid).map_or(Cell::Missing, Cell::Id)
    }),
];

/// The lines below a run, with names as they are: the locks it waited for.
pub fn waits(run: &LongRunRow) -> Vec<String> {
    let times = |wait: &RunWaitRow| if wait.count == 1 { String::new() } else { format!(", {} times", wait.count) };
    let mode = |wait: &RunWaitRow| match wait.mode {
        Mode::Exclusive => wait.kind.name().to_owned(),
        mode => format!("{}, {mode}", wait.kind),
    };
    let place = |wait: &RunWaitRow| match wait.caller.as_slice() {
        [] => String::new(),
        caller => format!(", in {}", chain(caller, DEFAULT_FRAMES)),
    };
    let line = |wait: &RunWaitRow| {
        format!(
            "      waited {} for {} ({}){}{}",
            duration(wait.total_ns),
            wait.lock,
            mode(wait),
            times(wait),
            place(wait)
        )
    };
    run.waits.iter().map(line).collect()
}
