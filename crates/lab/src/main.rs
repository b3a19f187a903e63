//! lockmeter-lab compares locks, measures what metering costs, and repeats the published experiments. One file or folder per
//! subcommand; this one only dispatches.

mod arguments;
mod bench;
mod compare;
mod metered_run;
mod overhead;
mod running_command;
mod scratch;
mod time_left;

use std::process::ExitCode;

use anyhow::Result;
use lockmeter_cli::{completions, manual_pages};

use crate::arguments::{Arguments, COMMIT, Command};

fn main() -> ExitCode {
    lockmeter_cli::run("lockmeter-lab", |arguments: Arguments| run(arguments.command))
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Overhead(arguments) => overhead::run(&arguments),
        Command::Bench(command) => bench::run(&command),
        Command::Completions(arguments) => completions::run::<Arguments>(&arguments).map(|()| ExitCode::SUCCESS),
        Command::ManualPages(arguments) => {
            manual_pages::run::<Arguments>(COMMIT, &arguments).map(|()| ExitCode::SUCCESS)
        }
    }
}
