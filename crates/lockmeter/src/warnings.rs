//! Everything that makes a report less certain than it looks, in one list: what was seen, why it matters, what to try.

use std::fmt;

use lockmeter_profile::latency::LatencyReport;
use lockmeter_profile::lock_functions::is_of_go;
use lockmeter_profile::merge::Difference;
use lockmeter_profile::rules::{RuleSet, Rules};
use lockmeter_profile::{Dimension, Frame, Happened, Loss, Naming, Report, Unnamed};
use lockmeter_render::{Headline, units};

/// Callers and blockers of a lock that rest on fewer stacks than this are hints.
const FEW_STACKS: u64 = 30;

/// Below this share of the waited time with a name, a report hides more than it should.
const MIN_NAMED_PERCENT: u64 = 80;

/// Above this share of all waits, losses change what a report says.
const MAX_LOST_PERCENT: u64 = 1;

/// Programs in the kernel that take more than this share of the machine's CPU time slow what they meter.
const MAX_PROGRAMS_PERCENT: u64 = 5;

/// A reason to doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// The recording has no end.
    RecorderDied,
    /// Nothing was seen at all.
    NothingContended,
    /// The rows by caller or blocker rest on few stacks.
    FewStacks(u64),
    /// Much of the waited time has no name.
    Unnamed(u64),
    /// The same, and most of it is of programs.
    UnnamedInPrograms {
        /// Of the waited time.
        percent: u64,
        /// Of the longest of them.
        why: String,
    },
    /// Much is not in the totals.
    Lost {
        /// So many waits, or waits and acquisitions.
        events: u64,
        /// Whether tables that are emptied more often would have held them.
        for_want_of_room: bool,
    },
    /// The window holds nothing of the recording.
    NoIntervalInWindow {
        /// The recording's length.
        length_ns: u64,
        /// In so many intervals.
        intervals: u64,
    },
    /// The filters leave nothing of what there is.
    NothingFits,
    /// A page has less detail than its recording.
    SmallOnesAddedUp {
        /// How many small stacks or threads of one kind were added up, while the recording was read.
        folded: u64,
        /// What the views are grouped by that are left out.
        left_out: Vec<String>,
    },
    /// Rows by CPU are asked of a recording that does not keep CPUs apart.
    CpusTogether,
    /// A program's language has locks that are not told apart from idle threads.
    OwnLocks(Language),
    /// Goroutines' waits are known from looks, and not all of them.
    Goroutines,
    /// Metering itself was dear.
    Expensive(u64),
    /// Many runs are not in the totals.
    LostRuns(u64),
    /// Metering runs was dear.
    ExpensiveRuns(u64),
    /// The forecast rests on a guess of how many threads were at work.
    ThreadsAssumed(usize),
    /// Fewer threads were told of than must have been.
    MoreThreads {
        /// By the user.
        told: usize,
        /// To hold and wait as long as was recorded.
        needed: usize,
    },
    /// This share of the threads' time went into waits for locks whose holds are not known.
    UntimedWaits(u64),
    /// Recordings that are added up are not alike.
    AddedUp(Difference),
    /// It was recorded with rules of the user's that this reading does not have.
    RulesNotInUse(Vec<RuleSet>),
}

impl Warning {
    /// The warnings that this report deserves.
    pub fn about(report: &Report, ended_cleanly: bool) -> Vec<Self> {
        let mut warnings = Vec::new();
        if !ended_cleanly {
            warnings.push(Self::RecorderDied);
        }
        if report.waits.count == 0 {
            warnings.extend(Headline::of(report).is_nothing().then_some(Self::NothingContended));
            return warnings;
        }
        let stacks = report.rows.iter().map(|row| row.stacks).fold(0, u64::saturating_add);
        if report.by.iter().any(|dimension| dimension.is_sampled()) && stacks < FEW_STACKS {
            warnings.push(Self::FewStacks(stacks));
        }
        if report.by.contains(&Dimension::Cpu) && report.rows.iter().all(|row| row.cpu.is_none()) {
            warnings.push(Self::CpusTogether);
        }
        let named = percent(report.named_ns, report.waits.total_ns);
        if report.waits.total_ns > 0 && named < MIN_NAMED_PERCENT {
            let percent = 100_u64.saturating_sub(named);
            warnings.push(match why_unnamed_in_program(report) {
                Some(why) => Self::UnnamedInPrograms { percent, why: why.to_owned() },
                None => Self::Unnamed(percent),
            });
        }
        let sum = |losses: &[Loss]| losses.iter().map(|loss| report.losses.get(*loss)).fold(0, u64::saturating_add);
        let (unemptied, others) = (sum(&UNEMPTIED_TABLES), sum(&OTHERS_NOT_IN_TOTALS));
        let events = u64::saturating_add(unemptied, others);
        if percent(events, report.waits.count.saturating_add(report.holds).saturating_add(events)) >= MAX_LOST_PERCENT {
            warnings.push(Self::Lost { events, for_want_of_room: unemptied > others });
        }
        let machine_ns = report.duration_ns.saturating_mul(report.about.cpus.into());
        let programs = percent(report.overhead.program_run_ns, machine_ns);
        if programs > MAX_PROGRAMS_PERCENT {
            warnings.push(Self::Expensive(programs));
        }
        warnings
    }

