//! Whatever is wrong with what the user gives, one clear sentence says so, the status is the documented one, and nothing
//! that was recorded is lost.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use lockmeter_fuzz::hostile_recordings::RecordingBytes;
use support::recorder::Recorder;
use support::report::report;
use support::{Folder, Load, PATIENCE, copy_program, lockmeter, machine, run, text, workload_path};

/// The statuses of `lockmeter --help` and `src/exit.rs`.
const FAILED: i32 = 1;
const USAGE: i32 = 2;
const NOT_ALLOWED: i32 = 3;
const BAD_INPUT: i32 = 4;
const NO_TARGET: i32 = 5;
const NO_OUTPUT: i32 = 6;

/// The head of a recording: magic, version, CRC-32 of both (docs/reference/file-format.md).
const VERSION_AT: usize = 8;
const HEAD_CRC_AT: usize = 12;

/// A lockmeter command line of any length.
fn line(arguments: &[&str]) -> Command {
    let mut command = lockmeter([]);
    command.args(arguments);
    command
}

/// Fails unless the command ended with this status and said one sentence: one line that begins with `lockmeter: `, or what
/// clap says about a command line. The sentence must hold all these parts.
fn refuses(command: Command, status: i32, parts: &[&str]) -> Output {
    let shown = format!("{command:?}");
    let output = run(command);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{shown} ended with {} and said:\n{said}", output.status);
    is_one_sentence(&shown, &said);
    for part in parts {
        assert!(said.contains(part), "{shown} did not say `{part}`:\n{said}");
    }
    output
}

fn is_one_sentence(shown: &str, said: &str) {
    assert!(!said.contains("panicked"), "{shown} panicked:\n{said}");
    let sentences: Vec<&str> =
        said.lines().filter(|line| line.starts_with("lockmeter: ") || line.starts_with("error: ")).collect();
    assert_eq!(sentences.len(), 1, "{shown} did not say one sentence:\n{said}");
    let by_clap = sentences[0].starts_with("error: ") && said.contains("--help");
    assert!(by_clap || said.lines().count() == 1, "{shown} said more than one line:\n{said}");
}

/// Runs a shell script in a mount namespace of its own, in which it may mount what it likes.
fn in_own_mounts(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script]).stdin(Stdio::null());
    command
}

const BINARY: &str = env!("CARGO_BIN_EXE_lockmeter");

// ---- privileges and the kernel ---------------------------------------------------------------------------------------

/// Makes sure that a user without privileges learns what is missing and how to get it, whatever the command.
#[test]
fn without_root_the_missing_privilege_is_named() {
    let Some(_machine) = machine("without root") else { return };
    let folder = Folder::new();
    let program = folder.file("lockmeter");
    // The build folder may be closed to others.
    copy_program(BINARY, &program);
    for flags in [&["record", "-a", "-d", "1s", "-o", "/dev/null"][..], &["top", "-d", "1s"]] {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"])
            .arg(&program)
            .args(flags);
        refuses(command, NOT_ALLOWED, &["root", "CAP_BPF", "CAP_PERFMON", "CAP_SYSLOG"]);
    }
    let mut doctor = Command::new("setpriv");
    doctor
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"])
        .arg(&program)
        .arg("doctor");
    let output = run(doctor);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(NOT_ALLOWED), "{said}");
    assert!(said.contains("CAP_BPF") && said.contains("-> "), "the doctor names no fix:\n{said}");
}

/// Regression: who could meter a program from outside only, and may not, was not told why that was tried.
#[test]
fn without_root_a_program_that_cannot_be_metered_from_inside_is_said_to_be_one() {
    let Some(_machine) = machine("a static program without root") else { return };
    let folder = Folder::new();
    let (source, program) = (folder.file("nothing.c"), folder.file("nothing"));
    fs::write(&source, "int main(void) { return 0; }").unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-static", "-o", &program, &source]);
    assert!(run(compiler).status.success());
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_admin,-bpf,-perfmon", "--inh-caps=-all", "--", BINARY]);
    command.args(["record", "--user", "-o", "/dev/null", "--", &program]);
    refuses(command, NOT_ALLOWED, &["linked statically", "not from outside either", "CAP_BPF"]);
}

