//! Writes to a pipe or a device without waiting longer than the user wants.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;

use super::output_path::{Entry, Obstacle};

/// What a pipe that polls as writable takes without blocking (POSIX's `PIPE_BUF`, on Linux).
const PIPE_TAKES_BYTES: usize = 4096;

/// How often a named pipe is tried again that nobody reads yet: nothing tells when somebody begins to.
pub const TRY_PIPE_AGAIN: Duration = Duration::from_millis(50);

/// Decides how long a writer waits for the reader of a pipe.
pub trait PipeWait: Send {
    /// Waits until `pipe` can be written to; where there is none yet, for [`TRY_PIPE_AGAIN`]. `false`: give up.
    fn wait(&mut self, pipe: Option<BorrowedFd<'_>>) -> io::Result<bool>;
}

/// Waits for ever: for programs in which Ctrl-C ends the process.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitForever;

impl PipeWait for WaitForever {
    fn wait(&mut self, pipe: Option<BorrowedFd<'_>>) -> io::Result<bool> {
        match pipe {
            Some(pipe) => poll(&mut [PollFd::from_borrowed_fd(pipe, PollFlags::OUT)], None::<&Timespec>)?,
            None => {
                std::thread::sleep(TRY_PIPE_AGAIN);
                0
            }
        };
        Ok(true)
    }
}

/// A pipe, a device, or a descriptor that the process was started with.
pub(super) struct Stream {
    file: File,
    wait: Box<dyn PipeWait>,
}

impl Stream {
    pub(super) fn new(file: File, wait: Box<dyn PipeWait>) -> Self {
        Self { file, wait }
    }

    /// Opens a named pipe once it has a reader.
    pub(super) fn open_pipe(entry: &Entry, examined: &Stat, mut wait: Box<dyn PipeWait>) -> Result<Self, Obstacle> {
        loop {
            match entry.open(examined, OFlags::WRONLY) {
                Err(Obstacle::Io(error)) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {}
                opened => return Ok(Self::new(opened?.into(), wait)),
            }
            if !wait.wait(None)? {
                return Err(Obstacle::Io(io::Error::other("stopped before any program read from the pipe")));
            }
        }
    }
}

impl Write for Stream {
    /// Descriptors that others use, too, must not become non-blocking: so each piece waits until it fits.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            if !self.wait.wait(Some(self.file.as_fd()))? {
                return Err(io::Error::other("stopped while no program read from the pipe"));
            }
            match self.file.write(&bytes[..bytes.len().min(PIPE_TAKES_BYTES)]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("file", &self.file).finish_non_exhaustive()
    }
}
