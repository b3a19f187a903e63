//! Runs that other processes' work has not distorted: a lock that two threads want tells nothing while one of them has no CPU.

use std::time::Instant;

/// Work of others in a run that still counts as none: the system counts it by clock ticks of 10 ms, which are not exact.
const TOLERATED_SHARE: f64 = 0.10;
/// A busy machine must not hold up a bench for ever.
const TRIES: u32 = 8;

/// How often runs were disturbed.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub struct Disturbances {
    /// All runs.
    pub runs: u32,
    /// Those that were repeated because others took CPUs in the meantime.
    pub repeated: u32,
    /// Those that were kept all the same, after too many tries.
    pub kept: u32,
}

impl Disturbances {
    /// Runs it until the CPUs were this process's alone, or it was tried too often.
    pub fn avoid<T>(&mut self, mut run: impl FnMut() -> T) -> T {
        let mut tries = 0;
        loop {
            let (begin, others_ns) = (Instant::now(), others_ns());
            let result = run();
            self.runs += 1;
            let share = others_ns_since(others_ns) / (begin.elapsed().as_secs_f64() * 1e9);
            if share <= TOLERATED_SHARE {
                return result;
            }
            tries += 1;
            if tries >= TRIES || self.is_hopeless() {
                self.kept += 1;
                return result;
            }
            self.repeated += 1;
        }
    }
}

impl Disturbances {
    /// On a machine that is busy all the time nothing comes of trying again: no more than half of all runs are repetitions.
    fn is_hopeless(&self) -> bool {
        self.repeated >= TRIES && self.repeated > self.runs / 2
    }
}

fn others_ns_since(before: f64) -> f64 {
    others_ns() - before
}

/// CPU time that was not idle and not this process's, since some fixed point. Nothing where `/proc/stat` cannot be read.
fn others_ns() -> f64 {
    // SAFETY: asks for a constant.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<f64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    // user, nice, system, (idle, iowait,) irq, softirq, steal
    let busy: f64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|at| fields.get(*at)).sum();
    busy / ticks_per_second * 1e9 - own_ns()
}

fn own_ns() -> f64 {
    // SAFETY: all-zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: writes one rusage, which is ours.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let ns = |time: libc::timeval| time.tv_sec as f64 * 1e9 + time.tv_usec as f64 * 1e3;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    /// Makes sure that another process's work is seen and ends in so many tries: on an idle or on a busy machine.
    #[test]
    fn a_run_beside_busy_processes_is_repeated_and_kept_in_the_end() {
        let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
        let mut others = [busy(), busy()];
        let (mut disturbances, mut runs) = (Disturbances::default(), 0);
        disturbances.avoid(|| {
            runs += 1;
            std::thread::sleep(Duration::from_millis(60));
        });
        for other in &mut others {
            other.kill().unwrap();
            other.wait().unwrap();
        }
        assert_eq!((disturbances.runs, disturbances.repeated, disturbances.kept), (runs, runs - 1, 1));
        assert_eq!(runs, TRIES);
    }
}
