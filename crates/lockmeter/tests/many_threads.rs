//! What metering costs a program with many threads, locks or children: totals stay exact, and counts of instructions and page faults stay
//! below bounds. Times are measured by the benches.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::{Folder, lockmeter, preload_library, run, skip, text};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads");

/// Exit status of a program of `workloads/undisturbed` that ran to its end.
const RAN: i32 = 7;

fn build(folder: &Folder, source: &str) -> PathBuf {
    let source = Path::new(SOURCES).join(source);
    let program = folder.path().join(source.file_stem().unwrap());
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-pthread", "-o"]).arg(&program).arg(source);
    assert!(run(compiler).status.success());
    program
}

fn report(recording: &str) -> Value {
    let report = run(lockmeter(["report", "--by", "lock", "--format", "json", recording]));
    serde_json::from_slice(&report.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&report.stderr)))
}

/// How often the only lock of the program was held, and was waited for.
fn holds_and_waits(report: &Value) -> (u64, u64) {
    let count = |happened: &str| {
        let rows = report["rows"].as_array().unwrap().iter();
        rows.filter(|row| row["happened"] == happened).map(|row| row["count"].as_u64().unwrap()).sum()
    };
    (count("hold"), count("wait"))
}

const THREADS: u64 = 3_000;
/// The one that has the mutex yields: where all CPUs are busy, each round of each thread takes milliseconds, bare as well.
const ROUNDS: u64 = 2;

fn threads_and_rounds() -> [String; 3] {
    [THREADS.to_string(), "65536".to_owned(), ROUNDS.to_string()]
}

/// Regression: above 1,024 threads each event looked whether each thread still lived, and events were lost.
#[test]
fn of_thousands_of_threads_at_once_every_hold_is_counted() {
    let folder = Folder::new();
    let program = build(&folder, "undisturbed/threads-at-once.c");
    let recording = folder.file("recording");
    let mut command = lockmeter(["record", "--quiet", "--user", "--hold", "-o", &recording, "--"]);
    command.arg(program).args(threads_and_rounds()).env("LOCKMETER_PRELOAD", preload_library());
    let ended = run(command);
    assert_eq!(ended.status.code(), Some(RAN), "{}", text(&ended.stderr));
    assert_eq!(holds_and_waits(&report(&recording)).0, THREADS * ROUNDS);
}

/// Makes sure that threads for whose tables there is no memory count together: under the lock alone, and without a loss.
#[test]
fn threads_without_memory_for_their_tables_are_counted_under_the_lock() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("a small file system for a session", "not root");
    }
    let folder = Folder::new();
    let program = build(&folder, "undisturbed/threads-at-once.c");
    let recording = folder.file("recording");
    let runtime = folder.path().join("runtime");
    std::fs::create_dir(&runtime).unwrap();
    let script = r#"mount -t tmpfs -o size=20m,mode=700 none "$XDG_RUNTIME_DIR" && exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(lockmeter([""; 0]).get_program());
    command.args(["record", "--quiet", "--user", "--hold", "-o", &recording, "--"]);
    command.arg(program).args(threads_and_rounds());
    command.env("XDG_RUNTIME_DIR", &runtime).env("LOCKMETER_PRELOAD", preload_library());
    let ended = run(command);
    assert_eq!(ended.status.code(), Some(RAN), "{}", text(&ended.stderr));
    let report = report(&recording);
    assert_eq!(holds_and_waits(&report).0, THREADS * ROUNDS, "{}", report["lost"]);
    assert!(report["lost"]["user_sites_full"].as_u64().is_some_and(|events| events > 0), "{}", report["lost"]);
    // Regression: samples of threads took the last pages, and the mutex, of which none had been used before, found no place.
    assert_eq!(report["lost"]["user_locks_full"], Value::Null, "{}", report["lost"]);
}

/// Instructions of a run of `lock-makers`, and of the children that it forks, counted by valgrind. In a session with these flags, if any
/// are given.
fn instructions(
    folder: &Folder,
    program: &Path,
    arguments: &[&str],
    counted: &[&str],
    session: Option<&[&str]>,
) -> u64 {
    let counts = folder.path().join("counts");
    let _ = std::fs::remove_dir_all(&counts);
    std::fs::create_dir(&counts).unwrap();
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--quiet"]).args(counted);
    command.arg(format!("--callgrind-out-file={}/%p", counts.display()));
    let program: Vec<&str> = [program.to_str().unwrap()].into_iter().chain(arguments.iter().copied()).collect();
    if let Some(flags) = session {
        // Without a session the library would note nothing: this is the session of a program that waits.
        let recording = folder.file("recording");
        let mut holder = lockmeter(["record", "--quiet", "--user", "-o", &recording]);
        holder.args(flags).args(["--", "sh", "-c"]);
        holder.arg("echo \"$LOCKMETER_DIR\"; echo \"$LOCKMETER_SESSION\"; read line");
        holder.env("LOCKMETER_PRELOAD", preload_library());
        holder.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut holder = holder.spawn().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(holder.stdout.take().unwrap()));
        let mut next = || lines.next().unwrap().unwrap();
        // Valgrind itself must not have the library, nor would it pass it on.
        command.args(["--trace-children=yes", "env"]);
        command.arg(format!("LOCKMETER_DIR={}", next())).arg(format!("LOCKMETER_SESSION={}", next()));
        command.arg(format!("LD_PRELOAD={}", preload_library().display())).args(program);
        assert!(run(command).status.success());
        drop(holder.stdin.take());
        holder.wait().unwrap();
    } else {
        command.args(program);
        assert!(run(command).status.success());
    }
    let files = std::fs::read_dir(counts).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let totals = files.map(|counts| {
        let is_total = |line: &&str| line.starts_with("totals: ") || line.starts_with("summary: ");
        let total = counts.lines().find(is_total).unwrap();
        total.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    });
    totals.sum()
}

