//! What lockmeter itself sees of an experiment: the kernel locks that it waits for.

use std::fmt;

use lockmeter_kernel::best_hooks;
use lockmeter_kernel::contention::{ContentionSource, Hooks, Metered, Options, SLEEPING_KINDS, Scope, StackBudget};
use lockmeter_profile::view::{Query, ReportBuilder};
use lockmeter_profile::{About, Dimension, Happened, Interval, Kind, Source};
use lockmeter_render::escape::escaped;
use serde::{Deserialize, Serialize};

/// Locks that are kept.
const KEPT: usize = 6;

/// Kernel locks that an experiment waited for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct KernelWaits {
    /// Contended acquisitions.
    pub contended: u64,
    /// Time waited, burning a CPU.
    pub spin_ns: u64,
    /// Time waited, asleep.
    pub sleep_ns: u64,
    /// The locks waited for longest.
    pub locks: Vec<WaitedLock>,
    /// Of locks that sleep, if function hooks counted them.
    #[serde(default)]
    pub acquisitions: Option<Acquisitions>,
}

/// All acquisitions of locks that sleep (mutexes, semaphores), contended or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquisitions {
    /// All of them.
    pub count: u64,
    /// Those that had to wait.
    pub contended: u64,
}

/// One lock.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WaitedLock {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Contended acquisitions.
    pub contended: u64,
    /// Time waited.
    pub waited_ns: u64,
    /// The longest wait.
    pub max_ns: u64,
    /// Its waits: the shortest duration of each power-of-two bucket, and how many fell into it.
    pub histogram: Vec<(u64, u64)>,
}

/// Meters kernel locks of the children that this process starts from now on. The error is a sentence.
pub fn start() -> Result<ContentionSource, String> {
    let options = Options { scope: Scope::Children, stacks: StackBudget::DEFAULT, metered: Metered::Waits };
    ContentionSource::start(&options).map_err(|error| error.to_string())
}

/// As [`start`], and counts all acquisitions of locks that sleep where the kernel allows function hooks, whatever that costs; otherwise
/// the second string says why not.
pub fn start_with_acquisitions() -> (Result<ContentionSource, String>, Option<String>) {
    let way = match best_hooks() {
        Ok(way) => way,
        Err(refused) => return (start(), Some(refused.why)),
    };
    let kinds = SLEEPING_KINDS.to_vec();
    let hooks = Hooks { way, kinds, min_hold_ns: 0, hold_budget_ppm: None, spin_budget_ppm: 0 };
    let metered = Metered::Holds { hooks: Some(hooks) };
    let options = Options { scope: Scope::Children, stacks: StackBudget::DEFAULT, metered };
    match ContentionSource::start(&options) {
        Ok(source) => (Ok(source), None),
        // A kernel may allow hooks and yet refuse these.
        Err(error) => (start(), Some(error.to_string())),
    }
}

/// What was metered until now; the source goes on.
pub fn so_far(source: &mut ContentionSource) -> Result<KernelWaits, String> {
    let counts_all = source.hooks() > 0;
    source.drain().map(|interval| KernelWaits::of(&interval, counts_all)).map_err(|error| error.to_string())
}

impl KernelWaits {
    fn of(interval: &Interval, counts_all: bool) -> Self {
        let mut builder = ReportBuilder::new(&About::default(), &Query::by([Dimension::Lock]));
        builder.add(interval);
        let report = builder.finish();
        let waits = report.rows.iter().filter(|row| row.happened == Happened::Wait);
        let lock = |row: &lockmeter_profile::Row| WaitedLock {
            name: row.lock.clone().unwrap_or_default(),
            kind: row.kind.map(|kind| kind.to_string()).unwrap_or_default(),
            contended: row.value.count,
            waited_ns: row.value.total_ns,
            max_ns: row.value.max_ns,
            histogram: row.histogram.iter().map(|(bucket, count, _)| (bucket.lower_ns(), *count)).collect(),
        };
        let of_sleeping = |happened: Happened| -> u64 {
            let sleeps = |kind: Option<Kind>| kind.is_some_and(|kind| SLEEPING_KINDS.contains(&kind));
            report
                .rows
                .iter()
                .filter(|row| row.happened == happened && sleeps(row.kind))
                .map(|row| row.value.count)
                .sum()
        };
        Self {
            contended: report.waits.count,
            spin_ns: report.waits.spin_ns,
            sleep_ns: report.waits.sleep_ns(),
            locks: waits.take(KEPT).map(lock).collect(),
            acquisitions: counts_all
                .then(|| Acquisitions { count: of_sleeping(Happened::Hold), contended: of_sleeping(Happened::Wait) }),
        }
    }
}

impl fmt::Display for KernelWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {:>10} {:>12} {:>12}  LOCK", "CONTENDED", "WAITED ms", "LONGEST ms")?;
        for lock in &self.locks {
            writeln!(
                f,
                "  {:>10} {:>12.2} {:>12.2}  {} ({})",
                lock.contended,
                ms(lock.waited_ns),
                ms(lock.max_ns),
                escaped(&lock.name),
                lock.kind
            )?;
        }
        Ok(())
    }
}

fn ms(ns: u64) -> f64 {
    std::time::Duration::from_nanos(ns).as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_lock_forges_no_line() {
        let lock = WaitedLock {
            name: "a\x1b[31m\nb".into(),
            kind: "mutex".into(),
            contended: 1,
            waited_ns: 2,
            max_ns: 3,
            histogram: Vec::new(),
        };
        let text = KernelWaits { locks: vec![lock], ..KernelWaits::default() }.to_string();
        assert!(text.ends_with("a\\u{1b}[31m\\nb (mutex)\n") && text.lines().count() == 2, "{text}");
    }
}