/// Makes sure that a user who may not meter from outside learns what to run for a program of another user.
#[test]
fn without_privileges_a_program_of_another_user_is_to_be_metered_by_that_user() {
    let Some(_machine) = machine("a program of another user without privileges") else { return };
    let command = ["su", "nobody", "-s", "/bin/sh", "-c", "true"];
    for (flags, parts) in [
        (&[][..], &["another user", "not from outside either", "CAP_BPF"][..]),
        (&["--user"], &["another user", "not from outside either", "CAP_BPF"]),
    ] {
        let mut record = Command::new("setpriv");
        record.args(["--bounding-set=-sys_admin,-bpf,-perfmon", "--inh-caps=-all", "--", BINARY, "record"]);
        record.args(flags).args(["-o", "/dev/null", "--"]).args(command);
        refuses(record, NOT_ALLOWED, &[parts, &["run `su ... lockmeter record ... -- PROGRAM`"]].concat());
    }
    let mut record = Command::new(BINARY);
    record.args(["record", "--user", "--hold", "-o", "/dev/null", "--"]).args(command);
    refuses(record, FAILED, &["another user", "leave --hold out", "run `su ... lockmeter record ... -- PROGRAM`"]);
}

/// Makes sure that root without the capabilities is told the same as anybody else.
#[test]
fn root_without_capabilities_is_told_which_are_missing() {
    let Some(_machine) = machine("root without capabilities") else { return };
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_admin,-bpf,-perfmon", "--inh-caps=-all", "--", BINARY]);
    command.args(["record", "-a", "-d", "1s", "-o", "/dev/null"]);
    refuses(command, NOT_ALLOWED, &["CAP_BPF", "CAP_PERFMON"]);
}

/// Makes sure that a kernel without BTF is named as the cause.
#[test]
fn a_kernel_without_type_information_is_named_as_the_cause() {
    let Some(_machine) = machine("no BTF") else { return };
    let folder = Folder::new();
    let hidden = format!("mount --bind {} /sys/kernel/btf; exec {BINARY}", folder.path().display());
    refuses(in_own_mounts(&format!("{hidden} record -a -d 1s -o /dev/null")), NOT_ALLOWED, &["BTF"]);
    let doctor = run(in_own_mounts(&format!("{hidden} doctor")));
    assert_eq!(doctor.status.code(), Some(NOT_ALLOWED), "{}", text(&doctor.stdout));
    assert!(text(&doctor.stdout).contains("CONFIG_DEBUG_INFO_BTF"), "{}", text(&doctor.stdout));
}

/// Makes sure that tracefs is not needed.
#[test]
fn without_tracefs_everything_works() {
    let Some(_machine) = machine("no tracefs") else { return };
    let folder = Folder::new();
    let file = folder.file("recording");
    let hidden =
        "for m in $(awk '$3 == \"tracefs\" || $3 == \"debugfs\" { print $2 }' /proc/mounts); do umount -l $m; done";
    let output = run(in_own_mounts(&format!("{hidden}; exec {BINARY} record -q -a -d 300ms -o {file}")));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(report(&file, &[]).duration_ns > 0);
}

/// Makes sure that a machine without the unified hierarchy is told how to mount it.
#[test]
fn without_a_unified_hierarchy_a_control_group_cannot_be_metered_and_the_mend_is_said() {
    let Some(_machine) = machine("no cgroup2") else { return };
    let hidden = "for m in $(awk '$3 == \"cgroup2\" { print $2 }' /proc/mounts); do umount -l $m; done";
    let command = in_own_mounts(&format!("{hidden}; exec {BINARY} record --cgroup /x -d 1s -o /dev/null"));
    refuses(command, NO_TARGET, &["mount -t cgroup2"]);
}

// ---- targets ---------------------------------------------------------------------------------------------------------

/// Makes sure that a process id that is none is refused, each for its reason.
#[test]
fn a_bad_process_id_is_refused() {
    let Some(_machine) = machine("bad PID") else { return };
    let record = |pid: &str| line(&["record", "-d", "1s", "-o", "/dev/null", "-p", pid]);
    // Beyond what the kernel hands out (PID_MAX_LIMIT is 4,194,304).
    refuses(record("4194305"), NO_TARGET, &["4194305"]);
    refuses(record("2147483648"), NO_TARGET, &["2147483648"]);
    refuses(record("4294967295"), NO_TARGET, &["4294967295"]);
    refuses(record("99999999999"), USAGE, &["99999999999"]);
    refuses(record("-1"), USAGE, &[]);
    refuses(record("nginx"), USAGE, &["nginx"]);
    refuses(line(&["top", "-d", "1s", "-p", "4194305"]), NO_TARGET, &["4194305"]);
}

