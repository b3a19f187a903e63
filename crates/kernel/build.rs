//! Compiles each collector's `.bpf.c` into a skeleton.

use std::path::PathBuf;
use std::process::ExitCode;

use libbpf_cargo::SkeletonBuilder;

/// A collector's program and the headers it includes.
const PROGRAMS: [(&str, &[&str]); 2] = [
    ("src/contention/contention.bpf.c", &["src/contention/contention.h", "src/bpf/core.h"]),
    ("src/peek/peek.bpf.c", &["src/bpf/core.h"]),
];

/// `-mcpu=v3`: atomics with a return value, in every kernel since 5.12 and so in all that have the tracepoints.
const CLANG_ARGS: [&str; 6] = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-mcpu=v3", "-Isrc/bpf"];

fn main() -> ExitCode {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for (source, headers) in PROGRAMS {
        for file in headers.iter().chain([&source]) {
            println!("cargo::rerun-if-changed={file}");
        }
        let name = source.rsplit('/').next().expect("a path has a last part").replace(".bpf.c", ".skel.rs");
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
