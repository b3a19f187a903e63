//! High priority for a bench's loads, so that what else the machine does disturbs their slices little.
//!
//! Where the kernel groups tasks by session (`sched_autogroup`), a task's priority counts within its session only. So a bench runs
//! itself again in a session of its own, whose priority it may raise and which ends with it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// As of nice(1).
pub const HIGHEST: i8 = -20;

/// Set in the second run.
const IN_OWN_SESSION: &str = "LOCKMETER_BENCH_IN_OWN_SESSION";

/// Runs this program again in a session of its own, where it does what is to be done; the status that it ends with.
///
/// # Errors
///
/// If it cannot be run, and those of what is to be done.
pub fn in_own_session<E: From<io::Error>>(run: impl FnOnce() -> Result<(), E>) -> Result<ExitCode, E> {
    if std::env::var_os(IN_OWN_SESSION).is_some() {
        return run().map(|()| ExitCode::SUCCESS);
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).env(IN_OWN_SESSION, "1");
    // SAFETY: between fork and exec only system calls that take integers. The child ends with us.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
    let status = command.status()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Sets it for this thread, all that it starts, and the session.
///
/// # Errors
///
/// If that is not allowed.
pub fn set(nice: i8) -> io::Result<()> {
    // SAFETY: takes integers only.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice.into()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Absent where sessions are not grouped; then the tasks' own priority is all that counts.
    let _ = std::fs::write("/proc/self/autogroup", nice.to_string());
    Ok(())
}
