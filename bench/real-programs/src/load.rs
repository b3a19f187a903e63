//! What is tried: programs, each under a load of its own.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::truth::Looks;

/// After the threads were listed, which kept a CPU from them.
pub const AFTER_LIST: Duration = Duration::from_millis(10);

/// A program under its load. All of it ends with this value.
pub trait Load {
    /// What lockmeter is told to meter, if it does not start the program.
    fn scope(&self) -> Vec<String>;

    /// Asks the program once what its threads do.
    fn look(&mut self, looks: &mut Looks) -> Result<()>;

    /// What it has done so far; `None` if it does nothing.
    fn work(&mut self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Whether it has ended; `None` if it does not end by itself.
    fn is_over(&mut self) -> Result<Option<bool>> {
        Ok(None)
    }

    /// Lets it end by itself and waits for that.
    fn end(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// A program, its load, and how its truth is known.
pub struct Trial {
    pub name: &'static str,
    pub what: &'static str,
    /// How its truth is known.
    pub source: &'static str,
    /// Whether its own clock goes on until its thread runs.
    pub until_it_runs: bool,
    /// Whether lockmeter starts it (`record -- COMMAND`).
    pub by_command: bool,
    /// The name of its tasks, where more is metered than it.
    pub task: Option<&'static str>,
    /// Between two looks.
    pub every: Duration,
    /// With a folder of its own, and the command that is to start it, if not it itself.
    pub start: Start,
}

/// Starts a program and its load.
pub type Start = fn(&Path, Option<Command>) -> Result<Box<dyn Load>>;

impl Trial {
    /// Whether there is nothing to wait for.
    pub fn is_idle(&self) -> bool {
        self.name.starts_with("idle-")
    }
}

/// That starts a program: itself, or by the command that is to start it.
pub fn command(program: &Path, under: Option<Command>) -> Command {
    match under {
        None => Command::new(program),
        Some(mut command) => {
            command.arg("--").arg(program);
            command
        }
    }
}

/// `-p PID`.
pub fn process(pid: u32) -> Vec<String> {
    vec!["-p".to_owned(), pid.to_string()]
}
