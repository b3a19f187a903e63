//! `lockmeter-lab bench`: the published experiments, repeated here.
mod all;
mod breakpoint;
mod fork_mail;
mod locks;
mod mixed;
mod model;
mod own_run;
mod report;
mod rwsem;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use lockmeter_cli::ResultFormat;
use lockmeter_cli::output;
use lockmeter_recorder::{StopSignals, Woken};
use lockmeter_render::escape::{Escaping, escaped};
use lockmeter_render::write_json;
use lockmeter_statistics::Machine;
use serde::Serialize;

use crate::arguments::bench::BenchCommand;

pub fn run(command: &BenchCommand) -> Result<ExitCode> {
    match command {
        BenchCommand::Locks(arguments) => locks::run(arguments),
        BenchCommand::Breakpoint(arguments) => breakpoint::run(arguments),
        BenchCommand::ForkMail(arguments) => fork_mail::run(arguments),
        BenchCommand::Rwsem(arguments) => rwsem::run(arguments),
        BenchCommand::Mixed(arguments) => mixed::run(arguments),
        BenchCommand::Model(arguments) => model::run(arguments),
        BenchCommand::All(arguments) => all::run(arguments),
    }
}

#[derive(Serialize)]
struct Written<'a, T> {
    machine: Machine,
    /// The table, as people see it.
    text: &'a str,
    #[serde(flatten)]
    results: &'a T,
}

/// Writes what was measured: as JSON, or the text that stands for it under the line that names the machine.
fn write<T: Serialize>(format: ResultFormat, machine: Machine, results: &T, text: &str) -> Result<ExitCode> {
    let mut out = output::open(None)?;
    let written = match format {
        ResultFormat::Json => write_json(&Written { machine, text, results }, &mut out),
        ResultFormat::Table => {
            writeln!(Escaping::text(&mut out), "{}\n\n{text}", escaped(&machine.to_string()))
        }
    };
    written.and_then(|()| out.flush()).map_err(|error| output::failed(None, error))?;
    Ok(ExitCode::SUCCESS)
}

/// Ctrl-C ends a bench after what it is doing, and shows what there is.
struct Stop {
    signals: StopSignals,
    asked: bool,
}

impl Stop {
    fn catch() -> Result<Self> {
        Ok(Self { signals: StopSignals::catch().context("cannot catch signals")?, asked: false })
    }

    /// Whether to go on.
    fn go_on(&mut self) -> bool {
        self.asked |= matches!(self.signals.wait(Duration::ZERO, None, None), Ok(Woken::Signal(_)));
        !self.asked
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
