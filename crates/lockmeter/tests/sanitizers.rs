//! Programs built with sanitizers, and valgrind: they find what they find without a meter, however they are started.

mod support;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::report::json_report;
use support::{preload_library, skip};

/// A build: compiler and flags, and whether its runtime is a library that must come first.
struct Build {
    compiler: &'static str,
    flags: &'static [&'static str],
    must_come_first: bool,
}

const BUILDS: [Build; 12] = [
    Build { compiler: "gcc", flags: &["-fsanitize=address"], must_come_first: true },
    Build { compiler: "gcc", flags: &["-fsanitize=thread"], must_come_first: true },
    Build { compiler: "gcc", flags: &["-fsanitize=undefined"], must_come_first: false },
    Build { compiler: "gcc", flags: &["-fsanitize=leak"], must_come_first: false },
    Build { compiler: "gcc", flags: &["-fsanitize=address", "-static-libasan"], must_come_first: false },
    Build { compiler: "gcc", flags: &["-fsanitize=thread", "-static-libtsan"], must_come_first: false },
    Build { compiler: "clang", flags: &["-fsanitize=address"], must_come_first: false },
    Build { compiler: "clang", flags: &["-fsanitize=thread"], must_come_first: false },
    Build { compiler: "clang", flags: &["-fsanitize=undefined"], must_come_first: false },
    Build { compiler: "clang", flags: &["-fsanitize=memory"], must_come_first: false },
    Build { compiler: "clang", flags: &["-fsanitize=address", "-shared-libsan"], must_come_first: true },
    Build { compiler: "clang", flags: &["-fsanitize=thread", "-shared-libsan"], must_come_first: true },
];

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn compile(folder: &Path, compiler: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let program = folder.join(name);
    let source = support::workload_sources().join("user").join(name.split('-').next().unwrap()).with_extension("c");
    let mut command = Command::new(compiler);
    command
        .args(["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-pthread"])
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(source);
    if flags.contains(&"-shared-libsan") {
        let runtimes = Command::new(compiler).arg("-print-runtime-dir").output().ok()?;
        let old = Command::new(compiler).arg("-print-file-name=libclang_rt.asan-x86_64.so").output().ok()?;
        let old = PathBuf::from(String::from_utf8_lossy(&old.stdout).trim());
        for folder in [Path::new(String::from_utf8_lossy(&runtimes.stdout).trim()), old.parent()?] {
            command.arg(format!("-Wl,-rpath,{}", folder.display()));
        }
    }
    command.output().ok()?.status.success().then_some(program)
}

/// The build, if it is to be had here and runs without a meter: some runtimes do not run on every kernel.
fn build(folder: &Path, number: usize, Build { compiler, flags, .. }: &Build) -> Option<(PathBuf, Output)> {
    let program =
        is_there(compiler).then(|| compile(folder, compiler, &format!("sanitized-{number}"), flags)).flatten();
    let Some(program) = program else {
        skip("a program built with a sanitizer", &format!("no {compiler} {flags:?}"));
        return None;
    };
    let bare = Command::new(&program).arg("7").output().unwrap();
    if bare.status.code() != Some(7) {
        // Nothing that this machine lacks: clang 14's shared ThreadSanitizer crashes at its start.
        support::say(&format!(
            "SKIPPED: {compiler} {flags:?}: its programs do not run without a meter: {}",
            bare.status
        ));
        return None;
    }
    Some((program, bare))
}

fn record(recording: &Path, flags: &[&str], command: &[&OsStr]) -> Output {
    preload_library();
    let mut recorder = support::lockmeter([]);
    recorder.args(["record", "--quiet"]).args(flags).arg("-o").arg(recording).arg("--").args(command).output().unwrap()
}

fn report(recording: &Path) -> Value {
    json_report(recording.to_str().unwrap(), &[])
}

/// How often the mutex was waited for, metered from inside or outside.
fn waits(report: &Value) -> u64 {
    let is_it =
        |row: &&Value| row["happened"] != "hold" && row["lock"].as_str().unwrap_or_default().ends_with(":mutex");
    report["rows"].as_array().unwrap().iter().filter(is_it).filter_map(|row| row["count"].as_u64()).sum()
}

fn said(output: &Output) -> (String, Option<i32>) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