    /// The warning that these rules of a recording deserve where it is read by others. Those that lockmeter comes with are always there,
    /// in one version or another.
    pub fn about_rules(recorded_with: &[RuleSet], in_use: &Rules) -> Option<Self> {
        let is_missing = |set: &&RuleSet| !set.is_shipped() && !in_use.sets().contains(set);
        let missing: Vec<RuleSet> = recorded_with.iter().filter(is_missing).cloned().collect();
        (!missing.is_empty()).then_some(Self::RulesNotInUse(missing))
    }
}

/// Losses that make the counts of runs too small. The few runs that the recording begins or ends in are none.
const NOT_IN_RUNS: [Loss; 3] = [Loss::RunsFull, Loss::NoTaskStorage, Loss::ProgramRecursion];

impl Warning {
    /// The warnings that a report of what ran deserves.
    pub fn about_latency(report: &LatencyReport, ended_cleanly: bool) -> Vec<Self> {
        let mut warnings = Vec::new();
        if !ended_cleanly {
            warnings.push(Self::RecorderDied);
        }
        let runs = report.rows.iter().map(|row| row.runs.count).fold(0, u64::saturating_add);
        let lost = NOT_IN_RUNS.iter().map(|loss| report.losses.get(*loss)).fold(0, u64::saturating_add);
        if percent(lost, runs.saturating_add(lost)) >= MAX_LOST_PERCENT {
            warnings.push(Self::LostRuns(lost));
        }
        let machine_ns = report.duration_ns.saturating_mul(report.about.cpus.into());
        let programs = percent(report.overhead.program_run_ns, machine_ns);
        if programs > MAX_PROGRAMS_PERCENT {
            warnings.push(Self::ExpensiveRuns(programs));
        }
        warnings
    }
}

/// Losses that make totals too small, and that emptying tables more often makes rarer.
const UNEMPTIED_TABLES: [Loss; 1] = [Loss::TotalsFull];

/// Other losses that make totals too small.
const OTHERS_NOT_IN_TOTALS: [Loss; 7] = [
    Loss::BeginWithoutEnd,
    Loss::NestedTooDeep,
    Loss::NoTaskStorage,
    Loss::ProgramRecursion,
    Loss::UserThreadsFull,
    Loss::UserSamplesFull,
    Loss::ThreadsUntracked,
];

/// A language whose locks the system sees as something else, and that has tools of its own for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Language {
    /// Its locks park goroutines, not threads.
    Go,
    /// Its locks are made of conditions.
    Java,
}

impl Language {
    /// The language whose runtime this frame belongs to.
    pub fn of(frame: &Frame) -> Option<Self> {
        let is_java = frame.module.as_deref() == Some("libjvm.so");
        if is_of_go(frame) { Some(Self::Go) } else { is_java.then_some(Self::Java) }
    }
}

const fn percent(part: u64, whole: u64) -> u64 {
    // Beyond 2^64 / 100 the share comes out too small: only a damaged file has such numbers.
    match part.saturating_mul(100).checked_div(whole) {
        Some(percent) => percent,
        None => 0,
    }
}

/// Why the lock without a name that was waited for longest has none, if it is a program's.
fn why_unnamed_in_program(report: &Report) -> Option<&str> {
    let is_unnamed = |naming: Naming| matches!(naming, Naming::Unnamed(_));
    let mut waits = report.rows.iter().filter(|row| row.happened == Happened::Wait);
    let longest = waits.find(|row| row.naming.is_some_and(is_unnamed))?;
    longest.naming_detail.as_deref().filter(|_| longest.naming == Some(Naming::Unnamed(Unnamed::NoUserSite)))
}

