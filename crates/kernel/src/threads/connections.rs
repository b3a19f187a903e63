//! Whether a thread sleeps until somebody connects.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::net::sockopt::socket_acceptconn;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Servers with more wait for more than connections.
const MOST_DESCRIPTORS: usize = 64;

/// Bytes read of what an epoll descriptor watches: longer lists have too many.
const LONGEST_INFO: u64 = 16 << 10;

/// Bytes of `struct pollfd`, which begins with the descriptor.
const POLLFD_BYTES: usize = 8;

/// Whether a thread sleeps in `epoll_wait`, `poll` or the like for nothing but connections, and what its own process tells it by pipes.
pub(super) fn sleeps_for_connections(tgid: u32, tid: u32) -> bool {
    connections(tgid, tid).unwrap_or(false)
}

fn connections(tgid: u32, tid: u32) -> Option<bool> {
    let [call, first, second] = sleeping_call(tgid, tid)?;
    let descriptors = match i64::try_from(call).ok()? {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => in_epoll(tgid, first)?,
        libc::SYS_poll | libc::SYS_ppoll => in_poll(tgid, first, usize::try_from(second).ok()?)?,
        _ => return Some(false),
    };
    if descriptors.len() > MOST_DESCRIPTORS {
        return Some(false);
    }
    let process = pidfd_open(Pid::from_raw(i32::try_from(tgid).ok()?)?, PidfdFlags::empty()).ok()?;
    let mut listens = false;
    for descriptor in descriptors {
        if !is_socket(tgid, descriptor)? {
            continue;
        }
        if !accepts(&process, descriptor)? {
            return Some(false);
        }
        listens = true;
    }
    Some(listens)
}

/// The call that a thread sleeps in, with its first two arguments.
fn sleeping_call(tgid: u32, tid: u32) -> Option<[u64; 3]> {
    let line = fs::read_to_string(format!("/proc/{tgid}/task/{tid}/syscall")).ok()?;
    let mut words = line.split_ascii_whitespace();
    let call = words.next()?.parse().ok()?;
    let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    Some([call, argument()?, argument()?])
}

fn in_epoll(tgid: u32, epoll: u64) -> Option<Vec<i32>> {
    let mut info = String::new();
    File::open(format!("/proc/{tgid}/fdinfo/{epoll}")).ok()?.take(LONGEST_INFO).read_to_string(&mut info).ok()?;
    let watched =
        info.lines().filter_map(|line| line.strip_prefix("tfd:")?.split_ascii_whitespace().next()?.parse().ok());
    Some(watched.take(MOST_DESCRIPTORS + 1).collect())
}

fn in_poll(tgid: u32, address: u64, count: usize) -> Option<Vec<i32>> {
    let mut bytes = vec![0; count.min(MOST_DESCRIPTORS + 1) * POLLFD_BYTES];
    File::open(format!("/proc/{tgid}/mem")).ok()?.read_exact_at(&mut bytes, address).ok()?;
    let descriptor = |entry: &[u8]| Some(i32::from_ne_bytes(entry.get(..4)?.try_into().ok()?));
    Some(bytes.chunks(POLLFD_BYTES).filter_map(descriptor).filter(|descriptor| *descriptor >= 0).collect())
}

fn is_socket(tgid: u32, descriptor: i32) -> Option<bool> {
    let target = fs::read_link(format!("/proc/{tgid}/fd/{descriptor}")).ok()?;
    Some(target.to_str()?.starts_with("socket:"))
}

/// Whether it is a socket that listens. Only by a descriptor of our own, for a moment, can the kernel be asked.
fn accepts(process: &OwnedFd, descriptor: i32) -> Option<bool> {
    socket_acceptconn(pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;

    /// Whether a thread that polls these descriptors is found to wait for connections, once it sleeps. It is left to sleep.
    fn is_found(descriptors: &[i32]) -> bool {
        let (told, thread) = mpsc::channel();
        let mut polled: Vec<libc::pollfd> =
            descriptors.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
        std::thread::spawn(move || {
            // SAFETY: takes nothing.
            told.send(unsafe { libc::gettid() }).unwrap();
            // SAFETY: the array is ours and as long as is said.
            unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, -1) };
        });
        let (process, tid) = (std::process::id(), thread.recv().unwrap().cast_unsigned());
        let begun = Instant::now();
        while sleeping_call(process, tid).is_none_or(|[call, ..]| call != libc::SYS_poll as u64) {
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not poll");
            std::thread::yield_now();
        }
        sleeps_for_connections(process, tid)
    }

    #[test]
    fn connections_are_told_from_what_comes_through_them() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [first, second] = listeners.each_ref().map(AsRawFd::as_raw_fd);
        let connected = TcpStream::connect(listeners[0].local_addr().unwrap()).unwrap();
        let (accepted, _) = listeners[0].accept().unwrap();
        let (pipe, _writer) = std::io::pipe().unwrap();
        assert!(is_found(&[first, second]));
        assert!(is_found(&[first, pipe.as_raw_fd(), -1]), "by the pipe it is told to end");
        assert!(!is_found(&[first, accepted.as_raw_fd()]), "a request may come");
        assert!(!is_found(&[connected.as_raw_fd()]));
        assert!(!is_found(&[pipe.as_raw_fd()]));
    }
}
