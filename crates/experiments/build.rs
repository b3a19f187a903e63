//! Compiles the naive meter into a skeleton, as `crates/kernel` does with its programs.

use std::path::PathBuf;
use std::process::ExitCode;

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "src/overhead/naive.bpf.c";

/// The same options as lockmeter's own programs, so that the two compare.
const CLANG_ARGS: [&str; 6] =
    ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-mcpu=v3", "-I../kernel/src/bpf"];

fn main() -> ExitCode {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed=../kernel/src/bpf");
    // As seen from here, wherever this lies.
    let paths =
        format!("-fdebug-prefix-map={}=.", std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let arguments = CLANG_ARGS.into_iter().chain([paths.as_str()]);
    match SkeletonBuilder::new().source(SOURCE).clang_args(arguments).build_and_generate(out.join("naive.skel.rs")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cargo::error=compiling {SOURCE} failed (is clang installed? `make setup` installs it)");
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
