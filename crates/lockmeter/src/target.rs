//! Who is metered: from the flags to a scope, and the life of a metered process.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};

use anyhow::Result;
use lockmeter_kernel::CgroupTree;
use lockmeter_kernel::contention::{Scope, open_process};

use crate::arguments::ScopeArguments;
use crate::exit::{Failure, Status};
use crate::preload;

/// A process whose end ends the recording.
pub enum Target {
    /// None: the time or a signal ends it.
    None,
    /// Somebody else's process.
    Process(OwnedFd),
    /// The command that we started.
    Command(Child, OwnedFd),
}

impl Target {
    /// Whether this is a command that still runs.
    pub fn command_goes_on(&self) -> bool {
        let Self::Command(_, process) = self else { return false };
        let mut entry = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one initialised entry that lives across the call, which does not wait.
        unsafe { libc::poll(&raw mut entry, 1, 0) == 0 }
    }

    /// The descriptor that tells of the process's end.
    pub fn end(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::None => None,
            Self::Process(process) | Self::Command(_, process) => Some(process.as_fd()),
        }
    }
}

/// The scope that the flags ask for, with its description; `None` if they ask for nothing.
pub fn scope(arguments: &ScopeArguments, command: &[OsString]) -> Result<Option<(Scope, String)>> {
    let asked = [arguments.all, arguments.pid.is_some(), arguments.cgroup.is_some(), !command.is_empty()];
    if asked.iter().filter(|asked| **asked).count() > 1 {
        return Err(Failure::error(Status::Usage, "choose one of -a, -p PID, --cgroup PATH and `-- COMMAND`"));
    }
    if let Some(pid) = arguments.pid {
        return Ok(Some((Scope::Process(pid), format!("process {pid}, its threads and its new children"))));
    }
    if let Some(path) = &arguments.cgroup {
        let cgroup = CgroupTree::find().resolve(path)?;
        let words = format!("control group {}", cgroup.path);
        return Ok(Some((Scope::Cgroup(cgroup), words)));
    }
    if let Some(program) = command.first() {
        return Ok(Some((Scope::Children, format!("{} and its children", program.to_string_lossy()))));
    }
    Ok(arguments.all.then(|| (Scope::Machine, "whole machine".to_owned())))
}

/// Watches the process of a scope.
pub fn watch(scope: &Scope) -> Result<Target> {
    match scope {
        Scope::Process(pid) => Ok(Target::Process(open_process(*pid)?)),
        _ => Ok(Target::None),
    }
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
pub fn start(command: &[OsString], environment: &[(&'static str, OsString)], stdout: CommandOutput) -> Result<Target> {
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
pub fn spawn(command: &mut Command) -> Result<Child> {
    command.spawn().map_err(|error| {
        let program = command.get_program();
        let name = program.to_string_lossy();
        match error.kind() {
            io::ErrorKind::NotFound => Failure::error(
                Status::NotFound,
                format!("command not found: {name}; check its spelling, or give its path"),
            ),
            io::ErrorKind::PermissionDenied if Path::new(program).is_dir() => {
                Failure::error(Status::NotExecutable, format!("{name} is a folder; give the path of a program"))
            }
            _ if error.raw_os_error() == Some(libc::ENOEXEC) => {
                let why = preload::cannot_run(program);
                Failure::error(Status::NotExecutable, format!("{name} cannot be run: {why}"))
            }
            io::ErrorKind::PermissionDenied => Failure::error(
                Status::NotExecutable,
                format!("{name} may not be executed; `chmod +x` it if it is a program"),
            ),
            _ => Failure::error(Status::NotExecutable, format!("cannot run {name}: {error}")),
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
