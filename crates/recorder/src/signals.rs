//! Ctrl-C and its relatives as a readable descriptor, and waiting for that, for a process or for another thread that asks to stop.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lockmeter_profile::recording::{PipeWait, TRY_PIPE_AGAIN};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

/// Signals that end a recording cleanly.
pub struct StopSignals {
    streams: Vec<(i32, UnixStream)>,
    /// Readable once another thread asks to stop.
    stop: Option<UnixStream>,
    stopping: Arc<AtomicBool>,
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
        Self::catch_each(&SIGNALS)
    }

    /// The same for a service, for which SIGHUP means something else.
    pub fn catch_for_service() -> io::Result<Self> {
        Self::catch_each(&[SIGINT, SIGTERM])
    }

    fn catch_each(signals: &[i32]) -> io::Result<Self> {
        let mut streams = Vec::new();
        for &signal in signals {
            if is_ignored(signal) {
                IGNORED_FROM_THE_START.fetch_or(1 << signal, Ordering::Relaxed);
            }
            let (stream, write) = UnixStream::pair()?;
            stream.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal, write)?;
            end_if_ignored(signal)?;
            streams.push((signal, stream));
        }
        Ok(Self { streams, stop: None, stopping: Arc::default() })
    }

    /// For a writer to a pipe: it waits for the reader until one of these signals comes.
    pub fn pipe_wait(&self) -> io::Result<Box<dyn PipeWait>> {
        let streams = self.streams.iter().map(|(_, stream)| stream.try_clone()).collect::<io::Result<_>>()?;
        Ok(Box::new(UntilSignal { streams, stopping: Arc::clone(&self.stopping) }))
    }

    /// A signal has ended the metering: what is still to be written to a pipe waits no longer than a second.
    pub fn write_no_longer_than_needed(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// From here on another thread asks to stop as Ctrl-C does: by a byte, or by closing its end.
    pub fn also_stop_by(&mut self, stream: UnixStream) {
        self.stop = Some(stream);
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
        let others = [optional(process), optional(news), entry(self.stop.as_ref().map_or(-1, AsRawFd::as_raw_fd))];
        let streams = self.streams.iter().map(|(_, stream)| entry(stream.as_raw_fd()));
        let mut entries: Vec<_> = others.into_iter().chain(streams).collect();
        // Rounded up: a wait of half a millisecond must not become a busy loop.
        let timeout_ms = i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
        // SAFETY: initialised entries, as many as are said, that live across the call.
        let ready = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, timeout_ms) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            // The handler has put a byte into a stream: the next wait sees it.
            return if error.kind() == io::ErrorKind::Interrupted { Ok(Woken::Timeout) } else { Err(error) };
        }
        for ((signal, stream), entry) in self.streams.iter_mut().zip(&entries[others.len()..]) {
            if entry.revents != 0 {
                let _ = stream.read(&mut [0; 1]);
                IGNORED.store(0, Ordering::Relaxed);
                return Ok(Woken::Signal(*signal));
            }
        }
        let [process, news, stop] = [entries[0], entries[1], entries[2]];
        if stop.revents != 0 {
            // It stays readable once it is closed.
            self.stop = None;
            return Ok(Woken::Signal(SIGINT));
        }
        Ok(match (process.revents, news.revents) {
            (0, 0) => Woken::Timeout,
            (0, _) => Woken::News,
            _ => Woken::Exited,
        })
    }
}

/// The signals, a bit each, that this process was begun with ignored, as `nohup` and shells have it, and that it catches.
static IGNORED_FROM_THE_START: AtomicU32 = AtomicU32::new(0);

fn is_ignored(signal: i32) -> bool {
    // SAFETY: all zero is a valid sigaction, which is only written to.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks how a signal is handled, and changes nothing.
    unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN }
}

/// Starts a command so that the signals are ignored there that lockmeter was begun with ignored: a signal that is caught is not
/// inherited. For that moment they are ignored here.
pub fn with_ignored_inherited<T>(start: impl FnOnce() -> T) -> T {
    let ignored = IGNORED_FROM_THE_START.load(Ordering::Relaxed);
    // SAFETY: all zero is a valid sigaction: no flags, nothing blocked.
    let mut ignore: libc::sigaction = unsafe { std::mem::zeroed() };
    ignore.sa_sigaction = libc::SIG_IGN;
    let caught = SIGNALS.map(|signal| {
        let mut caught = ignore;
        let is_to_be = ignored & 1 << signal != 0;
        // SAFETY: a signal that is ignored calls nothing; what was there is kept.
        let is_set = is_to_be && unsafe { libc::sigaction(signal, &raw const ignore, &raw mut caught) } == 0;
        is_set.then_some((signal, caught))
    });
    let started = start();
    for (signal, caught) in caught.into_iter().flatten() {
        // SAFETY: what was there before.
        unsafe { libc::sigaction(signal, &raw const caught, std::ptr::null_mut()) };
    }
    started
}

/// Signals since one was last seen by [`StopSignals::wait`].
static IGNORED: AtomicU32 = AtomicU32::new(0);

/// This many signals in a row that the program does not read end it as if they were not caught: it may be stuck, for example
/// because nothing reads its output.
const MOST_IGNORED: u32 = 3;

fn end_if_ignored(signal: i32) -> io::Result<()> {
    let count = move || {
        if IGNORED.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_IGNORED {
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    // SAFETY: an atomic addition, and what the library has for use in signal handlers.
    unsafe { signal_hook::low_level::register(signal, count) }.map(|_| ())
}

/// How long a pipe may stay full after a signal has ended the metering. A reader that still reads makes room in far less.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Waits for the reader of a pipe until a signal comes, which it leaves to be seen.
struct UntilSignal {
    streams: Vec<UnixStream>,
    stopping: Arc<AtomicBool>,
}

impl PipeWait for UntilSignal {
    fn wait(&mut self, pipe: Option<BorrowedFd<'_>>) -> io::Result<bool> {
        let stopping = self.stopping.load(Ordering::Relaxed);
        let timeout = match pipe {
            None => Some(TRY_PIPE_AGAIN),
            Some(_) => stopping.then_some(LAST_WAIT),
        };
        let mut entries: Vec<PollFd<'_>> =
            self.streams.iter().map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
        entries.extend(pipe.map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::OUT)));
        let timeout = timeout
            .map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() });
        let ready = match poll(&mut entries, timeout.as_ref()) {
            // The handler has put a byte into a stream by now.
            Err(rustix::io::Errno::INTR) => return self.wait(pipe),
            ready => ready?,
        };
        if pipe.is_some() && entries.last().is_some_and(|entry| !entry.revents().is_empty()) {
            return Ok(true);
        }
        // Time that is up ends the wait for a reader that went on being slow, not that for the first one.
        Ok(ready == 0 && pipe.is_none())
    }
}

/// From here on writing beyond the limit on the size of files (`ulimit -f`) fails, instead of ending the program at once. A
/// handler, which no command inherits; a signal that is ignored would be ignored there, too.
pub fn survive_file_size_limit() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(|_| ())
}
