//! Compiles the programs of each collector, links them into one object, and makes a skeleton of it.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libbpf_cargo::SkeletonBuilder;
use libbpf_rs::Linker;

/// The collectors, by their folders below `src`, with the files of their programs.
const COLLECTORS: [(&str, &[&str]); 5] = [
    (
        "contention",
        &[
            "class_cache.bpf.c",
            "waits/older.bpf.c",
            "waits/releases.bpf.c",
            "waits/waits.bpf.c",
            "holds/accounts.bpf.c",
            "holds/contended.bpf.c",
            "holds/fentry.bpf.c",
            "holds/held_locks.bpf.c",
            "holds/hold_counting.bpf.c",
            "holds/hooks.bpf.c",
            "holds/kprobe.bpf.c",
            "holds/open_holds.bpf.c",
            "mmap/mmap.bpf.c",
            "mmap/untimed_holds.bpf.c",
        ],
    ),
    ("hooks", &["try.bpf.c"]),
    ("latency", &["latency.bpf.c"]),
    ("peek", &["peek.bpf.c"]),
    ("threads", &["threads.bpf.c"]),
];

/// Headers that several collectors include, or one from another's folder.
const SHARED_HEADERS: [&str; 3] = ["src/bpf", "src/futex", "src/spinning"];

/// `-mcpu=v3`: atomics with a return value, in every kernel since 5.12 and so in all that have the tracepoints.
const CLANG_ARGS: [&str; 6] = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-mcpu=v3", "-Isrc/bpf"];

fn main() -> ExitCode {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for folder in SHARED_HEADERS {
        println!("cargo::rerun-if-changed={folder}");
    }
    for (collector, sources) in COLLECTORS {
        let folder = Path::new("src").join(collector);
        println!("cargo::rerun-if-changed={}", folder.display());
        if let Err(error) = build(&folder, sources, &out, collector) {
            println!(
                "cargo::error=compiling {} failed (is clang installed? `make setup` installs it)",
                folder.display()
            );
            eprintln!("{error:#}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn build(folder: &Path, sources: &[&str], out: &Path, collector: &str) -> Result<(), Box<dyn Error>> {
    let linked = out.join(collector).with_extension("o");
    let linker = &mut Linker::new(&linked)?;
    for source in sources {
        let object = out.join(format!("{collector}.part.o"));
        SkeletonBuilder::new().source(folder.join(source)).clang_args(clang_args()?).obj(&object).build()?;
        // It is read at once.
        linker.add_file(&object)?;
    }
    linker.link()?;
    SkeletonBuilder::new().obj(&linked).generate(out.join(collector).with_extension("skel.rs"))?;
    Ok(())
}

/// The programs' type information names their sources as seen from this folder: wherever it lies, a build gives the same bytes.
fn clang_args() -> Result<Vec<String>, Box<dyn Error>> {
    let here = std::env::var("CARGO_MANIFEST_DIR")?;
    let paths = format!("-fdebug-prefix-map={here}=.");
    Ok(CLANG_ARGS.map(str::to_owned).into_iter().chain([paths]).collect())
}
