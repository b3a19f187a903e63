//! Pages of recordings in a real browser: what they show is what the other formats say, and they do nothing else.

mod support;
#[path = "support/terminal.rs"]
mod terminal;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;

use lockmeter_profile::{
    Bucket, Frame, Happened, Interval, Key, Kind, Lock, LockId, Mode, Naming, OpenWait, Parked, SampledWait, Spin,
    SpinLoop, Task, ThreadState, Total, Value,
};
use lockmeter_render::units::{count, duration, percent};
use serde_json::{Value as Json, json};
use support::browser::{Browser, DESKTOP, PHONE, Table, table, table_script};
use support::firefox::Firefox;
use support::harmful_names::{assert_harmless, name_in_pages, on_terminal};
use support::made::{Load, write_recording, write_with};
use support::recorder::Recorder;
use support::report::{json_report, report_as};
use support::{Folder, lockmeter, machine, run, run_workload, say, skip, text};
use terminal::Terminal;

/// A real recording of waits and holds of several kinds of locks, and its page. `None` if none can be made.
fn recorded(test: &str) -> Option<&'static (Folder, String, String)> {
    static RECORDED: OnceLock<Option<(Folder, String, String)>> = OnceLock::new();
    let machine = machine(test)?;
    let recorded = RECORDED.get_or_init(|| {
        let folder = Folder::new();
        let recorder = Recorder::start(&folder, "recording", &["-a", "--hold", "--interval", "100ms"]);
        for (workload, arguments) in [
            ("dir-churn", &["--seconds", "0.8"][..]),
            ("mmap-fault", &["--seconds", "0.8"]),
            ("file-pos", &["--seconds", "0.6"]),
        ] {
            run_workload(workload, arguments).ok()?;
        }
        let recording = recorder.stop().recording();
        let page = page(&folder, &recording, &[]);
        Some((folder, recording, page))
    });
    drop(machine);
    if recorded.is_none() {
        skip(test, "its workloads are not possible here");
    }
    recorded.as_ref()
}

