//! The grid of locks as a program of its own, with the peers that are C++; `lockmeter-lab bench locks` runs the same without those.

use std::process::ExitCode;

use clap::Parser;

/// Races our locks against glibc's, std's, parking_lot's and abseil's.
#[derive(Debug, Parser)]
#[command(
    name = "bench-locks",
    after_help = "Examples:\n  bench-locks --quick\n  bench-locks --csv locks.csv --svg locks.svg\n  bench-locks --quick --locks Mutex --no-pairs"
)]
struct CommandLine {
    #[command(flatten)]
    arguments: bench_locks::Arguments,
}

fn main() -> ExitCode {
    bench_harness::run(|line: &CommandLine| bench_locks::run(&line.arguments).map(|()| ExitCode::SUCCESS))
}