/// Makes sure that 0, which is no process, is not taken for a thread or for everything.
#[test]
fn process_id_0_is_refused_as_what_it_is() {
    let Some(_machine) = machine("PID 0") else { return };
    let output = run(line(&["record", "-d", "1s", "-o", "/dev/null", "-p", "0"]));
    let said = text(&output.stderr);
    assert!(matches!(output.status.code(), Some(USAGE | NO_TARGET)), "{}: {said}", output.status);
    is_one_sentence("record -p 0", &said);
    assert!(!said.contains("is a thread"), "0 is no thread: {said}");
}

/// Makes sure that a thread's id is told from a process's.
#[test]
fn the_id_of_a_thread_is_refused_as_one() {
    let Some(_machine) = machine("PID of a thread") else { return };
    // The test harness runs this in a thread that is not the process's first.
    // SAFETY: takes nothing and returns a number.
    let thread = unsafe { libc::gettid() }.to_string();
    assert_ne!(thread, std::process::id().to_string());
    let command = line(&["record", "-d", "1s", "-o", "/dev/null", "-p", &thread]);
    refuses(command, NO_TARGET, &["thread", &thread]);
}

/// Makes sure that a process that has just exited is refused, and one that exits a moment later is no error.
#[test]
fn a_process_that_exits_is_no_error_once_metering_has_begun() {
    let Some(_machine) = machine("PID that exits") else { return };
    let folder = Folder::new();
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    refuses(line(&["record", "-o", "/dev/null", "-p", &gone.id().to_string()]), NO_TARGET, &[]);

    // Ends with its input.
    let mut short = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let recorder = Recorder::start(&folder, "recording", &["-p", &short.id().to_string(), "-d", "1h"]);
    drop(short.stdin.take());
    // Before the recorder, for a process that nobody has waited for is still there.
    short.wait().unwrap();
    let ended = recorder.wait();
    assert!(!ended.stderr.contains("no end"), "{}", ended.stderr);
    report(&ended.recording(), &[]);
}

/// Makes sure that what is no control group is refused, and the answer says where they are.
#[test]
fn an_unknown_control_group_is_refused() {
    let Some(_machine) = machine("unknown control group") else { return };
    let record = |path: &str| line(&["record", "-d", "1s", "-o", "/dev/null", "--cgroup", path]);
    for path in ["/no/such/group", "/etc", "/../../../etc", "/cgroup.procs"] {
        refuses(record(path), NO_TARGET, &["control group"]);
    }
}

/// Makes sure that one scope is asked for, and that nothing starts when two are.
#[test]
fn several_scopes_at_once_are_refused() {
    let folder = Folder::new();
    let marker = folder.file("started");
    for flags in [
        &["record", "-a", "-p", "1"][..],
        &["record", "-a", "--cgroup", "/"],
        &["record", "-p", "1", "--cgroup", "/"],
        &["record", "--cgroup", "/", "--", "touch", &marker],
        &["record", "-p", "1", "--", "touch", &marker],
        &["top", "-a", "-p", "1"],
    ] {
        refuses(line(flags), USAGE, &["-a", "-p PID"]);
    }
    assert!(!Path::new(&marker).exists(), "the command was started");
}

// ---- the output ------------------------------------------------------------------------------------------------------

/// Makes sure that a place that cannot be written to is refused, by its name.
#[test]
fn an_output_that_cannot_be_written_is_refused() {
    let Some(_machine) = machine("unwritable output") else { return };
    let folder = Folder::new();
    let record = |path: &str| line(&["record", "-a", "-d", "1s", "-o", path]);
    let here = folder.path().to_str().unwrap().to_owned();
    refuses(record("/proc/x"), NO_OUTPUT, &["/proc/x"]);
    refuses(record(&here), NO_OUTPUT, &["directory"]);
    refuses(record("/no/such/folder/x"), NO_OUTPUT, &["/no/such/folder/x"]);
    refuses(record("/dev/full"), NO_OUTPUT, &["/dev/full"]);
    refuses(record("/sys/kernel/x"), NO_OUTPUT, &["/sys/kernel/x"]);
    refuses(record(""), USAGE, &[]);
}

