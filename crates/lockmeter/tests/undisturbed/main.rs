//! Programs run as if nobody metered them: each runs bare, under `record --user`, with `--hold` and, where that applies, with `--swap`,
//! and says and does the same. What a program itself compares (results, `errno`, guard bytes around locks) is in what it says.
//!
//! [`table`] has a row for each program: how it is built and run, and what is known to fail today.

mod build;
mod outcome;
mod program;
#[path = "../support/mod.rs"]
mod support;
mod system_calls;
mod table;

use std::collections::BTreeSet;

use outcome::Outcome;
use program::{Level, PATIENCE, Program};
use support::{Folder, lockmeter, preload_library, run, say, text};

const WITHOUT_FAST_PATHS: [(&str, &str); 1] = [("LOCKMETER_NO_FAST_PATHS", "1")];

/// The table has this many programs at least.
const FEWEST_PROGRAMS: usize = 60;

#[test]
fn locks_of_every_kind_taken_in_every_way() {
    are_undisturbed("locks", table::locks());
}

/// Makes sure that glibc's own functions serve as well, in case that the fast paths are suspected of anything.
#[test]
#[ignore = "`make test-programs` runs it"]
fn locks_of_every_kind_without_fast_paths() {
    are_undisturbed_with("locks", table::locks(), &WITHOUT_FAST_PATHS);
}

/// As above, of all other programs that are metered from inside.
#[test]
#[ignore = "`make test-programs` runs it"]
fn all_other_programs_without_fast_paths() {
    let kinds = [
        table::threads,
        table::signals,
        table::processes,
        table::confined,
        table::seccomp,
        table::libraries,
        table::allocators,
        table::tools,
    ];
    let programs = kinds.into_iter().flat_map(|kind| kind());
    // The level at which each lock that is free runs through them.
    let holding =
        programs.filter(|program| program.levels.contains(&Level::Hold)).map(|program| program.at(&[Level::Hold]));
    are_undisturbed_with("without fast paths", holding.collect(), &WITHOUT_FAST_PATHS);
}

#[test]
fn threads_many_small_and_ended_in_odd_ways() {
    are_undisturbed("threads", table::threads());
}

#[test]
fn signals_jumps_and_coroutines() {
    are_undisturbed("signals", table::signals());
}

#[test]
fn processes_that_fork_spawn_and_end() {
    are_undisturbed("processes", table::processes());
}

#[test]
fn programs_that_are_confined() {
    are_undisturbed("confined", table::confined());
}

#[test]
fn seccomp_filters_that_allow_only_what_the_program_does() {
    are_undisturbed("seccomp", table::seccomp());
}

#[test]
fn libraries_loaded_preloaded_and_interposed() {
    are_undisturbed("libraries", table::libraries());
}

#[test]
fn sanitizers_shared_and_static() {
    are_undisturbed("sanitizers", table::sanitizers());
}

#[test]
fn allocators_linked_and_preloaded() {
    are_undisturbed("allocators", table::allocators());
}

#[test]
fn debuggers_tracers_and_build_variants() {
    are_undisturbed("tools", table::tools());
}

/// Metered from outside, so the machine's kernel is metered, too.
#[test]
fn programs_that_cannot_be_metered_from_inside() {
    let Some(_machine) = support::machine("programs that cannot be metered from inside") else { return };
    are_undisturbed("outside", table::outside());
}

#[test]
fn the_table_has_what_was_asked_for_and_every_source_is_in_it() {
    let programs = table::all();
    let names: BTreeSet<&String> = programs.iter().map(|program| &program.name).collect();
    assert_eq!(names.len(), programs.len(), "two programs have the same name");
    assert!(names.len() >= FEWEST_PROGRAMS, "{} programs", names.len());
    let built: BTreeSet<&str> = programs.iter().map(|program| program.build.source).collect();
    for file in std::fs::read_dir(build::sources()).unwrap().flatten() {
        let path = file.path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let is_program = path.extension().is_some_and(|ending| ending == "c" || ending == "cc");
        let is_used = built.contains(name) || table::LIBRARIES.contains(&name) || name == system_calls::SOURCE;
        assert!(!is_program || is_used, "no test runs {}", path.display());
    }
}

