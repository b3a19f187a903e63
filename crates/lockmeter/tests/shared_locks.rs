//! Locks that processes share, under `lockmeter record --user`: one lock is one row, whatever process uses it at whatever address.

mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::recorder::Recorder;
use support::{Folder, lockmeter, machine, preload_library, run, text, user_workload};

/// What a program measures itself and what lockmeter says may differ by this much: both read clocks at slightly different places.
const TOLERANCE_PERCENT: u64 = 5;

/// The recorder sees within some 20 ms which lock of a new process is which. Nothing depends on how long it takes on a busy machine
/// but this: how many of a hundred waits have a blocker, and by how many of a hundred acquisitions the moves may be off.
const KNOWN_PERCENT: u64 = 80;

/// The functions that the users of `shared-lock` take the lock in, one each.
const USERS: [&str; 3] = ["accept_one", "write_log", "reload"];

struct Metered {
    known: Value,
    recording: String,
    /// Its folder must stay.
    folder: Folder,
}

fn meter(level: &[&str], arguments: &[&str]) -> Metered {
    preload_library();
    let folder = Folder::new();
    let program = user_workload(folder.path(), "shared-lock", &[]);
    let recording = folder.file("recording");
    let mut command = lockmeter(["record", "--quiet", "--user", "-o", &recording]);
    let file = folder.file("shared file");
    let arguments = arguments.iter().map(|argument| if *argument == "FILE" { &file } else { *argument });
    command.args(level).arg("--").arg(program).args(arguments);
    let output = run(command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let known = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    Metered { known, recording, folder }
}

impl Metered {
    fn rows(&self, by: &str, happened: &str) -> Vec<Value> {
        let report = support::json(lockmeter(["report", "--format", "json", "--by", by, "-n", "0", &self.recording]));
        let rows = report["rows"].as_array().unwrap().iter();
        rows.filter(|row| row["happened"] == happened).cloned().collect()
    }

    fn known(&self, key: &str) -> u64 {
        number(&self.known, key)
    }

    /// The only row there is, and that of the only lock.
    fn only_row(&self, happened: &str) -> Value {
        let rows = self.rows("lock", happened);
        let [row] = &rows[..] else { panic!("one lock is one row: {rows:#?}") };
        assert_eq!(row["naming"], "user-shared", "{row:#}");
        row.clone()
    }
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no number {key} in {value:#}"))
}

fn assert_near(measured: u64, known: u64, what: &str) {
    let difference = measured.abs_diff(known);
    assert!(difference * 100 <= known * TOLERANCE_PERCENT, "{what}: measured {measured}, known {known}");
}

/// Waits, and who is blamed for them, as the users' own functions in their own processes.
fn waits_are_blamed_on_users(metered: &Metered, lock: &str) {
    let waits = metered.only_row("wait");
    assert_eq!(waits["lock"], lock);
    // A lock that a user found taken may be free before it asks for it again and waits.
    let (count, contended) = (number(&waits, "count"), metered.known("contended"));
    assert!(count <= contended && (contended - count) * 100 <= contended, "{contended} were contended: {waits:#}");
    assert_near(number(&waits, "total_ns"), metered.known("wait_ns"), "waits");
    let rows = metered.rows("lock,blocker", "wait");
    let is_of = |row: &Value, user: &str| row["blocker"].to_string().contains(user);
    let blamed: u64 = rows
        .iter()
        .filter(|row| USERS.iter().any(|user| is_of(row, user)) && row["blocker_task"] == "shared-lock")
        .map(|row| number(row, "count"))
        .sum();
    let known = number(&waits, "count") * KNOWN_PERCENT / 100;
    assert!(blamed >= known, "{blamed} of {} waits have a blocker: {rows:#?}", number(&waits, "count"));
    for user in USERS {
        assert!(rows.iter().any(|row| is_of(row, user)), "nobody waits for {user}: {rows:#?}");
    }
    // Nobody waits for itself.
    for caller in metered.rows("caller,blocker", "wait") {
        let of_caller = USERS.iter().find(|user| caller["caller"].to_string().contains(**user)).unwrap();
        assert!(!is_of(&caller, of_caller), "{caller:#}");
    }
}

/// Holds, as the sums of what all processes did.
fn holds_add_up(metered: &Metered, lock: &str) {
    let holds = metered.only_row("hold");
    assert_eq!(holds["lock"], lock);
    assert_eq!(number(&holds, "count"), metered.known("acquisitions"), "{holds:#}");
    assert_near(number(&holds, "total_ns"), metered.known("hold_ns"), "holds");
    let of_users: Vec<u64> = USERS
        .iter()
        .map(|user| {
            let rows = metered.rows("lock,caller", "hold");
            rows.iter().filter(|row| row["caller"].to_string().contains(user)).map(|row| number(row, "count")).sum()
        })
        .collect();
    assert_eq!(of_users, [metered.known("acquisitions") / 3; 3]);
    let moved_percent = number(&holds, "moved_ppm") / 10_000;
    let known_percent = metered.known("moved") * 100 / metered.known("acquisitions");
    let off = moved_percent.abs_diff(known_percent);
    assert!(off <= 100 - KNOWN_PERCENT, "moved {moved_percent} %, known {known_percent} %: {holds:#}");
    let watched = number(&holds, "watched");
    assert!(watched * 100 >= metered.known("acquisitions") * KNOWN_PERCENT, "{holds:#}");
    let instances: BTreeSet<String> =
        metered.rows("lock,instance", "hold").iter().map(|row| row["instance"].to_string()).collect();
    assert_eq!(instances.len(), 1, "one lock has one address: {instances:?}");
}

const IN_ANONYMOUS_MEMORY: &str = "anonymous shared memory+0x0, created at set_up";

#[test]
fn a_mutex_that_forked_children_share_is_one_lock_with_known_blockers() {
    let metered = meter(&["--hold"], &["fork", "mutex"]);
    waits_are_blamed_on_users(&metered, IN_ANONYMOUS_MEMORY);
    holds_add_up(&metered, IN_ANONYMOUS_MEMORY);
}

#[test]
fn a_robust_mutex_is_metered_as_any() {
    let metered = meter(&["--hold"], &["fork", "robust"]);
    waits_are_blamed_on_users(&metered, IN_ANONYMOUS_MEMORY);
    holds_add_up(&metered, IN_ANONYMOUS_MEMORY);
}

#[test]
fn who_makes_another_process_wait_is_known_where_only_waits_are_metered() {
    let metered = meter(&[], &["fork", "mutex"]);
    waits_are_blamed_on_users(&metered, IN_ANONYMOUS_MEMORY);
    let metered = meter(&[], &["fork", "rwlock"]);
    waits_are_blamed_on_users(&metered, "anonymous shared memory+0x28, created at set_up");
}

#[test]
fn a_semaphore_that_processes_share_has_known_blockers() {
    waits_are_blamed_on_users(&meter(&[], &["fork", "semaphore"]), "anonymous shared memory+0x60, created at set_up");
}

/// Makes sure that it is the file and the offset that make a lock, not its address: programs that are executed have it elsewhere each.
#[test]
fn programs_that_map_one_file_share_its_locks() {
    for (kind, offset) in [("mutex", 0x1000), ("rwlock", 0x1028)] {
        let metered = meter(&["--hold"], &["exec", kind, "FILE"]);
        let file = PathBuf::from(metered.folder.file("shared file")).canonicalize().unwrap();
        let lock = format!("file {}+{offset:#x}", file.display());
        waits_are_blamed_on_users(&metered, &lock);
        holds_add_up(&metered, &lock);
    }
}

/// Regression: it was a lock of each process, with the name `heap`.
#[test]
fn a_lock_that_running_processes_share_is_one_from_outside_too() {
    let Some(_machine) = machine("locks of several running processes") else { return };
    let folder = Folder::new();
    let (program, file) = (user_workload(folder.path(), "shared-lock", &[]), folder.file("shared file"));
    let mut command = Command::new("sh");
    command.args(["-c", "read line; exec \"$0\" exec mutex \"$1\""]).arg(program).arg(&file);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let recorder = Recorder::start_all(&folder, "outside", &["--user", "-p", &child.id().to_string()]);
    drop(child.stdin.take());
    let known = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    let recording = recorder.wait().recording();
    let metered = Metered { known, recording, folder };
    let lock = format!("file {}+0x1000", PathBuf::from(file).canonicalize().unwrap().display());
    let rows: Vec<Value> = metered.rows("lock,blocker", "wait");
    let of_lock: Vec<&Value> = rows.iter().filter(|row| row["lock"] == lock.as_str()).collect();
    let sum = |rows: &mut dyn Iterator<Item = &&Value>| rows.map(|row| number(row, "total_ns")).sum::<u64>();
    let (total_ns, known_ns) = (sum(&mut of_lock.iter()), metered.known("wait_ns"));
    assert!(total_ns <= known_ns && total_ns * 100 >= known_ns * 90, "{total_ns} of {known_ns} ns: {rows:#?}");
    let is_of = |row: &&&Value, user: &str| row["blocker"].to_string().contains(user);
    let blamed_ns = sum(&mut of_lock.iter().filter(|row| USERS.iter().any(|user| is_of(row, user))));
    assert!(blamed_ns * 100 >= total_ns * KNOWN_PERCENT, "{blamed_ns} of {total_ns} ns: {rows:#?}");
    let instances: BTreeSet<String> = metered
        .rows("lock,instance", "wait")
        .iter()
        .filter(|row| row["lock"] == lock.as_str())
        .map(|row| row["instance"].to_string())
        .collect();
    assert_eq!(instances.len(), 1, "one lock has one address: {instances:?}");
}

/// Makes sure that one address in two processes is not taken for one lock: nobody waits for a lock that no other process has, and none
/// moves.
#[test]
fn locks_at_one_address_of_memory_that_is_not_shared_stay_apart() {
    let metered = meter(&["--hold"], &["apart"]);
    assert_eq!(metered.rows("lock", "wait"), [Value::Null; 0]);
    let holds = metered.only_row("hold");
    assert_eq!(number(&holds, "count"), metered.known("acquisitions"));
    assert_eq!(number(&holds, "moved"), 0, "{holds:#}");
}

/// Makes sure that a holder that is killed leaves no wrong word: who waited for it waited for it or for nobody known, and who waited for
/// the one that came then waited for that.
#[test]
fn a_killed_holder_of_a_robust_mutex_is_blamed_for_its_own_time_alone() {
    let metered = meter(&["--hold"], &["killed"]);
    let rows = metered.rows("lock,blocker", "wait");
    let count =
        |is_it: &dyn Fn(&&Value) -> bool| rows.iter().filter(is_it).map(|row| number(row, "count")).sum::<u64>();
    let of = |row: &Value, user: &str| row["blocker"].to_string().contains(user);
    let rounds = metered.known("rounds");
    let of_killed = count(&|row| row["blocker_source"] == "holder" && of(row, "die_with_it"));
    let of_next = count(&|row| row["blocker_source"] == "releaser" && of(row, "outlive_it"));
    let unknown = count(&|row| !["holder", "releaser"].contains(&row["blocker_source"].as_str().unwrap_or_default()));
    assert_eq!(of_killed + of_next + unknown, number(&metered.only_row("wait"), "count"), "{rows:#?}");
    assert!(of_next <= rounds && of_killed <= rounds, "{rounds} rounds: {rows:#?}");
    // Two wait in each round, unless the second comes only when the first has the lock already.
    let known = of_killed + of_next;
    assert!(known * 100 >= 2 * rounds * KNOWN_PERCENT && of_killed > 0 && of_next > 0, "{rounds} rounds: {rows:#?}");
}

/// Regression: it was in no table, for no call ends it.
#[test]
fn a_hold_that_ends_with_its_owner_is_a_hold() {
    for how in [&["--hold"][..], &["--hold", "--every"]] {
        let metered = meter(how, &["ended"]);
        let holds = metered.only_row("hold");
        assert_eq!(number(&holds, "count"), metered.known("rounds"), "{how:?}: {holds:#}");
        let held_ns = number(&holds, "total_ns");
        let known_ns = metered.known("held_ns")..=metered.known("all_ns");
        assert!(known_ns.contains(&held_ns), "{how:?}: {held_ns} ns, {known_ns:?}: {holds:#}");
        let of_callers = metered.rows("lock,caller", "hold");
        assert!(of_callers.iter().all(|row| row["caller"][0] == "end_with_it"), "{of_callers:#?}");
    }
}
