//! A recording begins, ends and dies as it should: the right processes are metered, statuses are passed on, and nothing is
//! left behind.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use support::bystanders::Bystanders;
use support::control_group::ControlGroup;
use support::recorder::Recorder;
use support::report::{report, report_as, sum};
use support::{
    Folder, Load, PATIENCE, bpf_programs_of, lockmeter, machine, pinned_objects, preload_library, program_exists, run,
    run_workload, say, signal, skip, text, too_busy, until, wait, workload_path,
};

/// What the recorder may need in memory for processes that come and go, beyond what it needs for those that are there.
const MOST_RESIDENT_KB: u64 = 32 * 1024;

fn path_of(workload: &str) -> String {
    workload_path(workload).to_str().unwrap().to_owned()
}

/// Makes sure that `record -- CMD` ends as the command does, whatever happens to it.
#[test]
fn the_status_of_the_command_is_passed_on() {
    let Some(_machine) = machine("status of the command") else { return };
    let folder = Folder::new();
    let script = folder.file("not-executable");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    let cases: [(&[&str], i32); 8] = [
        (&["true"], 0),
        (&["sh", "-c", "exit 3"], 3),
        (&["sh", "-c", "exit 255"], 255),
        (&["sh", "-c", "kill -TERM $$"], 128 + 15),
        (&["sh", "-c", "kill -KILL $$"], 128 + 9),
        (&[&script], 126),
        (&["/no/such/program"], 127),
        (&["no-such-program-in-the-path"], 127),
    ];
    for (command, status) in cases {
        let file = folder.file("recording");
        let mut record = lockmeter(["record", "--kernel", "-q", "-o", &file, "--"]);
        let ended = run({
            record.args(command);
            record
        });
        assert_eq!(ended.status.code(), Some(status), "record -- {command:?} said:\n{}", text(&ended.stderr));
        report(&file, &[]);
    }
}

/// Regression: below `nohup`, and in the background of a script, a metered command could be interrupted that else could not.
#[test]
fn signals_that_are_ignored_from_the_start_are_ignored_by_the_command() {
    let folder = Folder::new();
    let status = ["grep", "SigIgn", "/proc/self/status"];
    let ignoring = |mut command: Command| {
        let ignore = || {
            for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGTERM] {
                // SAFETY: may be called between fork and exec.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
            Ok(())
        };
        // SAFETY: makes system calls only.
        unsafe { command.pre_exec(ignore) };
        let said = text(&run(command).stdout);
        let ignored = u64::from_str_radix(said.split_whitespace().last().unwrap(), 16).unwrap();
        // From 32 on they are libc's own.
        ignored & 0x7fff_ffff
    };
    let mut bare = Command::new(status[0]);
    bare.args(&status[1..]);
    preload_library();
    let mut metered = lockmeter(["record", "--user", "-q", "-o", &folder.file("recording"), "--"]);
    metered.args(status);
    assert_eq!(ignoring(metered), ignoring(bare));
}

/// Makes sure that the standard streams of the command are its own.
#[test]
fn the_command_keeps_its_standard_input_and_output() {
    let Some(_machine) = machine("streams of the command") else { return };
    let folder = Folder::new();
    let mut record = lockmeter(["record", "--kernel", "-q", "-o", &folder.file("recording"), "--", "cat"]);
    let mut child = record.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"through").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("through", ""));
}

/// Makes sure that the children of the command are metered and other processes are not.
#[test]
fn a_command_is_metered_with_its_children_and_without_others() {
    let Some(_machine) = machine("scope of a command") else { return };
    let folder = Folder::new();
    let _others = Load::start("mmap-fault", &[]);
    let line = known_waits(&folder);
    let ended = Recorder::start(&folder, "recording", &["--", "sh", "-c", &line]).wait();
    only_these_waited(&ended.recording(), &["known-wait", "sh", "lockmeter"], known(&folder));
}

/// A line for a shell, which does not become the workload: that waits, on one CPU and on a busy machine, too, and counts how often.
fn known_waits(folder: &Folder) -> String {
    format!("{} --seconds 1 --hold-ns 5000000 >{}; exit 0", path_of("known-wait"), folder.file("known"))
}

