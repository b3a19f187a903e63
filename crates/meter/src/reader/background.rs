//! A thread of the recorder's that ends with what it works for.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Background {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How the thread knows that it is to end.
#[derive(Debug)]
pub(super) struct Ending(Receiver<()>);

impl Ending {
    /// Whether the thread is to go on when so much time has passed; it is told at once if it is not.
    pub(super) fn goes_on_after(&self, time: Duration) -> bool {
        self.0.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
    }
}

impl Background {
    /// A thread with this name. It is to end as soon as it does not go on any more.
    pub(super) fn start(name: &str, run: impl FnOnce(Ending) + Send + 'static) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(|| run(Ending(stopped)))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
