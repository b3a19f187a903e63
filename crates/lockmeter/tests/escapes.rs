//! A program with names that steer terminals, spreadsheets and parsers, under every command: none of them comes out as it is.

mod support;
#[path = "support/terminal.rs"]
mod terminal;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use support::harmful_names::{
    COLOURS, FILE, LOCK, OVERWRITTEN, assert_harmless, command, harmless, harmless_success, is_harmful, on_terminal,
    path, program, sent_to_terminal,
};
use support::{Folder, machine, run, text, until};
use terminal::Terminal;

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

/// The string table of a profile: numbers beside it may look like anything.
fn strings_of_pprof(mut bytes: &[u8]) -> Vec<String> {
    const STRING_TABLE: u64 = 6;
    const VARINT: u64 = 0;
    const BYTES: u64 = 2;
    fn varint(bytes: &mut &[u8]) -> u64 {
        let length = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let (number, rest) = bytes.split_at(length);
        *bytes = rest;
        number.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f))
    }
    let mut strings = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let number = varint(&mut bytes);
        if tag & 7 == BYTES {
            let (field, rest) = bytes.split_at(number as usize);
            bytes = rest;
            if tag >> 3 == STRING_TABLE {
                strings.push(String::from_utf8(field.to_vec()).unwrap());
            }
        } else {
            assert_eq!(tag & 7, VARINT, "a profile has no other fields");
        }
    }
    strings
}

#[test]
fn pprof_strings_are_harmless() {
    let Recorded { folder, recording, .. } = recorded();
    let profile = folder.file("profile.pb.gz");
    harmless_success(&["report", recording, "--format", "pprof", "-o", &profile]);
    let mut gunzip = Command::new("gzip");
    gunzip.args(["-dc", &profile]);
    let strings = strings_of_pprof(&run(gunzip).stdout);
    let holds = |part: &str| strings.iter().any(|string| string.contains(part));
    assert!(holds(LOCK), "the lock is not in the profile");
    for part in ["\x1b[", "\u{202e}", "\u{9b}31m", "\u{9b}x", "lock\n", "\u{200b}"] {
        assert!(!holds(part), "{part:?} is in the profile");
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
    let refused: [&[&str]; 10] = [
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
    ];
    for arguments in refused {
        let output = harmless(arguments);
        assert!(!output.status.success(), "{arguments:?}");
    }
    // clap's own words have several lines.
    for (arguments, status) in [
        (["report", "--by", "\x1b[31mlock\u{202e}"], 2),
        (["\u{9b}31m", "x", "y"], 2),
        // Two recordings that are none.
        (["report", &odd, "\x1b[2J"], 4),
    ] {
        let output = run(command(&arguments));
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert_harmless(&format!("{arguments:?}"), &output.stderr, &[]);
        assert_eq!(sent_to_terminal(folder, &arguments, &[]).status.code(), Some(status));
    }
    assert!(text(&run(command(&["--help"])).stdout).contains("Usage"), "help goes to standard output");
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

/// What a terminal is sent by `top`, which must show all of these, until `q` is pressed. Fails if any of it is harmful.
fn harmless_screen(arguments: &[&str], shows: &[&str]) {
    // In a name, and nothing that the screen itself sends.
    const NEVER: [&str; 8] = ["\x1b[31m", "\x1b]", "\u{9b}", "\u{202e}", "\u{2066}", "\u{200b}", "\u{85}", "\x7f"];
    let mut top = Terminal::start(&mut command(arguments), (240, 60));
    // Plays a recording to its end.
    top.press(">>>>>");
    shows.iter().for_each(|text| drop(top.until_shown(text)));
    // Whole stacks; and a name that is typed is a name, too.
    top.press("\r");
    let screen = top.press_and_wait("/\u{202e}\r", "only \\u{202e}:");
    assert_harmless("the screen of top", screen.as_bytes(), &[]);
    top.press("q");
    let (status, sent) = top.ended();
    assert!(status.success());
    NEVER.iter().for_each(|sequence| assert!(!sent.contains(sequence), "{arguments:?}: {sequence:?} was sent"));
}

/// Makes sure that no name reaches the terminal as it is, from a program that runs or from a recording, nor a file.
#[test]
fn top_is_harmless_on_a_terminal_and_in_a_file() {
    let Some(_machine) = machine("top_is_harmless_on_a_terminal_and_in_a_file") else { return };
    let Recorded { program, recording, .. } = recorded();
    let load = KilledAtEnd(Command::new(program).arg("1000000000").stdin(Stdio::null()).spawn().unwrap());
    let pid = load.0.id().to_string();
    until("the program has its threads", || {
        fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() == 9)
    });
    for by in ["lock", "task", "lock,caller"] {
        let name = if by == "task" { "\\u{" } else { &LOCK[..20] };
        harmless_screen(&["top", "-p", &pid, "--by", by], &[name]);
        harmless_screen(&["top", recording, "--by", by], &["END OF RECORDING", name]);
        let file = harmless_success(&["top", "-p", &pid, "--by", by, "-d", "1s"]);
        assert!(by != "lock" || file.contains(LOCK), "{file}");
    }
}

/// A program that does not outlive a test that fails.
struct KilledAtEnd(Child);

impl Drop for KilledAtEnd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
