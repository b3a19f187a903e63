//! Adding reports up.

mod synthetic;

use lockmeter_profile::merge::{Difference, differences, merge};
use lockmeter_profile::view::{Query, report};
use lockmeter_profile::{Dimension, Report};
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
