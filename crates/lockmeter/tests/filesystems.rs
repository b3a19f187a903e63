//! Waits for locks of files and directories are those of the file systems that these lie on.
//!
//! The loads know how long they waited and where, and the system says which file system that is.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::report::{Report, Row, report, sum};
use support::{Folder, lockmeter, machine, run, run_workload, skip, text, workload_path};

const UNKNOWN: &str = "unknown";

/// What the budget leaves out is not known.
const MOST_UNKNOWN_PERCENT: u64 = 10;

/// A mounted file system.
struct Mount {
    kind: String,
    device: String,
}

impl Mount {
    /// That of a path, as the system lists it.
    fn of(path: &Path) -> Self {
        let path = fs::canonicalize(path).unwrap();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let fields = |line: &str| {
            let (mount, file_system) = line.split_once(" - ")?;
            let mut words = file_system.split(' ').map(str::to_owned);
            let (kind, device) = (words.next()?, words.next()?);
            Some((PathBuf::from(mount.split(' ').nth(4)?), Self { kind, device }))
        };
        let around = mounts.lines().filter_map(fields).filter(|(point, _)| path.starts_with(point));
        // Of several mounts on one point the last is seen.
        around.max_by_key(|(point, _)| point.components().count()).expect("the root is mounted").1
    }

    /// As a report should name it.
    fn label(&self) -> String {
        match self.device.strip_prefix("/dev/") {
            Some(device) => format!("{} ({device})", self.kind),
            None => self.kind.clone(),
        }
    }
}

/// Rows of waits for a lock whose name ends so.
fn of_lock<'a>(report: &'a Report, ending: &'a str) -> impl Iterator<Item = &'a Row> {
    report.rows.iter().filter(move |row| row.happened == "wait" && row.lock().trim_end_matches(" ~").ends_with(ending))
}

fn waited_ns<'a>(rows: impl Iterator<Item = &'a Row>, filesystem: &str) -> u64 {
    sum(rows.filter(|row| row.filesystem.as_deref() == Some(filesystem))).1
}

/// Makes sure that waits of known length on two file systems at a time are told apart, for one lock and one program's name.
#[test]
fn waits_on_two_file_systems_at_a_time_are_told_apart() {
    const TEST: &str = "waits on two file systems";
    let Some(_machine) = machine(TEST) else { return };
    let folder = Folder::new();
    let places = [PathBuf::from("/dev/shm"), folder.path().to_owned()];
    if !places[0].is_dir() {
        return skip(TEST, "there is no /dev/shm");
    }
    let mounts = [Mount::of(&places[0]), Mount::of(&places[1])];
    if mounts[0].label() == mounts[1].label() {
        return skip(TEST, &format!("tests are built on a {}, as /dev/shm is", mounts[0].label()));
    }
    // Two waiters on the one, one on the other, for different times.
    let loads = [("4", "20000000"), ("3", "5000000")];
    let program = workload_path("known-wait");
    let script: Vec<String> = places
        .iter()
        .zip(loads)
        .enumerate()
        .map(|(at, (place, (threads, hold_ns)))| {
            let (program, place) = (program.display(), place.display());
            let output = folder.file(&format!("truth-{at}"));
            format!("{program} --seconds 2 --threads {threads} --hold-ns {hold_ns} --dir {place} >{output} &")
        })
        .collect();
    let recording = folder.file("recording");
    let mut record = lockmeter(["record", "--kernel", "-o", &recording, "--", "sh", "-c"]);
    record.arg(format!("{} wait", script.join(" ")));
    let output = run(record);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = report(&recording, &["--by", "lock,filesystem,task", "-n", "20"]);
    for (at, mount) in mounts.iter().enumerate() {
        let truth = fs::read_to_string(folder.file(&format!("truth-{at}"))).unwrap();
        let Ok(truth) = serde_json::from_str::<serde_json::Value>(&truth) else {
            return skip(TEST, "known-wait is not possible here");
        };
        let bound = |key: &str| truth[key].as_u64().unwrap();
        let waited_ns = waited_ns(of_lock(&report, "file.f_pos_lock"), &mount.label());
        // The two share the lock's exact totals by what was sampled: a few per cent either way.
        let (least_ns, most_ns) = (bound("wait_ns_lower") * 95 / 100, bound("wait_ns_upper") * 105 / 100);
        assert!(
            (least_ns..=most_ns).contains(&waited_ns),
            "{waited_ns} ns on {}, not {least_ns} to {most_ns}:\n{}",
            mount.label(),
            report.shown
        );
    }
}

/// Makes sure that directories whose inodes have the plain type, as those of many file systems have, are told apart: control groups
/// are not called after the inode.
#[test]
fn a_directory_of_control_groups_lies_in_cgroup2() {
    const TEST: &str = "a directory of control groups";
    let Some(_machine) = machine(TEST) else { return };
    let folder = Folder::new();
    let recorder = support::recorder::Recorder::start(&folder, "recording", &["-a"]);
    let truth = match run_workload("cgroup-dirs", &["--seconds", "2"]) {
        Ok(truth) => truth,
        Err(why) => return skip(TEST, &why),
    };
    let recording = recorder.stop().recording();
    let report = report(&recording, &["--by", "lock,filesystem", "--task", "cgroup-dirs", "-n", "30"]);
    let calls_ns = truth["calls_ns"].as_u64().unwrap();
    let waited_ns = waited_ns(of_lock(&report, "inode.i_rwsem"), "cgroup2");
    assert!(
        (calls_ns / 10..=calls_ns).contains(&waited_ns),
        "{waited_ns} ns on cgroup2, in calls that took {calls_ns} ns:\n{}",
        report.shown
    );
    let all_ns = sum(of_lock(&report, "inode.i_rwsem")).1;
    assert!(
        (all_ns - waited_ns) * 100 <= all_ns * MOST_UNKNOWN_PERCENT,
        "more than {MOST_UNKNOWN_PERCENT} % of the waits are not on cgroup2:\n{}",
        report.shown
    );
    for row in &report.rows {
        let filesystem = row.filesystem.as_deref();
        assert!(
            filesystem
                .is_none_or(|name| name == UNKNOWN || kinds().iter().any(|kind| name.split(' ').next() == Some(kind))),
            "{filesystem:?} is none of the kernel's:\n{}",
            report.shown
        );
        // A variable of the kernel lies on no file system.
        let is_variable = matches!(row.naming.as_deref(), Some("symbol" | "per-cpu"));
        assert!(!is_variable || filesystem.is_none(), "{} on {filesystem:?}:\n{}", row.lock(), report.shown);
    }
}

/// The types of file systems that the kernel knows.
fn kinds() -> Vec<String> {
    let list = fs::read_to_string("/proc/filesystems").unwrap();
    list.lines().filter_map(|line| Some(line.split_whitespace().next_back()?.to_owned())).collect()
}
