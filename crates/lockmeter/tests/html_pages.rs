//! Pages of two recordings compared, and of what ran, in a real browser: their numbers are those of the JSON, and they do nothing else.

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use lockmeter_profile::{Bucket, Key, Task, Total, Value};
use lockmeter_render::units::{change, count, duration, percent, thousandths};
use serde_json::{Value as Json, json};
use support::browser::{Browser, DESKTOP, PHONE, Table};
use support::harmful_names::{BAR, assert_harmless, name_in_pages, on_terminal};
use support::made::{Load, write_latency, write_recording, write_with};
use support::recorder::Recorder;
use support::report::json_report;
use support::{Folder, lockmeter, machine, preload_library, refused, run, run_workload, text, user_workload};

fn record(folder: &Folder, program: &Path, name: &str, arguments: &[&str]) -> String {
    preload_library();
    let recording = folder.file(name);
    let mut command =
        lockmeter(["record", "--user", "--hold", "--quiet", "--interval", "100ms", "-o", &recording, "--"]);
    let output = run({
        command.arg(program).args(arguments);
        command
    });
    assert!(output.status.success(), "{}", text(&output.stderr));
    recording
}

fn succeeds(arguments: &[&str]) {
    let mut command = lockmeter([]);
    command.args(arguments);
    let output = run(command);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
}

fn diff(before: &str, after: &str, by: &str) -> Json {
    support::json(lockmeter(["diff", before, after, "--by", by, "--format", "json"]))
}

/// A column of a table: its key, and what a cell says of a value.
type Column = (&'static str, fn(&Json) -> String);

/// The cells of these rows, by what tells them apart.
fn cells(rows: &[&Json], attributes: &[&str], columns: &[Column]) -> Table {
    let word = |row: &Json, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let cell =
        |row: &Json, (key, words): &Column| (!row[*key].is_null()).then(|| ((*key).to_owned(), words(&row[*key])));
    let of = |row: &&Json| {
        let key = attributes.iter().map(|attribute| word(row, attribute)).collect();
        (key, columns.iter().filter_map(|column| cell(row, column)).collect())
    };
    rows.iter().map(of).collect()
}

fn time(value: &Json) -> String {
    duration(value.as_u64().unwrap())
}

/// A number with three digits behind the point.
fn decimal(value: &Json) -> String {
    thousandths((value.as_f64().unwrap() * 1_000.0).round() as u64)
}

fn word(value: &Json) -> String {
    value.as_str().unwrap().to_owned()
}

const OF_CHANGES: [Column; 10] = [
    ("delta_ns_per_s", |value| change(value.as_i64().unwrap())),
    ("ratio", decimal),
    ("verdict", word),
    ("typical_ratio", decimal),
    ("before_total_ns_per_s", time),
    ("after_total_ns_per_s", time),
    ("before_per_second", decimal),
    ("after_per_second", decimal),
    ("before_p99_ns", time),
    ("after_p99_ns", time),
];

fn rows_of<'a>(diff: &'a Json, happened: &str) -> Vec<&'a Json> {
    let rows = diff["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["happened"] == happened && row["own"] == false).collect()
}

/// The frames in this row of the flame graph, from the top: name, and what is said of it. The marks are for the eye.
fn frames(browser: &Browser, row: usize) -> BTreeMap<String, String> {
    let script = format!(
        "return Object.fromEntries([...document.querySelectorAll('#flames .frame')].filter((frame) => frame.querySelector('rect').getAttribute('y') === '{}')
            .map((frame) => {{ const label = frame.getAttribute('aria-label'); const at = label.search(/, [\\d.,]+ (ns|µs|ms|s)\\/s before/); return [label.slice(0, at), label.slice(at + 2)]; }}))",
        row * 18
    );
    serde_json::from_value(browser.js(&script)).unwrap()
}

/// What a frame of these rows says.
fn both(rows: &[&Json]) -> String {
    let sum = |key: &str| rows.iter().map(|row| row[key].as_u64().unwrap()).sum::<u64>();
    let [before, after] = ["before_total_ns_per_s", "after_total_ns_per_s"].map(sum);
    let delta = i64::try_from(after).unwrap() - i64::try_from(before).unwrap();
    let times = match before {
        0 => "new".to_owned(),
        before => format!("{} times", thousandths((after as f64 / before as f64 * 1_000.0).round() as u64)),
    };
    format!("{}/s before, {}/s after, {}/s, {times}", duration(before), duration(after), change(delta))
}

