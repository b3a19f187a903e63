//! Rules: a program's own locks, taught by a file; the rules that lockmeter comes with, each on what it is about; and files that are none.

mod support;

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::recorder::Recorder;
use support::report::{json_report, report};
use support::{Folder, lockmeter, machine, run, skip, text, user_workload, wait, workload_sources};

/// The status of what is no readable input.
const BAD_INPUT: i32 = 4;

/// What is measured from outside may differ from what the program knows by so much of it.
const TOLERANCE_PERCENT: u64 = 10;

const NOBODY: u32 = 65534;

/// Five lines that teach a lock.
const FIVE_LINES: &str = "format = 1\n[[rule]]\nname = \"order book\"\nfunction = \"book_lock\"\nis = \"lock\"\n";

/// A folder of root's alone, for rules.
fn rules_folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn written(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let file = folder.path().join(name);
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    file.to_str().unwrap().to_owned()
}

/// The workload with its own locks, from outside: what it said, and the recording.
fn in_house_locks(folder: &Folder, flags: &[&str]) -> (Value, String) {
    let program = user_workload(folder.path(), "in-house-locks", &[]);
    let mut program = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let pid = program.id().to_string();
    let recorder = Recorder::start_all(folder, "recording", &[&["--user", "-p", &pid][..], flags].concat());
    std::thread::sleep(std::time::Duration::from_secs(2));
    drop(program.stdin.take());
    let mut said = String::new();
    program.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(wait(&mut program, "the program").success());
    (serde_json::from_str(&said).unwrap(), recorder.wait().recording())
}

fn ns(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// The waits for a lock in a report, and the functions that wait for it.
fn waits(report: &Value, lock: &str) -> (u64, Vec<String>) {
    let rows = report["rows"].as_array().unwrap().iter();
    let of_lock: Vec<&Value> = rows.filter(|row| row["lock"] == lock && row["happened"] == "wait").collect();
    let callers = of_lock.iter().filter_map(|row| row["caller"][0].as_str().map(str::to_owned)).collect();
    (of_lock.iter().map(|row| ns(&row["total_ns"])).sum(), callers)
}

fn sleeps<'a>(report: &'a Value, function: &str) -> Vec<&'a Value> {
    let all = report["threads"]["sleeps"].as_array().unwrap().iter();
    all.filter(|sleep| sleep["stack"].as_array().is_some_and(|stack| stack.iter().any(|name| name == function)))
        .collect()
}

/// What a recording of the workload must show, whenever the rules were given.
fn the_book_is_a_lock(said: &Value, recording: &str, flags: &[&str]) {
    let report = json_report(recording, &[&["--by", "lock,caller"], flags].concat());
    let (waited_ns, mut callers) = waits(&report, "order book");
    let known_ns = ns(&said["book_waited_ns"]);
    // The program began before the recorder, and ran on while it started.
    assert!(waited_ns <= known_ns * (100 + TOLERANCE_PERCENT) / 100 && waited_ns * 4 >= known_ns, "{said}\n{report:#}");
    callers.sort();
    assert_eq!(
        callers,
        ["audit_book", "take_order"],
        "the lock's own functions say nothing of who uses it\n{report:#}"
    );
    let blockers = support::report::report(recording, &[&["--by", "lock,blocker"], flags].concat());
    let blocker = blockers.rows.iter().find(|row| row.lock() == "order book" && row.blocker.is_some());
    let by = blocker.and_then(|row| row.blocker.as_ref()?.first().cloned());
    assert_eq!(by.as_deref(), Some("audit_book"), "{}", blockers.shown);
}

