//! What was metered in the last minutes, one step after another, in bounded memory.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use lockmeter_profile::Interval;
use lockmeter_profile::recording::PackedInterval;

/// An interval, in a form in which it can be kept.
pub trait Kept: Sized {
    fn start_unix_ns(&self) -> u64;
    fn duration_ns(&self) -> u64;
    fn memory_bytes(&self) -> usize;

    /// The same in less memory, if it is not as small as it can be.
    fn packed(&self) -> Option<Self>;
}

/// An interval that is ready to be looked at for as long as there is memory for that: packing one takes a millisecond or two.
#[derive(Debug)]
pub enum Packable {
    Ready(Box<Interval>),
    Packed(PackedInterval),
}

impl Packable {
    pub fn ready(interval: Interval) -> Self {
        Self::Ready(Box::new(interval))
    }

    /// `None` of one that no recording can hold.
    pub fn interval(&self) -> Option<Cow<'_, Interval>> {
        match self {
            Self::Ready(interval) => Some(Cow::Borrowed(interval)),
            Self::Packed(packed) => packed.unpack().map(Cow::Owned),
        }
    }
}

impl Kept for Packable {
    fn start_unix_ns(&self) -> u64 {
        match self {
            Self::Ready(interval) => interval.start_unix_ns,
            Self::Packed(packed) => packed.start_unix_ns(),
        }
    }

    fn duration_ns(&self) -> u64 {
        match self {
            Self::Ready(interval) => interval.duration_ns,
            Self::Packed(packed) => packed.duration_ns(),
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Ready(interval) => interval.memory_bytes(),
            Self::Packed(packed) => packed.memory_bytes(),
        }
    }

    fn packed(&self) -> Option<Self> {
        match self {
            Self::Ready(interval) => Some(Self::Packed(PackedInterval::of(interval))),
            Self::Packed(_) => None,
        }
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

    fn packed(&self) -> Option<Self> {
        None
    }
}

/// What was measured until something was due: one interval, or several where tables filled early.
#[derive(Debug)]
pub struct Step<I = Packable> {
    /// Steps are numbered from 0.
    pub number: u64,
    /// In their order; at least one.
    pub intervals: Vec<I>,
    bytes: usize,
}

impl Step {
    /// What it measured.
    pub fn read(&self) -> impl Iterator<Item = Cow<'_, Interval>> {
        self.intervals.iter().filter_map(Packable::interval)
    }
}

impl<I: Kept> Step<I> {
    fn new(number: u64, intervals: Vec<I>) -> Self {
        let bytes = intervals.iter().map(Kept::memory_bytes).sum();
        Self { number, intervals, bytes }
    }

    /// The same in less memory; `None` if it is as small as it can be.
    fn packed(&self) -> Option<Self> {
        let intervals: Option<Vec<I>> = self.intervals.iter().map(Kept::packed).collect();
        intervals.map(|intervals| Self::new(self.number, intervals))
    }

    pub fn start_unix_ns(&self) -> u64 {
        self.intervals.first().map_or(0, Kept::start_unix_ns)
    }

    pub fn duration_ns(&self) -> u64 {
        self.intervals.iter().map(Kept::duration_ns).fold(0, u64::saturating_add)
    }
}

/// The steps that are kept, oldest first.
#[derive(Debug)]
pub struct History<I = Packable> {
    steps: VecDeque<Arc<Step<I>>>,
    /// How many of the oldest are as small as they can be.
    packed: usize,
    most_ns: u64,
    most_bytes: usize,
    bytes: usize,
    duration_ns: u64,
    next: u64,
}

impl<I: Kept> History<I> {
    /// One that keeps no more than this, the newest step apart.
    pub const fn within(most_ns: u64, most_bytes: usize) -> Self {
        Self { steps: VecDeque::new(), packed: 0, most_ns, most_bytes, bytes: 0, duration_ns: 0, next: 0 }
    }

    /// Adds the newest step. Beyond the limits the oldest are packed, and dropped where that is not enough; the newest always stays.
    pub fn push(&mut self, intervals: Vec<I>) {
        if intervals.is_empty() {
            return;
        }
        let step = Step::new(self.next, intervals);
        self.next += 1;
        self.bytes += step.bytes;
        self.duration_ns = self.duration_ns.saturating_add(step.duration_ns());
        self.steps.push_back(Arc::new(step));
        self.keep_limits();
    }