/// Makes sure that a program which makes locks by the million is not slowed down by where each was made: 2,200 ns each, once.
#[test]
fn a_lock_is_made_with_few_instructions_more() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skip("instructions of a lock that is made", "valgrind is missing (valgrind)");
    }
    let folder = Folder::new();
    let program = build(&folder, "user/lock-makers.c");
    const FEW: u32 = 10_000;
    const MANY: u32 = 30_000;
    let each = |session: Option<&[&str]>| {
        let all = |locks: u32| instructions(&folder, &program, &["init", &locks.to_string()], &[], session);
        (all(MANY) - all(FEW)) as f64 / f64::from(MANY - FEW)
    };
    let (bare, metered) = (each(None), each(Some(&[])));
    // With all optimisations twice as many at most; the library of the tests has a part of them.
    assert!(metered < 2.5 * bare, "{bare} and {metered} instructions for each lock");
    assert!(metered > bare, "the library was not there: {bare} and {metered}");
}

/// Makes sure that lockmeter itself does little in a process that forks, and in its child up to its first lock and its end.
#[test]
fn a_forked_childs_first_lock_takes_few_instructions() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skip("instructions of a forked child", "valgrind is missing (valgrind)");
    }
    let folder = Folder::new();
    let program = build(&folder, "user/lock-makers.c");
    let counted = ["--toggle-collect=fork_and_lock"];
    let all = |session| instructions(&folder, &program, &["fork", "1"], &counted, session);
    let (bare, metered) = (all(None), all(Some(&["--hold"])));
    assert!(metered > bare, "the library was not there: {bare} and {metered}");
    assert!(metered < bare + MOST_OF_A_CHILD, "{bare} and {metered} instructions");
}

/// Some 4 µs. It takes 15,000, a third of them in the loader, which looks for symbols in one library more; it once took 42,000.
const MOST_OF_A_CHILD: u64 = 20_000;

/// Makes sure that a forked child's first lock takes few page faults, which are what it costs.
#[test]
fn a_forked_childs_first_lock_takes_few_page_faults() {
    let folder = Folder::new();
    let program = build(&folder, "user/lock-makers.c");
    const CHILDREN: u64 = 200;
    let faults = |output: std::process::Output| {
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        said["faults"].as_f64().unwrap() / CHILDREN as f64
    };
    let arguments = ["fork".to_owned(), CHILDREN.to_string()];
    let mut bare = Command::new(&program);
    bare.args(&arguments);
    let bare = faults(run(bare));
    let recording = folder.file("recording");
    let mut metered = lockmeter(["record", "--quiet", "--user", "--hold", "-o", &recording, "--"]);
    metered.arg(&program).args(&arguments).env("LOCKMETER_PRELOAD", preload_library());
    let metered = faults(run(metered));
    assert_eq!(holds_and_waits(&report(&recording)).0, CHILDREN);
    // One for the library's data, one for the session's head, one for pages of its own, and two for the library's code. That of the tests is
    // not optimised as a whole: its code lies in four or five places.
    assert!(metered - bare < 11.0, "{bare} and {metered} page faults for each child");
}

/// Regression: pages of ended processes were left aside as long as there were new ones, so a session grew with each process; and what a
/// process recorded just before its end could be missed.
#[test]
fn children_by_the_thousand_are_counted_in_the_memory_of_a_few() {
    let folder = Folder::new();
    let program = build(&folder, "user/lock-makers.c");
    let recording = folder.file("recording");
    const CHILDREN: u64 = 10_000;
    /// What each takes at least; see the layout of the session's memory.
    const EACH_BYTES: u64 = 16 * 4096;
    let script = r#""$1" fork "$2" >/dev/null && stat -c %s "$LOCKMETER_DIR/memory""#;
    // Their pages are taken back before the interval is over.
    let mut command = lockmeter(["record", "--quiet", "--user", "--hold", "--interval", "1h", "-o", &recording, "--"]);
    command.args(["sh", "-c", script, "sh"]).arg(program).arg(CHILDREN.to_string());
    command.env("LOCKMETER_PRELOAD", preload_library());
    let ended = run(command);
    let bytes: u64 = text(&ended.stdout).trim().parse().unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let report = report(&recording);
    let counted = holds_and_waits(&report).0;
    // Where the machine was too busy for the recorder to keep up, it says for how many there was no memory.
    let without_memory = report["lost"]["user_child_unmetered"].as_u64().unwrap_or(0);
    assert_eq!(counted + without_memory, CHILDREN, "lost: {}", report["lost"]);
    // 20 to 62 MB, also beside eight busy loops. Where no pages are taken back it is all, 655 MB; where that waits for what the kernel
    // counted, 530 MB beside such loops.
    assert!(bytes < counted * EACH_BYTES / 4, "{bytes} bytes for {counted} children");
}