/// Makes the page of a recording.
fn page(folder: &Folder, recording: &str, flags: &[&str]) -> String {
    let page = folder.file(&format!("{}.html", Path::new(recording).file_name().unwrap().display()));
    let mut command = lockmeter(["report", "--format", "html", "-o", &page, recording]);
    command.args(flags);
    let output = run(command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    page
}

/// By what rows of a table of locks are told apart.
const LOCK: [&str; 3] = ["lock", "kind", "mode"];

/// The same rows as a report in JSON has them, written as tables write numbers.
fn expected_table(report: &Json, what: &str) -> Table {
    let rows = report["rows"].as_array().unwrap().iter().filter(|row| row["happened"] == what && row["own"] == false);
    let name = |row: &Json, key: &str| row[key].as_str().unwrap().to_owned();
    rows.map(|row| {
        let mut cells = BTreeMap::new();
        let mut cell = |key: &str, words: fn(u64) -> String| {
            if let Some(number) = row[key].as_u64() {
                cells.insert(key.to_owned(), words(number));
            }
        };
        cell("total_ns", duration);
        cell("share_ppm", percent);
        cell("count", count);
        cell("spin_ns", duration);
        cell("sleep_ns", duration);
        cell("mean_ns", duration);
        cell("p50_ns", duration);
        cell("p99_ns", duration);
        cell("max_ns", duration);
        (LOCK.map(|key| name(row, key)).to_vec(), cells)
    })
    .collect()
}

/// Fails if the page's table is not this one. `per_second` is a rate: it is looked at alone.
fn assert_same_table(browser: &Browser, report: &Json, what: &str, when: &str) {
    assert_same(browser.table(&LOCK), report, what, when);
}

fn assert_same(mut shown: Table, report: &Json, what: &str, when: &str) {
    shown.values_mut().for_each(|cells| drop(cells.remove("per_second")));
    let mut expected = expected_table(report, what);
    if what != "wait" {
        expected.values_mut().for_each(|cells| drop(cells.remove("share_ppm")));
    }
    assert_eq!(shown.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{when}: other rows of {what}");
    for (key, cells) in expected {
        assert_eq!(shown[&key], cells, "{when}: {key:?}");
    }
}

fn show_all(browser: &Browser) {
    if browser.js("return document.querySelector('#locks .more') !== null") == json!(true) {
        browser.click("#locks .more");
    }
}

/// The window that the page's own command names.
fn window_flag(browser: &Browser) -> String {
    let command = browser.js("return document.querySelector('#locks .command code').textContent");
    let command = command.as_str().unwrap().to_owned();
    command.split_whitespace().skip_while(|word| *word != "--window").nth(1).expect(&command).to_owned()
}

/// Chooses a window by the two fields, by numbers of its first and last slice.
fn choose_window(browser: &Browser, first: usize, last: usize) {
    for (field, slice) in [("window-from", first), ("window-to", last)] {
        browser.js(&format!(
            "const field = document.getElementById('{field}'); field.value = {slice}; field.dispatchEvent(new Event('change'));"
        ));
    }
}

/// Makes sure that the page says what the text and the JSON say.
#[test]
fn the_numbers_of_a_page_are_those_of_the_json() {
    let Some((folder, recording, page)) = recorded("numbers of a page") else { return };
    let Some(browser) = Browser::start("numbers of a page", DESKTOP) else { return };
    let report = json_report(recording, &[]);
    browser.open(page, "");
    show_all(&browser);
    assert_same_table(&browser, &report, "wait", "the whole");
    let verdict = browser.js("return document.getElementById('verdict').innerText");
    let sentence = report["head"]["sentence"].as_str().unwrap();
    assert!(verdict.as_str().unwrap().contains(&sentence[1..]), "{verdict} lacks {sentence}");
    let table = report_as(recording, "table", &[]);
    for line in table.lines().skip_while(|line| *line != "lost:").skip(1).take_while(|line| line.starts_with("  ")) {
        let notices = browser.js("return document.getElementById('notices').innerText");
        assert!(notices.as_str().unwrap().contains(line.trim()), "{notices} lacks {line}");
    }
    for what in ["hold", "contended-hold"] {
        if report["rows"].as_array().unwrap().iter().any(|row| row["happened"] == what) {
            browser.click(&format!("[data-focus=show-{what}]"));
            show_all(&browser);
            assert_same_table(&browser, &report, what, "the whole");
        }
    }
    let downloads = folder.file("downloads");
    fs::create_dir_all(&downloads).unwrap();
    browser.devtools("Browser.setDownloadBehavior", &json!({ "behavior": "allow", "downloadPath": downloads }));
    browser.click("#download");
    let file = Path::new(&downloads).join("lockmeter-report.json");
    support::until("the JSON is downloaded", || file.exists());
    let downloaded: Json = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(downloaded["report"], report);
    assert_eq!(browser.console(), Vec::<String>::new());
}

/// Makes sure that another browser shows the same, without an error.
#[test]
fn firefox_shows_the_numbers_of_the_json() {
    let Some((_, recording, page)) = recorded("Firefox") else { return };
    let Some(firefox) = Firefox::start("Firefox") else { return };
    firefox.open(page);
    firefox.js("const more = document.querySelector('#locks .more'); if (more) more.click();");
    assert_same(table(firefox.js(&table_script(&LOCK))), &json_report(recording, &[]), "wait", "in Firefox");
    firefox.js("for (const [field, slice] of [['window-from', 1], ['window-to', 2]]) {
        const choice = document.getElementById(field); choice.value = slice; choice.dispatchEvent(new Event('change')); }");
    let command = firefox.js("return document.querySelector('#locks .command code').textContent");
    let flag = command.as_str().unwrap().split_whitespace().skip_while(|word| *word != "--window").nth(1).unwrap();
    firefox.js("const more = document.querySelector('#locks .more'); if (more) more.click();");
    let report = json_report(recording, &["--window", flag]);
    assert_same(table(firefox.js(&table_script(&LOCK))), &report, "wait", "a window in Firefox");
    assert_eq!(firefox.errors(), Vec::<String>::new());
    // An error would be among them.
    firefox.js("const script = document.createElement('script'); script.textContent = 'window.ran = true'; document.body.append(script)");
    assert!(firefox.errors().iter().any(|error| error.contains("Content-Security-Policy")), "{:?}", firefox.errors());
}

/// Regression: the page said that threads waited 0 times where only samples of the CPUs had met them spinning; nothing is known there.
#[test]
fn what_only_samples_have_met_has_no_count() {
    let folder = Folder::new();
    let recording = folder.file("spun");
    let load = Load { locks: 6, intervals: 4, each_s: 1, callers: 2 };
    write_with(
        &recording,
        &load,
        |what, number| format!("{what} {number}"),
        |interval| {
            spun_for(interval, "spun for", 40_000_000);
            let wait = sampled_wait(interval, "parked for");
            let task = interval.tables.intern_task(Task { tgid: 4000, comm: "goroutines".into(), own: false });
            interval.threads.goroutine_looks = 40;
            interval.threads.parked.push(Parked {
                task,
                cgroup: None,
                wait,
                site: None,
                looks: 40,
                estimate_ns: 30_000_000,
                variance_ns2: 1e12,
            });
        },
    );
    let page = page(&folder, &recording, &[]);
    let Some(browser) = Browser::start("samples only", DESKTOP) else { return };
    let are_empty = |report: &Json| {
        for name in ["spun for", "parked for"] {
            let row = report["rows"].as_array().unwrap().iter().find(|row| row["lock"] == name).unwrap().clone();
            assert!(row["count"].is_null() && row["p99_ns"].is_null() && row["total_ns"].as_u64() > Some(0), "{row}");
        }
    };
    browser.open(&page, "");
    let report = json_report(&recording, &[]);
    are_empty(&report);
    assert_same_table(&browser, &report, "wait", "the whole");
    choose_window(&browser, 1, 2);
    let report = json_report(&recording, &["--window", &window_flag(&browser)]);
    are_empty(&report);
    assert_same_table(&browser, &report, "wait", "a window");
    let notes = browser.js("return document.getElementById('locks').innerText");
    assert!(notes.as_str().unwrap().contains("no wait was counted there"), "{notes}");
    assert_eq!(browser.console(), Vec::<String>::new());
}

/// Makes sure that a window can be shown whose small locks, added up, have been met by samples only.
#[test]
fn small_locks_that_only_samples_have_met_are_added_up_in_a_window() {
    let folder = Folder::new();
    let recording = folder.file("many-spun");
    let load = Load { locks: 6, intervals: 4, each_s: 1, callers: 2 };
    let name = |what: &str, number: usize| format!("{what} {number}");
    write_with(&recording, &load, name, |interval| {
        for number in 0..300 {
            spun_for(interval, &format!("spun for {number}"), 1_000 - number);
        }
    });
    let page = page(&folder, &recording, &[]);
    let Some(browser) = Browser::start("small locks of samples only", DESKTOP) else { return };
    browser.open(&page, "");
    choose_window(&browser, 1, 2);
    show_all(&browser);
    let small = "return [...document.querySelectorAll('table.locks tbody tr')].map((row) => row.innerText).filter((words) => words.includes('6 other locks'))";
    // The last six of them, in two seconds.
    let total = duration((0..6).map(|at| 2 * (701 + at)).sum());
    let words = browser.js(small);
    assert!(words[0].as_str().is_some_and(|words| words.contains(&total)), "{words} is not of {total}");
    assert_eq!(browser.console(), Vec::<String>::new());
}

fn sampled_wait(interval: &mut Interval, name: &str) -> SampledWait {
    let (name, naming) = (name.to_owned(), Naming::Symbol);
    let lock = interval.tables.intern_lock(Lock { name, object: None, naming, detail: String::new() });
    SampledWait { happened: Happened::Wait, lock, kind: Kind::Mutex, mode: Mode::Exclusive, instance: None }
}

/// Adds that samples of the CPUs have met a thread that spun for this lock.
fn spun_for(interval: &mut Interval, name: &str, estimate_ns: u64) {
    let wait = Some(sampled_wait(interval, name));
    let task = interval.tables.intern_task(Task { tgid: 4000, comm: "spinner".into(), own: false });
    interval.threads.spins.push(Spin {
        task,
        cgroup: None,
        how: SpinLoop::Pause,
        wait,
        is_part: false,
        site: None,
        samples: 40,
        estimate_ns,
        variance_ns2: 1e12,
    });
}

/// Makes sure that the page that `record` writes when it ends is the one that `report` makes of its recording.
#[test]
fn record_writes_the_page_of_its_recording() {
    let folder = Folder::new();
    support::preload_library();
    let program = support::user_workload(folder.path(), "two-locks", &[]);
    let [recording, page, same] = ["recording", "page.html", "same.html"].map(|name| folder.file(name));
    let mut record =
        lockmeter(["record", "--user", "--hold", "--interval", "100ms", "-o", &recording, "--html", &page, "--"]);
    record.arg(program).args(["--rounds", "200"]);
    let output = run(record);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(&format!("wrote {page}, a page for a browser")), "{}", text(&output.stderr));
    let output = run(lockmeter(["report", "--format", "html", "-o", &same, &recording]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read(&page).unwrap(), fs::read(&same).unwrap());
}

/// Makes sure that a window of the page is that window of the recording, chosen in any way.
#[test]
fn a_window_of_a_page_is_that_window_of_the_report() {
    let Some((_, recording, page)) = recorded("windows of a page") else { return };
    let Some(browser) = Browser::start("windows of a page", DESKTOP) else { return };
    let slices = json_report(recording, &[])["intervals"].as_u64().unwrap() as usize;
    assert!(slices >= 4, "{slices} intervals");
    browser.open(page, "");
    for (first, last) in [(0, 0), (1, 2), (2, slices - 1), (slices - 2, slices - 2)] {
        choose_window(&browser, first, last);
        show_all(&browser);
        let flag = window_flag(&browser);
        let report = json_report(recording, &["--window", &flag]);
        assert_eq!(report["intervals"], json!(last - first + 1), "--window {flag} is not slices {first} to {last}");
        assert_same_table(&browser, &report, "wait", &format!("--window {flag}"));
    }
    choose_window(&browser, 0, slices - 1);
    assert_eq!(browser.js("return document.getElementById('selection').hidden"), json!(true), "the whole is no window");
    // From the second to the fourth column of the heat map.
    browser.js("document.getElementById('when').scrollIntoView()");
    let columns = browser.js(
        "const cells = [...document.querySelectorAll('#when rect.heat')].map((cell) => cell.getBoundingClientRect());
         return [cells[1], cells[3]].map((box) => [Math.round(box.x + box.width / 2), Math.round(box.y + 8)])",
    );
    let [from, to]: [(i64, i64); 2] = serde_json::from_value(columns).unwrap();
    browser.drag(from, to);
    assert!(
        browser.js("return location.hash").as_str().unwrap().contains("window=1-3"),
        "{}",
        browser.js("return location.hash")
    );
    show_all(&browser);
    let report = json_report(recording, &["--window", &window_flag(&browser)]);
    assert_eq!(report["intervals"], json!(3));
    assert_same_table(&browser, &report, "wait", "brushed");
    assert_eq!(browser.console(), Vec::<String>::new());
}

/// The frames of a flame graph below its top, with their times.
fn outermost_frames(browser: &Browser) -> BTreeMap<String, String> {
    let frames = browser.js(
        "return Object.fromEntries([...document.querySelectorAll('#flames .frame')].filter((frame) => frame.querySelector('rect').getAttribute('y') === '18')
            .map((frame) => frame.getAttribute('aria-label').split(/, (?=[\\d.,]+ (?:ns|µs|ms|s|min) waited)/)).map(([name, rest]) => [name, rest.split(' waited')[0]]))",
    );
    serde_json::from_value(frames).unwrap()
}

/// Makes sure that stacks have the time that the report gives them, in the whole and in one interval.
#[test]
fn flame_graphs_are_as_wide_as_the_report_says() {
    let Some((_, recording, page)) = recorded("flame graphs") else { return };
    let Some(browser) = Browser::start("flame graphs", DESKTOP) else { return };
    browser.open(page, "");
    for window in [None, Some(2)] {
        let mut flags = vec!["--by".to_owned(), "lock,caller".to_owned()];
        if let Some(slice) = window {
            choose_window(&browser, slice, slice);
            flags.extend(["--window".to_owned(), window_flag(&browser)]);
        }
        let report = json_report(recording, &flags.iter().map(String::as_str).collect::<Vec<_>>());
        let mut expected = BTreeMap::<String, u64>::new();
        for row in
            report["rows"].as_array().unwrap().iter().filter(|row| row["happened"] == "wait" && row["own"] == false)
        {
            let outermost = row["caller"].as_array().and_then(|caller| caller.last()).and_then(Json::as_str);
            *expected.entry(outermost.unwrap_or("[no stack taken]").to_owned()).or_default() +=
                row["total_ns"].as_u64().unwrap();
        }
        let frames = outermost_frames(&browser);
        let longest = expected.iter().max_by_key(|(_, ns)| **ns).expect("waits").0;
        assert!(frames.contains_key(longest), "{frames:?} lacks {longest}");
        for (name, time) in frames {
            assert_eq!(time, duration(expected[&name]), "{name} in {flags:?}");
        }
    }
}

/// Makes sure that the table sorts and filters, that a selected lock filters what is below, and that the address brings all of it back.
#[test]
fn sorting_filtering_and_selecting_work_and_are_in_the_address() {
    let Some((_, recording, page)) = recorded("selections") else { return };
    let Some(browser) = Browser::start("selections", DESKTOP) else { return };
    let report = json_report(recording, &[]);
    let worst = &report["head"]["worst"];
    browser.open(page, "");
    let counts = |browser: &Browser| -> Vec<u64> {
        let cells = browser.js("return [...document.querySelectorAll('td[data-key=count]')].map((cell) => Number(cell.textContent.replaceAll(',', '')))");
        serde_json::from_value(cells).unwrap()
    };
    browser.click("[data-focus=sort-count]");
    let down = counts(&browser);
    assert!(down.len() > 3 && down.is_sorted_by(|one, other| one >= other), "{down:?}");
    assert_eq!(
        browser.js("return document.activeElement.dataset.focus"),
        json!("sort-count"),
        "the keyboard's place is lost"
    );
    browser.click("[data-focus=sort-count]");
    let up = counts(&browser);
    assert!(up.is_sorted() && up != down, "{up:?}");
    let name = worst["lock"].as_str().unwrap();
    browser.type_into("#filter", name);
    let locks: BTreeSet<String> = browser.table(&LOCK).into_keys().map(|row| row[0].clone()).collect();
    assert!(locks.contains(name) && locks.iter().all(|lock| lock.contains(name)), "{locks:?}");
    let chosen = format!("tr[data-lock='{name}'][data-mode={}] button.lock", worst["mode"].as_str().unwrap());
    browser.click(&chosen);
    let all =
        |browser: &Browser| browser.js("return document.querySelector('#flames .frame').getAttribute('aria-label')");
    let total = duration(worst["waits"]["total_ns"].as_u64().unwrap());
    assert!(
        all(&browser).as_str().unwrap().contains(&format!("{total} waited")),
        "{} is not of {total}",
        all(&browser)
    );
    // Nearly all of it: where the load began late on a busy machine, a shorter window holds no wait for this lock.
    choose_window(&browser, 1, report["intervals"].as_u64().unwrap() as usize - 1);
    let (table, frame, hash) = (browser.table(&LOCK), all(&browser), browser.js("return location.hash"));
    browser.open(page, hash.as_str().unwrap());
    assert_eq!((&browser.table(&LOCK), &all(&browser)), (&table, &frame), "not what {hash} showed");
    assert_eq!(browser.js("return document.getElementById('filter').value"), json!(name));
    browser.click("[aria-label='Show all locks']");
    assert_ne!(browser.js("return location.hash"), hash);
    assert_eq!(browser.console(), Vec::<String>::new());
}

/// Who blocks whom as the page draws it: what each edge says, without its share.
fn edges(browser: &Browser) -> BTreeSet<String> {
    let said = browser
        .js("return [...document.querySelectorAll('#graph .edge')].map((edge) => edge.getAttribute('aria-label'))");
    let said: Vec<String> = serde_json::from_value(said).unwrap();
    said.iter().map(|words| words.rsplit_once(", ").unwrap().0.to_owned()).collect()
}

/// The same of a report in JSON: who waits, who blocks and who is the root are what these say of a row. `None` where that is not known.
type Ends<'a> = [&'a dyn Fn(&Json) -> Option<String>; 3];

