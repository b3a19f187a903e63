//! Recordings that somebody made to keep their reader busy: each is refused in one sentence or read, in bounded memory, by
//! every command that reads recordings.

mod support;

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use lockmeter_fuzz::hostile_recordings as hostile;
use support::{Folder, lockmeter, text};

const BAD_INPUT: i32 = 4;

/// No command may take more memory for a recording of up to 10 MB.
const MOST_RESIDENT_KIB: i64 = 256 << 10;

/// What ends a command that would not end: far more than any takes, also unoptimised and on a busy machine.
const CPU_SECONDS: u64 = 120;

/// Every way to read a recording whose waits, or holds, it tells of.
const WAYS: &[&[&str]] = &[
    &["report"],
    &["report", "--by", "lock,task"],
    &["report", "--by", "caller,blocker", "--format", "json"],
    &["report", "--by", "instance,cgroup", "-n", "0"],
    &["report", "--format", "json"],
    &["report", "--format", "csv", "--by", "task"],
    &["report", "--format", "histogram"],
    &["report", "--format", "folded"],
    &["report", "--format", "pprof", "-o", "/dev/null"],
    &["report", "--histogram"],
    &["predict"],
];

/// Ends of a command: its status, what it said, and the most memory it had.
struct Ended {
    status: Option<i32>,
    said: String,
    resident_kib: i64,
}

/// Runs a command under a limit of CPU time.
fn run(arguments: &[&str]) -> Ended {
    let mut command = lockmeter([]);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
    // SAFETY: setrlimit is async-signal-safe and reads a struct on this stack.
    unsafe { command.pre_exec(limit_cpu) };
    measured(&mut command)
}

fn limit_cpu() -> std::io::Result<()> {
    let limit = libc::rlimit { rlim_cur: CPU_SECONDS, rlim_max: CPU_SECONDS };
    // SAFETY: the struct lives until the call returns.
    if unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) } == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
}

#[expect(clippy::zombie_processes, reason = "wait4 waits for it, and says what it took")]
fn measured(command: &mut Command) -> Ended {
    let mut child = command.spawn().unwrap();
    let mut said = Vec::new();
    std::io::Read::read_to_end(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    // SAFETY: all zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    let pid = i32::try_from(child.id()).unwrap();
    // SAFETY: both pointers are to locals that outlive the call; the child is ours and was not waited for.
    assert_eq!(unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) }, pid);
    let ended = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
    Ended { status: ended, said: text(&said), resident_kib: usage.ru_maxrss }
}

/// Fails unless every way to read the file ends within bounds, having shown it, or refused it in one sentence.
fn is_bounded(kind: &str, bytes: &[u8]) {
    assert!(bytes.len() <= 10_000_000, "{kind}: {} bytes", bytes.len());
    let folder = Folder::new();
    let file = folder.file("hostile.lockmeter");
    fs::write(&file, bytes).unwrap();
    for way in WAYS {
        let mut arguments = way.to_vec();
        arguments.push(&file);
        check(kind, &arguments);
    }
    check(kind, &["diff", &file, &file]);
}

fn check(kind: &str, arguments: &[&str]) {
    let ended = run(arguments);
    let shown = format!("{kind}: {arguments:?} ended with {:?} and said: {}", ended.status, ended.said);
    assert!(ended.resident_kib <= MOST_RESIDENT_KIB, "{} KiB; {shown}", ended.resident_kib);
    // 2: a flag that does not apply to what is recorded.
    assert!(matches!(ended.status, Some(0 | 1 | 2 | BAD_INPUT)), "{shown}");
    assert!(!ended.said.contains("panicked"), "{shown}");
    let errors = ended.said.lines().filter(|line| line.starts_with("lockmeter: ")).count();
    assert!(errors == usize::from(ended.status != Some(0)), "{shown}");
}