/// How often it waited at least.
fn known(folder: &Folder) -> u64 {
    let said = fs::read_to_string(folder.path().join("known")).unwrap();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    said["waits"].as_u64().unwrap()
}

/// Fails unless the workload's waits, this many at least, were metered and those of the allowed tasks at most.
fn only_these_waited(recording: &str, allowed: &[&str], waits: u64) {
    let report = report(recording, &["--by", "task", "--own", "-n", "12"]);
    let tasks: BTreeSet<&str> = report.rows.iter().map(|row| row.task()).collect();
    let strangers: Vec<_> = tasks.iter().filter(|task| !allowed.contains(task)).collect();
    assert!(strangers.is_empty(), "{strangers:?} were metered, too\n{}", report.shown);
    let (count, _) = sum(report.rows.iter().filter(|row| row.task() == "known-wait"));
    assert!(waits > 0 && count >= waits, "{count} of {waits} waits were metered\n{}", report.shown);
}

/// A shell that runs what it is told on its standard input.
struct Shell(Child);

impl Shell {
    fn start() -> Self {
        let mut command = Command::new("sh");
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Has it run a line and end.
    fn run(mut self, line: &str) -> ExitStatus {
        let mut stdin = self.0.stdin.take().unwrap();
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
        drop(stdin);
        wait(&mut self.0, "the shell")
    }
}

/// Makes sure that the end of the process ends its recording cleanly, and that its new children are in it and no others.
#[test]
fn a_process_is_metered_with_its_new_children_until_it_exits() {
    let Some(_machine) = machine("scope of a process") else { return };
    let folder = Folder::new();
    let _others = Load::start("mmap-fault", &[]);
    let shell = Shell::start();
    let recorder = Recorder::start(&folder, "recording", &["-p", &shell.pid()]);
    assert!(shell.run(&known_waits(&folder)).success());
    let ended = recorder.wait();
    assert!(!ended.stderr.contains("no end"), "the recording did not end cleanly:\n{}", ended.stderr);
    only_these_waited(&ended.recording(), &["known-wait", "sh"], known(&folder));
}

/// Makes sure that threads that already run when the recording begins are metered.
#[test]
fn the_threads_of_a_running_process_are_metered() {
    let Some(_machine) = machine("threads of a process") else { return };
    let folder = Folder::new();
    let _others = Load::start("mmap-fault", &[]);
    let load = Load::start("known-wait", &["--hold-ns", "5000000"]);
    let ended = Recorder::start(&folder, "recording", &["-p", &load.pid().to_string(), "-d", "2s"]).wait();
    only_these_waited(&ended.recording(), &["known-wait"], 10);
}

/// Makes sure that the tasks of a control group and of one inside it are metered, and no others; by its path below the
/// root as well as by its whole path.
#[test]
fn a_control_group_is_metered_with_those_inside_it_and_without_others() {
    const TEST: &str = "scope of a control group";
    let Some(_machine) = machine(TEST) else { return };
    let outer = match ControlGroup::of_test() {
        Ok(group) => group,
        Err(why) => return skip(TEST, &why),
    };
    let name = outer.path().file_name().unwrap().to_str().unwrap();
    let inner = ControlGroup::make(outer.path().join("inner")).unwrap();
    let folder = Folder::new();
    let _others = Load::start("mmap-fault", &[]);
    for path in [format!("/{name}"), outer.path().to_str().unwrap().to_owned()] {
        let recorder = Recorder::start(&folder, "recording", &["--cgroup", &path]);
        let shell = Shell::start();
        fs::write(inner.path().join("cgroup.procs"), shell.pid()).unwrap();
        assert!(shell.run(&known_waits(&folder)).success());
        let recording = recorder.stop().recording();
        only_these_waited(&recording, &["known-wait", "sh"], known(&folder));
        let report = report(&recording, &["--by", "cgroup"]);
        let expected = format!("/{name}/inner");
        assert!(
            report.rows.iter().all(|row| row.cgroup.as_deref() == Some(expected.as_str())),
            "the waits are not those of {expected}\n{}",
            report.shown
        );
    }
}

/// Makes sure that Ctrl-C, and what service managers and closed terminals send, end a recording with its report.
#[test]
fn signals_that_ask_to_stop_end_a_recording_cleanly_and_it_reports() {
    let Some(_machine) = machine("signals") else { return };
    let folder = Folder::new();
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let recorder = Recorder::start(&folder, "recording", &["-a"]);
        let load = run_workload("known-wait", &["--seconds", "0.3"]);
        assert!(load.is_ok());
        recorder.signal(number);
        let ended = recorder.wait();
        assert!(ended.status.success(), "signal {number} ended it with {}:\n{}", ended.status, ended.stderr);
        for part in ["WAITED", "lockmeter used", "wrote "] {
            assert!(ended.stderr.contains(part), "after signal {number} the report lacks `{part}`:\n{}", ended.stderr);
        }
        assert!(!ended.stderr.contains("no end"), "after signal {number} the file has no end:\n{}", ended.stderr);
        // Among all that a busy machine waits for, its lock may be below the rows that a table has.
        let report = report(&ended.file, &["--lock", "file.f_pos_lock"]);
        assert!(sum(&report.rows).0 > 0, "after signal {number}\n{}", report.shown);
    }
}

