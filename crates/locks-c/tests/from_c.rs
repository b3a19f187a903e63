//! The header and the libraries from C and C++, with all warnings as errors.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo put the library for this test: beside its program, or one folder up.
fn library(name: &str) -> PathBuf {
    let program = env::current_exe().expect("a program has a path");
    let places = program.ancestors().skip(1).take(2);
    places
        .map(|place| place.join(name))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("{name} is not near {}: the crate type is missing in Cargo.toml", program.display()))
}

fn compile_and_run(compiler: &str, language: &[&str], link: &[&Path], label: &str) {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("locks-{label}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/locks.c");
    let mut command = Command::new(compiler);
    command.args(language).args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-pthread", "-I"]);
    command.arg(env!("LOCKS_INCLUDE")).arg(source).args(["-x", "none"]).args(link);
    command.args(["-lgcc_s", "-lm", "-ldl", "-o"]).arg(&program);
    let compiled = command.output().unwrap_or_else(|error| panic!("cannot run {compiler}: {error}"));
    assert!(compiled.status.success(), "{compiler}: {}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&program).output().expect("just compiled");
    assert_eq!(ran.status.code(), Some(0), "tests/locks.c failed at the line (modulo 256) that is its status");
}

#[test]
fn a_c_program_uses_every_lock_of_the_static_library() {
    compile_and_run("cc", &["-std=c11"], &[&library("liblmlocks.a")], "c");
}

#[test]
fn a_cpp_program_uses_every_lock_of_the_static_library() {
    compile_and_run("c++", &["-x", "c++", "-std=c++17"], &[&library("liblmlocks.a")], "cpp");
}

#[test]
fn a_c_program_uses_every_lock_of_the_shared_library() {
    // As it is installed: a program asks for its soname, and not for the file that it was linked with.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
    fs::create_dir_all(&folder).expect("cargo's folder for tests can be written");
    let installed = folder.join("liblmlocks.so.0");
    fs::copy(library("liblmlocks.so"), &installed).expect("cargo made it");
    let path = format!("-Wl,-rpath,{}", folder.display());
    compile_and_run("cc", &["-std=c11"], &[&library("liblmlocks.so"), Path::new(&path)], "shared");
}