#[test]
fn a_program_s_own_locks_are_taught_by_a_file() {
    let Some(_machine) = machine("in-house locks") else { return };
    let folder = Folder::new();
    let rules = rules_folder();
    let source = workload_sources().join("user/in-house-locks.toml");
    let file = written(&rules, "in-house.toml", &fs::read_to_string(source).unwrap());
    let (said, recording) = in_house_locks(&folder, &["--rules", &file]);
    the_book_is_a_lock(&said, &recording, &["--rules", &file]);
    let report = json_report(&recording, &["--rules", &file]);
    // A lock in which threads sleep in no futex call is in the threads' time.
    let door: Vec<&Value> =
        report["threads"]["sleeps"].as_array().unwrap().iter().filter(|sleep| sleep["lock"] == "door").collect();
    // The lock's own functions say nothing of who uses it.
    let is_told = |sleep: &&Value| sleep["state"] == "user-lock" && sleep["stack"][0] == "serve_guest";
    assert!(!door.is_empty() && door.iter().all(is_told), "{report:#}");
    let pool = sleeps(&report, "next_job");
    assert!(!pool.is_empty() && pool.iter().all(|sleep| sleep["at_rest"] == true), "{report:#}");
    let sentence = report["head"]["sentence"].as_str().unwrap();
    assert!(sentence.contains("order book"), "{sentence}");
    // The recording says by which rules.
    let sets = report["rules"].as_array().unwrap();
    assert_eq!((&sets[0]["name"], &sets[0]["version"]), (&"in-house locks".into(), &"1".into()), "{sets:?}");
    assert_eq!(sets[1]["name"], "lockmeter");
    let (waited_ns, _) = waits(&report, "order book");
    the_trial_shows_what_each_rule_matches(&rules, &file, &recording, waited_ns);
    // The one that reads it without them is told.
    let warned = |flags: &[&str]| {
        let mut report = lockmeter(["report", &recording]);
        report.args(flags);
        text(&run(report).stderr).contains("rules that are not in use now: in-house locks 1 (")
    };
    assert!(warned(&[]) && !warned(&["--rules", &file]));
}

