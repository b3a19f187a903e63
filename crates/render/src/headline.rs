//! The whole story in one sentence, in the manner of the 1999 lockstat.

use std::fmt;

use lockmeter_profile::{Loss, Report, SampledSpin, ThreadState, TimedOut, Worst};

use crate::escape::escaped;
use crate::stacks::{holder_words, without_long_arguments};
use crate::threads::turns_ns;
use crate::units::{MILLION, count, counted, duration, ratio, share, thousandths};

/// Less is what any program spends on the locks of its start.
const NOTICEABLE_NS: u64 = 1_000_000;

/// The sentence at the head of a report, and its numbers.
///
/// Spinning burns CPU time and sleeping does not, so the two are never added up.
#[derive(Debug, Clone, Copy)]
pub struct Headline<'a> {
    report: &'a Report,
}

/// Who is blamed for less than this share of the waits, in millionths, is not said to have blocked them mostly.
const MOST_PPM: u64 = 500_000;
/// Below this share of the waits, in millionths, the head says nothing of the time until waiters ran, and of waits that timed out.
const NOTABLE_PPM: u64 = 100_000;

/// Fewer stacks than this can all be of an unusual wait.
const FEW_STACKS: u64 = 10;

/// Whether who is to blame rests on few of the waits.
const fn is_uncertain(worst: &Worst) -> bool {
    worst.stacks < FEW_STACKS && worst.stacks < worst.value.count
}

impl<'a> Headline<'a> {
    /// The head of this report.
    pub const fn of(report: &'a Report) -> Self {
        Self { report }
    }

    /// Share of the machine's CPU time that was burned by spinning, in millionths; `None` when no time passed.
    pub fn cpu_share_ppm(&self) -> Option<u64> {
        let cpus = u64::from(self.report.about.cpus);
        let spin_ppm = self.report.waited_rate(|waits| waits.spin_ns, MILLION)?;
        (cpus > 0).then(|| ratio(spin_ppm, 1, cpus))
    }

    /// How far that may be from the truth, in words; empty where it is exact.
    fn error(&self) -> String {
        let Report { spinning, duration_ns, about, .. } = self.report;
        match ratio(spinning.sampled_error_ns(), MILLION, duration_ns.saturating_mul(about.cpus.into())) {
            0 => String::new(),
            error_ppm => format!(" (± {})", share(error_ppm)),
        }
    }

    /// How many tasks slept for a lock at a time on average, in thousandths of a task; `None` when no time passed.
    pub fn mean_asleep_thousandths(&self) -> Option<u64> {
        let preempted = ratio(self.report.spinning.preempted_ns, 1_000, self.report.duration_ns);
        let asleep = self.report.waited_rate(|waits| waits.sleep_ns(), 1_000)?;
        Some(asleep.saturating_sub(preempted).saturating_sub(self.mean_goroutines_thousandths()))
    }

    /// How many goroutines waited for a lock at a time on average, in thousandths of one.
    pub fn mean_goroutines_thousandths(&self) -> u64 {
        ratio(self.report.goroutines.parked.total_ns, 1_000, self.report.duration_ns)
    }

    /// How far that may be from the truth, either way, in 95 of 100 cases.
    pub fn goroutines_error_thousandths(&self) -> u64 {
        ratio(self.report.goroutines.parked.error_ns(), 1_000, self.report.duration_ns)
    }

    /// The part of all waited time that the worst lock has, in millionths.
    pub fn worst_share_ppm(&self, worst: &Worst) -> u64 {
        ratio(worst.value.total_ns, MILLION, self.report.waits.total_ns)
    }

    /// `in process 42` where less than the machine was metered.
    fn scope_phrase(&self) -> String {
        match self.report.about.scope.as_str() {
            "" | "whole machine" => String::new(),
            scope => format!(" in {}", escaped(scope)),
        }
    }

    /// For how long threads were blocked for locks, as far as that was watched.
    fn blocked_ns(&self) -> u64 {
        self.report.threads.as_ref().map_or(0, |threads| threads.spent_ns(ThreadState::is_lock))
    }

    /// Whether threads waited at rest for locks.
    fn are_turns_taken(&self) -> bool {
        self.report.threads.as_ref().is_some_and(|threads| turns_ns(threads) >= NOTICEABLE_NS)
    }

    /// Whether nothing waited for a lock, as far as was seen: no wait ended, timed out or goes on.
    pub fn is_nothing(&self) -> bool {
        let has_ended = self.has_waits() || self.report.timed_out.is_some();
        let is_blocked = self.waits_that_go_on() > 0 || self.blocked_ns() >= NOTICEABLE_NS;
        !has_ended && !is_blocked && self.untold_spin().is_none()
    }

    /// Whether anybody got a lock after a wait, or spins for one.
    const fn has_waits(&self) -> bool {
        self.report.waits.count > 0 || self.report.waits.total_ns > 0
    }

    fn waits_that_go_on(&self) -> usize {
        self.report.threads.as_ref().map_or(0, |threads| threads.open_waits.len())
    }