/// Makes sure that a recording into a device, which cannot be read back, is no error: who wants just to meter gets no report
/// and no complaint.
#[test]
fn a_recording_into_a_device_is_no_error() {
    let Some(_machine) = machine("recording into a device") else { return };
    let output = run(line(&["record", "-a", "-d", "300ms", "-o", "/dev/null"]));
    assert!(output.status.success(), "into /dev/null: {}\n{}", output.status, text(&output.stderr));
}

/// Makes sure that a recording into a pipe ends, and arrives whole.
#[test]
fn a_recording_into_a_pipe_arrives_and_ends() {
    let Some(_machine) = machine("recording into a pipe") else { return };
    let folder = Folder::new();
    let (pipe, copy, limit_s) = (folder.file("pipe"), folder.file("copy"), PATIENCE.as_secs() / 2);
    let script = format!(
        "mkfifo {pipe}; cat {pipe} > {copy} &
         timeout -s KILL {limit_s} {BINARY} record -a -d 300ms -o {pipe}; status=$?; wait; exit $status"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    let output = run(command);
    assert!(output.status.success(), "into a pipe: {} (137: it hung)\n{}", output.status, text(&output.stderr));
    assert!(report(&copy, &[]).duration_ns > 0);
}

/// Makes sure that a command is not started when its recording could not be written.
#[test]
fn a_command_is_not_started_when_its_recording_cannot_be_written() {
    let Some(_machine) = machine("command with unwritable output") else { return };
    let folder = Folder::new();
    let marker = folder.file("started");
    refuses(line(&["record", "--kernel", "-o", "/no/such/folder/x", "--", "touch", &marker]), NO_OUTPUT, &[]);
    assert!(!Path::new(&marker).exists(), "the command was started");
}

/// Makes sure that a file that is no recording is not destroyed.
#[test]
fn a_file_that_is_no_recording_is_left_alone() {
    let Some(_machine) = machine("precious output") else { return };
    let folder = Folder::new();
    let precious = folder.file("thesis.txt");
    fs::write(&precious, "chapter one").unwrap();
    refuses(line(&["record", "-a", "-d", "1s", "-o", &precious]), NO_OUTPUT, &["thesis.txt", "not a recording"]);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "chapter one");
    // Through a link as well.
    let link = folder.file("link");
    std::os::unix::fs::symlink(&precious, &link).unwrap();
    refuses(line(&["record", "-a", "-d", "1s", "-o", &link]), NO_OUTPUT, &["not a recording"]);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "chapter one");
}

/// Makes sure that an older recording survives a run that does not get to metering.
#[test]
fn an_older_recording_survives_a_run_that_fails() {
    let Some(_machine) = machine("older recording") else { return };
    let folder = Folder::new();
    let file = Recorder::start(&folder, "recording", &["-a", "-d", "200ms"]).wait().recording();
    let before = fs::read(&file).unwrap();
    refuses(line(&["record", "-p", "4194305", "-o", &file]), NO_TARGET, &[]);
    refuses(line(&["record", "-a", "-d", "0s", "-o", &file]), USAGE, &[]);
    assert_eq!(fs::read(&file).unwrap(), before, "the older recording was changed");
}

/// Makes sure that a disk that fills up ends the recording with one sentence, and what fitted is readable.
#[test]
fn on_a_full_disk_what_was_recorded_stays_readable() {
    let Some(_machine) = machine("full disk") else { return };
    let folder = Folder::new();
    let saved = folder.file("saved");
    fs::create_dir(folder.path().join("disk")).unwrap();
    let (disk, limit_s) = (folder.file("disk"), PATIENCE.as_secs() / 2);
    let _load = Load::start("fork-storm", &[]);
    let script = format!(
        "mount -t tmpfs -o size=64k none {disk}
         set +e; {BINARY} record -q -a -d {limit_s}s --interval 100ms -o {disk}/recording; status=$?
         cp {disk}/recording {saved}; exit $status"
    );
    refuses(in_own_mounts(&script), NO_OUTPUT, &["No space left"]);
    let kept = report(&saved, &["-n", "5"]);
    assert!(kept.intervals >= 1 && kept.head.waits.count > 0, "nothing is left\n{}", kept.shown);
    assert!(!kept.lost.contains_key("damaged_interval"), "{:?}", kept.lost);
    assert!(!kept.lost.contains_key("cut_bytes"), "half an interval was left in the file: {:?}", kept.lost);
}

