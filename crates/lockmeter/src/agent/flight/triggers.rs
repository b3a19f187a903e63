//! What makes the flight recorder write a recording.

use std::time::Duration;

use lockmeter_agent::metrics::LockKey;
use lockmeter_profile::{Happened, OpenWaitRow, Report, ThreadsReport};
use lockmeter_render::units::{counted, duration};

use super::nanoseconds;

/// A trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    Deadlock,
    HungTask,
    LongWait,
    WaitedShare,
    Signal,
}

impl Trigger {
    /// As metrics and names of files have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deadlock => "deadlock",
            Self::HungTask => "hung-task",
            Self::LongWait => "long-wait",
            Self::WaitedShare => "waited-share",
            Self::Signal => "signal",
        }
    }
}

/// From where on a trigger is pulled; `None`: never.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Thresholds {
    pub deadlock: bool,
    /// A wait for a lock goes on, without a time limit of its own, for this long.
    pub hung_after: Option<Duration>,
    /// A wait for a lock has taken, or takes, this long.
    pub wait_longer_than: Option<Duration>,
    /// Threads were blocked for locks for this share of the machine's CPU time: 100 if on average as many wait as there are CPUs.
    pub waited_percent: Option<f64>,
}

/// That a trigger was pulled, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Pulled {
    pub trigger: Trigger,
    /// In words that go on "because of".
    pub reason: String,
    /// The lock whose wait has ended, and how long that was in seconds.
    pub wait: Option<(LockKey, f64)>,
}

/// Looks at one interval after another.
///
/// A trigger is pulled when its condition begins to hold, or holds for more threads than before: a deadlock lasts, and is told once.
#[derive(Debug, Default)]
pub struct Triggers {
    /// For how many threads each of [`CONDITIONS`] held in the interval before.
    before: [usize; CONDITIONS.len()],
}

/// The rarest first: if an interval pulls several triggers, this one names the recording.
const CONDITIONS: [fn(&Thresholds, &Report) -> Held; 4] = [deadlocks, hung_tasks, long_waits, waited_share];

/// For how many threads a condition holds, and what pulls the trigger if these are more than before.
type Held = (usize, Option<Pulled>);

impl Triggers {
    /// Those that this interval pulls; its report is by lock.
    pub fn look(&mut self, thresholds: &Thresholds, report: &Report) -> Vec<Pulled> {
        let mut pulled = Vec::new();
        for (condition, before) in CONDITIONS.into_iter().zip(&mut self.before) {
            let (count, pulls) = condition(thresholds, report);
            pulled.extend(pulls.filter(|_| count > *before));
            *before = count;
        }
        pulled
    }
}

fn open_waits(report: &Report) -> &[OpenWaitRow] {
    report.threads.as_ref().map_or(&[], |threads| threads.open_waits.as_slice())
}

fn deadlocks(thresholds: &Thresholds, report: &Report) -> Held {
    let is_dead = |wait: &&OpenWaitRow| wait.deadlock.is_some() || wait.ended_holder.is_some();
    let dead: Vec<_> = open_waits(report).iter().filter(|_| thresholds.deadlock).filter(is_dead).collect();
    let pulled = dead.first().map(|wait| {
        let threads = counted(dead.len() as u64, "thread that waits", "threads that wait");
        let how = if wait.deadlock.is_some() { "in a circle" } else { "for a lock whose holder has ended" };
        let reason = format!("{threads} {how}, one of them {} for {}", wait.task.comm, wait.lock);
        Pulled { trigger: Trigger::Deadlock, reason, wait: None }
    });
    (dead.len(), pulled)
}

fn hung_tasks(thresholds: &Thresholds, report: &Report) -> Held {
    let Some(limit_ns) = thresholds.hung_after.map(nanoseconds) else { return (0, None) };
    let hung = || open_waits(report).iter().filter(move |wait| wait.age_ns >= limit_ns && !wait.is_timed);
    // The newest was not there before.
    let pulled = hung().min_by_key(|wait| wait.age_ns).map(|wait| {
        let (age, limit) = (duration(wait.age_ns), duration(limit_ns));
        let reason = format!("{}, which has waited for {} for {age} (limit: {limit})", wait.task.comm, wait.lock);
        Pulled { trigger: Trigger::HungTask, reason, wait: None }
    });
    (hung().count(), pulled)
}

fn long_waits(thresholds: &Thresholds, report: &Report) -> Held {
    let Some(limit_ns) = thresholds.wait_longer_than.map(nanoseconds) else { return (0, None) };
    let says = |of: u64, lock: &str| format!("a wait of {} for {lock} (limit: {})", duration(of), duration(limit_ns));
    let ended = report.rows.iter().filter(|row| !row.own && row.happened == Happened::Wait);
    let ended = ended.max_by_key(|row| row.value.max_ns).filter(|row| row.value.max_ns >= limit_ns);
    let open = || open_waits(report).iter().filter(move |wait| wait.age_ns >= limit_ns);
    let pulled = match (ended, open().min_by_key(|wait| wait.age_ns)) {
        (Some(row), _) => {
            let wait = LockKey::of(row).map(|key| (key, Duration::from_nanos(row.value.max_ns).as_secs_f64()));
            let reason = says(row.value.max_ns, row.lock.as_deref().unwrap_or("a lock"));
            Some(Pulled { trigger: Trigger::LongWait, reason, wait })
        }
        (None, Some(wait)) => {
            let reason = says(wait.age_ns, &wait.lock);
            Some(Pulled { trigger: Trigger::LongWait, reason, wait: None })
        }
        (None, None) => None,
    };
    (usize::from(ended.is_some()) + open().count(), pulled)
}