/// The recording was made with the same rules; one more overlaps, one never matches, one asks for what is not so.
fn the_trial_shows_what_each_rule_matches(
    folder: &tempfile::TempDir,
    file: &str,
    recording: &str,
    book_waited_ns: u64,
) {
    let more = "[[rule]]\nname = \"all books\"\nfunction = \"audit_*\"\nis = \"lock\"\n\
                [[rule]]\nname = \"nothing\"\nfunction = \"no_such_function\"\nis = \"lock\"\n\
                [[rule]]\nname = \"elsewhere\"\nfunction = \"book_lock\"\nfile = \"other-program\"\nis = \"lock\"\n";
    let tried = written(folder, "tried.toml", &(fs::read_to_string(file).unwrap() + more));
    let output = run(lockmeter(["rules", "test", &tried, recording, "--format", "json"]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let trial: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |name: &str| trial["rules"].as_array().unwrap().iter().find(|rule| rule["rule"] == name).unwrap().clone();
    let book = of("order book");
    let share_ppm = ns(&book["waited_ns"]) * 1_000_000 / ns(&trial["waited_ns"]);
    // The report gives the waits without a stack to those with one.
    let off_ns = ns(&book["waited_ns"]).abs_diff(book_waited_ns);
    assert!(off_ns * 100 <= book_waited_ns * TOLERANCE_PERCENT, "{book_waited_ns} in the report\n{trial:#}");
    assert!(book_waited_ns > 0 && ns(&book["waited_ppm"]) == share_ppm && ns(&book["stacks"]) > 0, "{trial:#}");
    assert!(ns(&of("door")["asleep_ns"]) > 0, "{trial:#}");
    let overlapping = of("all books");
    assert_eq!(overlapping["overlaps"][0]["rule"], "order book", "{trial:#}");
    let why = |name: &str| of(name)["unmatched"].as_str().unwrap_or_default().to_owned();
    assert!(
        why("nothing").contains("on no stack") && why("elsewhere").contains("its function is on stacks"),
        "{trial:#}"
    );
    let table = text(&run(lockmeter(["rules", "test", &tried, recording])).stdout);
    assert!(table.contains("overlaps with order book (") && table.contains("never matched"), "{table}");
}

/// Five lines given only when the recording is read show the same as if they had been known when it was made.
#[test]
fn a_recording_is_read_again_with_other_rules() {
    let Some(_machine) = machine("a recording read again") else { return };
    let folder = Folder::new();
    let rules = rules_folder();
    let five = written(&rules, "five.toml", FIVE_LINES);
    let (said, recording) = in_house_locks(&folder, &[]);
    let before = json_report(&recording, &[]);
    assert_eq!(waits(&before, "order book").0, 0, "nobody taught it");
    let with_release = written(&rules, "release.toml", &format!("{FIVE_LINES}release = \"book_unlock\"\n"));
    the_book_is_a_lock(&said, &recording, &["--rules", &with_release]);
    // Nothing comes or goes: what became waits for the lock was waits for an untold futex.
    let idle = |flags: &[&str]| {
        let rows = report(&recording, &[&["--kind", "futex"], flags].concat()).rows;
        rows.iter().map(|row| row.total_ns).sum::<u64>()
    };
    let read_again = json_report(&recording, &["--rules", &five]);
    assert_eq!(idle(&[]), idle(&["--rules", &five]) + waits(&read_again, "order book").0);
    let sleeps = sleeps(&read_again, "book_lock");
    assert!(
        sleeps.iter().all(|sleep| sleep["state"] == "user-lock" && sleep["lock"] == "order book"),
        "{read_again:#}"
    );
}

#[test]
fn all_rules_are_listed_with_where_they_come_from() {
    let rules = rules_folder();
    let file = written(&rules, "shop.toml", FIVE_LINES);
    let output = run(lockmeter(["rules", "list", "--rules", &file, "--format", "json"]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let first = &list["rules"][0];
    assert_eq!((&first["name"], &first["line"], &first["file"]), (&"order book".into(), &2.into(), &file.into()));
    let names: Vec<&str> = list["rules"].as_array().unwrap().iter().filter_map(|rule| rule["name"].as_str()).collect();
    for name in ["PostgreSQL heavyweight lock", "InnoDB row lock", "GIL", "malloc arena"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let table = text(&run(lockmeter(["rules", "list"])).stdout);
    assert!(
        table.starts_with("lockmeter 7 (") && table.contains("ProcSleep in postgres  (postgresql.toml:"),
        "{table}"
    );
}

// ---- files that are none ---------------------------------------------------------------------------------------------

/// Fails unless every command that takes rules refuses this file with one sentence that has all these parts.
fn is_refused(file: &str, parts: &[&str]) {
    for command in [
        &["rules", "list", "--rules", file][..],
        &["rules", "test", file, "/dev/null"],
        &["report", "--rules", file, "/dev/null"],
        &["record", "--rules", file, "-o", "/dev/null", "--user", "-d", "1ms", "-p", "1"],
        &["diff", "--rules", file, "/dev/null", "/dev/null"],
        &["predict", "--rules", file, "/dev/null"],
    ] {
        let mut line = lockmeter([]);
        line.args(command);
        let output = run(line);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(BAD_INPUT), "{command:?} said:\n{said}");
        assert_eq!(said.lines().count(), 1, "{command:?} said more than a sentence:\n{said}");
        assert!(said.starts_with("lockmeter: ") && parts.iter().all(|part| said.contains(part)), "{parts:?}:\n{said}");
    }
}

#[test]
fn a_rule_that_makes_no_sense_is_refused_with_its_line() {
    let folder = rules_folder();
    for (text, parts) in [
        (FIVE_LINES.replace("is = \"lock\"", "is = lock"), &["line 5"][..]),
        (FIVE_LINES.replace("book_lock", "*"), &["line 4", "matches everything"]),
        (FIVE_LINES.replace("book_lock", "*_*t*"), &["line 4", "matches every stack"]),
        (format!("{FIVE_LINES}kind = \"mutx\"\n"), &["line 6", "no kind `mutx`", "mutex"]),
        (FIVE_LINES.replace("format = 1", "format = 7"), &["format 7", "reads format 1"]),
        (FIVE_LINES.replace("format = 1", ""), &["format = 1"]),
    ] {
        is_refused(&written(&folder, "bad.toml", &text), &[&["bad.toml"], parts].concat());
    }
    is_refused(folder.path().join("absent.toml").to_str().unwrap(), &["absent.toml", "No such file"]);
    is_refused(folder.path().to_str().unwrap(), &["is not a file"]);
    is_refused("/dev/zero", &["is not a file"]);
    let pipe = folder.path().join("pipe.toml");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    is_refused(pipe.to_str().unwrap(), &["is not a file"]);
    let huge = FIVE_LINES.to_owned() + &"# more\n".repeat(64 << 10);
    is_refused(&written(&folder, "huge.toml", &huge), &["larger than the 256 KiB"]);
    fs::write(folder.path().join("binary.toml"), [0xff, 0xfe, 0, 1]).unwrap();
    is_refused(folder.path().join("binary.toml").to_str().unwrap(), &["not UTF-8 text"]);
}

#[test]
fn root_reads_only_rules_of_root() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("rules of another user", "only root can give files away");
    }
    let folder = rules_folder();
    let give = |file: &str| chown(file, Some(NOBODY), Some(NOBODY)).unwrap();
    let foreign = written(&folder, "foreign.toml", FIVE_LINES);
    give(&foreign);
    is_refused(&foreign, &["belongs to user 65534", "chown root"]);
    let open = written(&folder, "open.toml", FIVE_LINES);
    fs::set_permissions(&open, Permissions::from_mode(0o666)).unwrap();
    is_refused(&open, &["may be written by others", "chmod go-w"]);
    // The one that owns a folder can replace what is in it; a link does not hide that.
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("rules.toml"), FIVE_LINES).unwrap();
    give(inner.to_str().unwrap());
    is_refused(inner.join("rules.toml").to_str().unwrap(), &["lies in ", "inner", "belongs to user 65534"]);
    let link = folder.path().join("link.toml");
    std::os::unix::fs::symlink(inner.join("rules.toml"), &link).unwrap();
    is_refused(link.to_str().unwrap(), &["inner", "belongs to user 65534"]);
    chown(&inner, Some(0), Some(0)).unwrap();
    fs::set_permissions(&inner, Permissions::from_mode(0o777)).unwrap();
    is_refused(inner.join("rules.toml").to_str().unwrap(), &["inner", "may be written by others"]);
    fs::set_permissions(&inner, Permissions::from_mode(0o755)).unwrap();
    let output = run(lockmeter(["rules", "list", "--rules", link.to_str().unwrap()]));
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// The machine's own rules count without a flag, in the order of their files' names; a bad one is named.
#[test]
fn rules_of_the_machine_count_without_a_flag() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("rules of the machine", "only root can mount");
    }
    let folder = rules_folder();
    let binary = env!("CARGO_BIN_EXE_lockmeter");
    let list = |files: &[(&str, &str)]| {
        let made = folder.path().join("rules.d");
        let _ = fs::remove_dir_all(&made);
        fs::create_dir(&made).unwrap();
        files.iter().for_each(|(name, text)| fs::write(made.join(name), text).unwrap());
        in_own_etc(&made, binary)
    };
    let second = FIVE_LINES.replace("order book", "second");
    let output = list(&[("20-b.toml", &second), ("10-a.toml", FIVE_LINES), ("readme.txt", "none")]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let at = |what: &str| said.find(what).unwrap_or_else(|| panic!("no {what}:\n{said}"));
    assert!(at("10-a") < at("20-b") && at("20-b") < at("lockmeter 7"), "{said}");
    let output = list(&[("10-a.toml", "format = 1\n[[rule]]\n")]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(BAD_INPUT), "{said}");
    assert!(said.contains("/etc/lockmeter/rules.d/10-a.toml, line 2: missing field `is`"), "{said}");
}

/// `lockmeter rules list` in a mount namespace of its own, where this folder is `/etc/lockmeter/rules.d`.
fn in_own_etc(folder: &Path, binary: &str) -> std::process::Output {
    let script = "mount -t tmpfs none /etc && mkdir -p /etc/lockmeter/rules.d && cp \"$1\"/* /etc/lockmeter/rules.d && \"$2\" rules list";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script, "sh"]).arg(folder).arg(binary);
    run(command)
}