    /// Spinning of which it is not known what it is for, if it is noticeable: it may be for locks.
    fn untold_spin(&self) -> Option<SampledSpin> {
        let spun = self.report.threads.as_ref()?.spun(|row| row.happened.is_none());
        (spun.total_ns >= NOTICEABLE_NS).then_some(spun)
    }

    fn spun_for_unknown(&self, spun: SampledSpin, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (total, error) = (duration(spun.total_ns), duration(spun.error_ns()));
        write!(f, "threads spun for {total} (± {error}), for what is not known")?;
        let rows = self.report.threads.iter().flat_map(|threads| &threads.spins);
        match rows.filter(|row| row.happened.is_none()).find_map(|row| row.stack.first()) {
            Some(function) => write!(f, ", mostly in {}", escaped(&without_long_arguments(function))),
            None => Ok(()),
        }
    }

    fn timed_out(timed_out: &TimedOut, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TimedOut { all, lock, mode, value, blocker_function, blocker_task, .. } = timed_out;
        let lock = without_long_arguments(lock);
        let (waits, lasted, lock) = (counted(all.count, "wait", "waits"), duration(all.total_ns), escaped(&lock));
        match value == all {
            true => write!(f, "{waits} for {lock} ({mode}) timed out after {lasted} in all"),
            false => write!(f, "{waits} timed out after {lasted} in all, most of it for {lock} ({mode})"),
        }?;
        let function = blocker_function.as_deref().map(without_long_arguments);
        match (function, blocker_task) {
            (Some(function), Some(task)) => write!(f, ", held mostly by {} in {}", escaped(&function), escaped(task)),
            (Some(function), None) => write!(f, ", held mostly by {}", escaped(&function)),
            (None, Some(task)) => write!(f, ", held mostly by {}", escaped(task)),
            (None, None) => Ok(()),
        }
    }