/// Makes sure that a Ctrl-C meant for the command does not cut its recording short, and that a second one does.
#[test]
fn the_first_interrupt_is_left_to_the_command_and_the_second_ends_the_recording() {
    let Some(_machine) = machine("interrupts under a command") else { return };
    let folder = Folder::new();
    let may_end = folder.file("may-end");
    let command = format!("until [ -e {may_end} ]; do sleep 0.1; done");
    let recorder = Recorder::start(&folder, "recording", &["--", "sh", "-c", &command]);
    let reports = || recorder.said().contains("lockmeter used");
    recorder.signal_alone(libc::SIGINT);
    thread::sleep(Duration::from_millis(300));
    assert!(!reports(), "the first interrupt ended the recording while its command still ran");
    // No third: while the recorder names what it saw it would end at once.
    recorder.signal_alone(libc::SIGINT);
    until("the recording ends though its command goes on", reports);
    fs::write(may_end, "").unwrap();
    let ended = recorder.wait();
    assert_eq!(ended.status.code(), Some(0), "the command ended by itself:\n{}", ended.stderr);
}

/// Regression: Ctrl-C while the programs were loaded was forgotten, and the command started and metered to its end.
#[test]
fn who_is_interrupted_before_the_command_starts_starts_none() {
    let Some(_machine) = machine("interrupts at the start") else { return };
    let folder = Folder::new();
    let catches = |status: &str| {
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
        u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (libc::SIGINT - 1) != 0
    };
    for command in ["record", "mmap"] {
        let (recording, begun) = (folder.file("recording"), folder.file("begun"));
        let mut metering = lockmeter([command, "-o", &recording, "--", "touch", &begun]);
        let child = metering.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let status = format!("/proc/{}/status", child.id());
        until("it catches the signal", || catches(&fs::read_to_string(&status).unwrap()));
        signal(child.id(), libc::SIGINT);
        let ended = child.wait_with_output().unwrap();
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(128 + libc::SIGINT), "{said}");
        assert!(said.contains("stopped before the command was started"), "{said}");
        assert!(!Path::new(&begun).exists() && !Path::new(&recording).exists());
    }
}