// ---- shipped rules on what they are about ----------------------------------------------------------------------------

/// What a program that runs until its input ends waits for, by the threads' time: the names of its locks, with their time.
fn locks_of(folder: &Folder, program: &mut Command) -> Vec<(String, u64)> {
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let locks = locks_of_process(folder, program.id());
    drop(program.stdin.take());
    wait(&mut program, "the program");
    locks
}

fn locks_of_process(folder: &Folder, pid: u32) -> Vec<(String, u64)> {
    let recorder = Recorder::start_all(folder, "shipped", &["--user", "-p", &pid.to_string(), "-d", "2s"]);
    let report = json_report(&recorder.wait().recording(), &[]);
    let sleeps = report["threads"]["sleeps"].as_array().unwrap().iter();
    let of_locks = sleeps.filter(|sleep| sleep["state"] == "user-lock" || sleep["state"] == "file-lock");
    of_locks.filter_map(|sleep| Some((sleep["lock"].as_str()?.to_owned(), ns(&sleep["total_ns"])))).collect()
}

fn most_waited_for(locks: &[(String, u64)]) -> &str {
    locks.iter().max_by_key(|(_, ns)| *ns).map_or("nothing", |(lock, _)| lock)
}

#[test]
fn locks_inside_the_c_library_are_named_by_what_they_guard() {
    let Some(_machine) = machine("locks of the C library") else { return };
    let folder = Folder::new();
    let source = workload_sources().join("../bench/real-programs/programs/c-library-locks.c");
    let program = folder.path().join("c-library-locks");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-pthread", "-o"]).arg(&program).arg(source);
    assert!(run(compiler).status.success());
    for (how, name) in [("arena", "malloc arena"), ("stdio", "stdio stream")] {
        let locks = locks_of(&folder, Command::new(&program).arg(how));
        assert_eq!(most_waited_for(&locks), name, "{locks:?}");
    }
}

