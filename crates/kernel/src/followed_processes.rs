//! Processes that the programs follow: each has an entry in a map of task storage, which belongs to it.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::MapCore;

use crate::error::{ErrorKind, KernelError};

/// Takes this process out of the task storage of those that are followed.
pub fn leave_own_process_out(followed: &impl MapCore) -> Result<(), KernelError> {
    let own = open_process(std::process::id())?;
    followed
        .delete(&own.as_raw_fd().to_ne_bytes())
        .map_err(|error| KernelError::from_libbpf("cannot leave lockmeter itself out", &error))
}

/// A descriptor of a process, which also becomes readable when it exits.
pub fn open_process(pid: u32) -> Result<OwnedFd, KernelError> {
    // SAFETY: pidfd_open takes two integers and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if let Ok(fd) = i32::try_from(fd)
        && fd >= 0
    {
        // SAFETY: a descriptor just opened, owned by nobody else.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    let error = std::io::Error::last_os_error();
    if pid == 0 || i32::try_from(pid).is_err() {
        return Err(KernelError::new(
            ErrorKind::NoSuchProcess,
            format!("{pid} is not a process id; `ps -e` lists them"),
        ));
    }
    Err(match error.raw_os_error() {
        Some(libc::ESRCH) => KernelError::new(
            ErrorKind::NoSuchProcess,
            format!("no process {pid} is running; `ps -e` lists those that are"),
        ),
        // EINVAL on older kernels, ENOENT on newer.
        Some(libc::EINVAL | libc::ENOENT) => KernelError::new(
            ErrorKind::NotAProcess,
            format!("{pid} is a thread, not a process; give the process id (`ps -o tgid= -q {pid}` prints it)"),
        ),
        _ => KernelError::new(ErrorKind::Refused, format!("cannot open process {pid}: {error}")),
    })
}
