//! High priority for the loads, so that what else the machine does disturbs the slices little.
//!
//! Where the kernel groups tasks by session (`sched_autogroup`), a task's priority counts within its session only. So the
//! bench runs itself again in a session of its own, whose priority it may raise and which ends with it.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

/// Set in the second run.
const IN_OWN_SESSION: &str = "KERNEL_OVERHEAD_IN_OWN_SESSION";

/// Runs this program again in a session of its own. `None` in that second run.
pub fn run_in_own_session() -> Option<Result<ExitCode>> {
    if std::env::var_os(IN_OWN_SESSION).is_some() {
        return None;
    }
    let program = std::env::current_exe().context("cannot tell where this program is");
    Some(program.and_then(|program| {
        let mut command = Command::new(program);
        command.args(std::env::args_os().skip(1)).env(IN_OWN_SESSION, "1");
        // SAFETY: between fork and exec only system calls that take integers. The child ends with us.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            });
        }
        let status = command.status().context("cannot run in a session of its own")?;
        Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
    }))
}

/// For this thread, all that it starts, and the session.
pub fn set(nice: i8) -> Result<()> {
    // SAFETY: takes integers only.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice.into()) } != 0 {
        let error = std::io::Error::last_os_error();
        bail!("cannot set the priority to {nice} ({error}): run as root, or with --nice 0");
    }
    // Absent where sessions are not grouped; then the tasks' own priority is all that counts.
    let _ = std::fs::write("/proc/self/autogroup", nice.to_string());
    Ok(())
}
