//! lockmeter finds the lock that slows a Linux system down, the caller that waits for it, and the holder that makes it
//! wait. One file per subcommand; this one only dispatches.

mod about;
mod arguments;
mod bench;
mod compare;
mod diff;
mod doctor;
mod exit;
mod input;
mod latency;
mod left_behind;
mod lock_filter;
mod messages;
mod mmap;
mod output;
mod overhead;
mod predict;
mod query;
mod record;
mod report;
mod scope;
mod scratch;
mod switch;
mod top;
mod warnings;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use crate::arguments::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return exit::command_line(&error),
    };
    let result = lockmeter_recorder::survive_file_size_limit()
        .context("cannot catch signals")
        .and_then(|()| run(arguments.command));
    result.unwrap_or_else(|error| exit::report(&error))
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Record(arguments) => record::run(&arguments),
        Command::Report(arguments) => report::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Top(arguments) => top::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Latency(arguments) => latency::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Predict(arguments) => predict::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Overhead(arguments) => overhead::run(&arguments),
        Command::Bench(command) => bench::run(&command),
        Command::Mmap(arguments) => mmap::run(&arguments),
        Command::On(arguments) => switch::on(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Off(arguments) => switch::off(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Doctor(arguments) => doctor::run(&arguments),
    }
}
