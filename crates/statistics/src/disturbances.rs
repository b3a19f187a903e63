//! Runs that other processes' work has not distorted: a lock that two threads want tells nothing while one of them has no CPU.

use std::convert::Infallible;
use std::fmt;
use std::time::Instant;

use crate::resource_usage::ResourceUsage;

/// Work of others in a run that still counts as none: the system counts it by clock ticks of 10 ms, which are not exact.
const TOLERATED_SHARE: f64 = 0.10;

/// How long a busy machine may hold up a bench.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Tries of one run.
    pub tries: u32,
    /// This many repetitions are free: beyond, there are never more of them than other runs.
    pub free: u32,
}

impl Patience {
    /// For rounds of many runs, of which a busy machine must not hold up too many.
    pub const WITH_ROUNDS: Self = Self { tries: 4, free: 0 };
}

impl Default for Patience {
    /// For short runs.
    fn default() -> Self {
        Self { tries: 8, free: 8 }
    }
}

/// How often runs were disturbed.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub struct Disturbances {
    /// All runs, repetitions among them.
    pub runs: u32,
    /// Those that were repeated because others took CPUs in the meantime.
    pub repeated: u32,
    /// Those that were kept all the same, after too many tries.
    pub kept: u32,
    #[serde(skip)]
    patience: Patience,
}

impl Disturbances {
    /// None so far.
    pub fn with(patience: Patience) -> Self {
        Self { patience, ..Self::default() }
    }

    /// Runs it until the CPUs were this process's alone, or it was tried too often.
    pub fn avoid<T>(&mut self, mut run: impl FnMut() -> T) -> T {
        let Ok(result) = self.avoid_unless_failed(|| Ok::<T, Infallible>(run()));
        result
    }

    /// As [`avoid`](Self::avoid); what fails is not tried again, no matter who was busy.
    ///
    /// # Errors
    ///
    /// Those of the run.
    pub fn avoid_unless_failed<T, E>(&mut self, mut run: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        let mut tries = 0;
        loop {
            let (begin, before_ns) = (Instant::now(), others_ns());
            self.runs += 1;
            let result = run()?;
            let share = (others_ns() - before_ns) / (begin.elapsed().as_secs_f64() * 1e9);
            if share <= TOLERATED_SHARE {
                return Ok(result);
            }
            tries += 1;
            if tries >= self.patience.tries || self.is_hopeless() {
                self.kept += 1;
                return Ok(result);
            }
            self.repeated += 1;
        }
    }

    /// On a machine that is busy all the time nothing comes of trying again.
    fn is_hopeless(&self) -> bool {
        self.repeated >= self.patience.free && self.repeated > self.runs / 2
    }
}

/// Of rounds: how many there were, and how many of them were disturbed.
impl fmt::Display for Disturbances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, repeated, kept, .. } = self;
        write!(
            f,
            "{} rounds; {repeated} were repeated because other processes took a tenth of a CPU",
            runs - repeated
        )?;
        if *kept > 0 {
            write!(f, ", and {kept} count though they were disturbed in the last try, too")?;
        }
        Ok(())
    }
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

/// CPU time of this process, and of the children that it has waited for.
fn own_ns() -> f64 {
    used_ns(libc::RUSAGE_SELF) + used_ns(libc::RUSAGE_CHILDREN)
}

fn used_ns(who: libc::c_int) -> f64 {
    ResourceUsage::of(who).cpu_ns() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::time::Duration;

    /// One test at a time: whose child is waited for becomes the work of all.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn busy() -> Child {
        Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap()
    }

    /// Makes sure that another process's work is seen and ends in this many tries: on an idle or on a busy machine.
    #[test]
    fn a_run_beside_busy_processes_is_repeated_and_kept_in_the_end() {
        let _alone = alone();
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
        assert_eq!(runs, Patience::default().tries);
    }

    /// Makes sure that a busy machine does not hold up runs that take long, and that failures count at once.
    #[test]
    fn with_little_patience_repetitions_are_few_and_failures_never_repeated() {
        let _alone = alone();
        let mut others = [busy(), busy()];
        let mut disturbances = Disturbances::with(Patience::WITH_ROUNDS);
        let mut rounds = 0;
        let result = disturbances.avoid_unless_failed(|| {
            rounds += 1;
            std::thread::sleep(Duration::from_millis(60));
            Ok::<u32, ()>(rounds)
        });
        let mut failures = 0;
        let failed = disturbances.avoid_unless_failed(|| {
            failures += 1;
            std::thread::sleep(Duration::from_millis(60));
            Err::<(), &str>("broken")
        });
        for other in &mut others {
            other.kill().unwrap();
            other.wait().unwrap();
        }
        // The second repetition is one more than there were rounds.
        assert_eq!((result, disturbances.repeated, disturbances.kept), (Ok(3), 2, 1));
        assert_eq!((failed, failures), (Err("broken"), 1));
    }

    /// Regression: each run of real processes counted as disturbed, by themselves.
    #[test]
    fn work_of_children_that_were_waited_for_is_not_that_of_others() {
        let _alone = alone();
        let (before_ns, before_of_children_ns) = (own_ns(), used_ns(libc::RUSAGE_CHILDREN));
        let work = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done";
        assert!(Command::new("sh").args(["-c", work]).status().unwrap().success());
        let worked_ns = used_ns(libc::RUSAGE_CHILDREN) - before_of_children_ns;
        assert!(worked_ns > 0.0 && own_ns() - before_ns >= worked_ns, "{worked_ns} ns, {before_ns} before");
    }
}
