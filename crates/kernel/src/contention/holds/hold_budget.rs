//! When hooks are to be detached, and attached again, so that all they take is a share of CPU time.
//!
//! What is not to cost anything must not be hooked: a hook that counts nothing still takes half of what one takes that counts, for the
//! way into it. Detaching one takes the kernel a tenth of a second or more, during which it waits; so there are windows of some seconds,
//! and gaps that are as long as it takes to make up for them.

use std::time::Duration;

use crate::clock::nanoseconds;
use crate::cost::scaled;

/// No window is shorter: its edges, at which some functions are hooked and nothing is counted, take as long.
const SHORTEST_WINDOW: Duration = Duration::from_secs(2);

/// CPU time that was not used is saved up for so long: a short burst is watched as a whole.
const SAVED_FOR: Duration = Duration::from_secs(2);

/// Where in its cycle a set of hooks is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// All are attached, and count.
    Watching,
    /// They are being detached, and count nothing.
    Closing,
    /// None is attached.
    Gap,
    /// They are being attached, and count nothing yet.
    Opening,
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Stay,
    /// Hooks are to count nothing from now on.
    Close {
        /// The share of CPU time that they took in this window, in millionths.
        used_ppm: u64,
    },
    /// One is to be detached.
    Detach,
    /// More are to be attached.
    Attach,
    /// All are attached: they are to count from now on.
    Open,
}

/// What is seen of the hooks at a look. Times are since the beginning.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Look {
    pub(super) at: Duration,
    /// CPU time that they took so far while they counted.
    pub(super) spent_ns: u64,
    /// The part of it that the way into them took.
    pub(super) entry_ns: u64,
    pub(super) attached: usize,
    /// That are to be attached while they count.
    pub(super) hooks: usize,
}

/// Keeps the account.
#[derive(Debug)]
pub(super) struct HoldBudget {
    /// Of all CPUs' time.
    ppm: u32,
    cpus: u32,
    phase: Phase,
    /// When this window began, and the last look.
    window: Look,
    last: Look,
    /// How long it took to detach and attach hooks, last time.
    edges: Duration,
    /// CPU time that may be spent still; below 0, that is to be made up for.
    left_ns: i64,
    /// What hooks take that are attached and count nothing, in a second: as much as the way into them took in the last window.
    idle_ns_per_s: u64,
    /// And took so far.
    idle_ns: u64,
}

impl HoldBudget {
    pub(super) fn new(ppm: u32, cpus: u32) -> Self {
        let (window, last) = (Look::default(), Look::default());
        Self {
            ppm,
            cpus,
            phase: Phase::Watching,
            window,
            last,
            edges: Duration::ZERO,
            left_ns: 0,
            idle_ns_per_s: 0,
            idle_ns: 0,
        }
    }

    pub(super) const fn ppm(&self) -> u32 {
        self.ppm
    }

    /// What hooks took that counted nothing.
    pub(super) const fn idle_ns(&self) -> u64 {
        self.idle_ns
    }

    /// To be called some times a second.
    pub(super) fn step(&mut self, look: Look) -> Step {
        self.settle(look);
        self.last = look;
        match self.phase {
            Phase::Watching if self.is_overdrawn() && look.at - self.window.at >= SHORTEST_WINDOW => self.close(look),
            Phase::Watching => Step::Stay,
            Phase::Closing if look.attached > 0 => Step::Detach,
            Phase::Closing | Phase::Gap if self.left_ns < 0 => self.enter(Phase::Gap, Step::Stay),
            Phase::Closing | Phase::Gap => self.enter(Phase::Opening, Step::Attach),
            Phase::Opening if look.attached < look.hooks => Step::Attach,
            Phase::Opening => {
                self.window = look;
                self.enter(Phase::Watching, Step::Open)
            }
        }
    }

    /// What little is too much is worth its edges only in a longer window: then as much is lent as is earned in their time.
    fn is_overdrawn(&self) -> bool {
        let lent_ns = i64::try_from(self.earned_ns(nanoseconds(self.edges))).unwrap_or(i64::MAX);
        self.left_ns < -lent_ns
    }

    fn enter(&mut self, phase: Phase, step: Step) -> Step {
        self.phase = phase;
        step
    }

    fn close(&mut self, look: Look) -> Step {
        let watched_ns = nanoseconds(look.at - self.window.at).max(1);
        let used_ns = look.spent_ns.saturating_sub(self.window.spent_ns);
        let entry_ns = look.entry_ns.saturating_sub(self.window.entry_ns);
        self.idle_ns_per_s = scaled(entry_ns, 1_000_000_000, watched_ns);
        let used_ppm = scaled(used_ns, 1_000_000, watched_ns) / u64::from(self.cpus);
        self.edges = Duration::ZERO;
        self.enter(Phase::Closing, Step::Close { used_ppm })
    }

    /// What was earned and spent since the last look.
    fn settle(&mut self, look: Look) {
        let elapsed = look.at.saturating_sub(self.last.at);
        if matches!(self.phase, Phase::Closing | Phase::Opening) {
            self.edges += elapsed;
        }
        let elapsed_ns = nanoseconds(elapsed);
        let idle_ns = match self.phase {
            Phase::Watching => 0,
            Phase::Closing | Phase::Gap | Phase::Opening => {
                let all_ns = scaled(self.idle_ns_per_s, elapsed_ns, 1_000_000_000);
                scaled(all_ns, look.attached as u64, look.hooks as u64)
            }
        };
        self.idle_ns += idle_ns;
        let spent_ns = look.spent_ns.saturating_sub(self.last.spent_ns) + idle_ns;
        let left_ns =
            self.left_ns.saturating_add_unsigned(self.earned_ns(elapsed_ns)).saturating_sub_unsigned(spent_ns);
        let most_ns = i64::try_from(self.earned_ns(nanoseconds(SAVED_FOR))).unwrap_or(i64::MAX);
        self.left_ns = left_ns.min(most_ns);
    }