/// The edges between those that are known.
fn expected_edges(report: &Json, [waiter, blocker, root]: Ends<'_>) -> BTreeSet<String> {
    let mut all = BTreeMap::<String, u64>::new();
    for row in report["rows"].as_array().unwrap().iter().filter(|row| row["happened"] == "wait" && row["own"] == false)
    {
        let ns = row["total_ns"].as_u64().unwrap();
        let mut add = |from: Option<String>, verb: &str, to: Option<String>| {
            if let (Some(from), Some(to)) = (from, to) {
                *all.entry(format!("{from} {verb} {to}")).or_default() += ns;
            }
        };
        add(waiter(row), "is blocked by", blocker(row));
        if !row["root_lock"].is_null() {
            add(blocker(row), "waits itself for", root(row));
        }
    }
    all.into_iter().filter(|(_, ns)| *ns > 0).map(|(edge, ns)| format!("{edge}, {}", duration(ns))).collect()
}

/// Records a program in which each thread is called after what it does.
fn recorded_blame(folder: &Folder, how: &str) -> String {
    let recording = folder.file(how);
    let mut record = lockmeter(["record", "--quiet", "--user", "--every", "-o", &recording, "--"]);
    record.arg(support::user_workload(folder.path(), "blame", &[])).args([how, "named"]).stdin(Stdio::null());
    let output = run(record);
    assert!(output.status.success(), "{}", text(&output.stderr));
    recording
}

