//! The code of the locks' fast paths, as the compiler leaves it: hooks that do nothing cost nothing, and counted readers look up once
//! where the kernel keeps their CPU.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the example as a release, with these flags for the compiler, in a folder of its own.
fn example(folder: &str, flags: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(folder);
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--quiet", "--package", "lockmeter-locks", "--example", "fast_path"])
        .arg("--target-dir")
        .arg(&target)
        .env("RUSTFLAGS", flags)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target.join("release/examples/fast_path")
}

/// The instructions of one function, without what depends on where it lies.
fn instructions(program: &Path, function: &str) -> Vec<String> {
    let listing = Command::new("objdump")
        .args(["--disassemble", "--no-show-raw-insn", "--no-addresses", "-Mintel"])
        .arg(format!("--disassemble={function}"))
        .arg(program)
        .output()
        .expect("objdump, of Debian's binutils, runs");
    let text = String::from_utf8(listing.stdout).unwrap();
    let body = text.split(&format!("<{function}>:\n")).nth(1).unwrap_or_else(|| panic!("no {function} in {text}"));
    let lines = body.lines().take_while(|line| !line.is_empty()).map(|line| {
        // Calls and jumps name their target twice, as an address and as a symbol with an offset or a hash.
        let line = line.trim();
        let (code, _symbol) = line.split_once(" <").unwrap_or((line, ""));
        let words = code.split_whitespace().filter(|_| !code.starts_with("nop"));
        let is_branch = code.starts_with('j') || code.starts_with("call");
        words.take(if is_branch { 1 } else { usize::MAX }).collect::<Vec<_>>().join(" ")
    });
    lines.filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_fast_paths_have_no_instruction_more_than_without_hooks() {
    if !cfg!(target_arch = "x86_64") {
        eprintln!("SKIPPED: reads the code of x86-64 only");
        return;
    }
    let with = example("fast-path", "");
    let without = example("fast-path-without-hooks", "--cfg lockmeter_without_hooks");
    for function in ["fast_mutex", "fast_spin", "fast_write", "fast_read"] {
        let code = instructions(&with, function);
        assert!(code.iter().any(|line| line.starts_with("lock ")), "that is no lock: {code:#?}");
        assert_eq!(code, instructions(&without, function), "{function} differs");
    }
    // And the comparison can tell: hooks that time holds are seen.
    let plain = instructions(&with, "fast_mutex");
    assert!(instructions(&with, "fast_mutex_metered").len() > plain.len());
}

/// A pair of a counted reader's, from the first sequence to the second, holds on to what leads to the thread's area.
#[test]
fn a_counted_reader_looks_up_once_where_its_cpu_is_kept() {
    if !cfg!(target_arch = "x86_64") {
        eprintln!("SKIPPED: reads the code of x86-64 only");
        return;
    }
    let code = instructions(&example("fast-path", ""), "fast_counted_read");
    // A sequence begins with a store to the thread's area: `mov QWORD PTR fs:[rax+0x8],rcx`.
    let offset_of = |line: &str| Some(line.strip_prefix("mov QWORD PTR fs:[")?.split_once("+0x8],")?.0.to_owned());
    let begins: Vec<(usize, String)> =
        code.iter().enumerate().filter_map(|(at, line)| Some((at, offset_of(line)?))).collect();
    let [(first, offset), (second, same)] = &begins[..] else { panic!("not two sequences: {code:#?}") };
    assert_eq!(offset, same, "{code:#?}");
    let overwrites = |line: &&String| line.starts_with(&format!("mov {offset},"));
    assert_eq!(code[*first..*second].iter().find(overwrites), None, "{code:#?}");
}
