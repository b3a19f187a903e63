//! lockmeter finds the lock that slows a Linux system down, the caller that waits for it, and the holder that makes it
//! wait. One file per subcommand; this one only dispatches.

mod agent;
mod arguments;
mod diff;
mod doctor;
mod history;
mod input;
mod latency;
mod left_behind;
mod lock_filter;
mod mmap;
mod page;
mod predict;
mod query;
mod record;
mod report;
mod rule_files;
mod rules;
mod scope;
mod switch;
mod top;
mod trusted_file;
mod warnings;

#[cfg(test)]
#[path = "../tests/support/terminal.rs"]
mod terminal;

use std::process::ExitCode;

use anyhow::Result;
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_cli::{completions, manual_pages};

use crate::arguments::{Arguments, COMMIT, Command};

fn main() -> ExitCode {
    lockmeter_cli::run("lockmeter", |arguments: Arguments| run(arguments.command))
}

fn run(command: Command) -> Result<ExitCode> {
    if let Some(files) = command.rules() {
        rule_files::install(files)?;
    }
    match command {
        Command::Record(arguments) => record::run(&arguments),
        Command::Report(arguments) => report::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Diff(arguments) => diff::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Top(arguments) => top::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Latency(arguments) => latency::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Predict(arguments) => predict::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Mmap(arguments) => mmap::run(&arguments),
        Command::Rules(arguments) => rules::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::On(arguments) => switch::on(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Off(arguments) => switch::off(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Agent(arguments) => agent::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Completions(arguments) => completions::run::<Arguments>(&arguments).map(|()| ExitCode::SUCCESS),
        Command::ManualPages(arguments) => {
            manual_pages::run::<Arguments>(COMMIT, &arguments).map(|()| ExitCode::SUCCESS)
        }
        Command::Bench(_) => Err(moved("bench")),
        Command::Compare(_) => Err(moved("compare")),
        Command::Overhead(_) => Err(moved("overhead")),
    }
}

/// A command that `lockmeter` no longer has.
fn moved(command: &str) -> anyhow::Error {
    let sentence = format!("`lockmeter {command}` is now `lockmeter-lab {command}`; it takes the same arguments");
    Failure::error(Status::Usage, sentence)
}
