//! Whole outputs of every format, compared with what was reviewed.

mod reports;

use insta::assert_snapshot;
use lockmeter_profile::{Dimension, Happened, Kind, Loss, Mode, Naming, Report, TimedOut};
use lockmeter_render::{Colour, Csv, Exporter, Folded, FoldedStacks, Headline, Json, Table, columns};
use reports::{by_lock, by_stacks, empty, row, value, with_long_names, written};

fn table(width: Option<u16>) -> Table {
    Table { width, ..Table::default() }
}

#[test]
fn a_table_by_lock_tells_the_story_from_head_to_foot() {
    assert_snapshot!(written(&Table::default(), &by_lock()));
}

#[test]
fn holds_have_a_table_of_their_own() {
    let mut report = empty();
    let mut wait = row("server:queue_lock", Kind::Mutex, Mode::Exclusive, value(4_500, 900_000_000, 4_000_000, 0));
    let mut hold = row("server:queue_lock", Kind::Mutex, Mode::Exclusive, value(90_000, 7_300_000_000, 5_000_000, 0));
    for row in [&mut wait, &mut hold] {
        row.naming = Some(Naming::UserSymbol);
    }
    (hold.happened, hold.contended) = (Happened::Hold, Some(4_500));
    report.waits = wait.value;
    report.rows = vec![hold, wait];
    assert_snapshot!(written(&Table::default(), &report));
    assert_snapshot!("holds_as_csv", written(&Csv, &report).replace("\r\n", "\n"));
}

#[test]
fn holds_that_were_counted_in_windows_have_the_rates_of_the_windows() {
    let mut report = empty();
    report.duration_ns = 20_000_000_000;
    report.off.holds = [Kind::Mutex, Kind::Rwsem].map(|kind| (kind, 15_000_000_000)).into();
    let mut hold = row("inode.i_rwsem", Kind::Rwsem, Mode::Write, value(10_000, 2_500_000_000, 5_000_000, 0));
    (hold.happened, hold.contended, hold.off_ns) = (Happened::Hold, Some(100), 15_000_000_000);
    report.rows = vec![hold];
    let table = written(&Table::default(), &report);
    assert!(table.contains("were timed for 5.00 s of the 20.0 s"), "{table}");
    let row = table.lines().find(|line| line.contains("i_rwsem")).expect("a row");
    // Half of five seconds, and 10,000 in five seconds.
    let [_, _, utilization, _, _, per_second, ..] = row.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("{row}")
    };
    assert_eq!((utilization, per_second), ("50.0", "2,000"), "{row}");
}

#[test]
fn a_table_by_stacks_shows_them_below_each_row() {
    assert_snapshot!(written(&Table::default(), &by_stacks()));
}

#[test]
fn a_table_by_blocker_alone_names_its_rows_by_the_stack() {
    let mut report = by_stacks();
    report.by = vec![Dimension::Blocker];
    for row in &mut report.rows {
        (row.lock, row.naming, row.kind, row.mode, row.own) = (None, None, None, None, false);
    }
    assert_snapshot!(written(&Table::default(), &report));
}

#[test]
fn an_empty_report_says_that_nothing_waited() {
    assert_snapshot!(written(&Table::default(), &empty()));
}

#[test]
fn a_terminal_of_80_columns_gets_lines_of_80_columns() {
    let text = written(&table(Some(80)), &by_lock());
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_snapshot!(text);
}

#[test]
fn a_terminal_of_200_columns_leaves_nothing_out() {
    let text = written(&table(Some(200)), &by_stacks());
    assert!(!text.contains("left out"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 200), "{text}");
    assert_snapshot!(text);
}

#[test]
fn very_long_names_are_cut_to_a_terminal_and_whole_in_a_pipe() {
    let report = with_long_names();
    let text = written(&table(Some(80)), &report);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_snapshot!(text);
    let piped = written(&Table::default(), &report);
    assert!(piped.contains(report.rows[0].lock.as_deref().unwrap()));
    assert!(!piped.contains('\x1b'), "names cannot send escapes to a terminal");
}

#[test]
fn a_limit_sums_up_the_rows_it_hides() {
    assert_snapshot!(written(&Table { limit: Some(1), ..Table::default() }, &by_lock()));
}

