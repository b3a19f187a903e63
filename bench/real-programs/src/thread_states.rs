//! What the kernel says of threads at this moment: by `/proc`, without tracepoints, stacks or anything of lockmeter's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};

use crate::reason::Reason;

/// A thread at one moment.
#[derive(Debug)]
pub struct Thread {
    pub tid: u32,
    /// `None`: it runs, or could.
    pub blocked: Option<Reason>,
}

/// A thread's process and its own number.
pub type Ids = (u32, u32);

/// All threads of these processes and of their descendants. It takes some milliseconds.
pub fn list(roots: &[u32]) -> Vec<Ids> {
    tree(roots).into_iter().flat_map(|pid| threads_of(pid).map(move |tid| (pid, tid))).collect()
}

/// What they do now: first all of their states, which takes microseconds, then what for.
pub fn of(threads: &[Ids]) -> Vec<Thread> {
    let letters: Vec<_> = threads.iter().filter_map(|ids| Some((*ids, letter(ids.0, ids.1)?))).collect();
    letters
        .into_iter()
        .filter_map(|((pid, tid), letter)| Some(Thread { tid, blocked: blocked(pid, tid, letter)? }))
        .collect()
}

/// Processes, and their descendants.
pub fn tree(roots: &[u32]) -> BTreeSet<u32> {
    let mut children = BTreeMap::<u32, Vec<u32>>::new();
    for pid in numbers("/proc") {
        // After the name, which may hold anything: the state, and the parent.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut all = BTreeSet::new();
    let mut left = roots.to_vec();
    while let Some(pid) = left.pop() {
        if all.insert(pid) {
            left.extend(children.get(&pid).into_iter().flatten());
        }
    }
    all
}

/// Those of one process.
pub fn threads_of(pid: u32) -> impl Iterator<Item = u32> {
    numbers(&format!("/proc/{pid}/task")).into_iter()
}

fn numbers(folder: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The state letter of a thread; `None` if it is gone.
pub fn letter(pid: u32, tid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Time on and for a CPU, of a thread.
pub fn scheduled_ns(pid: u32, tid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/task/{tid}/schedstat");
    let account = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let mut numbers = account.split(' ').map_while(|number| number.parse::<u64>().ok());
    let (on_cpu, for_cpu) = numbers.next().zip(numbers.next()).with_context(|| format!("{path} has `{account}`"))?;
    Ok(on_cpu + for_cpu)
}

/// The outer `None`: it is gone.
fn blocked(pid: u32, tid: u32, letter: char) -> Option<Option<Reason>> {
    if !matches!(letter, 'S' | 'D' | 'T' | 't') {
        return (letter == 'R').then_some(None);
    }
    let call = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    if call.trim() == "running" {
        return Some(None);
    }
    let mut words = call.split_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let first_argument = words.next().and_then(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    Some(Some(reason(pid, letter, number, first_argument)))
}

fn reason(pid: u32, letter: char, call: i64, first_argument: Option<u64>) -> Reason {
    match call {
        // No system call.
        -1 => Reason::PageFault,
        // What the program does not call a lock is none.
        libc::SYS_futex | libc::SYS_semop | libc::SYS_semtimedop => Reason::Condition,
        libc::SYS_poll
        | libc::SYS_ppoll
        | libc::SYS_select
        | libc::SYS_pselect6
        | libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2
        | libc::SYS_io_uring_enter => Reason::NetworkOrPoll,
        libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_pause
        | libc::SYS_rt_sigsuspend
        | libc::SYS_rt_sigtimedwait => Reason::Sleep,
        libc::SYS_wait4 | libc::SYS_waitid | libc::SYS_vfork => Reason::Child,
        libc::SYS_flock => Reason::FileLock,
        libc::SYS_io_getevents | libc::SYS_fsync | libc::SYS_fdatasync => Reason::DiskIo,
        libc::SYS_accept | libc::SYS_accept4 | libc::SYS_connect => Reason::NetworkOrPoll,
        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_sendto
        | libc::SYS_sendmsg => {
            let file = first_argument.and_then(|number| fs::read_link(format!("/proc/{pid}/fd/{number}")).ok());
            let file = file.map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
            if file.starts_with("pipe:") || file.starts_with("socket:") { Reason::PipeOrSocket } else { Reason::DiskIo }
        }
        _ if letter == 'D' => Reason::DiskIo,
        _ => Reason::Other,
    }
}
