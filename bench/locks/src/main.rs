//! The grid of locks as a program of its own, with the peers that are C++; `lockmeter bench locks` runs the same without those.

use clap::Parser;

/// Races our locks against glibc's, std's, parking_lot's and abseil's.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  bench-locks --quick\n  bench-locks --csv locks.csv --svg locks.svg\n  bench-locks --quick --locks Mutex --no-pairs"
)]
struct CommandLine {
    #[command(flatten)]
    arguments: bench_locks::Arguments,
}

fn main() -> anyhow::Result<()> {
    bench_locks::run(&CommandLine::parse().arguments)
}