/// Regression: `mmap -- COMMAND` ignored the second Ctrl-C, and after `-d` it swallowed SIGTERM until the command had ended.
#[test]
fn mmap_of_a_command_ends_at_the_second_interrupt_and_passes_signals_on_after_its_time() {
    let Some(_machine) = machine("interrupts under mmap") else { return };
    let folder = Folder::new();
    let goes_on = |recorder: &Recorder| recorder.said().contains("lockmeter waits for it");
    let start = |arguments: &[&str]| {
        let mut mmap = lockmeter(["mmap"]);
        mmap.args(arguments).args(["--", "sleep", "600"]);
        Recorder::spawn(mmap, folder.file("none"))
    };

    let recorder = start(&[]);
    recorder.signal_alone(libc::SIGINT);
    recorder.signal_alone(libc::SIGINT);
    until("the metering ends though its command goes on", || goes_on(&recorder));
    recorder.signal(libc::SIGTERM);
    assert_eq!(recorder.wait().status.code(), Some(128 + libc::SIGTERM), "the command's own status");

    let recorder = start(&["-d", "100ms"]);
    until("the metering ends before its command", || goes_on(&recorder));
    recorder.signal(libc::SIGTERM);
    assert_eq!(recorder.wait().status.code(), Some(128 + libc::SIGTERM), "the command's own status");
}

/// Makes sure that a recorder that is asked to end by a service manager does so, though its command goes on: SIGTERM, unlike
/// Ctrl-C, reaches nobody but the recorder. Whether the command is left running or ended with it is the recorder's to choose.
#[test]
fn a_recorder_of_a_command_ends_when_it_is_terminated() {
    let Some(_machine) = machine("SIGTERM under a command") else { return };
    let folder = Folder::new();
    // Longer than anybody waits for the recorder.
    let command_s = (2 * PATIENCE).as_secs().to_string();
    let mut recorder = Recorder::start(&folder, "recording", &["--", "sleep", &command_s]);
    recorder.signal(libc::SIGTERM);
    until("SIGTERM ends the recorder", || !recorder.runs());
    report(&recorder.wait().file, &[]);
}

/// Regression: the programs of a recording shorter than a tenth of a second were said to have taken no time.
#[test]
fn a_short_recording_says_what_its_programs_cost() {
    let Some(_machine) = machine("the cost of a short recording") else { return };
    let folder = Folder::new();
    let _load = Load::start("file-pos", &[]);
    let file = Recorder::start(&folder, "recording", &["-a", "-d", "40ms"]).wait().recording();
    let report: serde_json::Value = serde_json::from_str(&report_as(&file, "json", &[])).unwrap();
    let overhead = &report["overhead"];
    let is_said = overhead["program_runs"] == 0 || overhead["program_run_ns"].as_u64() > Some(0);
    assert!(is_said, "{overhead}");
}

/// Regression: the one that metered a server for a while saw nothing until it ended, and could not end it through the recorder.
#[test]
fn a_recording_that_is_over_before_its_command_reports_at_once_and_passes_signals_on() {
    let folder = Folder::new();
    let mut record = lockmeter(["record", "--user", "-d", "100ms", "-o", &folder.file("recording"), "--"]);
    record.args(["sleep", "600"]).env("LOCKMETER_PRELOAD", preload_library());
    let mut child = record.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("lockmeter used")), "no report while the command goes on");
    assert!(said.any(|line| line.contains("lockmeter waits for it")), "not said that the command goes on");
    signal(child.id(), libc::SIGTERM);
    assert_eq!(wait(&mut child, "the recorder").code(), Some(128 + libc::SIGTERM), "the command's own status");
}

/// Makes sure that a recording is ended and kept when the one that reads its messages goes away (`2>&1 | head -1`).
#[test]
fn a_recording_is_kept_when_nobody_reads_the_messages() {
    let Some(_machine) = machine("closed standard error") else { return };
    let folder = Folder::new();
    let file = folder.file("recording");
    let mut record = lockmeter(["record", "-a", "-d", "500ms", "-o", &file]);
    let mut child = record.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    let status = wait(&mut child, "the recorder");
    assert!(status.success(), "it ended with {status} (101: it panicked)");
    let read = run(lockmeter(["report", &file]));
    assert!(!text(&read.stderr).contains("no end"), "the recording was not ended: {}", text(&read.stderr));
}

