//! Ctrl-C and its relatives as a readable descriptor, and waiting for that, for a process or for the key that ends.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::keys::Keys;

/// Signals that end a recording cleanly.
pub struct StopSignals {
    streams: [(i32, UnixStream); SIGNALS.len()],
    keys: Option<Keys>,
}

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The time is up.
    Timeout,
    /// This signal asks to stop.
    Signal(i32),
    /// The process has exited.
    Exited,
    /// A source has something to read.
    News,
}

impl StopSignals {
    /// From here on these signals no longer end the program at once.
    pub fn catch() -> io::Result<Self> {
        let mut streams = Vec::new();
        for signal in SIGNALS {
            let (stream, write) = UnixStream::pair()?;
            stream.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal, write)?;
            streams.push((signal, stream));
        }
        let streams = streams.try_into().map_err(|_| io::Error::other("one stream a signal"))?;
        Ok(Self { streams, keys: None })
    }

    /// From here on `q` asks to stop as Ctrl-C does, if there is a terminal.
    pub fn catch_q(&mut self) {
        self.keys = Keys::open();
    }

    /// Waits for a signal or, if they are given, for the end of a process (a pidfd) or for a source's news.
    pub fn wait(
        &mut self,
        timeout: Duration,
        process: Option<BorrowedFd<'_>>,
        news: Option<BorrowedFd<'_>>,
    ) -> io::Result<Woken> {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // A negative descriptor is ignored by poll.
        let optional = |fd: Option<BorrowedFd<'_>>| entry(fd.map_or(-1, |fd| fd.as_raw_fd()));
        let [interrupt, terminate, hang_up] = &self.streams;
        let mut entries = [
            entry(interrupt.1.as_raw_fd()),
            entry(terminate.1.as_raw_fd()),
            entry(hang_up.1.as_raw_fd()),
            optional(process),
            optional(news),
            optional(self.keys.as_ref().map(AsFd::as_fd)),
        ];
        // Rounded up: a wait of half a millisecond must not become a busy loop.
        let timeout_ms = i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
        // SAFETY: six initialised entries that live across the call.
        let ready = unsafe { libc::poll(entries.as_mut_ptr(), 6, timeout_ms) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            // The handler has put a byte into a stream: the next wait sees it.
            return if error.kind() == io::ErrorKind::Interrupted { Ok(Woken::Timeout) } else { Err(error) };
        }
        for ((signal, stream), entry) in self.streams.iter_mut().zip(&entries) {
            if entry.revents != 0 {
                let _ = stream.read(&mut [0; 1]);
                return Ok(Woken::Signal(*signal));
            }
        }
        let [.., process, news, key] = entries;
        if key.revents != 0 && self.quits() {
            return Ok(Woken::Signal(SIGINT));
        }
        Ok(match (process.revents, news.revents) {
            (0, 0) => Woken::Timeout,
            (0, _) => Woken::News,
            _ => Woken::Exited,
        })
    }

    /// Whether `q` is among the keys that were pressed.
    fn quits(&mut self) -> bool {
        match self.keys.as_ref().map(Keys::pressed) {
            Some(Some(keys)) => keys.iter().any(|key| key.eq_ignore_ascii_case(&b'q')),
            // A terminal that is gone would be readable for ever.
            _ => {
                self.keys = None;
                false
            }
        }
    }
}