/// Makes sure that a page of two recordings has the numbers of `diff --format json`, in its table and in its red and blue flame graphs.
#[test]
fn a_page_of_two_recordings_has_the_numbers_of_their_diff() {
    let folder = Folder::new();
    let program = user_workload(folder.path(), "two-locks", &[]);
    let with = |name, hold_ns| {
        let arguments = ["--threads", "3", "--rounds", "60", "--hold-ns", hold_ns, "--sleep"];
        record(&folder, &program, name, &arguments)
    };
    let (before, after) = (with("before", "2000000"), with("after", "6000000"));
    let page = folder.file("diff.html");
    succeeds(&["diff", &before, &after, "--format", "html", "-o", &page]);
    let (by_lock, by_caller) = (diff(&before, &after, "lock"), diff(&before, &after, "lock,caller"));
    let Some(browser) = Browser::start("a page of two recordings", DESKTOP) else { return };
    browser.open(&page, "");
    let verdict = browser.js("return document.getElementById('verdict').innerText");
    let sentence = by_lock["sentence"].as_str().unwrap();
    assert!(verdict.as_str().unwrap().contains(&sentence[1..]), "{verdict} lacks {sentence}");
    for (what, flames) in [("wait", "waiters"), ("hold", "holders")] {
        browser.click(&format!("[data-focus=show-{what}]"));
        let mut shown = browser.table(&["lock", "kind", "mode"]);
        // Two numbers in words, which are looked at in the JSON.
        shown.values_mut().for_each(|cells| drop(cells.remove("ratio_low")));
        assert_eq!(shown, cells(&rows_of(&by_lock, what), &["lock", "kind", "mode"], &OF_CHANGES), "{what}");
        browser.click(&format!("[data-focus=flames-{flames}]"));
        let rows = rows_of(&by_caller, what);
        assert_eq!(frames(&browser, 0), BTreeMap::from([("all".to_owned(), both(&rows))]), "{what}");
        let mut by_outermost = BTreeMap::<String, Vec<&Json>>::new();
        for row in rows {
            let outermost = row["caller"].as_array().and_then(|stack| stack.last()).and_then(Json::as_str);
            by_outermost.entry(outermost.unwrap_or("[no stack taken]").to_owned()).or_default().push(row);
        }
        let shown = frames(&browser, 1);
        assert!(!shown.is_empty(), "no frames of {what}");
        for (name, words) in shown {
            assert_eq!(words, both(&by_outermost[&name]), "{name} of {what}");
        }
    }
    // Each thread holds the lock three times as long, most of the time.
    assert!(browser.js("return document.querySelector('#flames .change4') !== null") == json!(true));
    // Without colours a sign says it, where a frame has room for words.
    let has_signs = "return [...document.querySelectorAll('#flames .frame')].every((frame) => { \
        const level = Math.sign(Number(frame.querySelector('rect').getAttribute('class').match(/change(-?\\d)/)[1])); \
        const words = frame.querySelector('text')?.textContent; \
        return !words || words.startsWith({ '-1': '\u{2212} ', 0: '', 1: '+ ' }[level]); })";
    assert!(browser.js(has_signs) == json!(true));
    let name = rows_of(&by_lock, "hold")[0]["lock"].as_str().unwrap().to_owned();
    browser.click("button.lock");
    browser.click("[data-focus=width-before]");
    let of_lock: Vec<&Json> = rows_of(&by_caller, "hold").into_iter().filter(|row| row["lock"] == *name).collect();
    let all = BTreeMap::from([("all".to_owned(), both(&of_lock))]);
    assert_eq!(frames(&browser, 0), all);
    let hash = browser.js("return location.hash");
    browser.open(&page, hash.as_str().unwrap());
    assert_eq!(frames(&browser, 0), all, "not what {hash} showed");
    browser.type_into("#filter", "no such lock");
    assert_eq!(browser.table(&["lock"]), Table::new());
    assert_does_nothing_else(&browser, &page);
}

fn assert_does_nothing_else(browser: &Browser, page: &str) {
    assert_eq!(browser.console(), Vec::<String>::new());
    let address = format!("file://{page}");
    let others = |url: &String| !url.starts_with(&address) && !["data:,", "about:blank"].contains(&url.as_str());
    assert_eq!(browser.requests().into_iter().filter(others).collect::<Vec<_>>(), Vec::<String>::new());
}

