//! The build script of the benches that compare with empty programs: compiles `src/empty.bpf.c` of each into a skeleton, as
//! `crates/kernel` does with its own.

use std::path::PathBuf;
use std::process::ExitCode;

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "src/empty.bpf.c";

/// The same options as lockmeter's own programs, so that the two compare.
const CLANG_ARGS: [&str; 6] =
    ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-mcpu=v3", "-I../../crates/kernel/src/bpf"];

fn main() -> ExitCode {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed=../../crates/kernel/src/bpf");
    match SkeletonBuilder::new().source(SOURCE).clang_args(CLANG_ARGS).build_and_generate(out.join("empty.skel.rs")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cargo::error=compiling {SOURCE} failed (is clang installed? `make setup` installs it)");
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
