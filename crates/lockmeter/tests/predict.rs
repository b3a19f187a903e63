//! `predict`: that a forecast follows from what was recorded, and that it says what is missing. Nothing here asserts how fast anything is.

mod support;

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::report::json_report;
use support::{Folder, json, lockmeter, preload_library, refused, run, say, text, too_busy, user_workload};

/// Programs with known holds, recorded by the real meter.
fn record(folder: &Folder, threads: usize) -> String {
    let (rounds, threads) = ((20_000 / threads).to_string(), threads.to_string());
    let arguments = ["--threads", &threads, "--rounds", &rounds, "--hold-ns", "20000", "--pause-ns", "20000"];
    record_with(folder, &arguments)
}

fn record_with(folder: &Folder, arguments: &[&str]) -> String {
    preload_library();
    let program = folder.path().join("two-locks");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/user/two-locks.c");
    let mut compile = Command::new("cc");
    compile.args(["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-pthread", "-o"]).arg(&program).arg(source);
    assert!(run(compile).status.success());
    let recording = folder.file("holds.lockmeter");
    let mut command = lockmeter(["record", "--user", "--hold", "--quiet", "-o", &recording, "--"]);
    command.arg(&program).args(arguments);
    let output = run(command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    recording
}

/// Makes sure that `docs/reference/json.md` explains every field.
fn is_explained(forecast: &Value) {
    let page = include_str!("../../../docs/reference/json.md");
    let (_, section) = page.split_once("## The forecasts").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut within = vec![forecast];
    while let Some(value) = within.pop() {
        match value {
            Value::Object(fields) => {
                for name in fields.keys() {
                    assert!(section.contains(&format!("`{name}`")), "{name} is not explained");
                }
                within.extend(fields.values());
            }
            Value::Array(values) => within.extend(values),
            _ => {}
        }
    }
}

/// Three quarters of the holds last 20 µs and one quarter 40: 25 µs. However many threads there are, that lock gives 40,000
/// acquisitions a second at most; without it there is no such limit.
#[test]
fn a_forecast_ends_at_one_hold_after_another_and_without_the_lock_goes_on() {
    let folder = Folder::new();
    let recording = record(&folder, 1);
    let forecasts =
        json(lockmeter(["predict", &recording, "--lock", "hot_lock", "--threads", "1", "--format", "json"]));
    let forecast = &forecasts[0];
    is_explained(forecast);
    let hold_ns = forecast["hold_ns"].as_f64().unwrap();
    if hold_ns > 35_000.0 {
        say(&format!("SKIPPED: the machine is too busy: holds of 25 µs were stretched to {hold_ns:.0} ns"));
        return;
    }
    assert!(hold_ns >= 24_000.0, "{forecast}");
    let most = 1e9 / hold_ns;
    for point in forecast["points"].as_array().unwrap() {
        let cpus = point["cpus"].as_f64().unwrap();
        let rate = |field: &str| point[field].as_f64().unwrap();
        assert!(rate("spinning") <= most * 1.0001 && rate("sleeping") <= rate("spinning"), "{point}");
        assert!(rate("sharded") >= rate("spinning") && rate("removed") >= rate("sharded"), "{point}");
        if cpus >= 64.0 {
            assert!(rate("spinning") > most * 0.95, "a crowded lock is never idle: {point}");
        }
    }
    let check = forecast["check"]["simulated"].as_f64().unwrap();
    assert!(check.abs() < 0.15, "the simulation is off by {check} from the recording it was made from");
}

/// Makes sure that threads that wait for a CPU are not taken for threads that compute.
#[test]
fn a_forecast_knows_threads_beyond_the_cpus() {
    let folder = Folder::new();
    let cpus = std::thread::available_parallelism().unwrap().get();
    let threads = (4 * cpus).to_string();
    let recording = record(&folder, 4 * cpus);
    let ask = |more: &[&str]| {
        let mut command = lockmeter(["predict", &recording, "--lock", "hot_lock", "--format", "json"]);
        command.args(["--threads", &threads, "--cpus", &cpus.to_string()]).args(more);
        json(command)[0].clone()
    };
    let (one, four) = (ask(&[]), ask(&["--threads-per-cpu", "4"]));
    assert_eq!((&one["points"][0]["threads"], &four["points"][0]["threads"]), (&cpus.into(), &(4 * cpus).into()));
    // As many threads on as many CPUs as were recorded: what the model is checked by.
    let recorded = four["recorded_per_second"].as_f64().unwrap();
    match four["points"][0]["simulated"].as_f64() {
        Some(simulated) => {
            let off = simulated / recorded - 1.0;
            assert!((off - four["check"]["simulated"].as_f64().unwrap()).abs() < 1e-6, "{four}");
        }
        None => assert!(four["refused"].as_str().unwrap().contains("simulation"), "{four}"),
    }
    // By Little's law alone, threads compute all the time in which they neither hold nor wait.
    let all_ns = threads.parse::<f64>().unwrap() * 1e9 / recorded;
    let elsewhere_ns = all_ns - four["hold_ns"].as_f64().unwrap() - four["wait_ns"].as_f64().unwrap();
    assert!(four["think_ns"].as_f64().unwrap() < elsewhere_ns, "{four}");
}

/// What `two-kinds` prints of itself.
fn two_kinds(program: &Path, recording: Option<&str>, long: &str, short: &str) -> Value {
    preload_library();
    let arguments = ["--long", long, "--short", short, "--seconds", "2"];
    let mut command = match recording {
        Some(recording) => lockmeter(["record", "--user", "--hold", "--quiet", "-o", recording, "--"]),
        None => Command::new("env"),
    };
    command.arg(program).args(arguments);
    json(command)
}

/// A caller that holds the lock rarely and long, and one that holds it often and briefly. By one mean hold for both, removing the lock gains
/// next to nothing; really without the first, the second does many times as much.
#[test]
fn without_a_caller_that_holds_long_the_others_are_forecast_to_do_what_they_then_do() {
    let folder = Folder::new();
    let program = user_workload(folder.path(), "two-kinds", &[]);
    let (long, short) = ("1", "2");
    for _ in 0..3 {
        let recording = folder.file("two-kinds.lockmeter");
        let here = two_kinds(&program, Some(&recording), long, short);
        let alone = two_kinds(&program, None, "0", short);
        let ask = lockmeter(["predict", &recording, "--lock", "shared_lock", "--threads", "3", "--format", "json"]);
        let forecasts = json(ask);
        is_explained(&forecasts[0]);
        let by_caller = &forecasts[0]["by_caller"];
        assert_eq!(by_caller["callers"].as_array().unwrap().len(), 2, "{by_caller}");
        if !by_caller["refused"].is_null() {
            say(&format!("refused, so once more: {}", by_caller["refused"]));
            continue;
        }
        let per_second =
            |run: &Value| run["held_briefly"].as_f64().unwrap() / run["elapsed_ns"].as_f64().unwrap() * 1e9;
        let caller = |name: &str| {
            let callers = by_caller["callers"].as_array().unwrap();
            callers.iter().find(|caller| caller["caller"] == name).unwrap_or_else(|| panic!("no {name}: {by_caller}"))
        };
        let long_caller = caller("hold_long");
        let recorded = long_caller["others_recorded_per_second"].as_f64().unwrap();
        // The recording begins and ends with the process, which takes long on a busy machine; the program times its loop alone.
        let counted = recorded * json_report(&recording, &[])["duration_ns"].as_f64().unwrap() / 1e9;
        let known = here["held_briefly"].as_f64().unwrap();
        assert!((counted / known - 1.0).abs() < 0.2, "{counted} counted: {here} {long_caller}");
        let forecast = &long_caller["others_without_it_per_second"];
        let [least, most] = [0, 1].map(|at| forecast[at].as_f64().unwrap());
        // Other work comes and goes between the two runs.
        let really = [per_second(&alone), per_second(&two_kinds(&program, None, "0", short))];
        let [slower, faster] = [really[0].min(really[1]), really[0].max(really[1])];
        assert!(slower > 2.0 * recorded, "the caller is in the way: {here} {alone}");
        assert!(least <= most, "{by_caller}");
        // A busy machine changes what either run does, but not by so much.
        if least > 1.5 * faster || most < slower / 1.5 {
            say(&format!("{least} to {most} forecast, {slower} to {faster} really, so once more: {by_caller}"));
            continue;
        }
        let kept = caller("hold_briefly")["others_without_it_per_second"][0].as_f64().unwrap();
        let recorded = caller("hold_briefly")["others_recorded_per_second"].as_f64().unwrap();
        assert!((0.7..1.4).contains(&(kept / recorded)), "the long one hardly waits: {by_caller}");
        return;
    }
    too_busy("without_a_caller_that_holds_long", "what was recorded fits no model");
}

#[test]
fn predict_says_what_is_missing() {
    let folder = Folder::new();
    // Eight threads at one lock wait and hold for longer than one thread can, on a busy machine, too: they hold it asleep.
    let recording = record_with(&folder, &["--threads", "8", "--rounds", "100", "--hold-ns", "1000000", "--sleep"]);
    let (status, said) = refused(lockmeter(["predict", &recording, "--lock", "no_such_lock"]));
    assert!(status == 1 && said.contains("hot_lock"), "{status}: {said}");
    let (status, said) = refused(lockmeter(["predict", &folder.file("absent")]));
    assert!(status == 4 && said.contains("absent"), "{status}: {said}");
    let (status, said) = refused(lockmeter(["predict", &recording, "--cpus", "256", "--threads-per-cpu", "8"]));
    assert!(status == 2 && said.contains("2048 threads are more than can be forecast"), "{status}: {said}");
    let (status, said) = refused(lockmeter(["predict", &recording, "--cpus", "0"]));
    assert!(status == 2 && said.contains("between 1 and"), "{status}: {said}");
    let waits_only = folder.file("waits.lockmeter");
    let mut command = lockmeter(["record", "--user", "--quiet", "-o", &waits_only, "--"]);
    command.arg(folder.path().join("two-locks")).args(["--threads", "2", "--rounds", "100"]);
    assert!(run(command).status.success());
    let (status, said) = refused(lockmeter(["predict", &waits_only]));
    assert!(status == 4 && said.contains("record --hold"), "{status}: {said}");
    let output = run(lockmeter(["predict", &recording, "--threads", "1"]));
    assert!(text(&output.stderr).contains("cannot have held and waited"), "{}", text(&output.stderr));
}