/// Makes sure that the graph has the edges of the JSON, by call sites, threads and processes; that it marks roots and circles; and that
/// the choice is in the address.
#[test]
fn who_blocks_whom_is_what_the_json_says_by_call_sites_threads_and_processes() {
    let folder = Folder::new();
    support::preload_library();
    let Some(browser) = Browser::start("who blocks whom", DESKTOP) else { return };
    let first =
        |row: &Json, key: &str| row[key].as_array().unwrap().first().map(|name| name.as_str().unwrap().to_owned());
    let task = |row: &Json, name: &str, tgid: &str| Some(format!("{} ({})", row[name].as_str()?, row[tgid].as_u64()?));
    let process = |row: &Json, tgid: &str| row[tgid].as_u64().map(|tgid| tgid.to_string());
    let [sites, tasks] = [["--by", "caller,blocker,root"], ["--by", "task,blocker-task,root-task"]];
    let is_known = |edge: &String| !edge.contains('[');
    for how in ["chain", "alternate", "shared-queue"] {
        let recording = recorded_blame(&folder, how);
        let page = page(&folder, &recording, &[]);
        browser.open(&page, "#nodes=500");
        let report = json_report(&recording, &sites);
        let expected = expected_edges(
            &report,
            [&|row| first(row, "caller"), &|row| first(row, "blocker"), &|row| first(row, "root")],
        );
        assert!(!expected.is_empty(), "{how}: {report}");
        assert_eq!(edges(&browser).into_iter().filter(is_known).collect::<BTreeSet<_>>(), expected, "sites of {how}");
        browser.click("[data-focus=graph-threads]");
        let report = json_report(&recording, &tasks);
        let expected = expected_edges(
            &report,
            [&|row| task(row, "task", "tgid"), &|row| task(row, "blocker_task", "blocker_tgid"), &|row| {
                task(row, "root_task", "root_tgid")
            }],
        );
        assert!(!expected.is_empty(), "{how}: {report}");
        assert_eq!(edges(&browser).into_iter().filter(is_known).collect::<BTreeSet<_>>(), expected, "threads of {how}");
        let nodes = browser
            .js("return [...document.querySelectorAll('#graph .site')].map((node) => node.getAttribute('aria-label'))");
        let nodes: Vec<String> = serde_json::from_value(nodes).unwrap();
        let marked = |name: &str, mark: &str| nodes.iter().any(|node| node.starts_with(name) && node.contains(mark));
        match how {
            "chain" => assert!(marked("write_database (", "● a root") && !marked("get_config (", "●"), "{nodes:#?}"),
            "alternate" => {
                assert!(
                    ["long_holder (", "short_holder ("].iter().all(|name| marked(name, "↻ in a circle of 2")),
                    "{nodes:#?}"
                );
            }
            _ => {}
        }
        browser.click("[data-focus=graph-processes]");
        let expected = expected_edges(
            &report,
            [&|row| process(row, "tgid"), &|row| process(row, "blocker_tgid"), &|row| process(row, "root_tgid")],
        );
        // A process has the names of its threads behind its number.
        let without_names = |edge: String| {
            let (from, rest) = edge.split_once(": ").unwrap();
            let verb = ["is blocked by", "waits itself for"].into_iter().find(|verb| rest.contains(verb)).unwrap();
            let (to, _) = rest.split_once(verb).unwrap().1.trim().split_once(": ").unwrap();
            format!("{from} {verb} {to}, {}", edge.rsplit_once(", ").unwrap().1)
        };
        let shown = edges(&browser).into_iter().filter(is_known).map(without_names).collect::<BTreeSet<_>>();
        assert_eq!(shown, expected, "processes of {how}");
        let is_of_two = |edge: &String| {
            let mut processes = edge.split(|letter: char| !letter.is_ascii_digit()).filter(|word| !word.is_empty());
            processes.next() != processes.next()
        };
        assert_eq!(expected.iter().any(is_of_two), how == "shared-queue", "{how}: {expected:?}");
        let (hash, drawn) = (browser.js("return location.hash"), edges(&browser));
        browser.open(&page, hash.as_str().unwrap());
        assert_eq!(edges(&browser), drawn, "not what {hash} showed");
        assert_eq!(browser.console(), Vec::<String>::new());
    }
}

