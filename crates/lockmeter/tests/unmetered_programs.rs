//! Programs below a metered one that cannot be metered from inside: they run as without a meter, and the report says how many there were.

mod support;

use std::ffi::OsStr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use support::users::{A, Arena};
use support::{Folder, copy_program, lockmeter, preload_library, run, skip, text, workload_sources};

/// The user and group `nobody`.
const NOBODY: u32 = 65_534;

fn compile(folder: &Folder, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    try_compile(folder, source, name, flags).unwrap_or_else(|why| panic!("{why}"))
}

/// The program, or what the compiler said.
fn try_compile(folder: &Folder, source: &str, name: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let program = folder.path().join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-pthread"]).args(flags).arg("-o").arg(&program);
    compiler.arg(workload_sources().join("user").join(source));
    let output = run(compiler);
    if output.status.success() { Ok(program) } else { Err(text(&output.stderr)) }
}

/// What the command printed, its exit status, and the report.
fn report(folder: &Folder, command: &[&OsStr]) -> (Output, Value) {
    preload_library();
    let recording = folder.file("recording");
    let mut recorder = lockmeter(["record", "--quiet", "--user", "-o", &recording, "--"]);
    recorder.args(command);
    let output = run(recorder);
    let report = run(lockmeter(["report", "--format", "json", &recording]));
    let report = serde_json::from_slice(&report.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output, report)
}

/// As [`report`], but of that only what it counts as lost.
fn record(folder: &Folder, command: &[&OsStr]) -> (Output, Value) {
    let (output, report) = report(folder, command);
    // From outside, stacks of programs that end at once may be lost: not what these tests are about.
    let lost = report["lost"].as_object().unwrap().iter().filter(|(cause, _)| cause.starts_with("user_"));
    (output, lost.map(|(cause, count)| (cause.clone(), count.clone())).collect::<serde_json::Map<_, _>>().into())
}

fn below_shell(folder: &Folder, script: &str) -> (Output, Value) {
    record(folder, &["sh".as_ref(), "-c".as_ref(), script.as_ref()])
}

/// A program that runs as `nobody`, whichever user starts it; `None` where only root can make one.
fn setuid_program(folder: &Folder, bits: u32) -> Option<PathBuf> {
    let program = compile(folder, "sanitized.c", "privileged", &[]);
    if chown(&program, Some(NOBODY), Some(NOBODY)).is_err() {
        skip("a setuid program", "not root");
        return None;
    }
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(bits)).unwrap();
    Some(program)
}

/// Regression: with a library that recorded nothing, one of another version, the report said that nothing was lost.
#[test]
fn a_command_of_which_nothing_is_heard_counts_as_not_metered() {
    let folder = Folder::new();
    let (source, library) = (folder.path().join("empty.c"), folder.path().join("empty.so"));
    std::fs::write(&source, "").unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-o"]).arg(&library).arg(&source);
    assert!(run(compiler).status.success());
    let recording = folder.file("recording");
    let mut recorder = lockmeter(["record", "--user", "-q", "-o", &recording, "--", "true"]);
    recorder.env("LOCKMETER_PRELOAD", &library);
    assert!(run(recorder).status.success());
    let report = run(lockmeter(["report", "--format", "json", &recording]));
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["lost"]["user_child_unmetered"], 1, "{report:#}");
}

/// Regression: they were neither metered nor counted, for the loader ignores what is to be preloaded.
#[test]
fn setuid_and_setgid_programs_are_counted_as_not_metered() {
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    for bits in [0o4755, 0o2755, 0o4711] {
        let Some(program) = setuid_program(&folder, bits) else { return };
        let (output, lost) = below_shell(&folder, &format!("{} 7; exit $?", program.display()));
        assert_eq!(output.status.code(), Some(7), "{bits:o}: {output:?}");
        assert_eq!(lost, serde_json::json!({ "user_not_preloaded": 1 }), "{bits:o}");
    }
    let Some(program) = setuid_program(&folder, 0o755) else { return };
    let (output, lost) = below_shell(&folder, &format!("{} 7; exit $?", program.display()));
    assert_eq!((output.status.code(), lost), (Some(7), serde_json::json!({})), "of another user, but with no rights");
}

/// By each of libc's functions that execute a program.
#[test]
fn a_setuid_program_is_counted_however_it_is_executed() {
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let executes = compile(&folder, "executes.c", "executes", &[]);
    let Some(program) = setuid_program(&folder, 0o4755) else { return };
    let (output, lost) = record(&folder, &[executes.as_os_str(), program.as_os_str()]);
    assert!(output.status.success(), "{output:?}");
    let ways = text(&output.stdout).lines().count();
    assert!(ways >= 12, "{output:?}");
    assert_eq!(lost, serde_json::json!({ "user_not_preloaded": ways }));
}