/// Four threads with a connection each write to one database. Its functions have no names but those that it exports.
const SQLITE: &str = "
import sqlite3, sys, threading, time
def write():
    base = sqlite3.connect(sys.argv[1], timeout=100, isolation_level=None)
    while not over:
        base.execute('begin immediate')
        time.sleep(0.02)
        base.execute('commit')
over = False
sqlite3.connect(sys.argv[1]).execute('create table orders (id integer)')
threads = [threading.Thread(target=write) for _ in range(4)]
[thread.start() for thread in threads]
sys.stdin.read()
over = True
";

#[test]
fn a_database_of_sqlite_that_another_connection_has_is_a_lock() {
    let Some(_machine) = machine("SQLite's lock") else { return };
    let python = || Command::new("/usr/bin/python3");
    let has_sqlite = python().args(["-c", "import sqlite3"]).stderr(Stdio::null()).status();
    if !has_sqlite.is_ok_and(|status| status.success()) {
        return skip("SQLite's lock", "/usr/bin/python3 has no sqlite3");
    }
    let folder = Folder::new();
    let locks = locks_of(&folder, python().args(["-c", SQLITE]).arg(folder.file("shop.db")));
    assert_eq!(most_waited_for(&locks), "SQLite database lock", "{locks:?}");
}

/// Sixteen clients update one row of a real server: the report names the row's lock, and who asks for it.
#[test]
fn the_lock_of_a_hot_row_of_postgresql_is_named() {
    let Some(_machine) = machine("PostgreSQL's hot row") else { return };
    let Some(server) = PostgreSql::start() else { return skip("PostgreSQL's hot row", "postgresql is not installed") };
    let folder = Folder::new();
    let locks = locks_of_process(&folder, server.server.id());
    assert_eq!(most_waited_for(&locks), "PostgreSQL heavyweight lock", "{locks:?}");
}

/// A server with sixteen clients; killed when dropped.
struct PostgreSql {
    server: std::process::Child,
    load: std::process::Child,
    _folder: tempfile::TempDir,
}

impl PostgreSql {
    /// In the name of the socket: nothing listens on the network.
    const PORT: &str = "5496";

    fn start() -> Option<Self> {
        let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|version| version.path().join("bin"));
        let programs = versions.filter(|bin| bin.join("pgbench").exists()).max()?;
        let folder = tempfile::tempdir().unwrap();
        let at = &folder.path().to_owned();
        assert!(Command::new("chown").arg("postgres").arg(at).status().unwrap().success());
        let as_postgres = |program: &str| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--pdeathsig=QUIT"]);
            command.arg(programs.join(program)).current_dir("/").stdin(Stdio::null());
            command
        };
        let mut initdb = as_postgres("initdb");
        initdb.args(["-A", "trust", "-N", "-D"]).arg(at.join("data"));
        let made = run(initdb);
        assert!(made.status.success(), "{}", text(&made.stderr));
        let mut server = as_postgres("postgres");
        server.arg("-D").arg(at.join("data")).arg("-k").arg(at).args(["-p", Self::PORT, "-c", "listen_addresses="]);
        let server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let of_client = |program: &str| {
            let mut command = Command::new(programs.join(program));
            command.args(["-U", "postgres", "-p", Self::PORT, "-h"]).arg(at).stdin(Stdio::null());
            command
        };
        support::until("PostgreSQL listens", || run(of_client("pg_isready")).status.success());
        let mut client = of_client("psql");
        client.args([
            "-X",
            "-q",
            "-c",
            "create table t (id int primary key, v bigint); insert into t values (1, 0);",
            "postgres",
        ]);
        assert!(run(client).status.success());
        let script = at.join("script");
        fs::write(&script, "UPDATE t SET v = v + 1 WHERE id = 1;\n").unwrap();
        let mut load = of_client("pgbench");
        load.args(["-n", "-c", "16", "-j", "2", "-T", "1000", "-f"]).arg(&script).arg("postgres");
        let load = load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let this = Self { server, load, _folder: folder };
        let waiting = "select count(*) >= 8 from pg_stat_activity where wait_event_type = 'Lock'";
        support::until("clients wait for the row", || {
            let mut client = of_client("psql");
            client.args(["-X", "-q", "-A", "-t", "-c", waiting, "postgres"]);
            text(&run(client).stdout).trim() == "t"
        });
        Some(this)
    }
}

impl Drop for PostgreSql {
    fn drop(&mut self) {
        let _ = self.load.kill();
        let _ = self.load.wait();
        // SAFETY: sends a signal to a child that was not waited for. SIGINT: a fast shutdown.
        unsafe { libc::kill(self.server.id() as i32, libc::SIGINT) };
        let _ = self.server.wait();
    }
}