    fn earned_ns(&self, elapsed_ns: u64) -> u64 {
        scaled(elapsed_ns, u64::from(self.ppm) * u64::from(self.cpus), 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(100);
    const HOOKS: usize = 30;

    /// A machine with two CPUs, on which hooks that count take `used_ppm` of CPU time, and those that do not 0.4 of it.
    #[derive(Debug, Default)]
    struct Machine {
        look: Look,
        counts: bool,
        taken_ns: u64,
        watched: Duration,
        windows: u32,
    }

    const BUDGET_PPM: u32 = 40_000;

    impl Machine {
        fn run(&mut self, budget: &mut HoldBudget, time: Duration, used_ppm: u64) {
            let until = self.look.at + time;
            while self.look.at < until {
                let took_ns = scaled(2 * 100_000_000, used_ppm, 1_000_000);
                let entry_ns = took_ns * 2 / 5;
                if self.counts {
                    self.look.spent_ns += took_ns;
                    self.look.entry_ns += entry_ns;
                    self.taken_ns += took_ns;
                    self.watched += TICK;
                } else {
                    self.taken_ns += entry_ns * self.look.attached as u64 / HOOKS as u64;
                }
                self.look.at += TICK;
                match budget.step(self.look) {
                    Step::Stay => {}
                    Step::Close { .. } => self.counts = false,
                    Step::Detach => self.look.attached -= 1,
                    Step::Attach => self.look.attached = (self.look.attached + 5).min(HOOKS),
                    Step::Open => {
                        assert_eq!(self.look.attached, HOOKS, "windows begin once all are attached");
                        self.counts = true;
                        self.windows += 1;
                    }
                }
            }
        }

        fn taken_ppm(&self) -> u64 {
            scaled(self.taken_ns, 1_000_000, 2 * nanoseconds(self.look.at))
        }
    }

    fn attached() -> (Machine, HoldBudget) {
        let look = Look { attached: HOOKS, hooks: HOOKS, ..Look::default() };
        (Machine { look, counts: true, ..Machine::default() }, HoldBudget::new(BUDGET_PPM, 2))
    }

    #[test]
    fn hooks_within_their_budget_stay() {
        let (mut machine, mut budget) = attached();
        machine.run(&mut budget, Duration::from_secs(600), 39_000);
        assert_eq!(machine.watched, Duration::from_secs(600));
    }

    #[test]
    fn dear_hooks_take_their_budget_and_no_more() {
        for used_ppm in [60_000, 110_000, 250_000, 600_000] {
            let (mut machine, mut budget) = attached();
            machine.run(&mut budget, Duration::from_secs(600), used_ppm);
            let taken_ppm = machine.taken_ppm();
            assert!((35_000..43_000).contains(&taken_ppm), "{taken_ppm} of hooks that take {used_ppm}");
            assert_eq!(machine.look.spent_ns + budget.idle_ns(), machine.taken_ns);
            assert!(machine.windows > 5, "{} windows of hooks that take {used_ppm}", machine.windows);
        }
    }

    #[test]
    fn a_window_lasts_long_enough_to_be_worth_its_edges() {
        let (mut machine, mut budget) = attached();
        machine.run(&mut budget, SHORTEST_WINDOW, 900_000);
        assert!(machine.watched >= SHORTEST_WINDOW);
        machine.run(&mut budget, Duration::from_secs(600), 900_000);
        let each = machine.watched / (machine.windows + 1);
        assert!(each >= SHORTEST_WINDOW - TICK, "{each:?}");
    }

    #[test]
    fn hooks_that_take_a_little_too_much_are_watched_most_of_the_time() {
        let (mut machine, mut budget) = attached();
        machine.run(&mut budget, Duration::from_secs(600), 50_000);
        assert!(machine.watched > Duration::from_secs(300), "{:?}", machine.watched);
        assert!(machine.taken_ppm() < 43_000, "{}", machine.taken_ppm());
    }

    #[test]
    fn a_burst_that_ends_is_followed_by_watching_all_the_time() {
        let (mut machine, mut budget) = attached();
        machine.run(&mut budget, Duration::from_secs(20), 300_000);
        machine.run(&mut budget, Duration::from_secs(60), 1_000);
        let watched = machine.watched;
        machine.run(&mut budget, Duration::from_secs(60), 1_000);
        assert_eq!(machine.watched, watched + Duration::from_secs(60));
    }

    #[test]
    fn what_a_window_took_is_told_by_its_share_of_all_cpus() {
        let mut budget = HoldBudget::new(BUDGET_PPM, 4);
        let look = Look { at: SHORTEST_WINDOW, spent_ns: 800_000_000, attached: 1, hooks: 1, ..Look::default() };
        assert_eq!(budget.step(look), Step::Close { used_ppm: 100_000 });
    }

    #[test]
    fn half_attached_hooks_go_on_being_attached_however_long_it_takes() {
        let (mut machine, mut budget) = attached();
        machine.run(&mut budget, Duration::from_secs(100), 400_000);
        budget.phase = Phase::Opening;
        machine.look.attached = 1;
        assert_eq!(budget.step(machine.look), Step::Attach);
        assert_eq!(budget.step(machine.look), Step::Attach);
        machine.look.attached = HOOKS;
        assert_eq!(budget.step(machine.look), Step::Open);
    }
}