/// Makes sure that a graph of hundreds of call sites can be read: each name has a line of its own beside its time, edges are as thick as
/// their time, and of one that is looked at all edges stand out.
#[test]
fn a_graph_of_500_call_sites_can_be_read() {
    let folder = Folder::new();
    let recording = folder.file("many-sites");
    // As long as those of C++.
    let name = |what: &str, number: usize| format!("app::{what}_{number}::Handler<int>::handle(Request const&)");
    write_recording(&recording, &Load { locks: 206, intervals: 16, each_s: 1, callers: 7 }, name);
    let page = page(&folder, &recording, &[]);
    for size in [DESKTOP, PHONE] {
        let Some(browser) = Browser::start("a graph of 500 call sites", size) else { return };
        browser.open(&page, "#nodes=500");
        let drawn = browser.js(
            "const box = (element) => { const { left, right, top, bottom } = element.getBoundingClientRect(); return { left, right, top, bottom }; };
             return [...document.querySelectorAll('#graph .site')].map((site) => [box(site.querySelector('rect')), ...[...site.querySelectorAll('text')].map(box)])",
        );
        let nodes = drawn.as_array().unwrap();
        assert!((800..=1_002).contains(&nodes.len()), "{} nodes", nodes.len());
        let side = |of: &Json, side: &str| of[side].as_f64().unwrap();
        let mut lowest = BTreeMap::<i64, f64>::new();
        for node in nodes {
            let (frame, name, time) = (&node[0], &node[1], &node[2]);
            let within =
                |text: &Json| side(text, "left") >= side(frame, "left") && side(text, "right") <= side(frame, "right");
            assert!(within(name) && within(time) && side(name, "right") <= side(time, "left"), "{size:?}: {node}");
            assert!(side(name, "bottom") - side(name, "top") >= 11.0, "{size:?}: too small to read: {node}");
            let above = lowest.insert(side(frame, "left") as i64, side(frame, "bottom"));
            assert!(above.is_none_or(|above| side(frame, "top") >= above), "{size:?}: one lies over another: {node}");
        }
        // From the path of an edge: where it ends, and how far down from there.
        let edges = browser.js("return [...document.querySelectorAll('#graph .edge')].map((edge) => {
                 const [, end, down] = edge.getAttribute('d').match(/,([\\d.]+)V([\\d.]+)/);
                 return [edge.getAttribute('aria-label'), down - end]; })");
        let edges: Vec<(String, f64)> = serde_json::from_value(edges).unwrap();
        let report = json_report(&recording, &["--by", "caller,blocker,root"]);
        let all_ns = report["head"]["waits"]["total_ns"].as_u64().unwrap() as f64;
        let thickest = edges.iter().map(|(_, thick)| *thick).fold(0.0, f64::max);
        assert!(edges.len() > 500 && thickest > 1.0, "{} edges, {thickest} at most", edges.len());
        let expected: BTreeMap<String, f64> =
            report["rows"].as_array().unwrap().iter().filter(|row| row["blocker"].is_array()).fold(
                BTreeMap::new(),
                |mut all, row| {
                    if let (Some(from), Some(to)) = (row["caller"][0].as_str(), row["blocker"][0].as_str()) {
                        *all.entry(format!("{from} is blocked by {to}")).or_default() +=
                            row["total_ns"].as_u64().unwrap() as f64;
                    }
                    all
                },
            );
        let mut compared = 0;
        for (label, thick) in &edges {
            let pair = label.rsplitn(3, ", ").last().unwrap();
            let Some(ns) = expected.get(pair) else { continue };
            // Thinner than this could not be seen.
            let right = (ns / all_ns * 480.0).max(0.8);
            assert!((thick - right).abs() <= 0.05 + right * 0.02, "{label}: {thick} pixels, not {right}");
            compared += 1;
        }
        assert!(compared > 300, "{compared} edges compared");
        let faded = "const opacity = (element) => Number(getComputedStyle(element).fillOpacity) * Number(getComputedStyle(element).opacity);
             return [...document.querySelectorAll('#graph .edge')].filter((edge) => opacity(edge) < 0.1).length";
        assert_eq!(browser.js(faded), json!(0));
        browser.js("document.querySelector('#graph .site').dispatchEvent(new PointerEvent('pointerenter'))");
        let near = browser.js("return document.querySelectorAll('#graph .edge.near').length");
        assert!((1..100).contains(&near.as_u64().unwrap()), "{near} edges of one call site");
        assert_eq!(browser.js(faded).as_u64().unwrap(), edges.len() as u64 - near.as_u64().unwrap());
        assert_eq!(browser.console(), Vec::<String>::new());
    }
}

