//! What was metered in the last minutes, one step after another, in bounded memory.

use std::collections::VecDeque;
use std::sync::Arc;

use lockmeter_profile::Interval;
use lockmeter_profile::recording::PackedInterval;

/// An interval, in a form in which it can be kept.
pub trait Kept {
    fn start_unix_ns(&self) -> u64;
    fn duration_ns(&self) -> u64;
    fn memory_bytes(&self) -> usize;
}

impl Kept for Interval {
    fn start_unix_ns(&self) -> u64 {
        self.start_unix_ns
    }

    fn duration_ns(&self) -> u64 {
        self.duration_ns
    }

    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }
}

impl Kept for PackedInterval {
    fn start_unix_ns(&self) -> u64 {
        self.start_unix_ns()
    }

    fn duration_ns(&self) -> u64 {
        self.duration_ns()
    }

    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }
}

/// What was measured until something was due: one interval, or several where tables filled early.
#[derive(Debug)]
pub struct Step<I = Interval> {
    /// Steps are numbered from 0.
    pub number: u64,
    /// In their order; at least one.
    pub intervals: Vec<I>,
    bytes: usize,
}

impl<I: Kept> Step<I> {
    pub fn start_unix_ns(&self) -> u64 {
        self.intervals.first().map_or(0, Kept::start_unix_ns)
    }

    pub fn duration_ns(&self) -> u64 {
        self.intervals.iter().map(Kept::duration_ns).fold(0, u64::saturating_add)
    }
}

/// The steps that are kept, oldest first.
#[derive(Debug)]
pub struct History<I = Interval> {
    steps: VecDeque<Arc<Step<I>>>,
    most_ns: u64,
    most_bytes: usize,
    bytes: usize,
    duration_ns: u64,
    next: u64,
}

impl<I: Kept> History<I> {
    /// One that keeps no more than this, the newest step apart.
    pub const fn within(most_ns: u64, most_bytes: usize) -> Self {
        Self { steps: VecDeque::new(), most_ns, most_bytes, bytes: 0, duration_ns: 0, next: 0 }
    }

    /// Adds the newest step, and drops the oldest ones beyond the limits; the newest always stays.
    pub fn push(&mut self, intervals: Vec<I>) {
        if intervals.is_empty() {
            return;
        }
        let bytes = intervals.iter().map(Kept::memory_bytes).sum();
        let step = Step { number: self.next, intervals, bytes };
        self.next += 1;
        self.bytes += step.bytes;
        self.duration_ns = self.duration_ns.saturating_add(step.duration_ns());
        self.steps.push_back(Arc::new(step));
        self.drop_oldest();
    }

    /// Changes the limits, and drops what is beyond them.
    pub fn keep_within(&mut self, most_ns: u64, most_bytes: usize) {
        (self.most_ns, self.most_bytes) = (most_ns, most_bytes);
        self.drop_oldest();
    }

    fn drop_oldest(&mut self) {
        while self.steps.len() > 1 && (self.bytes > self.most_bytes || self.duration_ns > self.most_ns) {
            let Some(oldest) = self.steps.pop_front() else { break };
            self.bytes -= oldest.bytes;
            self.duration_ns = self.duration_ns.saturating_sub(oldest.duration_ns());
        }
    }

    /// The numbers of the oldest and the newest step.
    pub fn bounds(&self) -> Option<(u64, u64)> {
        Some((self.steps.front()?.number, self.steps.back()?.number))
    }

    /// How many steps were dropped: all before the oldest.
    pub fn dropped(&self) -> u64 {
        self.bounds().map_or(0, |(oldest, _)| oldest)
    }

    pub fn get(&self, number: u64) -> Option<&Arc<Step<I>>> {
        let (oldest, _) = self.bounds()?;
        self.steps.get(usize::try_from(number.checked_sub(oldest)?).ok()?)
    }

    /// Up to `count` steps, the last of which has this number.
    pub fn up_to(&self, last: u64, count: usize) -> impl Iterator<Item = &Arc<Step<I>>> {
        let begin = last.saturating_sub(count.saturating_sub(1) as u64);
        let (oldest, newest) = self.bounds().unwrap_or((1, 0));
        (begin.max(oldest)..=last.min(newest)).filter_map(|number| self.get(number))
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Step<I>>> {
        self.steps.iter()
    }

    pub const fn duration_ns(&self) -> u64 {
        self.duration_ns
    }

    /// What the steps take in memory.
    pub const fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_NS: u64 = 600 * 1_000_000_000;

    fn second(start_s: u64) -> Vec<Interval> {
        const SECOND_NS: u64 = 1_000_000_000;
        vec![Interval { start_unix_ns: start_s * SECOND_NS, duration_ns: SECOND_NS, ..Interval::default() }]
    }

    #[test]
    fn the_last_minutes_are_kept_and_what_is_dropped_is_counted() {
        let mut history = History::within(MOST_NS, usize::MAX);
        (0..700).for_each(|start_s| history.push(second(start_s)));
        assert_eq!((history.bounds(), history.dropped()), (Some((100, 699)), 100));
        assert_eq!(history.duration_ns(), MOST_NS);
        assert!(history.get(99).is_none() && history.get(700).is_none());
        assert_eq!(history.get(100).unwrap().start_unix_ns(), 100_000_000_000);
    }

    #[test]
    fn memory_is_bounded_and_the_newest_step_stays_however_large_it_is() {
        let one = second(0)[0].memory_bytes();
        let mut history = History::within(MOST_NS, 3 * one);
        (0..9).for_each(|start_s| history.push(second(start_s)));
        assert_eq!(history.bounds(), Some((6, 8)));
        history.keep_within(MOST_NS, one / 2);
        assert_eq!((history.bounds(), history.memory_bytes()), (Some((8, 8)), one));
        history.push(second(9));
        assert_eq!((history.bounds(), history.memory_bytes()), (Some((9, 9)), one));
    }

    #[test]
    fn a_window_ends_with_the_step_asked_for_and_holds_no_more_than_there_are() {
        let mut history = History::within(MOST_NS, usize::MAX);
        (0..5).for_each(|start_s| history.push(second(start_s)));
        let numbers = |last, count| history.up_to(last, count).map(|step| step.number).collect::<Vec<_>>();
        assert_eq!(numbers(3, 2), [2, 3]);
        assert_eq!(numbers(1, 9), [0, 1]);
        assert!(numbers(9, 2).is_empty(), "no such step");
    }
}