    /// Changes the limits, and drops what is beyond them.
    pub fn keep_within(&mut self, most_ns: u64, most_bytes: usize) {
        (self.most_ns, self.most_bytes) = (most_ns, most_bytes);
        self.keep_limits();
    }

    fn keep_limits(&mut self) {
        while self.steps.len() > 1 && self.duration_ns > self.most_ns {
            self.drop_oldest();
        }
        while self.steps.len() > 1 && self.bytes > self.most_bytes {
            match self.packed + 1 < self.steps.len() {
                true => self.pack_next(),
                false => self.drop_oldest(),
            }
        }
    }

    fn pack_next(&mut self) {
        if let Some(step) = self.steps.get_mut(self.packed)
            && let Some(packed) = step.packed()
        {
            self.bytes = self.bytes - step.bytes + packed.bytes;
            *step = Arc::new(packed);
        }
        self.packed += 1;
    }

    fn drop_oldest(&mut self) {
        let Some(oldest) = self.steps.pop_front() else { return };
        self.packed = self.packed.saturating_sub(1);
        self.bytes -= oldest.bytes;
        self.duration_ns = self.duration_ns.saturating_sub(oldest.duration_ns());
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
    use lockmeter_profile::{Lock, Naming};

    use super::*;

    const MOST_NS: u64 = 600 * 1_000_000_000;

    const SECOND_NS: u64 = 1_000_000_000;

    /// One that cannot be made smaller, by when it began.
    struct Second(u64);

    impl Kept for Second {
        fn start_unix_ns(&self) -> u64 {
            self.0 * SECOND_NS
        }

        fn duration_ns(&self) -> u64 {
            SECOND_NS
        }

        fn memory_bytes(&self) -> usize {
            100
        }

        fn packed(&self) -> Option<Self> {
            None
        }
    }

    fn second(start_s: u64) -> Vec<Second> {
        vec![Second(start_s)]
    }

    /// Makes sure that the oldest steps are packed before any is dropped, that they are what they were, and that nothing is packed while
    /// there is memory.
    #[test]
    fn what_does_not_fit_is_packed_first_and_dropped_only_then() {
        let large = |start_s: u64| {
            let start_unix_ns = start_s * SECOND_NS;
            let mut interval = Interval { start_unix_ns, duration_ns: SECOND_NS, ..Interval::default() };
            for at in 0..20 {
                let name = format!("{}_{at}", "a_long_name".repeat(100));
                let (naming, detail) = (Naming::Symbol, String::new());
                interval.tables.intern_lock(Lock { name, object: None, naming, detail });
            }
            interval
        };
        let one = large(0).memory_bytes();
        let packed = PackedInterval::of(&large(0)).memory_bytes();
        assert!(packed * 10 < one, "{packed} of {one} B");
        let mut history = History::within(MOST_NS, 4 * one);
        let is_packed =
            |history: &History, number| matches!(history.get(number).unwrap().intervals[..], [Packable::Packed(_)]);
        (0..4).for_each(|start_s| history.push(vec![Packable::ready(large(start_s))]));
        assert!((0..4).all(|number| !is_packed(&history, number)));
        (4..20).for_each(|start_s| history.push(vec![Packable::ready(large(start_s))]));
        assert_eq!((history.bounds(), history.dropped()), (Some((0, 19)), 0));
        assert!(is_packed(&history, 0) && !is_packed(&history, 19) && history.memory_bytes() <= 4 * one);
        for number in [0, 19] {
            let read: Vec<Interval> = history.get(number).unwrap().read().map(Cow::into_owned).collect();
            assert_eq!(read, [large(number)], "step {number}");
        }
        // The newest is not packed; beside it there is room for few.
        history.keep_within(MOST_NS, one + 3 * packed);
        let (oldest, newest) = history.bounds().unwrap();
        assert!((16..=17).contains(&oldest) && newest == 19, "{oldest}");
        assert!(is_packed(&history, 18) && !is_packed(&history, 19));
        history.push(vec![Packable::ready(large(20))]);
        assert!(is_packed(&history, 19) && !is_packed(&history, 20));
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