fn waited_share(thresholds: &Thresholds, report: &Report) -> Held {
    let Some(limit) = thresholds.waited_percent else { return (0, None) };
    let asleep_ns = |threads: &ThreadsReport| threads.spent_ns(|state| state.is_lock());
    let waited_ns = report.threads.as_ref().map_or(report.waits.total_ns, asleep_ns);
    let machine_ns = report.duration_ns.saturating_mul(report.about.cpus.into()).max(1);
    let percent = waited_ns as f64 * 100.0 / machine_ns as f64;
    if percent < limit {
        return (0, None);
    }
    let most = report.worst.as_ref().map(|worst| format!(", most of them for {}", worst.lock)).unwrap_or_default();
    let reason = format!("waits for locks of {percent:.0} % of the machine's CPU time{most} (limit: {limit} %)");
    let longest = report.rows.iter().filter(|row| !row.own && row.happened == Happened::Wait);
    let longest = longest.max_by_key(|row| row.value.total_ns);
    let wait = longest.and_then(|row| Some((LockKey::of(row)?, Duration::from_nanos(row.value.max_ns).as_secs_f64())));
    (1, Some(Pulled { trigger: Trigger::WaitedShare, reason, wait }))
}

#[cfg(test)]
mod tests {
    use lockmeter_profile::{Kind, Mode, RowTask};

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn wait(age_s: u64) -> OpenWaitRow {
        OpenWaitRow {
            task: RowTask { tgid: Some(1), comm: "clerk".into() },
            tid: 1,
            is_kernel: false,
            lock: "ledger".into(),
            kind: Kind::Mutex,
            mode: Mode::Exclusive,
            instance: None,
            stack: [].into(),
            age_ns: age_s * SECOND_NS,
            is_older: false,
            is_timed: false,
            holder: None,
            ended_holder: None,
            deadlock: None,
        }
    }

    fn report(open_waits: Vec<OpenWaitRow>) -> Report {
        let interval = lockmeter_profile::Interval { duration_ns: SECOND_NS, ..lockmeter_profile::Interval::default() };
        let about = lockmeter_profile::About { cpus: 2, ..lockmeter_profile::About::default() };
        let query = lockmeter_profile::view::Query::by([lockmeter_profile::Dimension::Lock]);
        let mut report = lockmeter_profile::view::report(&about, std::iter::once(interval), &query);
        let states = vec![lockmeter_profile::StateTime {
            state: lockmeter_profile::ThreadState::UserLock,
            total_ns: open_waits.len() as u64 * SECOND_NS,
            error_ns: 0,
        }];
        report.threads = Some(ThreadsReport { open_waits, states, ..ThreadsReport::default() });
        report
    }

    fn pulled(
        triggers: &mut Triggers,
        thresholds: &Thresholds,
        waits: Vec<OpenWaitRow>,
    ) -> Vec<(&'static str, String)> {
        let all = triggers.look(thresholds, &report(waits));
        all.into_iter().map(|pulled| (pulled.trigger.name(), pulled.reason)).collect()
    }

    #[test]
    fn what_goes_on_pulls_once_and_one_thread_more_again() {
        let mut triggers = Triggers::default();
        let thresholds = Thresholds { hung_after: Some(Duration::from_secs(120)), ..Thresholds::default() };
        let mut look = |waits| pulled(&mut triggers, &thresholds, waits);
        assert!(look(vec![wait(119)]).is_empty());
        let reason = "clerk, which has waited for ledger for 121 s (limit: 120 s)".to_owned();
        assert_eq!(look(vec![wait(121)]), [("hung-task", reason)]);
        assert!(look(vec![wait(131)]).is_empty());
        assert_eq!(look(vec![wait(141), wait(120)]).len(), 1);
        assert!(look(vec![]).is_empty());
        assert_eq!(look(vec![wait(125)]).len(), 1, "another one, later");
    }

    #[test]
    fn a_wait_that_ends_by_itself_hangs_nobody() {
        let thresholds = Thresholds { hung_after: Some(Duration::from_secs(120)), ..Thresholds::default() };
        let waits = vec![OpenWaitRow { is_timed: true, ..wait(999) }];
        assert!(pulled(&mut Triggers::default(), &thresholds, waits).is_empty());
    }

    #[test]
    fn each_condition_pulls_its_own_trigger_and_none_that_is_off() {
        let circle = |count| (0..count).map(|_| OpenWaitRow { deadlock: Some(1), ..wait(30) }).collect::<Vec<_>>();
        let one = |thresholds: Thresholds| pulled(&mut Triggers::default(), &thresholds, circle(3));
        assert!(one(Thresholds::default()).is_empty());
        let found = one(Thresholds { deadlock: true, ..Thresholds::default() });
        assert_eq!(found, [("deadlock", "3 threads that wait in a circle, one of them clerk for ledger".to_owned())]);
        let found = one(Thresholds { wait_longer_than: Some(Duration::from_secs(20)), ..Thresholds::default() });
        assert_eq!(found, [("long-wait", "a wait of 30.0 s for ledger (limit: 20.0 s)".to_owned())]);
        let found = one(Thresholds { waited_percent: Some(140.0), ..Thresholds::default() });
        let reason = "waits for locks of 150 % of the machine's CPU time (limit: 140 %)".to_owned();
        assert_eq!(found, [("waited-share", reason)]);
        assert!(one(Thresholds { waited_percent: Some(160.0), ..Thresholds::default() }).is_empty());
    }
}