/// Makes sure that a recorder that is killed leaves a readable file that lacks at most the last interval, and no program in
/// the kernel.
#[test]
fn a_killed_recorder_loses_one_interval_and_leaves_nothing_behind() {
    let Some(_machine) = machine("kill -9") else { return };
    let folder = Folder::new();
    let pinned = pinned_objects();
    let _load = Load::start("file-pos", &["--rate", "5000"]);
    let recorder = Recorder::start(&folder, "recording", &["-a", "--interval", "500ms"]);
    let programs = bpf_programs_of(recorder.pid());
    assert!(programs.len() >= 3, "the recorder's programs cannot be seen: {programs:?}");
    let mut written = 0;
    until("intervals are in the file while the recorder runs", || {
        // The file gets its name with the first.
        written = if Path::new(&recorder.file).exists() { report(&recorder.file, &[]).intervals } else { 0 };
        written >= 3
    });
    // In the midst of the next one, however late this machine wakes the recorder and this test.
    recorder.signal(libc::SIGKILL);
    let ended = recorder.wait();
    assert!(ended.status.code().is_none(), "it was killed, and yet ended with {}", ended.status);
    let report = report(&ended.file, &[]);
    assert!(report.intervals >= written, "{written} intervals were in the file\n{}", report.shown);
    let warned = text(&run(lockmeter(["report", &ended.file])).stderr);
    assert!(warned.contains("no end"), "nothing says that the recorder died: {warned}");
    until("the killed recorder's programs are gone", || !programs.iter().any(|id| program_exists(*id)));
    assert_eq!(pinned_objects(), pinned, "something is left in /sys/fs/bpf");
    let left: Vec<String> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(left, ["recording"], "more than the recording is left");
    assert!(run(lockmeter(["doctor"])).status.success(), "`lockmeter doctor` fails after a recorder was killed");
}

/// Makes sure that a recorder that ends as it should leaves no program either.
#[test]
fn a_recorder_that_ends_leaves_no_program_behind() {
    let Some(_machine) = machine("programs after the end") else { return };
    let folder = Folder::new();
    let recorder = Recorder::start(&folder, "recording", &["-a"]);
    let programs = bpf_programs_of(recorder.pid());
    assert!(programs.len() >= 3, "the recorder's programs cannot be seen: {programs:?}");
    recorder.stop().recording();
    until("the recorder's programs are gone", || !programs.iter().any(|id| program_exists(*id)));
}

/// Makes sure that `record` writes, and `report` reads, `out.lockmeter` here when no name is given.
#[test]
fn without_a_name_the_recording_is_out_lockmeter_in_this_folder() {
    let Some(_machine) = machine("default name") else { return };
    let folder = Folder::new();
    let run_here = |mut command: Command| {
        command.current_dir(folder.path());
        run(command)
    };
    assert!(run_here(lockmeter(["record", "-q", "-a", "-d", "300ms"])).status.success());
    assert!(folder.path().join("out.lockmeter").exists());
    let reported = run_here(lockmeter(["report"]));
    assert!(reported.status.success(), "{}", text(&reported.stderr));
    // Again: a recording is replaced by a newer one.
    assert!(run_here(lockmeter(["record", "-q", "-a", "-d", "300ms"])).status.success());
}

/// Makes sure that a recording lasts as long as was asked for.
#[test]
fn a_recording_lasts_as_long_as_was_asked() {
    let Some(_machine) = machine("duration") else { return };
    let folder = Folder::new();
    let recording =
        Recorder::start(&folder, "recording", &["-a", "-d", "3s", "--interval", "250ms"]).wait().recording();
    let report = report(&recording, &[]);
    assert!(report.duration_ns >= 3_000_000_000, "{} ns were metered\n{}", report.duration_ns, report.shown);
    // A machine that is slow to wake the recorder, and to let it look, makes fewer of them; none is shorter.
    assert!((3..=12 + 1).contains(&report.intervals), "{} intervals\n{}", report.intervals, report.shown);
}