/// Makes sure that a command goes on, and its status is not taken for success, when the disk fills under its recording.
#[test]
fn a_full_disk_does_not_kill_the_command_that_is_metered() {
    let Some(_machine) = machine("full disk under a command") else { return };
    let folder = Folder::new();
    fs::create_dir(folder.path().join("disk")).unwrap();
    let (disk, done) = (folder.file("disk"), folder.file("done"));
    let program = workload_path("fork-storm");
    let command = format!("{} --seconds 3 > {done}; echo end >> {done}", program.display());
    let script = format!(
        "mount -t tmpfs -o size=4k none {disk}
         exec {BINARY} record --kernel -q --interval 50ms -o {disk}/recording -- sh -c '{command}'"
    );
    refuses(in_own_mounts(&script), NO_OUTPUT, &["No space left"]);
    let said = fs::read_to_string(&done).unwrap();
    assert!(said.contains("\"ops\"") && said.ends_with("end\n"), "the command was cut short: {said:?}");
}

/// Makes sure that a report that cannot be written says which file, whatever the format.
#[test]
fn a_report_that_cannot_be_written_is_refused() {
    let Some(_machine) = machine("unwritable report") else { return };
    let folder = Folder::new();
    let file = Recorder::start(&folder, "recording", &["-a", "-d", "300ms"]).wait().recording();
    for format in ["table", "json", "csv", "folded", "pprof"] {
        for path in ["/no/such/folder/x", "/proc/x", "/"] {
            refuses(line(&["report", &file, "--format", format, "-o", path]), NO_OUTPUT, &[path]);
        }
        // Regression: the recording was written over.
        refuses(line(&["report", &file, "--format", format, "-o", &file]), NO_OUTPUT, &["the recording itself"]);
    }
}

/// Makes sure that a disk that is full when a report is written is told like one that cannot be opened.
#[test]
fn a_report_onto_a_full_disk_is_refused() {
    let Some(_machine) = machine("report onto a full disk") else { return };
    let folder = Folder::new();
    let file = Recorder::start(&folder, "recording", &["-a", "-d", "300ms"]).wait().recording();
    for format in ["table", "json", "csv", "pprof"] {
        refuses(
            line(&["report", &file, "--format", format, "-o", "/dev/full"]),
            NO_OUTPUT,
            &["/dev/full", "No space left"],
        );
    }
}

// ---- recordings ------------------------------------------------------------------------------------------------------

/// Makes sure that every reader refuses what it cannot read, and says what it is.
#[test]
fn what_is_no_readable_recording_is_refused() {
    let Some(_machine) = machine("bad recordings") else { return };
    let folder = Folder::new();
    let good = Recorder::start(&folder, "good", &["-a", "-d", "300ms"]).wait().recording();
    let bytes = fs::read(&good).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.file(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let here = folder.path().to_str().unwrap().to_owned();
    let cases = [
        (write("text", b"not a recording at all, but long enough to be one"), "not a lockmeter recording"),
        (write("zeroes", &[0; 4096]), "not a lockmeter recording"),
        (write("empty", b""), "empty"),
        (write("magic-only", &bytes[..8]), "ends before"),
        (write("head-only", &bytes[..16]), "ends before"),
        (write("newer", &newer(&bytes)), "newer"),
        (write("damaged-head", &flipped(&bytes, VERSION_AT)), "damaged"),
        (write("unknown-kind", &RecordingBytes::of_kind(99).finish()), "does not know"),
        (folder.file("missing"), "No such file"),
        (here, "directory"),
    ];
    for (path, part) in &cases {
        refuses(line(&["report", path]), BAD_INPUT, &[part, path]);
        refuses(line(&["report", path, "--format", "json"]), BAD_INPUT, &[part]);
        refuses(line(&["report", path, "--format", "pprof"]), BAD_INPUT, &[part]);
        refuses(line(&["diff", &good, path]), BAD_INPUT, &[part]);
        refuses(line(&["diff", path, &good]), BAD_INPUT, &[part]);
    }
}

/// Regression: a recording in which nothing ran passed for one of locks, for its kind was guessed from what it held.
#[test]
fn a_recording_of_latency_is_one_even_if_nothing_ran() {
    const LATENCY: u64 = 2;
    let folder = Folder::new();
    let path = folder.file("empty");
    fs::write(&path, RecordingBytes::of_kind(LATENCY).finish()).unwrap();
    let report = run(lockmeter(["report", &path, "--format", "json"]));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["recorded"], "latency");
    for command in [&["diff", &path, &path][..], &["predict", &path]] {
        refuses(line(command), BAD_INPUT, &["lockmeter latency", "no locks", &path]);
    }
}

