//! Compiles each collector's `.bpf.c` into a skeleton.

use std::path::PathBuf;
use std::process::ExitCode;

use libbpf_cargo::SkeletonBuilder;

/// One program a collector; the headers lie beside it.
const PROGRAMS: [&str; 5] = [
    "src/contention/contention.bpf.c",
    "src/futex/futex.bpf.c",
    "src/hooks/try.bpf.c",
    "src/latency/latency.bpf.c",
    "src/peek/peek.bpf.c",
];

/// Headers that all collectors include.
const SHARED_HEADERS: &str = "src/bpf";

/// `-mcpu=v3`: atomics with a return value, in every kernel since 5.12 and so in all that have the tracepoints.
const CLANG_ARGS: [&str; 6] = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-mcpu=v3", "-Isrc/bpf"];

fn main() -> ExitCode {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed={SHARED_HEADERS}");
    for source in PROGRAMS {
        let (folder, name) = source.rsplit_once('/').expect("every collector has a folder");
        println!("cargo::rerun-if-changed={folder}");
        let name = name.replace(".bpf.c", ".skel.rs");
        if let Err(error) =
            SkeletonBuilder::new().source(source).clang_args(CLANG_ARGS).build_and_generate(out.join(name))
        {
            println!("cargo::error=compiling {source} failed (is clang installed? `make setup` installs it)");
            eprintln!("{error:#}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