/// The most memory that a process has had resident, in KiB.
fn most_resident_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_else(|| panic!("no VmHWM in {status}"));
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// Makes sure that tens of thousands of short-lived processes, each with locks of its own, fill neither the kernel's tables
/// nor the recorder's memory.
#[test]
fn a_storm_of_processes_fills_no_table_and_little_memory() {
    let Some(_machine) = machine("fork storm") else { return };
    let folder = Folder::new();
    let recorder = Recorder::start(&folder, "recording", &["-a"]);
    // What the names of the programs take that run already is their affair, and so is that of others that come meanwhile.
    let bystanders = Bystanders::watch();
    let at_start_kb = most_resident_kb(recorder.pid());
    let said = run_workload("fork-storm", &["--count", "30000"]).unwrap();
    let resident_kb = most_resident_kb(recorder.pid()) - at_start_kb;
    let recording = recorder.stop().recording();
    let report = report(&recording, &["--by", "lock", "-n", "8"]);
    let file_kb = fs::metadata(&recording).unwrap().len() / 1024;
    say(&format!(
        "fork-storm of {} processes: recorder {at_start_kb} KiB resident and {resident_kb} more, file {file_kb} KiB, {} waits, lost {:?}",
        said["ops"], report.head.waits.count, report.lost
    ));
    assert!(said["ops"].as_u64().unwrap() >= 20_000, "too small a storm: {said}");
    assert!(!report.lost.contains_key("totals_full"), "waits were not counted\n{}", report.shown);
    if resident_kb > MOST_RESIDENT_KB && bystanders.took_much() {
        return too_busy("the recorder's memory in a fork storm", &format!("it took {resident_kb} KiB more"));
    }
    assert!(resident_kb <= MOST_RESIDENT_KB, "the recorder took {resident_kb} KiB more\n{}", report.shown);
}