#[test]
fn a_static_program_is_counted_as_not_metered_and_the_loader_is_not() {
    let folder = Folder::new();
    let program = compile(&folder, "sanitized.c", "sanitized", &["-static"]);
    let (output, lost) = below_shell(&folder, &format!("{} 7; exit $?", program.display()));
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(lost, serde_json::json!({ "user_not_preloaded": 1 }));
}

/// Libc executes a shell by itself, which executes the program. Makes sure that each is counted once, and runs as it does bare.
#[test]
fn programs_that_system_and_popen_run_are_counted() {
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let runs = compile(&folder, "runs-commands.c", "runs-commands", &[]);
    let mut programs = Vec::new();
    for (name, flags, cause) in [
        ("dynamic", &[][..], None),
        ("static", &["-static"], Some("user_not_preloaded")),
        ("sanitized", &["-fsanitize=address"], Some("user_incompatible")),
        ("of-32-bits", &["-m32"], Some("user_incompatible")),
    ] {
        match try_compile(&folder, "sanitized.c", name, flags) {
            Ok(program) => programs.push((program, cause)),
            Err(why) => skip(&format!("a program compiled with {flags:?}"), &why),
        }
    }
    programs.extend(setuid_program(&folder, 0o4755).map(|program| (program, Some("user_not_preloaded"))));
    for (program, cause) in programs {
        let command = format!("{} 7", program.display());
        let mut bare = Command::new(&runs);
        bare.arg(&command);
        let (output, lost) = record(&folder, &[runs.as_os_str(), command.as_ref()]);
        assert_eq!(text(&output.stdout), text(&run(bare).stdout), "{command}");
        let counted: serde_json::Map<_, _> = cause.map(|cause| (cause.to_owned(), 2.into())).into_iter().collect();
        assert_eq!(lost, Value::Object(counted), "{command}");
    }
}

/// Regression: it was said to be metered from outside, and then to wait for nothing.
#[test]
fn a_program_of_32_bits_is_said_to_be_unmetered_and_counted() {
    let folder = Folder::new();
    let program = match try_compile(&folder, "sanitized.c", "of-32-bits", &["-m32"]) {
        Ok(program) => program,
        Err(why) => return skip("a program of 32 bits", &why),
    };
    preload_library();
    let recording = folder.file("recording");
    let mut recorder = lockmeter(["record", "--user", "-o", &recording, "--"]);
    let output = run_after(recorder.arg(&program), "7");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert_eq!(said.matches("metering the time of its threads alone").count(), 1, "{said}");
    let report = run(lockmeter(["report", "--format", "json", &recording]));
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["lost"]["user_incompatible"], 1, "{report:#}");
}

/// Glibc's loader is linked statically, too, but loads another program and the library. Regression: that program counted as replaced by
/// another build, for the kernel calls it the loader, and nothing in it was named.
#[test]
fn a_program_that_the_loader_is_told_to_run_is_metered_by_its_own_name() {
    let folder = Folder::new();
    let program = compile(&folder, "sanitized.c", "dynamic", &[]);
    let loader = "/lib64/ld-linux-x86-64.so.2";
    for way in
        [format!("cd {}; {loader} ./dynamic 7", folder.path().display()), format!("{loader} {} 7", program.display())]
    {
        let (output, report) = report(&folder, &["sh".as_ref(), "-c".as_ref(), format!("{way}; exit $?").as_ref()]);
        assert_eq!(output.status.code(), Some(7), "{way}: {output:?}");
        assert_eq!(report["lost"], serde_json::json!({}), "{way}");
        let rows = report["rows"].as_array().unwrap();
        assert!(rows.iter().any(|row| row["lock"].as_str().unwrap().starts_with("dynamic:")), "{way}: {rows:#?}");
    }
}