/// A recording of a version to come, its checksum right.
fn newer(recording: &[u8]) -> Vec<u8> {
    let mut bytes = recording.to_vec();
    bytes[VERSION_AT..VERSION_AT + 4].copy_from_slice(&99_u32.to_le_bytes());
    let crc = crc32(&bytes[..HEAD_CRC_AT]);
    bytes[HEAD_CRC_AT..HEAD_CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 0xff;
    bytes
}

/// CRC-32 of zlib and gzip, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// Makes sure that a recording cut anywhere is an error only where nothing was recorded, and says what it lost elsewhere.
#[test]
fn a_recording_cut_anywhere_reads_up_to_there() {
    let Some(_machine) = machine("cut recordings") else { return };
    let folder = Folder::new();
    let _load = Load::start("file-pos", &["--rate", "5000"]);
    let whole = Recorder::start(&folder, "whole", &["-a", "-d", "1s", "--interval", "100ms"]).wait().recording();
    let bytes = fs::read(&whole).unwrap();
    let all = report(&whole, &[]).intervals;
    let cut = folder.file("cut");
    let mut most = 0;
    // The last one cuts off nothing but the mark of a clean end.
    for at in (1..40).map(|part| bytes.len() * part / 40).chain([bytes.len() - 1]) {
        fs::write(&cut, &bytes[..at]).unwrap();
        let output = run(line(&["report", &cut, "--format", "json"]));
        let said = text(&output.stderr);
        assert!(!said.contains("panicked"), "cut at {at}: {said}");
        if output.status.code() == Some(BAD_INPUT) {
            assert_eq!(most, 0, "cut at {at}: a longer part reads worse: {said}");
            continue;
        }
        assert!(output.status.success(), "cut at {at}: {said}");
        assert!(said.contains("no end"), "cut at {at}: nothing says so: {said}");
        let intervals = report(&cut, &[]).intervals;
        assert!(intervals >= most && intervals <= all, "cut at {at}: {intervals} intervals after {most} of {all}");
        most = intervals;
    }
    assert_eq!(most, all, "all intervals were there");
}

/// Makes sure that bytes damaged in the middle cost an interval and no more, and that the report says so.
#[test]
fn a_damaged_interval_is_passed_over_and_counted() {
    let Some(_machine) = machine("damaged recording") else { return };
    let folder = Folder::new();
    let _load = Load::start("file-pos", &["--rate", "5000"]);
    let whole = Recorder::start(&folder, "whole", &["-a", "-d", "1s", "--interval", "100ms"]).wait().recording();
    let bytes = fs::read(&whole).unwrap();
    let damaged = folder.file("damaged");
    fs::write(&damaged, flipped(&bytes, bytes.len() / 2)).unwrap();
    let (all, left) = (report(&whole, &[]).intervals, report(&damaged, &[]));
    assert_eq!(left.intervals + 1, all, "{}", left.shown);
    assert_eq!(left.lost.get("damaged_interval"), Some(&1), "{}", left.shown);
}

// ---- the command line ------------------------------------------------------------------------------------------------

/// Makes sure that durations without a unit, of nothing, or beyond reason are refused before anything is metered.
#[test]
fn durations_that_make_no_sense_are_refused() {
    for duration in
        ["0", "10", "0s", "0ms", "500y", "1e9s", "99999999999999999999s", "-5s", "abc", "", "1 fortnight", "NaN", "inf"]
    {
        refuses(line(&["record", "-a", "-o", "/dev/null", &format!("--duration={duration}")]), USAGE, &[]);
        refuses(line(&["top", &format!("--duration={duration}")]), USAGE, &[]);
    }
    for interval in ["0s", "1ms", "2h", "1", ""] {
        refuses(line(&["record", "-a", "-o", "/dev/null", &format!("--interval={interval}")]), USAGE, &[]);
    }
    for window in ["5s", "5s..2s", "..", "1..2", "a..b", "1s..1s", "-1s..2s"] {
        // `..` is the whole recording, if anything.
        let output = run(line(&["report", "/dev/null", &format!("--window={window}")]));
        assert!(
            matches!(output.status.code(), Some(USAGE)) || window == "..",
            "--window {window}: {}",
            text(&output.stderr)
        );
    }
}

/// Makes sure that the budget is a share.
#[test]
fn budgets_that_make_no_sense_are_refused() {
    for budget in ["1", "0%", "-1%", "101%", "%", "NaN%", "inf%", "1e-9%"] {
        refuses(line(&["record", "-a", "-o", "/dev/null", &format!("--stack-budget={budget}")]), USAGE, &["share"]);
    }
    refuses(line(&["record", "-a", "--every", "--stack-budget=1%"]), USAGE, &["--every"]);
}

/// Makes sure that a mistyped name is answered with those that there are.
#[test]
fn unknown_groupings_kinds_modes_formats_and_columns_are_refused_with_the_known_ones() {
    let Some(_machine) = machine("unknown names") else { return };
    let folder = Folder::new();
    let file = Recorder::start(&folder, "recording", &["-a", "-d", "200ms"]).wait().recording();
    refuses(line(&["report", &file, "--by", "locks"]), USAGE, &["instance", "caller"]);
    refuses(line(&["report", &file, "--by", "lock,caller,blocker,task"]), USAGE, &["at most 3"]);
    refuses(line(&["report", &file, "--by", "lock,lock"]), USAGE, &["twice"]);
    refuses(line(&["report", &file, "--by", ""]), USAGE, &["instance"]);
    refuses(line(&["report", &file, "--by", "lock,"]), USAGE, &["instance"]);
    refuses(line(&["report", &file, "--kind", "mutexes"]), USAGE, &["percpu-rwsem"]);
    refuses(line(&["report", &file, "--mode", "shared"]), USAGE, &["exclusive"]);
    refuses(line(&["report", &file, "--format", "xml"]), USAGE, &["folded"]);
    refuses(line(&["report", &file, "--sort", "size"]), USAGE, &["total_ns"]);
    refuses(line(&["top", "--sort", "size", "-d", "1s"]), USAGE, &["total_ns"]);
    refuses(line(&["frobnicate"]), USAGE, &["frobnicate"]);
    refuses(line(&["report", &file, "--frobnicate"]), USAGE, &["frobnicate"]);
}

/// Makes sure that `diff`, which is always sorted by change, does not silently pass over another wish.
#[test]
fn diff_refuses_to_be_sorted() {
    refuses(line(&["diff", "a", "b", "--sort", "count"]), USAGE, &["--sort"]);
}

/// Makes sure that filters which fit nothing give an empty report and no error.
#[test]
fn filters_that_fit_nothing_give_an_empty_report() {
    let Some(_machine) = machine("filters") else { return };
    let folder = Folder::new();
    let file = Recorder::start(&folder, "recording", &["-a", "-d", "300ms"]).wait().recording();
    for flags in
        [&["--lock", "no such lock"][..], &["--task", "no such task"], &["--task", "4294967295"], &["--window", "1h.."]]
    {
        let report = report(&file, flags);
        assert!(report.rows.is_empty(), "{}", report.shown);
    }
}

/// Makes sure that the statuses above are the documented ones.
#[test]
fn the_help_documents_the_statuses() {
    let help = text(&run(lockmeter(["--help"])).stdout);
    for status in [FAILED, USAGE, NOT_ALLOWED, BAD_INPUT, NO_TARGET, NO_OUTPUT, 126, 127] {
        assert!(help.contains(&status.to_string()), "status {status} is not documented:\n{help}");
    }
}
