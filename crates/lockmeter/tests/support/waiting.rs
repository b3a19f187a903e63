//! A program whose threads wait for ever.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::wait;

/// A program that says "ready" when its threads are where they stay.
pub struct Waiting(pub Child);

impl Waiting {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        Self(child)
    }

    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        wait(&mut self.0, "the program");
    }
}
