//! `lockmeter-lab overhead`: what metering costs a command or a running program.

mod kernel_build;
mod runs;
mod slices;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use lockmeter_cli::ResultFormat;
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_cli::output;
use lockmeter_experiments::overhead::Costs;
use lockmeter_render::escape::{Escaping, escaped};
use lockmeter_render::units::counted;
use lockmeter_render::write_json;
use lockmeter_statistics::Machine;
use serde::Serialize;

use crate::arguments::overhead::{OverheadArguments, Preset};

/// What to run, and what to do before each run.
struct Workload {
    name: String,
    /// Round by round the next of them, and the first again after the last.
    commands: Vec<Vec<OsString>>,
    clean: Option<String>,
}

impl Workload {
    fn command(arguments: &OverheadArguments) -> Self {
        let words: Vec<_> = arguments.command.iter().map(|word| word.to_string_lossy()).collect();
        Self {
            name: format!("`{}`", words.join(" ")),
            commands: vec![arguments.command.clone()],
            clean: arguments.clean.clone(),
        }
    }

    /// One shell command a line; empty lines and those that begin with # are none.
    fn each_of(path: &Path, clean: Option<String>) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::error(Status::BadInput, format!("cannot read the commands in {}: {error}", path.display()))
        })?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let commands: Vec<_> = lines.map(shell).collect();
        if commands.is_empty() {
            let sentence = format!("{} holds no command; write one a line", path.display());
            return Err(Failure::error(Status::BadInput, sentence));
        }
        Ok(Self { name: format!("the {} commands of {}", commands.len(), path.display()), commands, clean })
    }

    fn of_round(&self, round: usize) -> &[OsString] {
        &self.commands[round % self.commands.len()]
    }
}

fn shell(line: &str) -> Vec<OsString> {
    vec!["sh".into(), "-c".into(), line.into()]
}

#[derive(Serialize)]
struct Written<'a> {
    machine: Machine,
    /// The table, as people see it.
    text: String,
    #[serde(flatten)]
    costs: &'a Costs,
}

pub fn run(arguments: &OverheadArguments) -> Result<ExitCode> {
    if let Some(pid) = arguments.attach {
        return slices::attached(arguments, pid);
    }
    let workload = match arguments.preset {
        Some(Preset::KernelBuild) => kernel_build::prepare()?,
        None if arguments.each_of.is_some() => {
            let path = arguments.each_of.as_deref().unwrap_or(Path::new(""));
            Workload::each_of(path, arguments.clean.clone())?
        }
        None if arguments.command.is_empty() => {
            let sentence =
                "what should be measured? Give `-- COMMAND`, --attach PID, --each-of FILE or --preset kernel-build";
            return Err(Failure::error(Status::Usage, sentence));
        }
        None => Workload::command(arguments),
    };
    if arguments.slices { slices::command(arguments, &workload.commands[0]) } else { runs::run(arguments, &workload) }
}

/// Writes the result, and gives success.
fn write(arguments: &OverheadArguments, machine: Machine, what: &str, costs: &Costs) -> Result<ExitCode> {
    let mut out = output::open(None)?;
    let rounds = counted(costs.rounds as u64, "round", "rounds");
    let idle = match costs.idle_rounds {
        0 => String::new(),
        idle => format!(" ({} with too little work left out)", counted(idle as u64, "round", "rounds")),
    };
    let text = format!("What metering costs {}: {rounds}{idle}\n\n{costs}", escaped(what));
    let written = match arguments.format {
        ResultFormat::Json => write_json(&Written { machine, text, costs }, &mut out),
        ResultFormat::Table => {
            writeln!(Escaping::text(&mut out), "{}\n\n{text}", escaped(&machine.to_string()))
        }
    };
    written.and_then(|()| out.flush()).map_err(|error| output::failed(None, error))?;
    Ok(ExitCode::SUCCESS)
}
