//! Ctrl-C and its relatives as a readable descriptor, and waiting for that or for a process.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Signals that end a recording cleanly.
pub struct StopSignals {
    stream: UnixStream,
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The time is up.
    Timeout,
    /// A signal asks to stop.
    Signal,
    /// The process has exited.
    Exited,
}

impl StopSignals {
    /// From here on these signals no longer end the program at once.
    pub fn catch() -> io::Result<Self> {
        let (stream, write) = UnixStream::pair()?;
        stream.set_nonblocking(true)?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        Ok(Self { stream })
    }

    /// Waits for a signal or, if one is given, for the end of a process (a pidfd).
    pub fn wait(&mut self, timeout: Duration, process: Option<BorrowedFd<'_>>) -> io::Result<Woken> {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // A negative descriptor is ignored by poll.
        let mut entries = [entry(self.stream.as_raw_fd()), entry(process.map_or(-1, |process| process.as_raw_fd()))];
        // Rounded up: a wait of half a millisecond must not become a busy loop.
        let timeout_ms = i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
        // SAFETY: two initialised entries that live across the call.
        let ready = unsafe { libc::poll(entries.as_mut_ptr(), 2, timeout_ms) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            // The handler has put a byte into the stream: the next wait sees it.
            return if error.kind() == io::ErrorKind::Interrupted { Ok(Woken::Timeout) } else { Err(error) };
        }
        if entries[0].revents != 0 {
            let mut bytes = [0; 16];
            let _ = self.stream.read(&mut bytes);
            return Ok(Woken::Signal);
        }
        Ok(if entries[1].revents != 0 { Woken::Exited } else { Woken::Timeout })
    }
}