/// Makes sure that no word in a picture lies over another, leaves the picture or is a mere letter, that locks are told apart by both ends of
/// their names, and that what is said of a thing fits the window.
#[test]
fn words_in_pictures_stay_in_their_places() {
    let folder = Folder::new();
    let recording = folder.file("long-names");
    let name = |what: &str, number: usize| format!("{what}::{}::{number}", "component::".repeat(1 + number % 7 * 40));
    write_recording(&recording, &Load { locks: 12, intervals: 4, each_s: 1, callers: 3 }, name);
    let page = page(&folder, &recording, &[]);
    for size in [DESKTOP, PHONE] {
        let Some(browser) = Browser::start("words in pictures", size) else { return };
        browser.open(&page, "");
        // Each word's element, and the one that it must stay in.
        let outside = browser.js(
            "const pairs = [...document.querySelectorAll('#flames .frame')].filter((frame) => frame.querySelector('text')?.textContent).map((frame) => [frame.querySelector('text'), frame.querySelector('rect')]);
             const labels = [...document.querySelectorAll('#when text.label')].map((label) => [label, label.ownerSVGElement]);
             if (pairs.length === 0 || labels.length === 0) return 'no words';
             return [...pairs, ...labels].filter(([word, place]) => {
                 const [of, within] = [word.getBoundingClientRect(), place.getBoundingClientRect()];
                 return word.textContent.length < 3 || of.left < within.left || of.right > within.right + 1;
             }).map(([word]) => word.textContent)",
        );
        assert_eq!(outside, json!([]), "{size:?}");
        let labels =
            browser.js("return [...document.querySelectorAll('#when text.label')].map((label) => label.textContent)");
        let labels: Vec<String> = serde_json::from_value(labels).unwrap();
        assert!(labels.len() == 12 && labels.iter().collect::<BTreeSet<_>>().len() == 12, "{size:?}: {labels:?}");
        let tall = browser.js(
            "return Math.max(...[...document.querySelectorAll('.frame, #when text.label, .edge, .site')].map((element) => {
                 element.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, clientX: 100, clientY: 100 }));
                 return document.getElementById('tip').getBoundingClientRect().bottom - window.innerHeight; }))",
        );
        assert!(tall.as_f64().unwrap() <= 0.0, "{size:?}: {tall} pixels below the window");
        assert_eq!(browser.console(), Vec::<String>::new());
    }
}

/// Makes sure that the page asks nobody for anything, and that its policy lets no other script run: not even one that is in it.
#[test]
fn a_page_asks_for_nothing_and_runs_no_other_script() {
    let folder = Folder::new();
    let recording = folder.file("small");
    write_recording(&recording, &Load { locks: 20, intervals: 5, each_s: 1, callers: 2 }, |_, number| {
        format!("lock_{number}")
    });
    let page = page(&folder, &recording, &[]);
    for size in [DESKTOP, PHONE] {
        let Some(browser) = Browser::start("requests of a page", size) else { return };
        browser.open(&page, "");
        let wide = browser.js("return document.documentElement.scrollWidth <= window.innerWidth");
        assert_eq!(wide, json!(true), "wider than a window of {size:?}");
        assert_eq!(browser.console(), Vec::<String>::new());
        let address = format!("file://{page}");
        let others = |url: &String| *url != address && !["data:,", "about:blank"].contains(&url.as_str());
        assert_eq!(browser.requests().into_iter().filter(others).collect::<Vec<_>>(), Vec::<String>::new());
        browser.js(
            "const script = document.createElement('script'); script.textContent = 'window.ran = true'; document.body.append(script);
             document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = true\"><p style=\"color: red\">')",
        );
        let console = browser.console();
        assert_eq!(browser.js("return window.ran === undefined"), json!(true));
        assert!(
            console.len() >= 3 && console.iter().all(|line| line.contains("Content Security Policy")),
            "{console:?}"
        );
        // What else could leave the page, each by itself: the policy is what stops it.
        for way in [
            "fetch('https://example.invalid/').catch(() => 0)",
            "document.body.insertAdjacentHTML('beforeend', '<iframe src=\"https://example.invalid/\"></iframe>')",
            "document.body.insertAdjacentHTML('beforeend', '<img src=\"https://example.invalid/\">')",
            "document.head.insertAdjacentHTML('beforeend', '<link rel=stylesheet href=\"https://example.invalid/\">')",
            "document.head.insertAdjacentHTML('beforeend', '<base href=\"https://example.invalid/\">')",
            "document.body.insertAdjacentHTML('beforeend', '<form id=leaves action=\"https://example.invalid/\"></form>'); document.getElementById('leaves').submit()",
        ] {
            browser.js(way);
            let mut console = Vec::new();
            support::until("the policy is said to stop it", || {
                console.extend(browser.console());
                !console.is_empty()
            });
            assert!(console.iter().all(|line| line.contains("Content Security Policy")), "{way}: {console:?}");
        }
        assert_eq!(browser.js("return location.href"), json!(address), "the page was left");
    }
}