fn are_undisturbed(kind: &str, programs: Vec<Program>) {
    are_undisturbed_with(kind, programs, &[]);
}

/// As [`are_undisturbed`], with these variables in the environment of the programs.
fn are_undisturbed_with(kind: &str, programs: Vec<Program>, variables: &[(&str, &str)]) {
    preload_library();
    let folder = Folder::new();
    // For a person who repairs one of them.
    let only = std::env::var("LOCKMETER_TEST_ONLY").ok();
    let wanted = |program: &Program| only.as_ref().is_none_or(|only| program.name.contains(only.as_str()));
    let mut failures = Vec::new();
    for program in programs.into_iter().filter(wanted) {
        if let Some(why) = program.missing() {
            support::skip(&format!("{kind}: {}", program.name), &why);
            continue;
        }
        failures.extend(
            failures_of(&program, &folder, variables).into_iter().map(|failure| format!("{}: {failure}", program.name)),
        );
    }
    assert!(failures.is_empty(), "{} differences:\n\n{}\n", failures.len(), failures.join("\n\n"));
}

fn failures_of(program: &Program, folder: &Folder, variables: &[(&str, &str)]) -> Vec<String> {
    let begun = std::time::Instant::now();
    let bare = Outcome::of(program.command(&[], folder.path()), PATIENCE);
    if bare.status != Some(program.status) {
        return vec![format!(
            "bare, it ended with {:?} instead of {}; it said:\n{}{}",
            bare.status, program.status, bare.stdout, bare.stderr
        )];
    }
    let mut failures = Vec::new();
    for &level in &program.levels {
        let flags = level.flags().join(" ");
        let disturbed = disturbance(program, level, &bare, folder, variables);
        failures.extend(disturbed.map(|what| format!("record --user {flags}\n{what}")));
    }
    if std::env::var_os("LOCKMETER_TEST_TIMES").is_some() {
        say(&format!("{:>6} ms {}", begun.elapsed().as_millis(), program.name));
    }
    failures
}

/// What differs when the program is metered at this level.
fn disturbance(
    program: &Program,
    level: Level,
    bare: &Outcome,
    folder: &Folder,
    variables: &[(&str, &str)],
) -> Option<String> {
    let recording = folder.file("recording");
    let _ = std::fs::remove_file(&recording);
    let before = [env!("CARGO_BIN_EXE_lockmeter"), "record", "--quiet", "--user", "-o", &recording];
    let words = before.iter().chain(level.flags()).chain(&["--"]).map(|&word| word.to_owned());
    let mut command = program.command(&words.collect::<Vec<_>>(), folder.path());
    command.env("LOCKMETER_PRELOAD", preload_library()).envs(variables.iter().copied());
    let metered = Outcome::of(command, PATIENCE);
    metered.difference_from(bare).or_else(|| what_was_not_seen(program, level, &recording))
}

/// A program that nobody metered is not disturbed either, and shows nothing.
fn what_was_not_seen(program: &Program, level: Level, recording: &str) -> Option<String> {
    if level == Level::Wait || program.unseen.contains(&level) {
        return None;
    }
    let output = run(lockmeter(["report", "--format", "json", recording]));
    let Ok(report) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
        return Some(format!("its recording cannot be read: {}", text(&output.stderr)));
    };
    let seen = match level {
        Level::Swap => report["swapped"].as_object().is_some_and(|swapped| !swapped.is_empty()),
        _ => report["rows"].as_array().is_some_and(|rows| rows.iter().any(|row| row["happened"] == "hold")),
    };
    (!seen).then(|| format!("no lock of it was seen; lost: {}", report["lost"]))
}