    fn nothing(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scope_phrase, over) = (self.scope_phrase(), duration(self.report.duration_ns));
        let blocked_ns = self.blocked_ns();
        let timed_out = self.report.timed_out.as_ref().filter(|timed_out| timed_out.all.total_ns >= blocked_ns / 2);
        if let Some(timed_out) = timed_out {
            write!(f, "no thread was seen to get a lock{scope_phrase} after a wait in {over}: ")?;
            Self::timed_out(timed_out, f)
        } else if blocked_ns >= NOTICEABLE_NS {
            let blocked = duration(blocked_ns);
            write!(
                f,
                "no thread was seen to get a lock{scope_phrase} after a wait in {over}, yet threads were blocked for locks for {blocked}: "
            )?;
            match self.waits_that_go_on() as u64 {
                0 => f.write_str("their waits timed out, were interrupted, or their end was not seen"),
                waits => write!(f, "{} still", counted(waits, "thread waits", "threads wait")),
            }
        } else if let Some(spun) = self.untold_spin() {
            write!(f, "no wait for a lock{scope_phrase} was seen in {over}, yet ")?;
            self.spun_for_unknown(spun, f)
        } else if self.report.losses.is_empty() && self.report.threads.is_none() {
            write!(f, "no wait for a lock{scope_phrase} ended in {over}; waits that still go on were not looked for")
        } else if self.report.losses.is_empty() {
            let nothing = if self.are_turns_taken() { "nothing else" } else { "nothing" };
            write!(f, "{nothing} waited for a lock{scope_phrase} in {over}")
        } else {
            write!(
                f,
                "no wait for a lock{scope_phrase} was counted in {over}, but some measurements were lost (see below)"
            )
        }
    }

    fn cost(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = &self.report.waits;
        write!(f, "waiting for locks{} ", self.scope_phrase())?;
        let (Some(cpu_ppm), Some(asleep)) = (self.cpu_share_ppm(), self.mean_asleep_thousandths()) else {
            let (spin, sleep) = (duration(waits.spin_ns), duration(waits.sleep_ns()));
            return write!(f, "took {spin} of CPU time and {sleep} of sleep");
        };
        if waits.spin_ns > 0 {
            let burned = thousandths(self.report.waited_rate(|waits| waits.spin_ns, MILLION).unwrap_or(0));
            let (share, of) = (share(cpu_ppm), count(1_000 * u64::from(self.report.about.cpus)));
            let is_undivided = self.report.losses.get(Loss::UserSpinUndivided) > 0;
            let at_most = if is_undivided { "at most " } else { "" };
            write!(f, "took {at_most}{share}{} of the machine's CPU time ({burned} ms of every {of})", self.error())?;
        }
        let tasks = |thousandths_of_task| match thousandths_of_task {
            0 => "fewer than 0.001 tasks".to_owned(),
            some => format!("{} tasks", thousandths(some)),
        };
        let preempted_ns = self.report.spinning.preempted_ns;
        let preempted = ratio(preempted_ns, 1_000, self.report.duration_ns);
        let parked_ns = self.report.goroutines.parked.total_ns;
        let slept_ns = waits.sleep_ns().saturating_sub(preempted_ns);
        let goroutines = match (self.mean_goroutines_thousandths(), self.goroutines_error_thousandths()) {
            (some, 0) => format!("{} goroutines", thousandths(some)),
            (some, error) => format!("{} (± {}) goroutines", thousandths(some), thousandths(error)),
        };
        let sleepers = match slept_ns.saturating_sub(parked_ns) {
            _ if parked_ns == 0 => tasks(asleep),
            _ if asleep == 0 => goroutines,
            _ => format!("{} and {goroutines}", tasks(asleep)),
        };
        match (waits.spin_ns, slept_ns) {
            (_, 0) if preempted > 0 => write!(f, " plus {} preempted while they spun, on average", tasks(preempted)),
            (_, 0) if self.blocked_ns() >= NOTICEABLE_NS || self.are_turns_taken() => {
                write!(f, "; no wait that has ended slept")
            }
            (_, 0) => write!(f, "; nobody slept"),
            (0, _) => write!(f, "kept {sleepers} asleep on average and burned no CPU time"),
            _ if preempted > 0 => {
                write!(f, " plus {sleepers} asleep, and {} preempted while they spun, on average", tasks(preempted))
            }
            _ => write!(f, " plus {sleepers} asleep on average"),
        }
    }

    /// What the blocker waited for itself, and how much of the waits is nobody's fault.
    fn beside_blocker(worst: &Worst, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((lock, function)) = &worst.root {
            write!(f, ", which waited for {}", escaped(&without_long_arguments(lock)))?;
            if let Some(function) = function {
                write!(f, ", held by {}", escaped(&without_long_arguments(function)))?;
            }
        }
        if let Some(state) = worst.holder_state {
            write!(f, " ({})", holder_words(state))?;
        }
        if worst.handover_ppm >= NOTABLE_PPM {
            let share = share(worst.handover_ppm);
            write!(f, "; for {share} of it the lock was free and the waiter not yet running")?;
        }
        Ok(())
    }

    fn worst(&self, worst: &Worst, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_all = share(self.worst_share_ppm(worst));
        write!(f, "; worst: {} ({}), {of_all} of it, ", escaped(&without_long_arguments(&worst.lock)), worst.mode)?;
        let for_how_long = match worst.blocker_function {
            Some(_) if worst.blocker_ppm < MOST_PPM => format!("for {} of that", share(worst.blocker_ppm)),
            _ => "mostly".to_owned(),
        };
        let probably = if is_uncertain(worst) { "probably " } else { "" };
        let blocked = format!("{probably}blocked {for_how_long} by");
        match (&worst.blocker_function, &worst.blocker_task) {
            (Some(function), Some(task)) => {
                let function = without_long_arguments(function);
                write!(f, "{blocked} {} in {}", escaped(&function), escaped(task))?;
                return Self::beside_blocker(worst, f);
            }
            (Some(name), None) | (None, Some(name)) => {
                write!(f, "{blocked} {}", escaped(&without_long_arguments(name)))?;
                return Self::beside_blocker(worst, f);
            }
            (None, None) if worst.value.sleep_ns() == 0 => write!(f, "all of it spinning, blocker not known")?,
            (None, None) => write!(f, "blocker unknown")?,
        }
        match &worst.caller_function {
            Some(caller) => write!(f, ", waited for mostly in {}", escaped(caller)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Headline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.has_waits() {
            return self.nothing(f);
        }
        let waited_ns = self.report.waits.total_ns;
        let is_notable = |timed_out: &&TimedOut| {
            let all_ns = timed_out.all.total_ns.saturating_add(waited_ns);
            timed_out.all.total_ns >= NOTICEABLE_NS && ratio(timed_out.all.total_ns, MILLION, all_ns) >= NOTABLE_PPM
        };
        let timed_out = self.report.timed_out.as_ref().filter(is_notable);
        let most_timed_out = timed_out.filter(|timed_out| timed_out.all.total_ns > waited_ns);
        if let Some(timed_out) = most_timed_out {
            Self::timed_out(timed_out, f)?;
            f.write_str("; besides, ")?;
        }
        let untold = self.untold_spin().filter(|spun| ratio(spun.total_ns, MILLION, waited_ns) >= NOTABLE_PPM);
        let most_untold = untold.filter(|spun| spun.total_ns > waited_ns);
        if let Some(spun) = most_untold {
            self.spun_for_unknown(spun, f)?;
            f.write_str("; besides, ")?;
        }
        self.cost(f)?;
        if let Some(worst) = &self.report.worst {
            self.worst(worst, f)?;
        }
        if let Some(spun) = untold.filter(|_| most_untold.is_none()) {
            f.write_str("; besides, ")?;
            self.spun_for_unknown(spun, f)?;
        }
        match timed_out.filter(|_| most_timed_out.is_none()) {
            Some(timed_out) => {
                f.write_str("; besides, ")?;
                Self::timed_out(timed_out, f)
            }
            None => Ok(()),
        }
    }
}
