//! A program with names that steer terminals, spreadsheets and parsers, and checks that none of them comes out as it is.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use object::{Object, ObjectSection};

use super::{BINARY, Folder, lockmeter, preload_library, run, text, workload_sources};

/// What the program's file is called.
pub const FILE: &str = "=\x1b[31mfile\nforged\u{202e}\u{9b}x";

/// Names in the file of the program, and what is written over them.
pub const OVERWRITTEN: [(&str, &str); 2] = [
    ("lock_whose_name_is_overwritten_by_tests", "=\x1b[31mlock\nforged;,\"\u{202e}\u{9b}\x7f\u{200b}x"),
    ("section_whose_name_is_overwritten", "@\x1b[2Jcode\r\n;\u{2066}\u{85}x"),
];

/// How the lock's name comes out for people.
pub const LOCK: &str = "=\\u{1b}[31mlock\\nforged;,\"\\u{202e}\\u{9b}\\u{7f}\\u{200b}x";

/// Names that would end a script or an element, run code or steer a terminal.
const IN_PAGES: [&str; 6] = [
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror=window.hacked=1>",
    "\"><svg onload=window.hacked=1>",
    "{{script}}<!--",
    "\u{2028}\u{202e}\x1b[31mred",
    "';window.hacked=1;//`${window.hacked=1}`",
];

/// A name for a thing of this kind in a recording of which a page is made. One of each kind has a million letters.
pub fn name_in_pages(what: &str, number: usize) -> String {
    const LONG: usize = 7;
    match number {
        LONG => format!("{what} {number} {}", "long".repeat(250_000)),
        _ => format!("{what} {number} {}", IN_PAGES[number % IN_PAGES.len()]),
    }
}

/// Control sequences of tables on a terminal.
pub const COLOURS: [&str; 4] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[33m"];

/// What draws and takes away the line that shows progress, where a command takes a while.
pub const BAR: [&str; 3] = ["\x1b[2K", "\x1b[1A", "\r"];

/// What a terminal obeys, or what hides or reorders text: a list of its own, not the one under test.
pub fn is_harmful(c: char) -> bool {
    matches!(c,
        '\0'..='\x09' | '\x0b'..='\x1f' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

/// Fails if these bytes hold anything harmful besides line feeds and what the format itself has.
pub fn assert_harmless(what: &str, bytes: &[u8], own: &[&str]) {
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

pub fn both_are_harmless(what: &str, output: &Output) {
    assert_harmless(what, &output.stdout, &[]);
    assert_harmless(what, &output.stderr, &[]);
}

/// The binary under test with these arguments, its library beside it.
pub fn command(arguments: &[impl AsRef<OsStr>]) -> Command {
    preload_library();
    let mut command = lockmeter([]);
    command.args(arguments);
    command
}

/// Runs it and fails if what it says is not harmless.
pub fn harmless(arguments: &[&str]) -> Output {
    let output = run(command(arguments));
    both_are_harmless(&format!("{arguments:?}"), &output);
    output
}

/// As [`harmless`], and it must succeed.
pub fn harmless_success(arguments: &[&str]) -> String {
    let output = harmless(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// What a terminal is sent by the binary under test with these arguments, which must succeed.
pub fn on_terminal(folder: &Folder, arguments: &[&str], own: &[&str]) -> String {
    let output = sent_to_terminal(folder, arguments, own);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stdout));
    text(&output.stdout)
}

pub fn sent_to_terminal(folder: &Folder, arguments: &[&str], own: &[&str]) -> Output {
    let quoted: Vec<String> = arguments.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
    let line = format!("stty cols 200 rows 60; exec '{}' {}", BINARY, quoted.join(" "));
    // Tests share the folder.
    static SCRIPTS: AtomicU32 = AtomicU32::new(0);
    let script = folder.file(&format!("line-{}.sh", SCRIPTS.fetch_add(1, Ordering::Relaxed)));
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
pub fn program(folder: &Folder) -> PathBuf {
    let plain = folder.path().join("odd-names");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-pthread", "-o"]).arg(&plain);
    compiler.arg(workload_sources().join("user/odd-names.c"));
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

/// The program as an argument.
pub fn path(program: &Path) -> &str {
    program.to_str().unwrap()
}
