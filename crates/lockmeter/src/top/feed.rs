//! Between the thread that meters and the one that has the terminal.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Result;
use lockmeter_profile::Interval;
use lockmeter_recorder::Sink;

/// What the screen is told.
pub enum Message {
    /// What was measured since the last refresh.
    Step(Vec<Interval>),
    /// What the source has to say.
    Notice(String),
    /// Nothing more will be measured; why.
    Ended(String),
    /// A recording was written, or not.
    Written(Result<String, String>),
    Quit,
}

/// Tells the screen.
pub struct Messenger {
    sender: mpsc::Sender<Message>,
    wake: UnixStream,
}

/// What the screen was told; readable when there is something.
pub struct Inbox {
    receiver: mpsc::Receiver<Message>,
    wake: UnixStream,
}

pub fn channel() -> io::Result<(Messenger, Inbox)> {
    let (sender, receiver) = mpsc::channel();
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    Ok((Messenger { sender, wake: ours }, Inbox { receiver, wake: theirs }))
}

impl Messenger {
    pub fn tell(&self, message: Message) {
        // A screen that is gone need not be told; a full stream wakes it anyway.
        let _ = self.sender.send(message);
        let _ = (&self.wake).write(&[0]);
    }

    pub fn another(&self) -> io::Result<Self> {
        Ok(Self { sender: self.sender.clone(), wake: self.wake.try_clone()? })
    }
}

impl Inbox {
    pub fn receive(&mut self) -> Vec<Message> {
        while self.wake.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        self.receiver.try_iter().collect()
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Hands what is metered to the screen, a step each refresh.
pub struct StepSink {
    messenger: Messenger,
    refresh: Duration,
    next_due: Instant,
    step: Vec<Interval>,
}

impl StepSink {
    pub fn new(messenger: Messenger, refresh: Duration) -> Self {
        Self { messenger, refresh, next_due: Instant::now() + refresh, step: Vec::new() }
    }

    /// The rest, after the last refresh.
    pub fn finish(mut self) -> Messenger {
        self.hand_over();
        self.messenger
    }

    fn hand_over(&mut self) {
        let step = std::mem::take(&mut self.step);
        if !step.is_empty() {
            self.messenger.tell(Message::Step(step));
        }
    }
}

impl Sink for StepSink {
    type Error = anyhow::Error;

    fn next_due(&self) -> Instant {
        self.next_due
    }

    fn take(&mut self, interval: Interval) -> Result<()> {
        self.step.push(interval);
        Ok(())
    }

    fn due(&mut self) -> Result<()> {
        self.hand_over();
        self.next_due = Instant::now() + self.refresh;
        Ok(())
    }

    fn notice(&mut self, sentence: String) {
        self.messenger.tell(Message::Notice(sentence));
    }
}
