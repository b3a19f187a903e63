//! No name of the measured system steers a terminal, a spreadsheet or a parser: every exporter, with names made for that.

mod reports;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use lockmeter_profile::diff::{Diff, diff};
use lockmeter_profile::latency::{LatencyReport, LatencyRow, LongRunRow, RunWaitRow};
use lockmeter_profile::{
    About, BlockerSource, Bucket, ChainLink, Dimension, Happened, HolderTime, Kind, Loss, Losses, Mode, Naming,
    Overhead, Report, RowBlocker, RowRoot, RowTask, SlowHoldRow, Worst,
};
use lockmeter_render::latency::{LatencyHeadline, LatencyTable};
use lockmeter_render::{
    Colour, Csv, DiffHeadline, Exporter, Folded, FoldedStacks, Headline, Histograms, Json, JsonLine, Table,
};
use reports::{about, by_lock, row, value};

/// What a terminal obeys, or what hides or reorders text: a list of its own, not the one under test.
fn is_harmful(c: char) -> bool {
    matches!(c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e01ef}')
}

/// The only control sequences that a table writes.
const COLOURS: [&str; 4] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[33m"];

fn names() -> Vec<String> {
    let each = ('\0'..=char::MAX).filter(|c| is_harmful(*c));
    let mut names = vec![each.clone().collect()];
    // Where a name begins and ends, too.
    names.extend(
        ['\x1b', '\n', '\r', '\t', '\x7f', '\u{9b}', '\u{202e}', '\u{2028}', '\u{feff}'].map(|c| format!("{c}a{c}")),
    );
    names.extend(each.step_by(7).map(|c| format!("a{c}b")));
    names.extend(COLOURS.map(str::to_owned));
    let others = [
        "",
        " ",
        "plain",
        "=1+1",
        "+1",
        "-1",
        "-5.5",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        " =1",
        "＝1+1",
        "x;=1+1",
        "x;;\";=1",
        "=HYPERLINK(\"http://x\",\"y\")",
        "two\nlines,\"and\r\nquotes\"",
        "'\"`\\",
        "ends in a number 5",
        "ends in two 5 6.5 ",
        "lock;main;[other (write)] 5\nforged 7",
        "\u{1b}]8;;http://x\u{7}link",
    ];
    names.extend(others.map(str::to_owned));
    names.push("long\u{202e}".repeat(200));
    names
}

/// A report in which everything that can be a name is this one.
fn report(name: &str) -> Report {
    let name = || name.to_owned();
    let mut report = by_lock();
    report.by = [
        Dimension::Lock,
        Dimension::Task,
        Dimension::Object,
        Dimension::Filesystem,
        Dimension::Cgroup,
        Dimension::Caller,
        Dimension::Blocker,
        Dimension::Root,
        Dimension::BlockerTask,
        Dimension::RootTask,
    ]
    .into();
    report.about.lockmeter_version = name();
    report.about.kernel_release = name();
    report.about.machine = name();
    report.about.scope = name();
    report.rows = [Happened::Wait, Happened::Hold, Happened::ContendedHold, Happened::Failed]
        .map(|happened| {
            let mut row = row(&name(), Kind::Mutex, Mode::Write, value(10, 1_000_000, 200_000, 0));
            row.happened = happened;
            row.naming = Some(Naming::InferredType);
            row.naming_detail = Some(name().into());
            row.object = Some(name());
            row.filesystem = Some(name());
            row.task = Some(RowTask { tgid: Some(1), comm: name() });
            row.cgroup = Some(name());
            row.caller = Some([name().into(), name().into()].into());
            row.blocker = Some(Box::new(RowBlocker {
                source: BlockerSource::Releaser,
                stack: [name().into(), name().into()].into(),
                task: Some(name()),
                by_task: Some(Some(RowTask { tgid: Some(2), comm: name() })),
                state: None,
            }));
            row.root = Some(Box::new(RowRoot {
                lock: Some(name()),
                source: BlockerSource::Releaser,
                stack: [name().into(), name().into()].into(),
                by_task: Some(Some(RowTask { tgid: Some(3), comm: name() })),
                state: None,
            }));
            row
        })
        .into();
    report.worst = Some(Worst {
        lock: name(),
        kind: Kind::Mutex,
        mode: Mode::Write,
        value: report.rows[0].value,
        handover_ppm: 0,
        blocker_ppm: 900_000,
        stacks: 100,
        holder_state: None,
        root: Some((name(), Some(name()))),
        blocker_function: Some(name()),
        blocker_task: Some(name()),
        caller_function: Some(name()),
    });
    report.slow_holds = vec![SlowHoldRow { end_unix_ns: 5, span_ns: 9, chain: vec![link(&name()), link(&name())] }];
    report
}

fn link(name: &str) -> ChainLink {
    ChainLink {
        lock: name.to_owned(),
        kind: Kind::Mutex,
        mode: Mode::Exclusive,
        total_ns: 9,
        task: Some(RowTask { tgid: Some(1), comm: name.to_owned() }),
        stack: [name.into()].into(),
        holder: Some(HolderTime::default()),
    }
}

fn latency(name: &str) -> LatencyReport {
    let runs = value(10, 1_000_000, 200_000, 1_000_000);
    let histogram = vec![(Bucket::of(200_000), 10, 1_000_000)];
    let row = |kind| LatencyRow {
        kind,
        name: name.to_owned(),
        detail: name.to_owned(),
        naming: Naming::Symbol,
        runs,
        timed: 5,
        p50_ns: 1,
        p99_ns: 2,
        histogram: histogram.clone(),
        delays: runs,
        delay_p99_ns: 3,
        delay_histogram: histogram.clone(),
        asleep: runs,
    };
    let wait = RunWaitRow {
        lock: name.to_owned(),
        kind: Kind::Mutex,
        mode: Mode::Read,
        count: 2,
        total_ns: 3,
        caller: vec![name.into()],
    };
    let long_run = LongRunRow {
        begin_unix_ns: 1,
        cpu: 0,
        kind: Kind::Timer,
        name: name.to_owned(),
        detail: name.to_owned(),
        run_ns: 5,
        asleep_ns: 0,
        delay_ns: None,
        task: Some(RowTask { tgid: Some(1), comm: name.to_owned() }),
        waits: vec![wait],
    };
    let mut losses = Losses::default();
    losses.add(Loss::RunsFull, 1);
    LatencyReport {
        about: report(name).about,
        start_unix_ns: 0,
        duration_ns: 1_000_000_000,
        intervals: 1,
        rows: vec![row(Kind::Irq), row(Kind::Work)],
        long_runs: vec![long_run],
        losses,
        overhead: Overhead::default(),
    }
}

fn difference(name: &str) -> Diff {
    let (mut before, mut after) = (report(name), report(name));
    // Each of these differs, which is warned of, whatever the name.
    before.about = About { machine: "other".into(), kernel_release: "other".into(), scope: "other".into(), ..about() };
    for row in &mut after.rows {
        row.value.total_ns /= 3;
    }
    after.waits.total_ns /= 3;
    diff(&before, &after).unwrap()
}

/// What an exporter wrote, and the header of the implementation that wrote it.
struct Output {
    by: &'static str,
    text: String,
    /// Whether long lines are broken to fit a terminal.
    is_wrapped: bool,
}

fn output<T>(by: &'static str, exporter: &impl Exporter<T>, whole: &T) -> Output {
    let mut out = Vec::new();
    exporter.write(whole, &mut out).unwrap();
    Output { by, text: String::from_utf8(out).unwrap(), is_wrapped: false }
}

fn tables() -> Vec<Table> {
    let widths = [None, Some(80), Some(20)];
    let colours = [Colour::Never, Colour::Always];
    widths.iter().flat_map(|width| colours.map(|colour| Table { width: *width, colour, ..Table::default() })).collect()
}

/// The name in every format.
fn outputs(name: &str) -> Vec<Output> {
    let (report, latency, difference) = (report(name), latency(name), difference(name));
    let mut outputs = vec![
        output("Exporter for Json", &Json, &report),
        output("Exporter<LatencyReport> for Json", &Json, &latency),
        output("Exporter<Diff> for Json", &Json, &difference),
        output("Exporter for JsonLine", &JsonLine, &report),
        output("Exporter<LatencyReport> for JsonLine", &JsonLine, &latency),
        output("Exporter for Csv", &Csv, &report),
        output("Exporter<LatencyReport> for Csv", &Csv, &latency),
        output("Exporter<Diff> for Csv", &Csv, &difference),
    ];
    for stacks in [FoldedStacks::Caller, FoldedStacks::Blocker, FoldedStacks::Both] {
        outputs.push(output("Exporter for Folded", &Folded { stacks }, &report));
    }
    for table in tables() {
        let of_latency = LatencyTable { table, histograms: true };
        let tables = [
            output("Exporter for Table", &table, &report),
            output("Exporter<Diff> for Table", &table, &difference),
            output("Exporter for Histograms", &Histograms { table }, &report),
            output("Exporter<LatencyReport> for LatencyTable", &of_latency, &latency),
        ];
        outputs.extend(tables.map(|output| Output { is_wrapped: table.width.is_some(), ..output }));
    }
    outputs
}

/// Every implementation of `Exporter` in the sources of this crate.
fn implementations(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(implementations(&path));
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        let headers = source.lines().filter_map(|line| line.trim().strip_prefix("impl ")?.strip_suffix(" {"));
        found.extend(headers.filter(|header| header.starts_with("Exporter")).map(str::to_owned));
    }
    found
}

