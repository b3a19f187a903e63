//! The line that says how long a comparison will still take.

use lockmeter_cli::progress::{Progress, Unit};

/// A bar on a terminal.
pub struct TimeLeft {
    progress: Option<Progress>,
    steps: u64,
}

impl TimeLeft {
    /// Nothing is shown where nobody watches.
    pub fn new() -> Self {
        Self { progress: None, steps: 0 }
    }

    /// A step begins, and this many are left with it.
    pub fn step(&mut self, what: &str, left: usize) {
        let all = self.steps + left as u64;
        let progress = self.progress.get_or_insert_with(|| Progress::of(what, Unit::Runs, Some(all)));
        progress.rename(what);
        progress.set_length(all);
        progress.reach(self.steps);
        self.steps += 1;
    }

    /// Takes the bar away.
    pub fn clear(&mut self) {
        self.progress = None;
    }
}
