//! From the command line to the exit status.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::priority;

/// Reads the command line and runs the bench with it. An error is printed in one sentence.
pub fn run<A: Parser>(bench: impl FnOnce(&A) -> Result<ExitCode>) -> ExitCode {
    let arguments = A::parse();
    // A bench prints as it goes. A reader that goes away (`| head`) ends it, as it ends other programs.
    // SAFETY: sets a disposition before any other thread runs; no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    bench(&arguments).unwrap_or_else(|error| {
        eprintln!("{}: {error:#}", A::command().get_name());
        ExitCode::FAILURE
    })
}

/// The same in a session of its own, whose priority the bench may raise.
pub fn run_in_own_session<A: Parser>(bench: impl FnOnce(&A) -> Result<()>) -> ExitCode {
    run(|arguments: &A| priority::in_own_session(|| bench(arguments)))
}
