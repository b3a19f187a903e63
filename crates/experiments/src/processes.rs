//! Forking from a process that has one thread, and what its children used.

use std::io;
use std::time::{Duration, Instant};

use lockmeter_statistics::ResourceUsage;

/// A child; the number is nobody else's until it has been waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildId(libc::pid_t);

/// Runs `body` in a child, which ends with its result. Only from a process with one thread: a lock that another thread holds
/// would stay held in the child for ever.
pub fn fork(body: impl FnOnce() -> bool) -> io::Result<ChildId> {
    if !is_alone() {
        return Err(io::Error::other("this process has other threads, so it must not fork"));
    }
    // SAFETY: no other thread exists.
    unsafe { fork_alone(body) }
}

/// The same, without looking whether the process is alone, which takes as long as a part of the fork.
///
/// # Safety
///
/// This process has one thread.
pub unsafe fn fork_alone(body: impl FnOnce() -> bool) -> io::Result<ChildId> {
    // SAFETY: no other thread exists, so the child finds every lock free and all memory in order.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: integers only. The child ends with its parent, and at Ctrl-C, whatever the parent does with that signal.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                libc::signal(libc::SIGTERM, libc::SIG_DFL);
            }
            let status = i32::from(!body());
            // SAFETY: ends this process at once, without what the parent registered for its own exit.
            unsafe { libc::_exit(status) }
        }
        child => Ok(ChildId(child)),
    }
}

/// Whether this process has a single thread. One that was joined may still be on its last instructions.
fn is_alone() -> bool {
    const PATIENCE: Duration = Duration::from_millis(500);
    let begin = Instant::now();
    loop {
        if std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1) {
            return true;
        }
        if begin.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for a child; whether it ended well.
pub fn wait(child: ChildId) -> io::Result<bool> {
    let mut status = 0;
    loop {
        // SAFETY: a child of ours that nobody waited for; the status is ours.
        if unsafe { libc::waitpid(child.0, &raw mut status, 0) } == child.0 {
            return Ok(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Ends a child at once, and waits for that.
pub fn end(child: ChildId) {
    // SAFETY: a child of ours that nobody waited for, so its number is not another's.
    unsafe { libc::kill(child.0, libc::SIGKILL) };
    let _ = wait(child);
}

/// CPU time of all children that were waited for, and of theirs.
pub fn cpu_of_children_ns() -> u64 {
    ResourceUsage::of(libc::RUSAGE_CHILDREN).cpu_ns()
}

/// Context switches of all children that were waited for, and of theirs.
pub fn context_switches_of_children() -> u64 {
    ResourceUsage::of(libc::RUSAGE_CHILDREN).context_switches()
}

/// Of this process so far, all its threads.
pub fn context_switches_of_threads() -> u64 {
    ResourceUsage::of(libc::RUSAGE_SELF).context_switches()
}

/// Context switches of the whole machine so far.
pub fn context_switches() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("ctxt ")?.trim().parse().ok()).unwrap_or(0)
}

/// Runs a check in a child, which has one thread where tests run in many; it ends well unless the check panics.
#[cfg(test)]
pub(crate) fn in_child_alone(check: impl FnOnce()) {
    let body = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_ok();
    // SAFETY: other threads exist, so the child must use no lock that one of them may hold: glibc puts its allocator in order, and the
    // check prints only when it fails.
    let child = unsafe { fork_alone(body) }.expect("a child can be had");
    assert!(wait(child).expect("nobody else waits"), "the check failed in a child: its reason stands above");
}
