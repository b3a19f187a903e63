//! Where and when a run was made.

use std::fmt;
use std::time::SystemTime;

use serde::Serialize;

use crate::counted;

/// The first line of every output.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Model.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// When, in UTC.
    pub date: String,
    /// The command line.
    pub command: String,
    /// Of the random order.
    pub seed: u64,
    /// What else the machine had to do.
    pub load_average_before: String,
}

impl Machine {
    /// This machine, now.
    pub fn here(seed: u64) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(": "));
        Self {
            cpu: model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, model)| model.to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            command: command(),
            seed,
            load_average_before: read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" "),
        }
    }
}

/// As it was typed, the program by its name alone.
fn command() -> String {
    let mut words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(program) = words.first_mut() {
        *program = program.rsplit('/').next().unwrap_or_default().to_owned();
    }
    words.join(" ")
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {}, Linux {}, {}, `{}`, seed {}, load average before {}",
            self.cpu,
            counted(self.cpus, "CPU", "CPUs"),
            self.kernel,
            self.date,
            self.command,
            self.seed,
            self.load_average_before
        )
    }
}
