//! Rounds that other processes' work has not distorted: two threads that want a lock tell nothing while one of them has no CPU.

use std::fmt;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use anyhow::Result;

/// What others may take of one CPU in a round: the system counts it in ticks of 10 ms, of which a quiet round shows a few, too.
const TOLERATED_SHARE: f64 = 0.1;
/// A busy machine must not hold up the bench for ever; nor are there ever more repetitions than rounds.
const TRIES: u32 = 4;

/// How quiet the rounds were.
#[derive(Debug, Default)]
pub struct Quiet {
    rounds: u32,
    repeated: u32,
    disturbed: u32,
}

impl Quiet {
    /// Runs a round until the CPUs were this process's alone, or it was tried too often.
    pub fn round<T>(&mut self, mut round: impl FnMut() -> Result<T>) -> Result<T> {
        self.rounds += 1;
        let mut tries = 0;
        loop {
            let (begin, before) = (Instant::now(), work_of_others());
            let result = round()?;
            let others = work_of_others().saturating_sub(before);
            if others.as_secs_f64() <= begin.elapsed().as_secs_f64() * TOLERATED_SHARE {
                return Ok(result);
            }
            tries += 1;
            if tries == TRIES || self.repeated > self.rounds {
                self.disturbed += 1;
                return Ok(result);
            }
            self.repeated += 1;
        }
    }
}

impl fmt::Display for Quiet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, repeated, disturbed } = self;
        write!(f, "{rounds} rounds; {repeated} were repeated because other processes took a tenth of a CPU")?;
        if *disturbed > 0 {
            write!(f, ", and {disturbed} count though they were disturbed in the last try, too")?;
        }
        Ok(())
    }
}

/// CPU time that was neither idle nor this process's, since some fixed point. Nothing where `/proc/stat` cannot be read.
fn work_of_others() -> Duration {
    // SAFETY: asks for a constant.
    let ticks_per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100).max(1);
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<u64> =
        text.lines().next().unwrap_or_default().split_whitespace().filter_map(|field| field.parse().ok()).collect();
    // User, nice, system, (idle, iowait,) irq, softirq, steal.
    let ticks: u64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|&at: &usize| fields.get(at)).sum();
    Duration::from_nanos(ticks * (1_000_000_000 / ticks_per_second)).saturating_sub(own_work())
}

fn own_work() -> Duration {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: writes one rusage, for which all zeroes are good already.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    [usage.ru_utime, usage.ru_stime]
        .iter()
        .map(|time| {
            Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Makes sure that others' work is seen at all, and that a busy machine does not hold up the bench.
    #[test]
    fn rounds_beside_busy_processes_are_repeated_and_counted_in_the_end() {
        let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let mut others = [busy(), busy()];
        let (mut quiet, mut rounds) = (Quiet::default(), 0);
        let result = quiet.round(|| {
            rounds += 1;
            std::thread::sleep(Duration::from_millis(60));
            Ok(rounds)
        });
        for other in &mut others {
            other.kill().unwrap();
            other.wait().unwrap();
        }
        // The second repetition is one more than there were rounds.
        assert_eq!((result.unwrap(), quiet.rounds, quiet.repeated, quiet.disturbed), (3, 1, 2, 1));
    }
}
