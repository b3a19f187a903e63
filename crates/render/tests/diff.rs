//! Whole outputs of a diff, compared with what was reviewed.

mod reports;

use insta::assert_snapshot;
use lockmeter_profile::diff::{Diff, diff};
use lockmeter_render::{Csv, DiffHeadline, Exporter, Json, Table};
use reports::{by_lock, by_stacks, empty};

/// mmap_lock got five times better, the unnamed lock vanished, zone.lock got worse.
fn better() -> Diff {
    let before = by_lock();
    let mut after = by_lock();
    after.about.cpus = 4;
    after.duration_ns *= 2;
    after.rows.remove(3);
    after.rows[0].value.total_ns = 4_152_000_000;
    after.rows[2].value.total_ns = 2_410_000_000;
    after.rows[2].value.spin_ns = 2_410_000_000;
    after.waits.total_ns = 10_162_000_000;
    after.waits.spin_ns = 2_621_000_000;
    diff(&before, &after).expect("both are by lock")
}

fn written(exporter: &impl Exporter<Diff>, diff: &Diff) -> String {
    let mut out = Vec::new();
    exporter.write(diff, &mut out).expect("memory takes every write");
    String::from_utf8(out).expect("text is UTF-8")
}

#[test]
fn a_diff_says_what_got_better_and_what_got_worse() {
    assert_snapshot!(written(&Table::default(), &better()));
}

#[test]
fn a_diff_fits_a_terminal_of_80_columns() {
    let table = Table { width: Some(80), limit: Some(2), ..Table::default() };
    let text = written(&table, &better());
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_snapshot!(text);
}

#[test]
fn a_diff_by_stacks_shows_them_below_each_row() {
    let mut after = by_stacks();
    after.rows.remove(1);
    assert_snapshot!(written(&Table::default(), &diff(&by_stacks(), &after).unwrap()));
}

#[test]
fn a_diff_in_json_and_csv_keeps_its_contract() {
    assert_snapshot!("diff_json", written(&Json, &better()));
    assert_snapshot!("diff_csv", written(&Csv, &better()).replace("\r\n", "\n"));
    let parsed: serde_json::Value = serde_json::from_str(&written(&Json, &better())).unwrap();
    assert_eq!(parsed["rows"].as_array().unwrap().len(), 5);
}

#[test]
fn a_diff_of_nothing_and_of_no_change_says_so() {
    let heads = [
        diff(&empty(), &empty()).unwrap(),
        diff(&by_lock(), &by_lock()).unwrap(),
        diff(&empty(), &by_lock()).unwrap(),
        diff(&by_lock(), &empty()).unwrap(),
    ];
    let heads: Vec<String> = heads.iter().map(|diff| DiffHeadline::of(diff).to_string()).collect();
    assert_snapshot!(heads.join("\n\n"));
    assert!(!written(&Table::default(), &diff(&empty(), &empty()).unwrap()).contains("CHANGE/S"));
}
