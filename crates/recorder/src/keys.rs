//! Single keys from a terminal, without waiting for the end of a line.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

/// The terminal gives keys as they are pressed, and shows none, until this is dropped. Ctrl-C still is a signal.
pub struct Keys {
    stdin: io::Stdin,
    before: Termios,
}

impl Keys {
    /// `None` where there is no terminal, or another job has it: to change its modes would stop this one.
    pub fn open() -> Option<Self> {
        let stdin = io::stdin();
        let is_ours = io::stdout().is_terminal() && tcgetpgrp(&stdin).ok()? == getpgrp();
        let before = tcgetattr(&stdin).ok().filter(|_| is_ours)?;
        let mut one_by_one = before.clone();
        one_by_one.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        tcsetattr(&stdin, OptionalActions::Now, &one_by_one).ok()?;
        Some(Self { stdin, before })
    }

    /// Those that were pressed, one at least where this is readable; `None` when the terminal is gone.
    pub fn pressed(&self) -> Option<Vec<u8>> {
        let mut keys = [0; 64];
        match rustix::io::read(&self.stdin, &mut keys) {
            Ok(0) | Err(rustix::io::Errno::IO) => None,
            Ok(pressed) => Some(keys[..pressed].to_vec()),
            Err(_) => Some(Vec::new()),
        }
    }
}

impl AsFd for Keys {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stdin.as_fd()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.stdin, OptionalActions::Now, &self.before);
    }
}
