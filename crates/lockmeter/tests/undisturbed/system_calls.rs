//! A program that has started makes the same system calls bare and metered, none more often, and futex calls are for words of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;

use super::build::Build;
use super::outcome::Outcome;
use super::program::{Level, PATIENCE, program};
use super::support::{Folder, preload_library, skip};

pub const SOURCE: &str = "system-calls";

/// What a run did between its marks.
struct Traced {
    /// How often each was made.
    calls: BTreeMap<String, u32>,
    /// The words that futex calls were for.
    words: BTreeSet<u64>,
    /// Where the program's own words lie.
    own: Vec<Range<u64>>,
}

impl Traced {
    fn foreign_words(&self) -> Vec<String> {
        let is_own = |word: &u64| self.own.iter().any(|range| range.contains(word));
        self.words.iter().filter(|word| !is_own(word)).map(|word| format!("{word:#x}")).collect()
    }
}

fn traced(folder: &Folder, how: &str, level: Option<Level>) -> Traced {
    let (recording, trace) = (folder.file("recording"), folder.file("trace"));
    let recorder = level.map_or(Vec::new(), |level| {
        let before = [env!("CARGO_BIN_EXE_lockmeter"), "record", "--quiet", "--user", "-o", &recording];
        before.iter().chain(level.flags()).chain(&["--"]).map(|&word| word.to_owned()).collect()
    });
    let program =
        program(SOURCE).arguments(&[how]).under(&["strace", "-f", "-s", "200", "-e", "raw=futex", "-o", &trace]);
    let mut command = program.command(&recorder, folder.path());
    command.env("LOCKMETER_PRELOAD", preload_library());
    let outcome = Outcome::of(command, PATIENCE);
    assert_eq!(outcome.status, Some(program.status), "{}", outcome.stderr);
    read(&fs::read_to_string(trace).unwrap())
}

/// Lines of strace: `PID call(arguments) = result`; one that another thread interrupts is resumed in a line of its own.
fn read(trace: &str) -> Traced {
    let mut traced = Traced { calls: BTreeMap::new(), words: BTreeSet::new(), own: Vec::new() };
    let mut is_between = false;
    for line in trace.lines() {
        let Some((_, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        let Some((name, arguments)) = call.split_once('(') else { continue };
        if let Some(said) = arguments.strip_prefix("-1, \"").and_then(|said| said.split('"').next()) {
            match said.split(' ').collect::<Vec<_>>()[..] {
                ["begin"] => is_between = true,
                ["end"] => is_between = false,
                ["own", begin, end] => traced.own.push(number(begin)..number(end)),
                _ => panic!("{line}"),
            }
        } else if is_between && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            *traced.calls.entry(name.to_owned()).or_default() += 1;
            if name == "futex" {
                traced.words.insert(number(arguments.split([',', ')']).next().unwrap()));
            }
        }
    }
    assert!(!is_between && !traced.calls.is_empty(), "the marks are missing:\n{trace}");
    traced
}

fn number(text: &str) -> u64 {
    u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// How often a thread waits is chance, and so is how often it makes this call.
const BY_CHANCE: &str = "futex";

/// What differs between the bare and the metered program.
fn differences(folder: &Folder, how: &str) -> Vec<String> {
    let mut bare = BTreeMap::<String, u32>::new();
    for _ in 0..3 {
        let run = traced(folder, how, None);
        assert_eq!(run.foreign_words(), [""; 0], "bare: the program does not say where all its words lie");
        for (call, count) in run.calls {
            let most = bare.entry(call).or_default();
            *most = count.max(*most);
        }
    }
    let mut differences = Vec::new();
    for level in [Level::Wait, Level::Hold] {
        let metered = traced(folder, how, Some(level));
        for (call, count) in &metered.calls {
            let most = bare.get(call).copied().unwrap_or(0);
            if *count > most && (most == 0 || call != BY_CHANCE) {
                differences.push(format!("{how}, {level:?}: {call} is called {count} times, bare {most}"));
            }
        }
        let foreign = metered.foreign_words();
        if !foreign.is_empty() {
            differences.push(format!("{how}, {level:?}: futex calls for words not its own: {foreign:?}"));
        }
    }
    differences
}

/// Fails unless the program makes the same calls bare and metered.
fn is_same(how: &str) {
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        return skip("system calls", "strace is missing (strace)");
    }
    let folder = Folder::new();
    Build::new(SOURCE).path();
    let differences = differences(&folder, how);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn a_program_without_contention_makes_the_same_system_calls() {
    is_same("uncontended");
}

#[test]
fn a_program_with_contention_makes_the_same_system_calls() {
    is_same("contended");
}
