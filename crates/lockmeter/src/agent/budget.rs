//! Keeps what metering takes within its budgets.

use std::time::{Duration, Instant};

/// What is used is judged over this many intervals, up to a minute and at least one: a burst is no reason to meter less.
const INTERVALS: u32 = 6;
const LONGEST_WINDOW: Duration = Duration::from_secs(60);
/// After this long within half of each budget, a detail is metered again. Starting costs half a second of CPU time.
const CALM: Duration = Duration::from_secs(900);
/// Of a budget, below which there is room for one more detail.
const ROOM: f64 = 0.5;

/// What became of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Keep,
    /// One detail less, for this budget.
    Shed(&'static str),
    /// One detail more.
    Restore,
}

/// Watches the budgets.
pub struct Budgets {
    window: Duration,
    /// When the window began, and what had been used by then. `None` until the next look: starting and changing what is metered takes a second
    /// of CPU time, once, for which nothing need be shed.
    begun: Option<(Instant, u64)>,
    calm_since: Instant,
    /// How much of the budgets was used when last looked at.
    pub cpu: f64,
    pub memory: f64,
}

impl Budgets {
    pub fn new(now: Instant, interval: Duration) -> Self {
        let mut budgets = Self { window: LONGEST_WINDOW, begun: None, calm_since: now, cpu: 0.0, memory: 0.0 };
        budgets.judge_after(interval);
        budgets
    }

    /// Looks are as far apart as this from now on.
    pub fn judge_after(&mut self, interval: Duration) {
        self.window = (INTERVALS * interval).min(LONGEST_WINDOW).max(interval);
        self.begun = None;
    }

    /// A look, with all CPU time that metering has taken so far, what the budget would allow in a second, and the used part of the memory's.
    pub fn look(&mut self, now: Instant, used_ns: u64, allowed_ns_per_s: f64, memory: f64) -> Verdict {
        self.memory = memory;
        let (begun, used_then_ns) = *self.begun.get_or_insert((now, used_ns));
        let past = now - begun;
        if past < self.window {
            return Verdict::Keep;
        }
        self.cpu = used_ns.saturating_sub(used_then_ns) as f64 / (past.as_secs_f64() * allowed_ns_per_s);
        self.begun = Some((now, used_ns));
        if self.cpu > ROOM || memory > ROOM {
            self.calm_since = now;
        }
        let verdict = match (self.cpu > 1.0, memory > 1.0) {
            (true, _) => Verdict::Shed("cpu"),
            (_, true) => Verdict::Shed("memory"),
            _ if now - self.calm_since >= CALM => {
                self.calm_since = now;
                Verdict::Restore
            }
            _ => Verdict::Keep,
        };
        if verdict != Verdict::Keep {
            self.begun = None;
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    /// What becomes of looks a minute apart, each after this use of the CPU's budget.
    fn verdicts(used: &[f64], memory: f64) -> Vec<Verdict> {
        let mut now = Instant::now();
        let mut budgets = Budgets::new(now, INTERVAL);
        // What starting takes.
        let mut used_ns = 5_000_000_000;
        budgets.look(now, used_ns, 1e6, memory);
        let look = |part: &f64| {
            now += LONGEST_WINDOW;
            used_ns += (part * LONGEST_WINDOW.as_secs_f64() * 1e6) as u64;
            budgets.look(now, used_ns, 1e6, memory)
        };
        used.iter().map(look).collect()
    }

    #[test]
    fn a_budget_that_is_broken_for_a_minute_sheds_a_detail() {
        assert_eq!(verdicts(&[0.9, 1.1, 0.9], 0.1), [Verdict::Keep, Verdict::Shed("cpu"), Verdict::Keep]);
        assert_eq!(verdicts(&[0.9], 1.2), [Verdict::Shed("memory")]);
    }

    #[test]
    fn a_burst_within_the_window_sheds_nothing() {
        let now = Instant::now();
        let mut budgets = Budgets::new(now, INTERVAL);
        assert_eq!(budgets.look(now, 0, 1e6, 0.1), Verdict::Keep);
        assert_eq!(budgets.look(now + Duration::from_secs(10), 50_000_000, 1e6, 0.1), Verdict::Keep);
        assert_eq!(budgets.look(now + LONGEST_WINDOW, 55_000_000, 1e6, 0.1), Verdict::Keep);
    }

    /// Regression: a change sheds nothing more, though it costs more than a minute's budget.
    #[test]
    fn what_a_change_costs_is_not_judged() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut budgets = Budgets::new(now, INTERVAL);
        budgets.look(now, 0, 1e6, 0.1);
        assert_eq!(budgets.look(at(60), 70_000_000, 1e6, 0.1), Verdict::Shed("cpu"));
        assert_eq!(budgets.look(at(70), 900_000_000, 1e6, 0.1), Verdict::Keep, "it has just changed");
        assert_eq!(budgets.look(at(130), 930_000_000, 1e6, 0.1), Verdict::Keep);
    }

    #[test]
    fn the_window_is_six_intervals_and_a_minute_at_most_unless_one_is_longer() {
        let window = |interval| Budgets::new(Instant::now(), Duration::from_secs(interval)).window.as_secs();
        assert_eq!([1, 5, 10, 30, 300].map(window), [6, 30, 60, 60, 300]);
    }

    #[test]
    fn a_detail_comes_back_after_a_quarter_of_an_hour_of_calm() {
        let calm = vec![0.4; 15];
        assert_eq!(verdicts(&calm, 0.1)[13..], [Verdict::Keep, Verdict::Restore]);
        assert!(
            verdicts(&[&calm[..8], &[0.6], &calm[..8]].concat(), 0.1).iter().all(|verdict| *verdict == Verdict::Keep)
        );
        assert!(verdicts(&calm, 0.7).iter().all(|verdict| *verdict == Verdict::Keep));
    }
}