/// Makes sure that a diff goes into a file in every format, and never over what it compares.
#[test]
fn a_diff_goes_into_a_file_that_is_none_of_the_recordings() {
    let folder = Folder::new();
    let program = user_workload(folder.path(), "two-locks", &[]);
    let recording = record(&folder, &program, "recording", &["--rounds", "20"]);
    let original = std::fs::read(&recording).unwrap();
    let file = folder.file("diff");
    for format in ["table", "json", "html"] {
        succeeds(&["diff", &recording, &recording, "--format", format, "-o", &file]);
        assert!(std::fs::metadata(&file).unwrap().len() > 0, "{format}");
        let (status, said) = refused(lockmeter(["diff", &recording, &recording, "--format", format, "-o", &recording]));
        assert!(status == 6 && said.contains("is the recording itself"), "{status}: {said}");
    }
    assert_eq!(std::fs::read(&recording).unwrap(), original);
}

const OF_RUNS: [Column; 12] = [
    ("max_ns", time),
    ("p99_ns", time),
    ("p50_ns", time),
    ("mean_ns", time),
    ("count", |value| count(value.as_u64().unwrap())),
    ("per_second", decimal),
    ("total_ns", time),
    ("cpu_ppm", |value| percent(value.as_u64().unwrap())),
    ("asleep_ns", time),
    ("delay_mean_ns", time),
    ("delay_p99_ns", time),
    ("delay_max_ns", time),
];

/// Makes sure that a page of what ran has the numbers of `report --format json`, and the histograms of the row that is selected.
#[test]
fn a_page_of_what_ran_has_the_numbers_of_the_json() {
    let Some(_machine) = machine("a page of what ran") else { return };
    let folder = Folder::new();
    let file = folder.file("latency.lockmeter");
    let mut command = lockmeter(["latency", "--threshold", "1us", "-o", &file]);
    command.current_dir(folder.path());
    let recorder = Recorder::spawn(command, file);
    run_workload("dir-churn", &["--seconds", "0.5"]).unwrap();
    let recording = recorder.stop().recording();
    let page = folder.file("latency.html");
    succeeds(&["report", &recording, "--format", "html", "-o", &page]);
    let report = json_report(&recording, &[]);
    let rows: Vec<&Json> = report["rows"].as_array().unwrap().iter().collect();
    for size in [DESKTOP, PHONE] {
        let Some(browser) = Browser::start("a page of what ran", size) else { return };
        browser.open(&page, "");
        let verdict = browser.js("return document.getElementById('verdict').innerText");
        let sentence = report["head"]["sentence"].as_str().unwrap();
        assert!(verdict.as_str().unwrap().contains(&sentence[1..]), "{verdict} lacks {sentence}");
        if browser.js("return document.querySelector('#runs .more') !== null") == json!(true) {
            browser.click("#runs .more");
        }
        assert_eq!(browser.table(&["kind", "name"]), cells(&rows, &["kind", "name"], &OF_RUNS));
        browser.click("[data-focus=show-softirq]");
        assert!(browser.table(&["kind"]).keys().all(|row| row[0] == "softirq"));
        browser.click("button.lock");
        let chosen =
            browser.js("const row = document.querySelector('tr.chosen'); return [row.dataset.kind, row.dataset.name]");
        let row = rows.iter().find(|row| json!([row["kind"], row["name"]]) == chosen).unwrap();
        let timed: u64 = row["histogram"].as_array().unwrap().iter().map(|bucket| bucket[1].as_u64().unwrap()).sum();
        let titles = browser.js("return document.querySelector('#lengths figcaption').textContent");
        assert_eq!(titles, json!(format!("Runs: {}", count(timed))), "of {chosen}");
        let hash = browser.js("return location.hash");
        browser.open(&page, hash.as_str().unwrap());
        assert_eq!(browser.js("return document.querySelector('tr.chosen').dataset.name"), row["name"]);
        let longest = browser.js("return document.querySelector('#longest li b').textContent");
        let long_runs = report["long_runs"].as_array().unwrap().iter();
        let of_row = long_runs.filter(|run| run["kind"] == row["kind"] && run["name"] == row["name"]);
        assert_eq!(longest, json!(duration(of_row.map(|run| run["run_ns"].as_u64().unwrap()).max().unwrap())));
        let wide = browser.js("return document.documentElement.scrollWidth <= window.innerWidth");
        assert_eq!(wide, json!(true), "wider than a window of {size:?}");
        assert_does_nothing_else(&browser, &page);
    }
}

