//! Comparing two reports.

mod synthetic;

use lockmeter_profile::diff::{Change, DiffError, DiffWarning, diff};
use lockmeter_profile::view::{NamePattern, Query, report};
use lockmeter_profile::{About, Dimension, Report};
use synthetic::{REALISTIC, about, interval};

fn made(seconds: u64, query: &Query) -> Report {
    report(&about(), (0..seconds).map(|nth| interval(nth, REALISTIC)), query)
}

#[test]
fn a_recording_compared_with_itself_has_not_changed() {
    let report = made(3, &Query::by([Dimension::Lock]));
    let diff = diff(&report, &report).unwrap();
    assert!(diff.rows.iter().all(|row| row.delta_ns_per_s == 0 && row.change == Change::Changed));
    assert_eq!((diff.rows.len(), diff.before.cpus), (report.rows.len(), 2));
    assert!(diff.warnings.is_empty());
}

#[test]
fn rates_do_not_depend_on_how_long_was_recorded() {
    let short = made(1, &Query::by([Dimension::Caller]));
    let mut long = short.clone();
    long.duration_ns *= 4;
    for row in &mut long.rows {
        row.value.count *= 4;
        row.value.total_ns *= 4;
        row.value.spin_ns *= 4;
    }
    let diff = diff(&short, &long).unwrap();
    assert!(
        diff.rows
            .iter()
            .all(|row| row.delta_ns_per_s == 0 && row.before.count_per_1000_s == row.after.count_per_1000_s)
    );
}

#[test]
fn groups_in_only_one_report_appeared_or_vanished_and_the_largest_change_comes_first() {
    let query = Query::by([Dimension::Lock]);
    let all = made(2, &query);
    let some = made(2, &Query { lock: Some(NamePattern::from("object_1")), ..query });
    let appeared = diff(&some, &all).unwrap();
    let vanished = diff(&all, &some).unwrap();
    let count =
        |diff: &lockmeter_profile::diff::Diff, change| diff.rows.iter().filter(|row| row.change == change).count();
    assert_eq!(count(&appeared, Change::Appeared), all.rows.len() - some.rows.len());
    assert_eq!(count(&vanished, Change::Vanished), all.rows.len() - some.rows.len());
    assert!(appeared.rows.is_sorted_by_key(|row| std::cmp::Reverse(row.delta_ns_per_s.unsigned_abs())));
    assert_eq!(appeared.rows[0].delta_ns_per_s, -vanished.rows[0].delta_ns_per_s);
}

#[test]
fn tasks_are_matched_by_name_for_their_ids_differ() {
    let before = made(1, &Query::by([Dimension::Task]));
    let mut after = before.clone();
    for row in &mut after.rows {
        row.task.as_mut().unwrap().tgid = Some(31_337);
    }
    assert!(diff(&before, &after).unwrap().rows.iter().all(|row| row.change == Change::Changed));
}

#[test]
fn what_cannot_be_compared_is_refused_and_what_should_not_is_warned_of() {
    let by_lock = made(1, &Query::by([Dimension::Lock]));
    let error = diff(&by_lock, &made(1, &Query::by([Dimension::Caller]))).unwrap_err();
    assert!(matches!(error, DiffError::GroupingDiffers { .. }));
    let by_instance = made(1, &Query::by([Dimension::Instance]));
    assert_eq!(diff(&by_instance, &by_instance), Err(DiffError::ByInstance));
    let nothing = made(0, &Query::by([Dimension::Lock]));
    assert_eq!(diff(&nothing, &by_lock), Err(DiffError::NothingMetered { is_before: true }));
    let mut elsewhere = by_lock.clone();
    elsewhere.about = About { cpus: 64, kernel_release: "6.1".into(), ..about() };
    let warnings = diff(&by_lock, &elsewhere).unwrap().warnings;
    assert_eq!(warnings.len(), 2);
    assert_eq!(warnings[0], DiffWarning::CpusDiffer { before: 2, after: 64 });
}
