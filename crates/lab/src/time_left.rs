//! The line that says how long a comparison will still take.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use lockmeter_render::escape::escaped;

/// A line on a terminal, redrawn at most once a second.
pub struct TimeLeft {
    begin: Instant,
    steps: usize,
    shown: Option<Instant>,
    on: bool,
}

impl TimeLeft {
    /// Nothing is shown where nobody watches.
    pub fn new() -> Self {
        Self { begin: Instant::now(), steps: 0, shown: None, on: std::io::stderr().is_terminal() }
    }

    /// A step begins, and so many are left with it.
    pub fn step(&mut self, what: &str, left: usize) {
        let due = self.shown.is_none_or(|shown| shown.elapsed() >= Duration::from_secs(1));
        if self.on && due {
            let each = self.begin.elapsed().checked_div(u32::try_from(self.steps).unwrap_or(u32::MAX));
            let all = each.map(|each| each.saturating_mul(u32::try_from(left).unwrap_or(u32::MAX)));
            let time = all.map_or_else(String::new, |all| {
                format!(", about {} to go", humantime::format_duration(Duration::from_secs(all.as_secs())))
            });
            let _ =
                write!(std::io::stderr(), "\r\x1b[K{}: {left} left{time}; Ctrl-C shows what there is ", escaped(what));
            self.shown = Some(Instant::now());
        }
        self.steps += 1;
    }

    /// Takes the line away.
    pub fn clear(&mut self) {
        if self.shown.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