/// A small row stays where it is among the first, or among those that were asked for by number.
#[test]
fn small_rows_are_counted_with_the_rest() {
    let mut report = by_lock();
    let mut small = report.rows[0].clone();
    small.value.total_ns = report.waits.total_ns / 200;
    report.rows.retain(|row| row.happened == small.happened);
    let large = report.rows.len();
    report.rows.extend((0..5).map(|_| small.clone()));
    let shown = |table: &Table| written(table, &report);
    let folding = Table { folds_small: true, ..Table::default() };
    let (folded, all) = (shown(&folding), shown(&Table::default()));
    assert!(folded.contains("… and ") && folded.contains("more rows, "), "{large} rows\n{folded}");
    assert!(!all.contains("more rows"), "{all}");
}

#[test]
fn colour_only_adds_escapes_and_no_color_takes_them_away() {
    let coloured = written(&Table { colour: Colour::Always, ..table(Some(80)) }, &by_lock());
    let refused = Colour::wanted(true, |name| (name == "NO_COLOR").then(|| "1".into()));
    let plain = written(&Table { colour: refused, ..table(Some(80)) }, &by_lock());
    assert!(coloured.contains("\x1b[1m") && coloured.contains("\x1b[33m"));
    let stripped =
        ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[33m"].iter().fold(coloured, |text, code| text.replace(code, ""));
    assert_eq!(stripped, plain);
}

#[test]
fn json_keeps_its_contract() {
    assert_snapshot!("json_by_lock", written(&Json, &by_lock()));
    assert_snapshot!("json_by_stacks", written(&Json, &by_stacks()));
    assert_snapshot!("json_empty", written(&Json, &empty()));
}

#[test]
fn json_reads_back_as_what_was_written_with_names_that_need_escapes() {
    let report = with_long_names();
    let parsed: serde_json::Value = serde_json::from_str(&written(&Json, &report)).unwrap();
    assert_eq!(parsed["rows"][1]["task"], report.rows[1].task.as_ref().unwrap().comm.as_str());
    assert_eq!(parsed["rows"].as_array().unwrap().len(), 2);
    let keys = parsed["rows"][0].as_object().unwrap().len();
    assert_eq!(keys, columns::columns(&report.by).count());
}

#[test]
fn csv_quotes_what_rfc_4180_wants_quoted() {
    let text = written(&Csv, &by_lock());
    assert!(text.ends_with("\r\n") && text.contains("\"pwq, or \"\"io_wq\"\"\""), "{text}");
    assert_snapshot!("csv_by_lock", text.replace("\r\n", "\n"));
    assert_snapshot!("csv_by_stacks", written(&Csv, &by_stacks()).replace("\r\n", "\n"));
    assert_eq!(written(&Csv, &empty()).lines().count(), 1, "an empty report still has its header");
}

#[test]
fn folded_stacks_run_from_the_outermost_frame_to_the_lock() {
    assert_snapshot!(written(&Folded::default(), &by_stacks()));
}

#[test]
fn folded_blockers_say_why_there_is_no_stack() {
    assert_snapshot!(written(&Folded { stacks: FoldedStacks::Blocker }, &by_stacks()));
}

#[test]
fn folded_waits_carry_their_blocker_upside_down() {
    assert_snapshot!(written(&Folded { stacks: FoldedStacks::Both }, &by_stacks()));
}

/// Regression: time held was added to time waited, in one flame graph.
#[test]
fn folded_stacks_hold_no_holds() {
    let mut report = by_stacks();
    let waits = written(&Folded::default(), &report);
    let mut hold = report.rows[0].clone();
    hold.happened = Happened::Hold;
    report.rows.push(hold);
    assert_eq!(written(&Folded::default(), &report), waits);
}

#[test]
fn folded_stacks_of_a_report_without_callers_are_refused_with_the_mend() {
    let error = Folded::default().write(&by_lock(), &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "folded stacks need a report grouped --by lock,caller");
    let mut nothing = empty();
    nothing.by = vec![Dimension::Lock, Dimension::Caller];
    assert_eq!(written(&Folded::default(), &nothing), "");
}

#[test]
fn folded_names_cannot_break_the_format() {
    let text = written(&Folded::default(), &with_long_names());
    assert_eq!(text.lines().count(), 2);
    assert!(text.lines().nth(1).unwrap().starts_with("\\u{1b}[2Jevil\\u{3b}\"name\",;"), "{text}");
}

#[test]
fn the_head_line_has_words_for_every_case() {
    let only_spinning = Report {
        rows: vec![row("zone.lock", Kind::Spin, Mode::Exclusive, value(9, 124_000_000, 9_000_000, 124_000_000))],
        waits: value(9, 124_000_000, 9_000_000, 124_000_000),
        worst: by_lock().worst.map(|mut worst| {
            worst.value = value(9, 124_000_000, 9_000_000, 124_000_000);
            (worst.blocker_function, worst.blocker_task) = (None, None);
            worst
        }),
        ..empty()
    };
    let mut only_sleeping = only_spinning.clone();
    only_sleeping.waits.spin_ns = 0;
    only_sleeping.worst.as_mut().unwrap().value.spin_ns = 0;
    let mut lossy = empty();
    lossy.losses.add(Loss::TotalsFull, 3);
    let mut of_a_process = by_lock();
    of_a_process.about.scope = "process 42 and its children".into();
    let mut of_no_duration = by_lock();
    of_no_duration.duration_ns = 0;
    let mut chained = by_lock();
    let worst = chained.worst.as_mut().unwrap();
    worst.root = Some(("inode.i_rwsem".into(), Some("iterate_dir".into())));
    (worst.stacks, worst.handover_ppm) = (3, 310_000);
    let timed_out = |count, total_ns| TimedOut {
        all: value(count, total_ns, 0, 0),
        lock: "bank:debit_lock".into(),
        kind: Kind::Mutex,
        mode: Mode::Exclusive,
        value: value(count, total_ns, 0, 0),
        blocker_function: None,
        blocker_task: None,
    };
    let only_timed_out = Report { timed_out: Some(timed_out(4, 801_000_000)), ..empty() };
    let many_timed_out = Report { timed_out: Some(timed_out(4, 9_000_000_000)), ..by_lock() };
    let mut of_several = timed_out(5, 801_500_000);
    of_several.value = value(4, 801_000_000, 0, 0);
    of_several.blocker_function = Some("transfer".into());
    of_several.blocker_task = Some("teller".into());
    let several_timed_out = Report { timed_out: Some(of_several), ..empty() };
    let mostly_timed_out = Report { timed_out: Some(timed_out(4, 90_000_000_000_000)), ..by_lock() };
    let few_timed_out = Report { timed_out: Some(timed_out(1, 2_000_000)), ..by_lock() };
    let reports = [by_lock(), only_spinning, only_sleeping, empty(), lossy, of_a_process, of_no_duration, chained];
    assert!(reports.iter().all(|report| Headline::of(report).is_nothing() == (report.waits.count == 0)));
    assert!(!Headline::of(&only_timed_out).is_nothing());
    let some_timed_out = [only_timed_out, several_timed_out, many_timed_out, mostly_timed_out, few_timed_out];
    let reports = reports.into_iter().chain(some_timed_out);
    let reports: Vec<Report> = reports.collect();
    let heads: Vec<String> = reports.iter().map(|report| Headline::of(report).to_string()).collect();
    assert_snapshot!(heads.join("\n\n"));
}

#[test]
fn sorting_puts_the_largest_first_and_names_from_a_to_z() {
    let mut report = by_lock();
    let locks = |report: &Report| -> Vec<String> { report.rows.iter().map(|row| row.lock.clone().unwrap()).collect() };
    columns::sort(&mut report, "count").unwrap();
    assert_eq!(locks(&report)[..2], ["zone.lock", "mm_struct.mmap_lock"]);
    columns::sort(&mut report, "lock").unwrap();
    assert_eq!(locks(&report)[..2], ["bpf_ringbuf.spinlock", "kmalloc-64+0x8"]);
    columns::sort(&mut report, "%").unwrap();
    assert_eq!(locks(&report)[0], "mm_struct.mmap_lock");
    assert_eq!(locks(&report)[4], "bpf_ringbuf.spinlock", "a row without a share comes last");
    assert!(columns::sort(&mut report, "caller").is_err(), "a report by lock has no callers");
}
