//! How far a running target gets, in a number that a lock meter cannot inflate.
//!
//! A program says nothing about its progress, so one of two stand-ins is taken. *Read and write calls* a second are a server's
//! progress, and that of anything that moves data. The *share of user time* in a target's CPU time is a build's: to translate a
//! file takes the same user time whether the kernel's locks are metered or not, because that metering runs in the kernel. If
//! metering takes a percent of the target's CPU time, a percent of its user time is missing from each second of CPU time. Other
//! programs on the machine, which slow the target down, change neither side of that share.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::Measure;

/// A target and how its progress is read.
#[derive(Debug)]
pub enum Progress {
    /// User time among the CPU time of a control group.
    Group(PathBuf),
    /// User time among the CPU time of a process and its children that ended.
    Process(u32),
    /// Read and write calls of a process.
    Calls(u32),
}

/// Totals at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    done: f64,
    /// `None`: progress is over wall time.
    spent: Option<f64>,
}

impl Reading {
    /// What was done from one moment to this: user time, or calls.
    pub fn done_since(&self, before: &Self) -> f64 {
        self.done - before.done
    }

    /// Progress from one moment to this.
    pub fn since(&self, before: &Self, elapsed: Duration) -> f64 {
        let done = self.done_since(before);
        let over = match (self.spent, before.spent) {
            (Some(after), Some(before)) => after - before,
            _ => elapsed.as_secs_f64(),
        };
        if over > 0.0 { done / over } else { 0.0 }
    }
}

impl Progress {
    /// What is compared.
    pub const fn measure(&self) -> Measure {
        match self {
            Self::Group(_) | Self::Process(_) => Measure::UserShare,
            Self::Calls(_) => Measure::Calls,
        }
    }

    /// The least to do in a slice that says anything: 10 ms of user time, because the kernel finds user time by looking at its clock
    /// ticks, which are up to that far apart; or a call.
    pub const fn least(&self) -> f64 {
        match self {
            // In microseconds.
            Self::Group(_) => 10_000.0,
            // In hundredths of a second.
            Self::Process(_) | Self::Calls(_) => 1.0,
        }
    }

    /// Totals now; `None` when the target is gone.
    pub fn read(&self) -> Option<Reading> {
        match self {
            Self::Group(path) => {
                let text = fs::read_to_string(path.join("cpu.stat")).ok()?;
                let field = |name| number_after(&text, name);
                Some(Reading { done: field("user_usec")?, spent: Some(field("user_usec")? + field("system_usec")?) })
            }
            Self::Process(pid) => {
                let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
                // The name in parentheses may hold anything, so count from behind it: the times are fields 14 to 17.
                let (_, rest) = text.rsplit_once(')')?;
                let times: Vec<f64> =
                    rest.split_whitespace().skip(11).take(4).filter_map(|word| word.parse().ok()).collect();
                let [user, system, children_user, children_system] = times[..] else { return None };
                let user = user + children_user;
                Some(Reading { done: user, spent: Some(user + system + children_system) })
            }
            Self::Calls(pid) => {
                let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
                let field = |name| number_after(&text, name);
                Some(Reading { done: field("syscr:")? + field("syscw:")?, spent: None })
            }
        }
    }
}

/// The number behind a word that begins a line.
fn number_after(text: &str, word: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::in_child_alone;
    use std::time::Instant;

    #[test]
    fn a_process_that_only_computes_spends_its_time_as_user() {
        // Apart from what other tests do in this process.
        in_child_alone(|| {
            let progress = Progress::Process(std::process::id());
            let (begin, before) = (Instant::now(), progress.read().unwrap());
            let mut sum = 0_u64;
            while begin.elapsed() < Duration::from_millis(300) {
                // On some machines looking at the clock is a system call.
                (0..10_000).for_each(|_| sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7)));
            }
            let share = progress.read().unwrap().since(&before, begin.elapsed());
            assert!(share > 0.5, "{share} of its CPU time was user time");
        });
    }

    #[test]
    fn read_calls_are_counted() {
        let progress = Progress::Calls(std::process::id());
        let before = progress.read().unwrap();
        for _ in 0..1_000 {
            fs::read_to_string("/proc/self/comm").unwrap();
        }
        let rate = progress.read().unwrap().since(&before, Duration::from_secs(1));
        assert!(rate >= 1_000.0, "{rate}");
    }

    #[test]
    fn a_process_that_is_gone_has_no_progress() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(Progress::Process(child.id()).read(), None);
    }
}
