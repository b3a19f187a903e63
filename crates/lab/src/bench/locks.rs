//! `lockmeter-lab bench locks`: the grid of the crate `bench-locks`, with the peers that are Rust or C.

use std::process::ExitCode;

use anyhow::Result;
use lockmeter_cli::exit::{Failure, Status};

use crate::arguments::bench::LocksArguments;

pub fn run(arguments: &LocksArguments) -> Result<ExitCode> {
    // The grid prints as it goes. A reader that goes away (`| head`) ends it there, as it ends other programs that have
    // nothing to clean up.
    // SAFETY: sets a disposition before any other thread runs; no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    bench_locks::run(&arguments.race).map_err(|error| Failure::error(Status::Failed, format!("{error:#}")))?;
    Ok(ExitCode::SUCCESS)
}