/// They get no library if another user than root executes them. Regression: they were neither metered nor counted.
#[test]
fn programs_with_file_capabilities_are_counted_as_not_metered() {
    let name = "a program with file capabilities";
    let folder = Folder::new();
    let Some(arena) = Arena::open(name) else { return };
    let program = arena.path("capable");
    copy_program(compile(&folder, "sanitized.c", "sanitized", &[]), &program);
    let own = arena.folder_of(A, "own");
    let recording = own.join("recording");
    let recording = recording.to_str().unwrap();
    let lost_by = |user: u32, run_by: &str| {
        let mut recorder = arena.lockmeter(user, &["record", "--quiet", "--user", "-o", recording, "--", "sh", "-c"]);
        let output = run_after(&mut recorder, &format!("{run_by} {} 7; exit $?", program.display()));
        assert_eq!(output.status.code(), Some(7), "{user} {run_by}: {output:?}");
        let report = run(arena.lockmeter(user, &["report", "--format", "json", recording]));
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        std::fs::remove_file(recording).unwrap();
        report["lost"].clone()
    };
    assert_eq!(lost_by(A, ""), serde_json::json!({}), "without capabilities");
    let set = Command::new("setcap").arg("cap_net_raw+ep").arg(&program).status();
    if !set.is_ok_and(|status| status.success()) {
        return skip(name, "setcap is missing (libcap2-bin), or cannot set any here");
    }
    let counted = serde_json::json!({ "user_not_preloaded": 1 });
    assert_eq!(lost_by(A, ""), counted);
    // Such a program begins as one with rights of its own, though it gets none.
    assert_eq!(lost_by(A, "setpriv --no-new-privs"), counted);
    assert_eq!(lost_by(support::users::ROOT, ""), serde_json::json!({}), "root has them anyhow");
}

/// By Landlock, for few machines have SELinux and AppArmor both; what counts is that the library's memory is out of the program's reach.
#[test]
fn a_program_that_a_policy_keeps_from_the_sessions_memory_is_counted() {
    const NOT_POSSIBLE_HERE: i32 = 77;
    let folder = Folder::new();
    let confined = compile(&folder, "confined.c", "confined", &[]);
    let program = compile(&folder, "sanitized.c", "sanitized", &[]);
    let (output, lost) = below_shell(&folder, &format!("{} {} 7; exit $?", confined.display(), program.display()));
    if output.status.code() == Some(NOT_POSSIBLE_HERE) {
        return skip("a confined program", "this kernel has no Landlock");
    }
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(lost, serde_json::json!({ "user_not_preloaded": 1 }));
}

fn run_after(command: &mut Command, script: &str) -> Output {
    command.arg(script);
    command.output().unwrap()
}

/// Where nobody may gain rights, the bit says nothing. Regression: such programs were metered, and counted as not metered.
#[test]
fn a_setuid_program_that_gains_no_rights_is_metered() {
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let Some(program) = setuid_program(&folder, 0o4755) else { return };
    let script = format!("setpriv --no-new-privs {} 7; exit $?", program.display());
    let (output, report) = report(&folder, &["sh".as_ref(), "-c".as_ref(), script.as_ref()]);
    assert_eq!((output.status.code(), &report["lost"]), (Some(7), &serde_json::json!({})), "{output:?}");
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["lock"].as_str().unwrap().starts_with("privileged:")), "{rows:#?}");
}

/// As sudo and its like do.
#[test]
fn a_program_with_an_environment_of_its_own_is_counted() {
    let folder = Folder::new();
    let program = compile(&folder, "sanitized.c", "sanitized", &[]);
    for clean in ["env -i", "env -u LD_PRELOAD"] {
        let (output, lost) = below_shell(&folder, &format!("{clean} {} 7; exit $?", program.display()));
        assert_eq!(output.status.code(), Some(7), "{clean}: {output:?}");
        assert_eq!(lost, serde_json::json!({ "user_own_environment": 1 }), "{clean}");
    }
    // One that is not there is none.
    let (output, lost) = below_shell(&folder, &format!("env -i {}/missing; true", folder.path().display()));
    assert_eq!((output.status.code(), lost), (Some(0), serde_json::json!({})));
}

/// Regression: it was refused, though below a shell it runs.
#[test]
fn without_privileges_a_program_with_a_sanitizer_runs_unmetered() {
    let name = "a program with a sanitizer that may not be metered from outside";
    let folder = Folder::new();
    let Some(arena) = Arena::open(name) else { return };
    let program = compile(&folder, "sanitized.c", "sanitized", &["-fsanitize=address"]);
    let here = arena.path("sanitized");
    copy_program(&program, &here);
    let own = arena.folder_of(A, "own");
    let recording = own.join("recording");
    let recording = recording.to_str().unwrap();
    for flags in [&["--user"][..], &[], &["--user", "--hold"]] {
        let mut command = arena.lockmeter(A, &[&["record"], flags, &["-o", recording, "--"]].concat());
        command.arg(&here).arg("7");
        let output = run(command);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{flags:?}: {said}");
        assert_eq!(said.matches("it runs unmetered").count(), 1, "{flags:?}: {said}");
        assert!(said.contains("metering no locks of "), "{flags:?}: {said}");
        let report = run(arena.lockmeter(A, &["report", "--format", "json", recording]));
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        assert_eq!(report["lost"], serde_json::json!({ "user_incompatible": 1 }), "{flags:?}");
    }
}
