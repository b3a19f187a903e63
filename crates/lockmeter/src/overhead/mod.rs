//! `lockmeter overhead`: what metering costs a command or a running program.

mod child;
mod kernel_build;
mod runs;
mod slices;
mod time_left;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use lockmeter_experiments::overhead::Costs;
use lockmeter_statistics::Machine;
use serde::Serialize;

use crate::arguments::{DiffFormat, OverheadArguments, Preset};
use crate::exit::{Failure, Status};
use crate::output;

/// What to run, and what to do before each run.
struct Workload {
    command: Vec<OsString>,
    clean: Option<String>,
}

#[derive(Serialize)]
struct Written<'a> {
    machine: Machine,
    #[serde(flatten)]
    costs: &'a Costs,
}

pub fn run(arguments: &OverheadArguments) -> Result<ExitCode> {
    if let Some(pid) = arguments.attach {
        return slices::attached(arguments, pid);
    }
    let workload = match arguments.preset {
        Some(Preset::KernelBuild) => kernel_build::prepare()?,
        None if arguments.command.is_empty() => {
            let sentence = "what should be measured? Give `-- COMMAND`, --attach PID or --preset kernel-build";
            return Err(Failure::error(Status::Usage, sentence));
        }
        None => Workload { command: arguments.command.clone(), clean: arguments.clean.clone() },
    };
    if arguments.slices { slices::command(arguments, &workload) } else { runs::run(arguments, &workload) }
}

/// Writes the result, and gives success.
fn write(arguments: &OverheadArguments, what: &str, costs: &Costs) -> Result<ExitCode> {
    let mut out = output::open(None)?;
    let machine = Machine::here(arguments.seed);
    let written = match arguments.format {
        DiffFormat::Json => serde_json::to_writer_pretty(&mut out, &Written { machine, costs })
            .map_err(std::io::Error::from)
            .and_then(|()| writeln!(out)),
        DiffFormat::Table => writeln!(out, "{machine}\n\nWhat metering costs {what}: {} rounds\n\n{costs}", costs.rounds),
    };
    written.and_then(|()| out.flush()).map_err(|error| output::failed(None, error))?;
    Ok(ExitCode::SUCCESS)
}