/// Makes sure that names of the measured system are text on these pages, too, and that what is said of them steers no terminal.
#[test]
fn hostile_names_run_no_script_on_pages_of_two_recordings_and_of_what_ran() {
    let folder = Folder::new();
    let [before, after, ran] = ["before", "after", "ran"].map(|name| folder.file(name));
    let load = Load { locks: 12, intervals: 2, each_s: 1, callers: 3 };
    // A few long names are as much as files of this size may have.
    let name = |what: &str, number: usize| name_in_pages(what, if what == "frame" { number % 6 } else { number });
    write_recording(&before, &load, name);
    // Another machine: what differs is said.
    write_recording(&after, &load, |what, number| match what {
        "kernel" | "scope" => name(what, 1),
        _ => name(what, number),
    });
    write_latency(&ran, 4, name_in_pages);
    let [changes, runs] = ["changes.html", "runs.html"].map(|name| folder.file(name));
    on_terminal(&folder, &["diff", &before, &after, "--format", "html", "-o", &changes], &BAR);
    on_terminal(&folder, &["report", &ran, "--format", "html", "-o", &runs], &BAR);
    for page in [&changes, &runs] {
        assert_harmless(page, &std::fs::read(page).unwrap(), &[]);
    }
    for size in [DESKTOP, PHONE] {
        let Some(browser) = Browser::start("hostile names on other pages", size) else { return };
        browser.open(&changes, "");
        browser.assert_names_are_text(&["lock", "frame"].map(|what| name_in_pages(what, 0)));
        browser.click("button.lock");
        browser.type_into("#flame-search", "</script>");
        for flames in ["blockers", "roots"] {
            browser.click(&format!("[data-focus=flames-{flames}]"));
        }
        browser.assert_names_are_text(&[]);
        browser.open(&runs, "");
        browser.assert_names_are_text(&["runner", "detail", "thread", "lock"].map(|what| name_in_pages(what, 15)));
        browser.click("button.lock");
        browser.type_into("#filter", "<");
        browser.assert_names_are_text(&[]);
    }
}

/// Makes sure that what lockmeter itself waited for is on the page of two recordings if it was asked for, marked, and in no graph of others.
#[test]
fn what_lockmeter_itself_waited_for_is_shown_apart() {
    let folder = Folder::new();
    let recordings = ["before", "after"].map(|name| folder.file(name));
    for recording in &recordings {
        write_with(
            recording,
            &Load { locks: 6, intervals: 12, each_s: 1, callers: 2 },
            |what, number| format!("{what}_{number}"),
            |interval| {
                let own = interval.tables.intern_task(Task { tgid: 1, comm: "lockmeter".into(), own: true });
                // Longer than all others together.
                let value = Value { count: 1, total_ns: 1 << 42, max_ns: 1 << 42, spin_ns: 0 };
                let bucket = Bucket::of(value.max_ns);
                let key = Key { task: Some(own), bucket, ..interval.totals[0].key };
                interval.totals.push(Total { key, value });
            },
        );
    }
    let [before, after] = &recordings;
    for (flags, shown) in [(&[][..], 0), (&["--own"], 1)] {
        let page = folder.file("page.html");
        succeeds(&[&["diff", before, after, "--format", "html", "-o", &page], flags].concat());
        let Some(browser) = Browser::start("lockmeter's own waits", DESKTOP) else { return };
        browser.open(&page, "");
        let own = browser.js("return [...document.querySelectorAll('tr[data-own]')].map((row) => row.textContent.includes('lockmeter itself'))");
        assert_eq!(own, json!(vec![true; shown]), "{flags:?}");
        let all = diff(before, after, "lock");
        let others = BTreeMap::from([("all".to_owned(), both(&rows_of(&all, "wait")))]);
        assert_eq!(frames(&browser, 0), others, "{flags:?}");
        if shown > 0 {
            browser.click("tr[data-own] button.lock");
            assert_eq!(browser.js("return document.querySelectorAll('tr.chosen').length"), json!(1));
            assert_ne!(frames(&browser, 0), others);
            let hash = browser.js("return location.hash");
            browser.open(&page, hash.as_str().unwrap());
            assert_eq!(browser.js("return document.querySelector('tr.chosen').dataset.own"), json!(""), "{hash}");
        }
    }
}