/// Makes sure that names of the measured system are text, wherever they are shown, and leave room for others, however long they are.
#[test]
fn hostile_names_run_no_script_and_leave_no_escape() {
    let folder = Folder::new();
    let recording = folder.file("hostile");
    write_with(
        &recording,
        &Load { locks: 14, intervals: 4, each_s: 1, callers: 3 },
        name_in_pages,
        wait_at_the_end_for_each_lock,
    );
    let page = page(&folder, &recording, &[]);
    assert_harmless("the page", &fs::read(&page).unwrap(), &[]);
    let Some(browser) = Browser::start("hostile names", DESKTOP) else { return };
    browser.open(&page, "");
    let waiting = browser.js("const list = document.querySelector('#verdict pre');
         return [list.getBoundingClientRect().height / window.innerHeight, list.scrollHeight / list.clientHeight]");
    let [height, all]: [f64; 2] = serde_json::from_value(waiting).unwrap();
    assert!(height < 0.61 && all > 2.0, "who waits takes {height} windows and is {all} times as high");
    let shown = ["lock", "frame", "thread"].map(|what| name_in_pages(what, 0));
    browser.click("[data-focus=graph-threads]");
    browser.assert_names_are_text(&shown);
    // That with a million letters.
    browser.click("tr[data-lock^='lock 7 '] button.lock");
    let tall = browser.js("return document.getElementById('selection').getBoundingClientRect().height");
    assert!(tall.as_f64().unwrap() < 150.0, "what is selected takes {tall} pixels");
    browser.type_into("#flame-search", "</script>");
    choose_window(&browser, 1, 2);
    for flames in ["blockers", "roots"] {
        browser.click(&format!("[data-focus=flames-{flames}]"));
    }
    for graph in ["processes", "sites"] {
        browser.click(&format!("[data-focus=graph-{graph}]"));
    }
    browser.assert_names_are_text(&[]);
}

/// Adds a wait that goes on for each lock.
fn wait_at_the_end_for_each_lock(interval: &mut Interval) {
    let task = interval.tables.intern_task(Task { tgid: 4000, comm: "waiter".into(), own: false });
    interval.threads.open_waits = (0..interval.tables.locks().len() as u32)
        .map(|number| OpenWait {
            task,
            tid: 4000 + number,
            reason: ThreadState::UserLock,
            lock: LockId(number),
            kind: Kind::Mutex,
            mode: Mode::Exclusive,
            instance: None,
            site: None,
            age_ns: 1_000_000_000 * u64::from(number + 1),
            is_older: false,
            is_timed: false,
            is_cut: false,
            holder: None,
            ended_holder: None,
            deadlock: None,
        })
        .collect();
}

/// Makes sure that what lockmeter itself waited for is on a page if it was asked for, marked, and in no picture of what others did.
#[test]
fn what_lockmeter_itself_waited_for_is_shown_apart() {
    let folder = Folder::new();
    let recording = folder.file("own");
    let load = Load { locks: 6, intervals: 4, each_s: 1, callers: 2 };
    write_with(
        &recording,
        &load,
        |what, number| format!("{what}_{number}"),
        |interval| {
            let own = interval.tables.intern_task(Task { tgid: 1, comm: "lockmeter".into(), own: true });
            let Total { key, value } = interval.totals[0];
            // Longer than all others together.
            let long = Value { count: 1, total_ns: 1 << 42, max_ns: 1 << 42, spin_ns: 0 };
            let bucket = Bucket::of(long.max_ns);
            interval.totals.push(Total { key: Key { task: Some(own), bucket, ..key }, value: long });
            // Holds of that lock by others.
            interval.totals.push(Total { key: Key { happened: Happened::Hold, ..key }, value });
        },
    );
    let report = json_report(&recording, &[]);
    let waited_ns = report["rows"].as_array().unwrap().iter().filter(|row| row["happened"] == "wait");
    let others = duration(waited_ns.map(|row| row["total_ns"].as_u64().unwrap()).sum());
    for (flags, shown) in [(&[][..], 0), (&["--own"], 1)] {
        let page = page(&folder, &recording, flags);
        let Some(browser) = Browser::start("lockmeter's own waits", DESKTOP) else { return };
        browser.open(&page, "");
        let is_marked = "return [...document.querySelectorAll('tr[data-own]')].map((row) => row.textContent.includes('lockmeter itself'))";
        assert_eq!(browser.js(is_marked), json!(vec![true; shown]), "{flags:?}");
        let lines = "return document.querySelectorAll('#when text.label').length";
        assert_eq!(browser.js(lines), json!(load.locks), "{flags:?}");
        let all = |browser: &Browser| {
            browser.js("return document.querySelector('#flames .frame').getAttribute('aria-label')").to_string()
        };
        assert!(all(&browser).contains(&format!("{others} waited")), "{flags:?}: {} is not {others}", all(&browser));
        for (row, own, pictures) in [
            ("tr[data-own]", json!(""), json!(["Waits"])),
            ("tr[data-lock=lock_0]:not([data-own])", Json::Null, json!(["Waits", "Holds"])),
        ]
        .into_iter()
        .filter(|_| shown > 0)
        {
            browser.click(&format!("{row} button.lock"));
            let hash = browser.js("return location.hash");
            for when in ["selected", "by the address"] {
                let chosen = browser
                    .js("return [...document.querySelectorAll('tr.chosen')].map((row) => row.dataset.own ?? null)");
                assert_eq!(chosen, json!([own]), "{row} {when}: {hash}");
                let titles = "return [...document.querySelectorAll('#lengths figcaption')].map((title) => title.textContent.split(':')[0])";
                assert_eq!(browser.js(titles), pictures, "{row} {when}: {hash}");
                browser.open(&page, hash.as_str().unwrap());
            }
        }
        assert_eq!(browser.console(), Vec::<String>::new());
    }
}

/// Makes sure that pages stay small. How long they take to open is said, not judged: the machine may be busy.
#[test]
fn pages_of_large_recordings_are_small() {
    let folder = Folder::new();
    let loads = [
        ("a minute of a busy machine", Load { locks: 400, intervals: 60, each_s: 1, callers: 8 }, 1_500_000),
        ("two hours with 3,000 locks", Load { locks: 3_000, intervals: 240, each_s: 30, callers: 4 }, 8_000_000),
    ];
    let browser = Browser::start("large pages", DESKTOP);
    for (what, load, most_bytes) in loads {
        let recording = folder.file(&format!("{}-locks", load.locks));
        write_recording(&recording, &load, |what, number| format!("{what}_{number}.some_structure.member"));
        let page = format!("{recording}.html");
        // It takes seconds, which a terminal shows.
        let mut command = lockmeter(["report", "--format", "html", "-o", &page, &recording]);
        let (status, shown) = Terminal::start(&mut command, (120, 30)).ended();
        assert!(status.success(), "{shown}");
        assert!(shown.contains("reading ") && shown.contains(" left"), "{what}: no progress in {shown}");
        let bytes = fs::metadata(&page).unwrap().len();
        let Some(browser) = &browser else { continue };
        let opened_ms = browser.open(&page, "");
        say(&format!("page of {what}: {bytes} bytes, drawn {opened_ms} ms after its begin"));
        assert!(bytes <= most_bytes, "{what}: {bytes} bytes");
        let table = json_report(&recording, &[]);
        show_all(browser);
        assert_same_table(browser, &table, "wait", what);
        choose_window(browser, 3, 9);
        let others = browser.js("return [...document.querySelectorAll('table.locks tbody th')].filter((cell) => cell.textContent.includes('other locks')).length");
        assert_eq!(others, json!(1), "{what}: small locks in a window");
        show_all(browser);
        let report = json_report(&recording, &["--window", &window_flag(browser)]);
        let shown = browser.js("return [...document.querySelectorAll('td[data-key=count]')].reduce((sum, cell) => sum + Number(cell.textContent.replaceAll(',', '')), 0)");
        assert_eq!(shown, report["head"]["waits"]["count"], "{what}: waits in a window");
        assert_eq!(browser.console(), Vec::<String>::new());
    }
}

/// Makes sure that there is a page of whatever was recorded, as large as a page may be: what it leaves out it says, and the small ones are
/// no part of the graph that stands before others.
#[test]
fn a_page_has_less_detail_rather_than_being_refused_or_large() {
    let folder = Folder::new();
    let [many_pairs, long_names] = ["many-pairs", "long-names"].map(|name| folder.file(name));
    let load = Load { locks: 20, intervals: 10, each_s: 1, callers: 5 };
    write_with(&many_pairs, &load, |what, number| format!("{what}_{number}"), sites_that_block_each_other);
    // Names that cannot be packed.
    let name = |what: &str, number: usize| {
        let mut number = number as u64 + 1;
        let mut word = || {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{number:x}")
        };
        format!("{what}_{}", (0..60).map(|_| word()).collect::<String>())
    };
    write_recording(&long_names, &Load { locks: 300, intervals: 10, each_s: 1, callers: 20 }, name);
    for (recording, says) in [
        (many_pairs, "more different stacks and threads than a page may keep in memory"),
        (long_names, "to keep this page at 1.5 mb"),
    ] {
        let page = page(&folder, &recording, &[]);
        let bytes = fs::metadata(&page).unwrap().len();
        assert!(bytes <= 1_500_000, "{recording}: {bytes} bytes");
        let Some(browser) = Browser::start("less detail", DESKTOP) else { continue };
        browser.open(&page, "#nodes=500");
        let notices = browser.js("return document.getElementById('notices').innerText");
        assert!(notices.as_str().unwrap().to_lowercase().contains(says), "{notices}");
        let total = duration(json_report(&recording, &[])["head"]["waits"]["total_ns"].as_u64().unwrap());
        for flames in ["waiters", "blockers", "roots"] {
            browser.click(&format!("[data-focus=flames-{flames}]"));
            let all = browser.js("return document.querySelector('#flames .frame').getAttribute('aria-label')");
            assert!(all.as_str().unwrap().contains(&format!("{total} waited")), "{flames}: {all} is not of {total}");
        }
        // Those that wait are told apart to the last hundredth; of those who block, the small ones stand below all others.
        let said = browser.js("return [...document.querySelectorAll('#graph .site')].map((site) => [site.getAttribute('aria-label'), Number(site.querySelector('rect').getAttribute('y'))])");
        let nodes: Vec<(String, f64)> = serde_json::from_value(said).unwrap();
        assert!(nodes.len() > 100, "{nodes:?}");
        for (verb, has_small) in [(" waits ", says.starts_with("to keep")), (" blocks ", true)] {
            let of: Vec<_> = nodes.iter().filter(|(label, _)| label.contains(verb)).collect();
            let lowest = of.iter().max_by(|one, other| one.1.total_cmp(&other.1)).unwrap();
            let small = of.iter().find(|(label, _)| label.contains("added up"));
            assert!(small.is_none_or(|small| small == lowest), "{small:?} is above {lowest:?}");
            let is_below_one_percent = |label: &str| label.contains(", under ") || label.contains(", 0");
            assert!(small.is_none_or(|(label, _)| has_small || is_below_one_percent(label)), "{small:?}");
        }
        assert_eq!(browser.console(), Vec::<String>::new());
    }
}

/// Adds that 600 call sites block each other.
fn sites_that_block_each_other(interval: &mut Interval) {
    let first = interval.sampled[0];
    let sites: Vec<_> = (0..600)
        .map(|number| {
            let function = Some(format!("app::session_{number}::lock"));
            let address = 1_000_000 + number;
            let frame = interval.tables.intern_frame(Frame { address, function, offset: 0, module: None });
            Some(interval.tables.intern_stack(vec![frame]))
        })
        .collect();
    for number in 0..30_000_usize {
        let (waiter, blocker) =
            (number % 600, (number / 600 * 7 + interval.start_unix_ns as usize / 1_000_000_000) % 600);
        let total_ns = 1_000_000 / (1 + waiter as u64) + 1_000_000 / (1 + blocker as u64);
        let value = Value { count: 1, total_ns, max_ns: total_ns, spin_ns: 0 };
        let key = Key { bucket: Bucket::of(total_ns), ..first.key };
        interval.totals.push(Total { key, value });
        let (site, blocker) = (sites[waiter], lockmeter_profile::Blocker { stack: sites[blocker], ..first.blocker });
        interval.sampled.push(lockmeter_profile::Sampled { key, site, blocker, estimate: value, ..first });
    }
}

/// Makes sure that what cannot be shown as a page is refused in a sentence.
#[test]
fn what_makes_no_page_is_refused() {
    let folder = Folder::new();
    let [one, other] = ["one", "other"].map(|name| folder.file(name));
    for recording in [&one, &other] {
        write_recording(recording, &Load { locks: 3, intervals: 2, each_s: 1, callers: 1 }, |_, number| {
            format!("lock_{number}")
        });
    }
    let (status, said) = support::refused(lockmeter(["report", "--format", "html", &one, &other]));
    assert!(status == 2 && said.contains("a page shows one recording"), "{status}: {said}");
    let output = support::harmful_names::sent_to_terminal(&folder, &["report", "--format", "html", &one], &[]);
    assert!(
        output.status.code() == Some(2) && text(&output.stdout).contains("name a file with -o"),
        "{}",
        text(&output.stdout)
    );
    let shown = on_terminal(&folder, &["report", "--format", "html", "-o", &folder.file("page.html"), &one], &[]);
    assert!(!shown.contains("<html"), "{shown}");
}