#[test]
fn a_sanitizer_finds_nothing_that_it_does_not_find_without_a_meter() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("recording");
    let machine = support::machine("programs that must not be metered from inside are metered from outside");
    let may_meter_from_outside = machine.is_some();
    for (number, build_of) in BUILDS.iter().enumerate() {
        let Some((program, bare)) = build(folder.path(), number, build_of) else { continue };
        let name = format!("{} {:?}", build_of.compiler, build_of.flags);
        for flags in [&["--user"][..], &["--user", "--hold"]] {
            // By itself: from inside, or where that would disturb it from outside.
            if !build_of.must_come_first || may_meter_from_outside {
                let output = record(&recording, flags, &[program.as_os_str(), "7".as_ref()]);
                assert_eq!(said(&output), said(&bare), "{name} {flags:?}: {output:?}");
                assert!(waits(&report(&recording)) > 0, "{name} {flags:?} is not metered");
            }
            // By a shell, which is metered itself.
            let script = format!("{} 7; exit $?", program.display());
            let output = record(&recording, flags, &["sh".as_ref(), "-c".as_ref(), script.as_ref()]);
            assert_eq!(said(&output), said(&bare), "{name} below sh {flags:?}: {output:?}");
            let unmetered = report(&recording)["lost"]["user_incompatible"].as_u64().unwrap_or(0);
            assert_eq!(unmetered, u64::from(build_of.must_come_first), "{name} below sh {flags:?}");
        }
    }
}

/// By each of libc's functions that execute a program, with the name of a script's interpreter, and by `system` and `popen`.
#[test]
fn a_program_with_a_sanitizer_is_known_however_it_is_executed() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("recording");
    let executes = compile(folder.path(), "cc", "executes", &[]).unwrap();
    let Some((program, _)) = build(folder.path(), 0, &BUILDS[0]) else { return };
    let output = record(&recording, &["--user"], &[executes.as_os_str(), program.as_os_str()]);
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8_lossy(&output.stdout).lines().count();
    let ways = lines as u64;
    assert!(ways >= 12, "{output:?}");
    assert_eq!(report(&recording)["lost"]["user_incompatible"], ways, "{}", report(&recording)["lost"]);

    let script = folder.path().join("script");
    std::fs::write(&script, format!("#!{} 0\n", program.display())).unwrap();
    Command::new("chmod").arg("+x").arg(&script).status().unwrap();
    let python = format!(
        "import os, subprocess, sys\n\
        sys.stdout.flush()\n\
        os.system('{0}')\n\
        os.popen('{0}').read()\n\
        subprocess.run(['{0}'], check=True)\n\
        subprocess.run(['{1}'], check=True)\n",
        program.display(),
        script.display()
    );
    let output = record(&recording, &["--user"], &["python3".as_ref(), "-c".as_ref(), python.as_ref()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(report(&recording)["lost"]["user_incompatible"], 4, "{}", report(&recording)["lost"]);
    let table = support::lockmeter(["report"]).arg(&recording).output().unwrap();
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(
        table.contains(
            "4 programs that the preloaded library would disturb, not metered from inside: linked with a sanitizer"
        ),
        "{table}"
    );
}

#[test]
fn valgrind_finds_no_error_that_it_does_not_find_without_a_meter() {
    let name = "valgrind finds no error that it does not find without a meter";
    if !is_there("valgrind") {
        return skip(name, "no valgrind");
    }
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("recording");
    let program = compile(folder.path(), "cc", "sanitized", &[]).unwrap();
    let machine = support::machine("programs that must not be metered from inside are metered from outside");
    let may_meter_from_outside = machine.is_some();
    for tool in ["memcheck", "helgrind", "drd"] {
        let arguments = [
            format!("--tool={tool}"),
            "-q".into(),
            "--error-exitcode=9".into(),
            program.display().to_string(),
            "7".into(),
        ];
        let bare = Command::new("valgrind").args(&arguments).output().unwrap();
        if bare.status.code() != Some(7) {
            skip(name, &format!("{tool} does not run here: {}", String::from_utf8_lossy(&bare.stderr)));
            continue;
        }
        for flags in [&["--user"][..], &["--user", "--hold"]] {
            if may_meter_from_outside {
                let command: Vec<&OsStr> =
                    ["valgrind"].into_iter().chain(arguments.iter().map(String::as_str)).map(OsStr::new).collect();
                let output = record(&recording, flags, &command);
                assert_eq!(said(&output), said(&bare), "{tool} {flags:?}: {output:?}");
            }
            let script = format!("valgrind {}; exit $?", arguments.join(" "));
            let output = record(&recording, flags, &["sh".as_ref(), "-c".as_ref(), script.as_ref()]);
            assert_eq!(said(&output), said(&bare), "{tool} below sh {flags:?}: {output:?}");
            assert_eq!(report(&recording)["lost"]["user_incompatible"], 1, "{tool} below sh {flags:?}");
        }
    }
}
