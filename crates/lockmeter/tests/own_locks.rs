//! `lockmeter record -- COMMAND` sees the locks of `lockmeter-locks` as it sees pthread's.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Builds what cargo does not build for a test of the binary.
fn build(arguments: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_lockmeter")).parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--locked", "--quiet"]).args(arguments).arg("--target-dir").arg(folder.parent().unwrap());
    if folder.ends_with("release") {
        build.arg("--release");
    }
    let built = build.output().expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    folder.to_owned()
}

fn lockmeter() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lockmeter"))
}

#[test]
fn waits_for_locks_of_the_lock_library_have_names_and_callers() {
    build(&["--package", "lockmeter-preload"]);
    let examples =
        build(&["--package", "lockmeter-locks", "--features", "meter", "--example", "contended"]).join("examples");
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("test.lockmeter");
    let output = lockmeter()
        .args(["record", "--quiet", "--user", "-o"])
        .arg(&recording)
        .arg("--")
        .arg(examples.join("contended"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(said["had"], 12, "{said}");

    let report =
        lockmeter().args(["report", "--format", "json", "--by", "lock,caller"]).arg(&recording).output().unwrap();
    assert!(report.status.success(), "{report:?}");
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let wait = |lock: &str, kind: &str, mode: &str, caller: &str| {
        let row = rows.iter().find(|row| {
            let is_its = |key: &str, part: &str| row[key].to_string().contains(part);
            row["happened"] == "wait" && is_its("lock", lock) && is_its("caller", caller)
        });
        let row = row.unwrap_or_else(|| panic!("no wait of {caller} for {lock} in {rows:#?}"));
        assert_eq!((&row["kind"], &row["mode"]), (&kind.into(), &mode.into()), "{row}");
        (row["count"].as_u64().unwrap(), row["total_ns"].as_u64().unwrap())
    };
    let said = |field: &str| said[field].as_u64().unwrap();
    // The program looked at its clock a little further out.
    let half_to_whole = |known: u64| known / 2..=known;
    let (waits, waited_ns) = wait("HOT_MUTEX", "mutex", "exclusive", "waits_for_the_mutex");
    assert!(waits > 0 && waits <= said("waits"), "{waits} of {}", said("waits"));
    assert!(half_to_whole(said("wait_ns")).contains(&waited_ns), "{waited_ns} ns of {}", said("wait_ns"));
    let (waits, waited_ns) = wait("HOT_RWSEM", "rwsem", "read", "waits_to_read");
    assert_eq!(waits, 1);
    assert!(half_to_whole(said("read_wait_ns")).contains(&waited_ns), "{waited_ns} ns of {}", said("read_wait_ns"));
}