fn counted_threads(threads: usize) -> String {
    units::counted(threads as u64, "thread", "threads")
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("warning: ")?;
        match self {
            Self::RecorderDied => f.write_str(
                "the recording has no end: the recorder was killed or is still running; the report shows what it has written",
            ),
            Self::NothingContended => f.write_str(
                "no lock was contended; if the machine was busy, record longer (-d), or the whole machine (-a)",
            ),
            Self::FewStacks(stacks) => write!(
                f,
                "callers and blockers are estimated from {} only; record longer, or take every stack with `record --every`",
                units::counted(*stacks, "stack", "stacks")
            ),
            Self::Unnamed(percent) => write!(
                f,
                "the locks of {percent} % of the waited time have no name; `lockmeter doctor` shows what this kernel lacks for \
                naming them"
            ),
            Self::UnnamedInPrograms { percent, why } => {
                write!(f, "the locks of {percent} % of the waited time have no name, most of them in programs: {why}")
            }
            Self::Lost { events, for_want_of_room } => {
                let are = units::counted(*events, "event is", "events are");
                write!(f, "{are} not in the totals (causes above)")?;
                if *for_want_of_room {
                    f.write_str("; a shorter `record --interval` leaves more room")?;
                }
                Ok(())
            }
            Self::NoIntervalInWindow { length_ns, intervals } => write!(
                f,
                "the window contains no recorded interval: the recording is {} long, in {}; give a wider --window, or record \
                with a shorter --interval",
                units::duration(*length_ns),
                units::counted(*intervals, "interval", "intervals")
            ),
            Self::NothingFits => f.write_str(
                "nothing in the recording matches these filters; leave them out to see everything",
            ),
            Self::SmallOnesAddedUp { folded, left_out } => {
                f.write_str("this recording has more different stacks and threads than a page may keep in memory: ")?;
                match left_out.as_slice() {
                    [] => write!(f, "the smallest of each lock were added up, {} at most of a kind", units::count(*folded))?,
                    left_out => write!(f, "nothing is told apart by {}", left_out.join(" and "))?,
                }
                f.write_str("; totals are exact, and a page of a part of it, with --lock or --window, has more detail")
            }
            Self::CpusTogether => f.write_str(
                "no kernel lock's waits are kept apart by CPU in this recording; record with --per-cpu",
            ),
            Self::OwnLocks(Language::Go) => f.write_str(
                "waits for Go's mutexes, channels and wait groups are not in this report, because they park goroutines, not \
                threads; use Go's mutex profile for them (`go tool pprof http://…/debug/pprof/mutex`)",
            ),
            Self::Goroutines => f.write_str(
                "of goroutines' waits this report has those for sync.Mutex and sync.RWMutex, estimated from ten looks a second and \
                without who had the lock; waits for channels and conditions are not in it",
            ),
            Self::OwnLocks(Language::Java) => f.write_str(
                "waits for locks of java.util.concurrent are in the threads' time only, not in the table of locks, and no line of \
                Java code is named; JFR has both (`jcmd PID JFR.start`, events JavaMonitorEnter and ThreadPark)",
            ),
            Self::ThreadsAssumed(threads) => write!(
                f,
                "the forecast assumes that {} did the work in the recording; give the right number with --threads",
                counted_threads(*threads)
            ),
            Self::MoreThreads { told, needed } => write!(
                f,
                "{} cannot have held and waited for locks for as long as was recorded; the forecast assumes {needed}",
                counted_threads(*told)
            ),
            Self::UntimedWaits(percent) => write!(
                f,
                "{percent} % of the threads' time is waits for locks without hold times, such as kernel locks; the forecast \
                counts it as computing, so more CPUs may gain less than it says"
            ),
            Self::AddedUp(difference) => write!(f, "{difference}"),
            Self::RulesNotInUse(sets) => {
                let sets: Vec<String> = sets.iter().map(RuleSet::to_string).collect();
                write!(
                    f,
                    "the recording was made with rules that are not in use now: {}; its locks keep the names that these gave \
                    them, but callers may be functions of the locks themselves; give the files with --rules",
                    sets.join(", ")
                )
            }
            Self::Expensive(percent) => write!(
                f,
                "lockmeter's programs in the kernel took {percent} % of the machine's CPU time; a smaller `record \
                --stack-budget`, or metering one process (-p), lowers that"
            ),
            Self::LostRuns(lost) => {
                write!(f, "{} not in the totals (causes above)", units::counted(*lost, "run is", "runs are"))
            }
            Self::ExpensiveRuns(percent) => write!(
                f,
                "lockmeter's programs in the kernel took {percent} % of the machine's CPU time; fewer kinds (--irq, --softirq, \
                --timer, --work) lower that"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use lockmeter_profile::view::{Query, ReportBuilder};
    use lockmeter_profile::{About, Interval};

    use super::*;

    /// What is said of a recording in which one thread of a thousand was counted.
    fn warnings_about(loss: Loss) -> Vec<Warning> {
        let mut interval = Interval::default();
        interval.losses.add(loss, 1_000);
        let mut builder = ReportBuilder::new(&About::default(), &Query::default());
        builder.add(&interval);
        let mut report = builder.finish();
        report.waits.count = 1;
        Warning::about(&report, true)
    }

    /// Regression: of a program with more threads than a segment holds, most waits were missing without a warning.
    #[test]
    fn what_a_program_had_no_room_for_is_warned_of_without_advice_that_does_not_help() {
        for loss in [Loss::UserThreadsFull, Loss::ThreadsUntracked, Loss::BeginWithoutEnd] {
            assert_eq!(warnings_about(loss), [Warning::Lost { events: 1_000, for_want_of_room: false }]);
        }
        assert_eq!(warnings_about(Loss::TotalsFull), [Warning::Lost { events: 1_000, for_want_of_room: true }]);
    }

    #[test]
    fn languages_are_told_by_their_runtimes() {
        let frame = |function: &str, module: &str| Frame {
            address: 0,
            function: Some(function.to_owned()),
            offset: 0,
            module: Some(module.to_owned()),
        };
        assert_eq!(Language::of(&frame("runtime.goexit.abi0", "server")), Some(Language::Go));
        assert_eq!(Language::of(&frame("JavaThread::run()", "libjvm.so")), Some(Language::Java));
        assert_eq!(Language::of(&frame("start_thread", "libc.so.6")), None);
    }
}
