//! The command line.

pub mod bench;
pub mod compare;
pub mod overhead;

use clap::{Parser, Subcommand};
use lockmeter_cli::completions::CompletionsArguments;
use lockmeter_cli::manual_pages::ManualPagesArguments;

/// What `scripts/source-version commit` said when `make` began the build; `None` where Cargo was run alone.
pub const COMMIT: Option<&str> = option_env!("LOCKMETER_COMMIT");

const EXAMPLES: &str = "\
Examples:
  lockmeter-lab compare --swap mutex=std,mutex -- ./benchmark   which lock is faster under it
  lockmeter-lab overhead -- make -j8                            what metering costs it
  lockmeter-lab bench all --short --report here                 the published experiments, briefly

Exit status:
  0 success, 1 failure, 2 bad command line, 3 not allowed on this kernel or with these privileges,
  4 input not readable, 5 no such process or command, 6 output not writable;
  a command that fails ends `compare` and `overhead` with its own status.";

/// Compares locks under a program, measures what metering costs, and repeats the published experiments.
#[derive(Debug, Parser)]
#[command(name = "lockmeter-lab", version, long_version = long_version(), after_help = EXAMPLES, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

fn long_version() -> &'static str {
    lockmeter_cli::long_version(env!("CARGO_PKG_VERSION"), COMMIT, &[])
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command with its pthread locks swapped for lockmeter's, and show which are faster
    Compare(compare::CompareArguments),
    /// Measure what metering costs a command or a running program
    Overhead(overhead::OverheadArguments),
    /// Repeat the published experiments here
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Print a script that completes the command line in a shell
    #[command(after_help = lockmeter_cli::completions_examples!("lockmeter-lab"))]
    Completions(CompletionsArguments),
    /// Write the manual pages
    #[command(hide = true)]
    ManualPages(ManualPagesArguments),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
