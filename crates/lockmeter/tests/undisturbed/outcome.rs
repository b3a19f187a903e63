//! How a program ended and what it said, bare or metered, and where two of these differ.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::support::{drain, text};

/// How often it is asked whether a program has ended.
const POLL: Duration = Duration::from_millis(2);

#[derive(Clone, PartialEq, Eq)]
pub struct Outcome {
    /// As a shell says it: 128 and the signal's number for one that a signal ended. `None`: it did not end in time.
    pub status: Option<i32>,
    pub stdout: String,
    /// Without what lockmeter says there.
    pub stderr: String,
}

impl Outcome {
    /// Runs a command to its end. What still runs after `limit` is killed, with all that is in its process group.
    pub fn of(mut command: Command, limit: Duration) -> Self {
        let shown = format!("{command:?}");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
        let stdout = drain(child.stdout.take());
        let stderr = drain(child.stderr.take());
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()));
            }
            if Instant::now() > deadline {
                // SAFETY: takes two integers. The group is the child's own, and the child was not waited for yet.
                unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
                child.wait().unwrap();
                break None;
            }
            thread::sleep(POLL);
        };
        let stderr = text(&stderr.join().unwrap());
        let of_program = |line: &&str| !line.starts_with("lockmeter: ");
        Self {
            status,
            stdout: text(&stdout.join().unwrap()),
            stderr: stderr.split_inclusive('\n').filter(of_program).collect(),
        }
    }

    /// What differs from the same program bare, or `None`.
    pub fn difference_from(&self, bare: &Self) -> Option<String> {
        let mut differences = Vec::new();
        if self.status != bare.status {
            let show = |status: Option<i32>| status.map_or("does not end".to_owned(), |code| format!("status {code}"));
            differences.push(format!("ended with: bare {}, metered {}", show(bare.status), show(self.status)));
        }
        differences.extend(first_difference("standard output", &bare.stdout, &self.stdout));
        differences.extend(first_difference("standard error", &bare.stderr, &self.stderr));
        (!differences.is_empty()).then(|| differences.join("\n"))
    }
}

/// The first line that differs, with the one before it.
fn first_difference(what: &str, bare: &str, metered: &str) -> Option<String> {
    if bare == metered {
        return None;
    }
    let (bare, metered): (Vec<&str>, Vec<&str>) = (bare.lines().collect(), metered.lines().collect());
    let same = bare.iter().zip(&metered).take_while(|(bare, metered)| bare == metered).count();
    let before = same.checked_sub(1).map(|line| format!("\n      {}", bare[line])).unwrap_or_default();
    let line = |lines: &[&str]| lines.get(same).map_or("(it ends here)".to_owned(), |line| (*line).to_owned());
    Some(format!("{what} differs at line {}:{before}\n    - {}\n    + {}", same + 1, line(&bare), line(&metered)))
}
