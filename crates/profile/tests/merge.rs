//! Adding reports up.

mod synthetic;

use lockmeter_profile::merge::{Difference, differences, merge};
use lockmeter_profile::view::{Query, report};
use lockmeter_profile::{
    Dimension, Kind, Mode, OpenWaitRow, Report, RowTask, SleepRow, StateTime, ThreadState, ThreadsReport,
};
use synthetic::{REALISTIC, SECOND_NS, about, interval};

fn part(seconds: std::ops::Range<u64>, query: &Query) -> Report {
    report(&about(), seconds.map(|nth| interval(nth, REALISTIC)), query)
}

/// Makes sure that it does not matter whether intervals lie in one recording or in two.
#[test]
fn two_halves_added_up_are_the_whole() {
    for by in [
        vec![Dimension::Lock],
        vec![Dimension::Kind, Dimension::Task],
        vec![Dimension::Mode, Dimension::Task, Dimension::Kind],
        vec![Dimension::Object],
    ] {
        let query = Query::by(by.clone());
        let whole = part(0..6, &query);
        let sum = merge([part(0..3, &query), part(3..6, &query)]).unwrap();
        assert_eq!((sum.duration_ns, sum.intervals), (whole.duration_ns, whole.intervals));
        assert_eq!((sum.waits, sum.named_ns, &sum.losses), (whole.waits, whole.named_ns, &whole.losses));
        let figures = |report: &Report| {
            let mut rows: Vec<_> = report
                .rows
                .iter()
                .map(|row| {
                    let names =
                        (row.happened, row.lock.clone(), row.kind, row.mode, row.object.clone(), row.task.clone());
                    (format!("{names:?}"), row.value, row.p99_ns, row.histogram.clone())
                })
                .collect();
            rows.sort_by(|one, other| one.0.cmp(&other.0));
            rows
        };
        let (sum, whole) = (figures(&sum), figures(&whole));
        assert_eq!(sum.len(), whole.len(), "by {by:?}");
        for (sum, whole) in sum.iter().zip(&whole) {
            assert_eq!(sum, whole, "by {by:?}");
        }
    }
}

#[test]
fn what_recordings_do_not_have_in_common_is_said() {
    let query = Query::by([Dimension::Lock]);
    let (first, after) = (part(0..3, &query), part(3..6, &query));
    assert_eq!(differences(&[first.clone(), after.clone()]), []);
    assert_eq!(differences(&[after.clone(), first.clone()]), [], "in any order");
    let mut other = after;
    other.about.cpus = 64;
    other.about.kernel_release = "7.0".into();
    other.about.machine = "aarch64".into();
    other.about.scope = "process 42".into();
    other.start_unix_ns -= SECOND_NS / 2;
    let found = differences(&[first.clone(), other.clone()]);
    assert!(matches!(
        found.as_slice(),
        [
            Difference::Cpus(2, 64),
            Difference::Kernel(..),
            Difference::Machine(..),
            Difference::Scope(..),
            Difference::AtTheSameTime
        ]
    ));
    let both = merge([first, other]).unwrap();
    assert_eq!((both.about.cpus, both.about.machine.as_str()), (64, "x86_64; aarch64"));
    assert_eq!(merge([]), None);
}

/// Regression: the time was that of the first report's threads alone.
#[test]
fn the_threads_of_two_recordings_are_those_of_both() {
    let query = Query::by([Dimension::Lock]);
    let of_threads = |seconds, running_s: u64, age_s: u64| {
        let state =
            |state, s: u64, error_s: u64| StateTime { state, total_ns: s * SECOND_NS, error_ns: error_s * SECOND_NS };
        let sleep = SleepRow {
            state: ThreadState::UserLock,
            comm: "clerk".into(),
            lock: None,
            at_rest: false,
            stack: ["post".into()].into_iter().collect(),
            total_ns: 4 * SECOND_NS,
            error_ns: 0,
            looks: 40,
            woken_by: None,
        };
        let wait = OpenWaitRow {
            task: RowTask { tgid: Some(7), comm: "clerk".into() },
            tid: 8,
            is_kernel: false,
            lock: "ledger".into(),
            kind: Kind::Mutex,
            mode: Mode::Exclusive,
            instance: None,
            stack: [].into_iter().collect(),
            age_ns: age_s * SECOND_NS,
            is_older: false,
            is_timed: false,
            holder: None,
            ended_holder: None,
            deadlock: Some(0),
        };
        let threads = ThreadsReport {
            total_ns: (running_s + 4) * SECOND_NS,
            watched_ns: 3 * SECOND_NS,
            states: vec![state(ThreadState::UserLock, 4, age_s), state(ThreadState::Running, running_s, 0)],
            sleeps: vec![sleep],
            open_waits: vec![wait],
            ..ThreadsReport::default()
        };
        Report { threads: Some(threads), ..part(seconds, &query) }
    };
    let without = part(6..9, &query);
    let sum = merge([of_threads(0..3, 1, 3), without, of_threads(3..6, 9, 4)]).unwrap().threads.unwrap();
    assert_eq!((sum.total_ns, sum.watched_ns), (18 * SECOND_NS, 6 * SECOND_NS));
    let states: Vec<_> = sum.states.iter().map(|time| (time.state, time.total_ns / SECOND_NS, time.error_ns)).collect();
    let error_ns = 5 * SECOND_NS;
    assert_eq!(states, [(ThreadState::Running, 10, 0), (ThreadState::UserLock, 8, error_ns)]);
    assert_eq!((sum.sleeps.len(), sum.sleeps[0].total_ns, sum.sleeps[0].looks), (1, 8 * SECOND_NS, 80));
    let waits: Vec<_> = sum.open_waits.iter().map(|wait| (wait.age_ns / SECOND_NS, wait.deadlock)).collect();
    assert_eq!(waits, [(4, Some(1)), (3, Some(0))]);
}