/// Makes sure that `top` prints a whole table for each refresh when nobody sits at a terminal.
#[test]
fn top_prints_a_table_for_each_refresh_into_a_pipe() {
    let Some(_machine) = machine("top") else { return };
    let _load = Load::start("known-wait", &[]);
    let mut top = lockmeter(["top"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // A busy machine refreshes late: the tables are counted, not the seconds.
    let (mut tables, mut count) = (String::new(), 0);
    for line in BufReader::new(top.stdout.take().unwrap()).lines().map_while(Result::ok) {
        let begins_table = line.contains(" of the whole machine from ");
        count += usize::from(begins_table);
        tables += &(line + "\n");
        // Once: a second signal would end it before it has ended by itself.
        if begins_table && count == 3 {
            signal(top.id(), libc::SIGTERM);
        }
    }
    assert!(wait(&mut top, "top").success() && count >= 3, "{tables}");
    assert!(tables.contains("file.f_pos_lock"), "the load is in none:\n{tables}");
    assert!(!tables.contains('\x1b'), "escape sequences in a pipe:\n{tables:?}");
}

/// Makes sure that `top` ends with what it watches, and on Ctrl-C with success.
#[test]
fn top_ends_with_its_process_and_on_an_interrupt() {
    let Some(_machine) = machine("end of top") else { return };
    // Ends with its input.
    let mut process = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let mut top = lockmeter(["top", "-p", &process.id().to_string()]);
    let mut top = top.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut tables = BufReader::new(top.stdout.take().unwrap()).lines();
    // Its first line says that it has begun.
    assert!(tables.next().is_some(), "top ended at once");
    drop(process.stdin.take());
    // Waited for beside `top`, for a process that nobody has waited for is still there.
    process.wait().unwrap();
    assert!(tables.all(|line| line.is_ok()) && wait(&mut top, "top").success());

    let mut top = lockmeter(["top", "--interval", "100ms"]);
    let mut child = top.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 16];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    signal(child.id(), libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "an interrupt ended top with {}: {}", output.status, text(&output.stderr));
}

/// Makes sure that a lock that got worse heads the comparison.
#[test]
fn diff_shows_the_lock_that_got_worse() {
    let Some(_machine) = machine("diff") else { return };
    let folder = Folder::new();
    let quiet = Recorder::start(&folder, "quiet", &["-a", "-d", "500ms"]).wait().recording();
    let loaded = Recorder::start(&folder, "loaded", &["-a"]);
    run_workload("known-wait", &["--seconds", "1"]).unwrap();
    let loaded = loaded.stop().recording();
    let json = run(lockmeter(["diff", &quiet, &loaded, "--task", "known-wait", "--format", "json"]));
    assert!(json.status.success(), "{}", text(&json.stderr));
    let diff: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let table = text(&run(lockmeter(["diff", &quiet, &loaded, "--task", "known-wait"])).stdout);
    let first = &diff["rows"][0];
    assert_eq!(first["lock"], "file.f_pos_lock", "another lock changed most:\n{table}");
    assert!(first["delta_ns_per_s"].as_i64().unwrap() > 0, "it got better?\n{table}");
    assert!(table.contains("file.f_pos_lock"), "the table does not show it:\n{table}");
    // The other way round it got better by the same.
    let back = run(lockmeter(["diff", &loaded, &quiet, "--task", "known-wait", "--format", "json"]));
    let back: serde_json::Value = serde_json::from_slice(&back.stdout).unwrap();
    assert_eq!(back["rows"][0]["delta_ns_per_s"].as_i64(), first["delta_ns_per_s"].as_i64().map(|change| -change));
}

/// Makes sure that two recorders at once do not disturb each other. (One in a thousand, and one of fewer, for an event that meets a
/// running program of one of them.)
#[test]
fn two_recorders_at_once_count_the_same() {
    let Some(_machine) = machine("two recorders") else { return };
    let folder = Folder::new();
    let first = Recorder::start(&folder, "first", &["-a"]);
    let second = Recorder::start(&folder, "second", &["-a"]);
    run_workload("file-pos", &["--seconds", "1"]).unwrap();
    let counts = [first.stop(), second.stop()].map(|ended| {
        sum(&report(&ended.recording(), &["--by", "lock", "--lock", "file.f_pos_lock", "--task", "file-pos"]).rows).0
    });
    assert!(
        counts[0].abs_diff(counts[1]) <= counts[0] / 1000 + 1,
        "two recorders of the same load counted {counts:?} waits"
    );
}

/// Makes sure that somebody who types just `lockmeter record` learns what to add.
#[test]
fn record_without_arguments_explains_itself() {
    let output = run(lockmeter(["record"]));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    for way in ["-a", "-p PID", "--cgroup PATH", "-- COMMAND"] {
        assert!(said.contains(way), "`{way}` is not explained:\n{said}");
    }
}

/// Makes sure that a reader that has seen enough (`| head`) is no error.
#[test]
fn a_report_into_a_pipe_that_closes_is_no_error() {
    let Some(_machine) = machine("closed pipe") else { return };
    let folder = Folder::new();
    let recording = Recorder::start(&folder, "recording", &["-a"]);
    run_workload("fork-storm", &["--seconds", "0.5"]).unwrap();
    let recording = recording.stop().recording();
    let mut command = lockmeter(["report", &recording, "--format", "json", "--by", "caller,task"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && !text(&output.stderr).contains("panicked"), "{}", text(&output.stderr));
}

/// Makes sure that the command's leftovers do not keep the recorder waiting: it ends with the command, not with what the
/// command left in the background.
#[test]
fn a_recording_ends_with_its_command_and_not_with_what_that_left_running() {
    let Some(_machine) = machine("background children") else { return };
    let folder = Folder::new();
    let shell = format!(
        "{} --rate 100 --seconds 600 >/dev/null 2>&1 & echo $! > {}; exit 4",
        path_of("file-pos"),
        folder.file("pid")
    );
    let ended = Recorder::start(&folder, "recording", &["--", "sh", "-c", &shell]).wait();
    let pid: u32 = fs::read_to_string(folder.path().join("pid")).unwrap().trim().parse().unwrap();
    let still_runs = PathBuf::from(format!("/proc/{pid}/stat")).exists();
    signal(pid, libc::SIGINT);
    assert_eq!(ended.status.code(), Some(4), "{}", ended.stderr);
    assert!(still_runs, "the recorder waited for what the command left running");
}
