//! The life of the process whose end ends the metering.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use lockmeter_kernel::contention::{Scope, open_process};

use crate::error::{RecorderError, RecorderErrorKind};
use crate::preload;
use crate::signals::{StopSignals, Woken, with_ignored_inherited};

/// Waits for a command's end are cut into pieces of this, for no reason but that they must have a length.
const A_LONG_TIME: Duration = Duration::from_secs(3600);

/// A process whose end ends the recording.
pub enum Target {
    /// None: the time or a signal ends it.
    None,
    /// Somebody else's processes.
    Processes(Vec<OwnedFd>),
    /// The command that we started.
    Command(Child, OwnedFd),
}

impl Target {
    /// Whether this is a command that still runs.
    pub fn command_goes_on(&self) -> bool {
        matches!(self, Self::Command(_, process) if goes_on(process))
    }

    /// Whether it has not ended: of several processes, whether one goes on.
    pub fn goes_on(&self) -> bool {
        match self {
            Self::None => true,
            Self::Command(_, process) => goes_on(process),
            Self::Processes(processes) => processes.iter().any(goes_on),
        }
    }

    /// Has the command end as a signal asks lockmeter to; a terminal has sent Ctrl-C to it already. `false` if there is no command.
    pub fn pass_on(&self, signal: i32) -> bool {
        let Self::Command(command, _) = self else { return false };
        if signal != signal_hook::consts::SIGINT {
            pass_on(signal, command);
        }
        true
    }

    /// Waits for the command's end, and passes on to it what asks lockmeter to end. Its status as a shell would say it; `None` if
    /// there is no command.
    pub fn wait(mut self, signals: &mut StopSignals) -> Result<Option<u8>, RecorderError> {
        while self.command_goes_on() {
            if let Woken::Signal(signal) = signals.wait(A_LONG_TIME, self.end(), None)? {
                self.pass_on(signal);
            }
        }
        match &mut self {
            Self::Command(command, _) => {
                let status = shell_status(command);
                status.map(Some).map_err(|error| RecorderError::from(error).after("cannot wait for the command"))
            }
            Self::None | Self::Processes(_) => Ok(None),
        }
    }

    /// Becomes readable when the process ends, or one of several.
    pub fn end(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::None => None,
            Self::Command(_, process) => Some(process.as_fd()),
            Self::Processes(processes) => {
                let running = processes.iter().find(|process| goes_on(process));
                running.or(processes.first()).map(AsFd::as_fd)
            }
        }
    }
}

fn goes_on(process: &OwnedFd) -> bool {
    let mut entry = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one initialised entry that lives across the call, which does not wait.
    unsafe { libc::poll(&raw mut entry, 1, 0) == 0 }
}

/// Watches the processes of a scope.
pub fn watch(scope: &Scope) -> Result<Target, RecorderError> {
    let processes: Result<Vec<_>, _> = scope.pids().iter().map(|pid| open_process(*pid)).collect();
    let processes = processes?;
    Ok(if processes.is_empty() { Target::None } else { Target::Processes(processes) })
}

/// Where the command's standard output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandOutput {
    /// Where lockmeter's goes.
    Inherited,
    /// To standard error, for the recording goes to standard output.
    ToStderr,
}

/// Starts the command to be metered.
pub fn start(
    command: &[OsString],
    environment: &[(&'static str, OsString)],
    stdout: CommandOutput,
) -> Result<Target, RecorderError> {
    let [program, arguments @ ..] = command else { return Ok(Target::None) };
    let variables = environment.iter().map(|(name, value)| (name, value));
    let mut command = Command::new(program);
    command.args(arguments).envs(variables);
    if stdout == CommandOutput::ToStderr {
        command.stdout(io::stderr());
    }
    let child = spawn(&mut command)?;
    let process = open_process(child.id())?;
    Ok(Target::Command(child, process))
}

/// Starts a program; what is wrong with it is said as a shell would.
pub fn spawn(command: &mut Command) -> Result<Child, RecorderError> {
    with_ignored_inherited(|| command.spawn()).map_err(|error| {
        let program = command.get_program();
        let name = program.to_string_lossy();
        match error.kind() {
            io::ErrorKind::NotFound => RecorderError::new(
                RecorderErrorKind::NotFound,
                format!("command not found: {name}; check its spelling, or give its path"),
            ),
            io::ErrorKind::PermissionDenied if Path::new(program).is_dir() => RecorderError::new(
                RecorderErrorKind::NotExecutable,
                format!("{name} is a folder; give the path of a program"),
            ),
            _ if error.raw_os_error() == Some(libc::ENOEXEC) => {
                let why = preload::cannot_run(program);
                RecorderError::new(RecorderErrorKind::NotExecutable, format!("{name} cannot be run: {why}"))
            }
            io::ErrorKind::PermissionDenied => RecorderError::new(
                RecorderErrorKind::NotExecutable,
                format!("{name} may not be executed; `chmod +x` it if it is a program"),
            ),
            _ => RecorderError::new(RecorderErrorKind::NotExecutable, format!("cannot run {name}: {error}")),
        }
    })
}

/// Sends a signal on to the command.
pub fn pass_on(signal: i32, command: &Child) {
    let Ok(pid) = libc::pid_t::try_from(command.id()) else { return };
    // SAFETY: kill takes two integers; the child is ours and not yet waited for, so its id is not another's.
    unsafe { libc::kill(pid, signal) };
}

/// The command's status as a shell would say it.
pub fn shell_status(child: &mut Child) -> io::Result<u8> {
    let status = child.wait()?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(u8::try_from(code & 0xff).unwrap_or(u8::MAX))
}
