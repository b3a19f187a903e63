//! From the command line to the exit status.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use crate::{exit, messages};

/// Reads the command line and runs the program of this name with it. An error is printed in one sentence.
pub fn run<A: Parser>(name: &'static str, run: impl FnOnce(A) -> Result<ExitCode>) -> ExitCode {
    messages::name_program(name);
    let arguments = match A::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return exit::command_line(&error),
    };
    let result =
        lockmeter_recorder::survive_file_size_limit().context("cannot catch signals").and_then(|()| run(arguments));
    result.unwrap_or_else(|error| exit::report(&error))
}
