//! A program with names that steer terminals, spreadsheets and parsers, under every command: none of them comes out as it is.

mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use object::{Object, ObjectSection};
use support::{Folder, lockmeter, machine, preload_library, run, text, until};

/// What the program's file is called.
const FILE: &str = "=\x1b[31mfile\nforged\u{202e}\u{9b}x";

/// Names in the file of the program, and what is written over them.
const OVERWRITTEN: [(&str, &str); 2] = [
    ("lock_whose_name_is_overwritten_by_tests", "=\x1b[31mlock\nforged;,\"\u{202e}\u{9b}\x7f\u{200b}x"),
    ("section_whose_name_is_overwritten", "@\x1b[2Jcode\r\n;\u{2066}\u{85}x"),
];

/// How the lock's name comes out for people.
const LOCK: &str = "=\\u{1b}[31mlock\\nforged;,\"\\u{202e}\\u{9b}\\u{7f}\\u{200b}x";

/// Control sequences of tables on a terminal.
const COLOURS: [&str; 4] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[33m"];

/// Those of `top`, too, and how a terminal ends lines.
const SCREEN: [&str; 11] = [
    "\x1b[0m",
    "\x1b[1m",
    "\x1b[2m",
    "\x1b[33m",
    "\x1b[H",
    "\x1b[K",
    "\x1b[J",
    "\x1b[?1049h",
    "\x1b[?25l",
    "\x1b[?25h",
    "\x1b[?1049l",
];

/// What a terminal obeys, or what hides or reorders text: a list of its own, not the one under test.
fn is_harmful(c: char) -> bool {
    matches!(c,
        '\0'..='\x09' | '\x0b'..='\x1f' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

/// Fails if these bytes hold anything harmful besides line feeds and what the format itself has.
fn assert_harmless(what: &str, bytes: &[u8], own: &[&str]) {
    let written = std::str::from_utf8(bytes).unwrap_or_else(|error| panic!("{what}: {error}: {}", text(bytes)));
    let names = own.iter().fold(written.to_owned(), |text, sequence| text.replace(sequence, ""));
    if let Some(at) = names.find(is_harmful) {
        let around: String = names[..at].chars().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect();
        panic!("{what}: {:?} after {around:?}", names[at..].chars().next());
    }
    // A forged line begins like the rest of a name.
    for line in names.lines() {
        assert!(
            !line.trim_start().starts_with("forged") && !line.starts_with("lines"),
            "{what}: a forged line: {line}"
        );
    }
}

fn both_are_harmless(what: &str, output: &Output) {
    assert_harmless(what, &output.stdout, &[]);
    assert_harmless(what, &output.stderr, &[]);
}

/// `lockmeter` with these arguments, its library beside it.
fn command(arguments: &[impl AsRef<OsStr>]) -> Command {
    preload_library();
    let mut command = lockmeter([]);
    command.args(arguments);
    command
}

/// Runs it and fails if what it says is not harmless.
fn harmless(arguments: &[&str]) -> Output {
    let output = run(command(arguments));
    both_are_harmless(&format!("{arguments:?}"), &output);
    output
}

/// As [`harmless`], and it must succeed.
fn harmless_success(arguments: &[&str]) -> String {
    let output = harmless(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// What a terminal is sent by `lockmeter` with these arguments, which must succeed.
fn on_terminal(folder: &Folder, arguments: &[&str], own: &[&str]) -> String {
    let output = sent_to_terminal(folder, arguments, own);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stdout));
    text(&output.stdout)
}

fn sent_to_terminal(folder: &Folder, arguments: &[&str], own: &[&str]) -> Output {
    let quoted: Vec<String> = arguments.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
    let line = format!("stty cols 200 rows 60; exec '{}' {}", env!("CARGO_BIN_EXE_lockmeter"), quoted.join(" "));
    let script = folder.file("line.sh");
    fs::write(&script, line).unwrap();
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &format!("sh {script}"), "/dev/null"]);
    terminal.env("SHELL", "/bin/sh").env("TERM", "xterm").env_remove("NO_COLOR").stdin(Stdio::null());
    let output = run(terminal);
    // The terminal puts the carriage returns there.
    assert_harmless(&format!("{arguments:?} on a terminal"), &output.stdout, &[own, &["\r\n"]].concat());
    output
}

/// The program, its names overwritten, in a file with a name of the kind.
fn program(folder: &Folder) -> PathBuf {
    let plain = folder.path().join("odd-names");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-pthread", "-o"]).arg(&plain);
    compiler.arg(support::workload_sources().join("user/odd-names.c"));
    let built = run(compiler);
    assert!(built.status.success(), "{}", text(&built.stderr));
    let mut bytes = fs::read(&plain).unwrap();
    let file = object::File::parse(bytes.as_slice()).unwrap();
    let ranges: Vec<(usize, usize)> = [".strtab", ".dynstr", ".debug_str"]
        .iter()
        .filter_map(|name| file.section_by_name(name)?.file_range())
        .map(|(start, length)| (start as usize, (start + length) as usize))
        .collect();
    for (name, other) in OVERWRITTEN {
        assert!(other.len() <= name.len());
        let mut overwritten = 0;
        for (start, end) in &ranges {
            while let Some(at) = bytes[*start..*end].windows(name.len()).position(|window| window == name.as_bytes()) {
                let place = &mut bytes[start + at..start + at + name.len()];
                place.fill(0);
                place[..other.len()].copy_from_slice(other.as_bytes());
                overwritten += 1;
            }
        }
        assert!(overwritten > 0, "{name} is not in the program's file");
    }
    let program = folder.path().join(FILE);
    fs::write(&program, bytes).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// A program, a recording of its waits and holds, and what recording it said.
struct Recorded {
    folder: Folder,
    program: PathBuf,
    recording: String,
    said: Vec<u8>,
}

fn record(recording: &str, program: &Path) -> Vec<u8> {
    let mut recorder = command(&["record", "--user", "--hold", "--every", "-o", recording, "--"]);
    recorder.arg(program);
    let output = run(recorder);
    assert!(output.status.success(), "{}", text(&output.stderr));
    output.stderr
}

fn recorded() -> &'static Recorded {
    static RECORDED: OnceLock<Recorded> = OnceLock::new();
    RECORDED.get_or_init(|| {
        let folder = Folder::new();
        let program = program(&folder);
        let recording = folder.file("recording");
        let said = record(&recording, &program);
        Recorded { folder, program, recording, said }
    })
}

/// The program as an argument.
fn path(program: &Path) -> &str {
    program.to_str().unwrap()
}

#[test]
fn record_announces_and_sums_up_harmlessly() {
    let Recorded { said, .. } = recorded();
    assert_harmless("record", said, &[]);
    let said = text(said);
    assert!(said.contains("metering") && said.contains("=\\u{1b}[31mfile\\n"), "{said}");
    assert!(said.contains(LOCK) && said.contains("\nlockmeter: wrote "), "{said}");
}

/// Makes sure that a report in any format, grouped in any way, holds the names escaped.
#[test]
fn reports_are_harmless_in_every_format() {
    let Recorded { folder, recording, .. } = recorded();
    for by in ["lock", "task", "caller", "blocker", "instance", "cgroup", "lock,caller", "lock,blocker", "lock,task"] {
        for format in ["table", "json", "folded", "histogram"] {
            harmless_success(&["report", recording, "--by", by, "--format", format]);
        }
        let csv = run(command(&["report", recording, "--by", by, "--format", "csv"]));
        assert!(csv.status.success());
        assert_harmless(&format!("CSV by {by}"), &csv.stdout, &["\r\n"]);
        on_terminal(folder, &["report", recording, "--by", by], &COLOURS);
    }
    let table = harmless_success(&["report", recording, "--by", "lock,task"]);
    assert!(table.contains(LOCK), "{table}");
}

/// Makes sure that JSON gives the names as they are to a program that parses it.
#[test]
fn json_gives_the_names_back() {
    let Recorded { recording, .. } = recorded();
    let json = harmless_success(&["report", recording, "--by", "lock,task", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let lock = OVERWRITTEN[0].1;
    assert!(rows.iter().any(|row| row["lock"].as_str().unwrap().contains(lock)), "{rows:#?}");
    assert!(report["scope"].as_str().unwrap().contains(FILE), "{}", report["scope"]);
    let tasks: Vec<&str> = rows.iter().filter_map(|row| row["task"].as_str()).collect();
    assert!(tasks.iter().any(|task| task.contains(['\x1b', '\u{202e}', '\u{2028}', '\u{9b}'])), "{tasks:?}");
}

/// Makes sure that no cell of text is a formula.
#[test]
fn csv_holds_no_formula() {
    let Recorded { recording, .. } = recorded();
    for by in ["lock", "task", "caller", "lock,blocker"] {
        let csv = run(command(&["report", recording, "--by", by, "--format", "csv"])).stdout;
        for record in csv::Reader::from_reader(csv.as_slice()).records() {
            for part in record.unwrap().iter().flat_map(|cell| cell.split(';')) {
                let is_formula = part.starts_with(['=', '+', '-', '@']) && part.parse::<f64>().is_err();
                assert!(!is_formula, "by {by}: {part}");
            }
        }
    }
}

#[test]
fn pprof_strings_are_harmless() {
    let Recorded { folder, recording, .. } = recorded();
    let profile = folder.file("profile.pb.gz");
    harmless_success(&["report", recording, "--format", "pprof", "-o", &profile]);
    let mut gunzip = Command::new("gzip");
    gunzip.args(["-dc", &profile]);
    let bytes = run(gunzip).stdout;
    let holds = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    assert!(holds(LOCK.as_bytes()), "the lock is not in the profile");
    for part in ["\x1b[", "\u{202e}", "\u{9b}31m", "\u{9b}x", "lock\n", "\u{200b}"] {
        assert!(!holds(part.as_bytes()), "{part:?} is in the profile");
    }
}

#[test]
fn diffs_are_harmless() {
    let Recorded { folder, recording, program, .. } = recorded();
    let after = folder.file("after");
    record(&after, program);
    for by in ["lock", "task", "caller", "lock,blocker"] {
        for format in ["table", "json"] {
            harmless_success(&["diff", recording, &after, "--by", by, "--format", format]);
        }
        on_terminal(folder, &["diff", recording, &after, "--by", by], &COLOURS);
    }
}

/// Makes sure that forecasts, what makes them doubtful, and the sentence that lists locks are harmless. Regression: each printed
/// names as they are.
#[test]
fn predictions_and_their_warnings_are_harmless() {
    let Recorded { folder, recording, .. } = recorded();
    let forecast = harmless_success(&["predict", recording, "--cpus", "2,4"]);
    assert!(forecast.contains(LOCK), "{forecast}");
    let json = harmless_success(&["predict", recording, "--cpus", "2", "--format", "json"]);
    let forecasts: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(forecasts[0]["lock"].as_str().unwrap().contains(OVERWRITTEN[0].1), "{forecasts}");
    on_terminal(folder, &["predict", recording, "--cpus", "2"], &COLOURS);
    // One thread cannot have waited for itself.
    let doubtful = harmless(&["predict", recording, "--cpus", "2", "--threads", "1"]);
    assert!(text(&doubtful.stderr).contains("warning: "), "{doubtful:?}");
    let refused = harmless(&["predict", recording, "--lock", "nosuch"]);
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains(LOCK) && text(&refused.stderr).lines().count() == 1, "{refused:?}");
}

/// Makes sure that a sentence about what the user named is one line and harmless, also where clap says it.
#[test]
fn sentences_about_arguments_are_harmless() {
    let Recorded { folder, recording, .. } = recorded();
    let odd = folder.file("\x1b[31m\nforged\u{202e}\u{9b}.lockmeter");
    fs::write(&odd, "no recording").unwrap();
    let absent = folder.file("absent\x1b[31m\nforged");
    let refused: [&[&str]; 12] = [
        &["report", &odd],
        &["report", &absent],
        &["diff", &odd, recording],
        &["predict", &odd],
        &["report", recording, "--sort", "\x1b[31m\nforged"],
        &["report", recording, "-o", &folder.file("no\x1b[31m\nforged/such")],
        &["record", "--user", "-o", &folder.file("r"), "--", "\x1b[31m\nforged"],
        &["record", "--user", "-o", &folder.file("r"), "--", &odd],
        &["record", "-a", "--cgroup", "/\x1b[31m\nforged"],
        &["record", "--cgroup", "/no\x1b[31m\nforged", "-o", &folder.file("r")],
        &["compare", "--swap", "mutex=std,mutex", "--", "\x1b[31m\nforged"],
        &["overhead", "--each-of", &odd, "--limit", "1%\x1b[31m"],
    ];
    for arguments in refused {
        let output = harmless(arguments);
        assert!(!output.status.success(), "{arguments:?}");
    }
    // clap's own words have several lines.
    for arguments in [["report", "--by", "\x1b[31mlock\u{202e}"], ["\u{9b}31m", "x", "y"], ["report", &odd, "\x1b[2J"]]
    {
        let output = run(command(&arguments));
        assert_eq!(output.status.code(), Some(2));
        assert_harmless(&format!("{arguments:?}"), &output.stderr, &[]);
        assert_eq!(sent_to_terminal(folder, &arguments, &[]).status.code(), Some(2));
    }
    assert!(text(&run(command(&["--help"])).stdout).contains("Usage"), "help goes to standard output");
}

#[test]
fn comparisons_are_harmless() {
    let Recorded { program, folder, .. } = recorded();
    let compare = ["compare", "--swap", "mutex=std,mutex", "--runs", "2", "--warmup", "0"];
    for format in ["table", "json", "csv"] {
        let arguments = [&compare[..], &["--format", format, "--", path(program), "2"]].concat();
        harmless_success(&arguments);
    }
    on_terminal(folder, &[&compare[..], &["--", path(program), "2"]].concat(), &[&COLOURS[..], &["\r\x1b[K"]].concat());
    // What the command printed is shown when it fails.
    let fails = ["--", "sh", "-c", "printf 'a\\tb\\033[31m\\n\\302\\2331m\\n'; exit 3"];
    let output = run(command(&[&compare[..], &fails].concat()));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_harmless("a failed command", &output.stderr, &["\t"]);
    assert!(text(&output.stderr).starts_with("a\tb\\u{1b}[31m\n\\u{9b}1m\n"), "{}", text(&output.stderr));
}

/// Makes sure that the name of a process that outlives the command is escaped.
#[test]
fn what_a_command_leaves_behind_is_named_harmlessly() {
    let Recorded { program, folder, .. } = recorded();
    let mut recorder = command(&["record", "--user", "-o", &folder.file("leaves"), "--", path(program), "1", "leave"]);
    let said = fs::File::create(folder.file("said")).unwrap();
    let mut child = recorder.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(said).spawn().unwrap();
    // The child that stays ends with this.
    let input = child.stdin.take();
    assert!(support::wait(&mut child, "the recorder").success());
    drop(input);
    let said = fs::read(folder.file("said")).unwrap();
    assert_harmless("what is left behind", &said, &[]);
    assert!(text(&said).contains("still ran after its end (\\u{1b}[2J\\nleft, PID"), "{}", text(&said));
}

#[test]
fn a_doctor_is_harmless() {
    for format in ["table", "json"] {
        harmless(&["doctor", "--format", format]);
    }
}

/// Makes sure that `top` sends its own control sequences to a terminal and no others, and none to a file.
#[test]
fn top_is_harmless_on_a_terminal_and_in_a_file() {
    let Some(_machine) = machine("top_is_harmless_on_a_terminal_and_in_a_file") else { return };
    let Recorded { program, folder, .. } = recorded();
    let mut load = Command::new(program).arg("1000000000").stdin(Stdio::null()).spawn().unwrap();
    let pid = load.id().to_string();
    until("the program has its threads", || {
        fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() == 9)
    });
    for by in ["lock", "task", "lock,caller"] {
        let arguments = ["top", "-p", &pid, "--by", by, "-d", "1s"];
        let screen = on_terminal(folder, &arguments, &SCREEN);
        let file = harmless_success(&arguments);
        if by == "lock" {
            assert!(screen.contains(&LOCK[..20]), "{screen}");
            assert!(file.contains(LOCK), "{file}");
        }
    }
    load.kill().unwrap();
    load.wait().unwrap();
}

/// Makes sure that the command's name is escaped in what `overhead` prints, and in the line that says how long it will take.
#[test]
fn overheads_are_harmless() {
    let Some(_machine) = machine("overheads_are_harmless") else { return };
    let Recorded { program, folder, .. } = recorded();
    let overhead = ["overhead", "--levels", "wait", "--runs", "2"];
    for format in ["table", "json"] {
        let said = harmless_success(&[&overhead[..], &["--format", format, "--", path(program), "1"]].concat());
        assert!(said.contains("=\\u{1b}[31mfile\\n") || said.contains("=\\\\u{1b}[31mfile"), "{said}");
    }
    let arguments = [&overhead[..], &["--", path(program), "1"]].concat();
    let screen = on_terminal(folder, &arguments, &[&COLOURS[..], &["\r\x1b[K"]].concat());
    assert!(screen.contains("left; Ctrl-C shows"), "{screen}");
}

/// Makes sure that the tests above would see a name as it is: the program's own names are harmful.
#[test]
fn the_names_are_as_harmful_as_they_should_be() {
    for name in [FILE, OVERWRITTEN[0].1, OVERWRITTEN[1].1] {
        assert!(name.contains(is_harmful));
        assert!(std::panic::catch_unwind(|| assert_harmless("", name.as_bytes(), &[])).is_err());
    }
    assert!(recorded().program.as_os_str().as_bytes().contains(&b'\x1b'));
}