fn refuses(bytes: &[u8], arguments: &[&str], parts: &[&str]) {
    let folder = Folder::new();
    let file = folder.file("hostile.lockmeter");
    fs::write(&file, bytes).unwrap();
    let mut arguments = arguments.to_vec();
    arguments.push(&file);
    let ended = run(&arguments);
    assert_eq!(ended.status, Some(BAD_INPUT), "{arguments:?}: {}", ended.said);
    assert!(ended.resident_kib <= MOST_RESIDENT_KIB, "{} KiB", ended.resident_kib);
    assert!(parts.iter().all(|part| ended.said.contains(part)), "{}", ended.said);
    assert_eq!(ended.said.lines().count(), 1, "{}", ended.said);
}

/// Makes sure that no number of a recording sizes the model: 207 bytes took 7.9 GB and did not end.
#[test]
fn numbers_that_size_the_model_are_refused() {
    let second_ns = 1_000_000_000;
    refuses(&hostile::one_hold(u32::MAX.into(), second_ns, 1_000), &["predict"], &["4294967295 CPUs", "--threads"]);
    refuses(&hostile::one_hold(2, 1, u64::MAX), &["predict"], &["threads at a time", "1024"]);
    is_bounded("a crowd", &hostile::crowd(1024));
    for (cpus, duration_ns, held_ns) in
        [(2, 0, 0), (0, u64::MAX, u64::MAX), (1024, second_ns, 0), (2, second_ns, 1_000 * second_ns)]
    {
        is_bounded("numbers", &hostile::one_hold(cpus, duration_ns, held_ns));
    }
}

/// Makes sure of it for 258 KB of empty locks, which took 17 s, and whatever else compresses as well.
#[test]
fn what_inflates_or_decodes_to_far_more_than_it_is_is_refused() {
    refuses(&hostile::empty_locks(258_000), &["report"], &["entries and frames"]);
    refuses(&hostile::inflating(258_000), &["report"], &["bytes once inflated"]);
    refuses(&hostile::deep_stacks(1_000, 1_000, 258_000), &["report"], &["entries and frames"]);
    refuses(&hostile::long_name(1 << 20, 2_000, 1), &["report"], &["bytes of names"]);
    is_bounded("empty locks", &hostile::empty_locks(9_000_000));
    is_bounded("empty intervals", &hostile::empty_intervals(1_000_000));
}

/// Makes sure of it for a million distinct rows, which took 28 s and 2.6 GB.
#[test]
fn a_million_rows_are_refused_where_they_are_asked_for() {
    let tasks = hostile::distinct_tasks(1_000_000, 1);
    refuses(&tasks, &["report", "--by", "task"], &["different locks, tasks and stacks", "--window"]);
    is_bounded("tasks", &tasks);
    is_bounded("tasks that hold", &hostile::distinct_tasks(100_000, 2));
    is_bounded("locks", &hostile::distinct_locks(600_000, 1));
    is_bounded("locks that are held", &hostile::distinct_locks(100_000, 2));
}

#[test]
fn rows_with_much_in_each_are_bounded() {
    is_bounded("histograms", &hostile::wide_histograms(200_000));
    is_bounded("a long name", &hostile::long_name(100_000, 1_000, 1));
    is_bounded("long runs", &hostile::long_runs(2_000, 200));
    is_bounded("what ran", &hostile::distinct_locks(200_000, 3));
    is_bounded("deep stacks", &hostile::deep_stacks(16, 30_000, 2_000_000));
}

/// Makes sure that the bounds leave room for what a large machine records.
#[test]
fn two_hundred_thousand_stacks_are_shown() {
    let folder = Folder::new();
    let file = folder.file("large.lockmeter");
    let bytes = hostile::distinct_stacks(200_000, 20, 10_000);
    assert!(bytes.len() < 10_000_000, "{}", bytes.len());
    fs::write(&file, bytes).unwrap();
    for way in
        [&["report", "--by", "lock,caller", &file][..], &["report", "--format", "folded", &file], &["report", &file]]
    {
        let ended = run(way);
        assert_eq!(ended.status, Some(0), "{way:?}: {}", ended.said);
        assert!(ended.resident_kib <= MOST_RESIDENT_KIB, "{way:?}: {} KiB", ended.resident_kib);
    }
}