/// Makes sure that a new exporter is put to the tests below.
#[test]
fn every_exporter_is_among_those_tested() {
    let tested: BTreeSet<String> = outputs("plain").into_iter().map(|output| output.by.to_owned()).collect();
    assert_eq!(implementations(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")), tested);
}

fn without_line_ends_and_colours(output: &Output) -> String {
    let text = if output.by.ends_with("Csv") { output.text.replace("\r\n", "") } else { output.text.replace('\n', "") };
    COLOURS.iter().fold(text, |text, code| text.replace(code, ""))
}

/// Makes sure that nothing but the sink's own line ends and colours can be obeyed, whatever a name holds.
#[test]
fn no_harmful_character_of_a_name_is_written() {
    for name in names() {
        for output in outputs(&name) {
            let text = without_line_ends_and_colours(&output);
            if let Some(c) = text.chars().find(|c| is_harmful(*c)) {
                panic!("{} writes {c:?} of {:?}", output.by, name.chars().take(40).collect::<String>());
            }
        }
    }
}

/// Makes sure that the sentences at the head are harmless wherever they are printed.
#[test]
fn head_lines_are_harmless_by_themselves() {
    for name in names() {
        let heads = [
            Headline::of(&report(&name)).to_string(),
            LatencyHeadline::of(&latency(&name)).to_string(),
            DiffHeadline::of(&difference(&name)).to_string(),
        ];
        for head in heads {
            assert!(!head.contains(is_harmful), "{head:?}");
        }
    }
}

/// Makes sure that no name adds a line, or a colour. Where there is a width, a longer name may well take more lines.
#[test]
fn names_forge_no_lines_and_no_colours() {
    let shape = |output: &Output| (output.text.matches('\n').count(), output.text.matches('\x1b').count());
    let plain = outputs("plain");
    for name in names() {
        for (plain, output) in plain.iter().zip(outputs(&name)).filter(|(plain, _)| !plain.is_wrapped) {
            let shown: String = name.chars().take(40).collect();
            assert_eq!(shape(&output), shape(plain), "{} has other lines or colours with {shown:?}", output.by);
        }
    }
}

/// Makes sure that a program that reads JSON gets the names as they are.
#[test]
fn json_gives_every_name_back() {
    for name in names() {
        let parsed = |output: Output| serde_json::from_str::<serde_json::Value>(&output.text).unwrap();
        let report = parsed(output("", &Json, &report(&name)));
        assert_eq!(report["scope"], *name);
        let row = &report["rows"][0];
        for field in ["lock", "task", "object", "cgroup", "naming_detail", "blocker_task"] {
            assert_eq!(row[field], *name, "{field}");
        }
        assert_eq!(row["caller"], serde_json::json!([name, name]));
        assert_eq!(report["slow_holds"][0]["chain"][0]["lock"], *name);
        assert_eq!(parsed(output("", &Json, &latency(&name)))["rows"][0]["name"], *name);
        assert_eq!(parsed(output("", &Json, &difference(&name)))["rows"][0]["lock"], *name);
    }
}

/// Makes sure that no cell of text is a formula, in a spreadsheet that divides lines at commas or semicolons, and numbers stay numbers.
#[test]
fn no_cell_of_csv_is_a_formula_and_numbers_stay_numbers() {
    let mut negative = 0;
    for name in names() {
        let texts =
            [output("", &Csv, &report(&name)), output("", &Csv, &latency(&name)), output("", &Csv, &difference(&name))];
        for text in texts.map(|output| output.text) {
            let mut reader = csv::Reader::from_reader(text.as_bytes());
            let headers = reader.headers().unwrap().clone();
            for record in reader.records() {
                let record = record.unwrap();
                for (header, cell) in headers.iter().zip(&record) {
                    let is_number = ["_ns", "_s", "count", "ppm"].iter().any(|end| header.ends_with(end));
                    if is_number && !cell.is_empty() {
                        negative += usize::from(cell.parse::<f64>().unwrap() < 0.0);
                        continue;
                    }
                    for part in cell.split(';') {
                        let begins = part.trim_start().chars().next();
                        let is_formula = begins.is_some_and(|c| "=+-@＝＋－＠".contains(c));
                        assert!(!is_formula, "{header} is {part:?} for {name:?}");
                    }
                }
            }
        }
    }
    assert!(negative > 0, "no change was negative");
}

/// Makes sure that a folded line is frames and one number, as `flamegraph.pl` takes it apart.
#[test]
fn folded_lines_have_as_many_frames_and_numbers_whatever_the_names() {
    for stacks in [FoldedStacks::Caller, FoldedStacks::Blocker, FoldedStacks::Both] {
        let lines = |name: &str| {
            let text = output("", &Folded { stacks }, &report(name)).text;
            let shape = |line: &str| {
                let (frames, number) = line.rsplit_once(' ').unwrap();
                let before = frames.rsplit_once(' ').map_or("", |(_, word)| word);
                assert!(before.is_empty() || before.parse::<f64>().is_err(), "two numbers: {line}");
                assert!(!frames.ends_with(' '), "{line}");
                (frames.matches(';').count(), number.parse::<u64>().unwrap())
            };
            text.lines().map(shape).collect::<Vec<_>>()
        };
        for name in names() {
            assert_eq!(lines(&name), lines("plain"), "{name:?}");
        }
    }
}
