//! How much the rates of a recording vary from interval to interval: what tells a difference from chance.

use std::collections::BTreeMap;

use super::{DiffKey, key};
use crate::report::Report;

/// Of a longer recording neighbouring intervals are put together, so that a group takes no more than this, however long it is.
const MOST_INTERVALS: usize = 64;

/// What each group of one or several recordings waited in each of their intervals.
#[derive(Debug, Clone, Default)]
pub struct Spread {
    recordings: Vec<Series>,
    /// What the groups' keys take.
    keys_bytes: usize,
    keys: usize,
}

/// The intervals of one recording.
#[derive(Debug, Clone, Default)]
struct Series {
    durations_ns: Vec<u64>,
    /// How many intervals are put together in each, and in the last.
    intervals_each: usize,
    in_last: usize,
    /// Of everything but lockmeter's own.
    waits_ns: Vec<u64>,
    groups: BTreeMap<DiffKey, Sums>,
}

/// What a group adds up to in each interval. What is missing at the end of a list is 0.
#[derive(Debug, Clone, Default)]
struct Sums {
    total_ns: Vec<u64>,
    /// Of the histograms: how many durations, and the sum of their logarithms in millionths.
    counts: Vec<u64>,
    logarithms: Vec<u64>,
}

/// What was measured in an interval, and in what: in how much metered time, or in how many waits.
pub(super) type Part = (f64, f64);

/// What the intervals of a group say, for each recording.
#[derive(Debug, Clone, Default)]
pub(super) struct Parts {
    /// Time in metered time.
    pub(super) rate: Vec<Vec<Part>>,
    /// Logarithms of how many durations: that of the typical one.
    pub(super) typical: Vec<Vec<Part>>,
}

impl Spread {
    /// The intervals that follow are of another recording.
    pub fn begin_recording(&mut self) {
        self.recordings.push(Series { intervals_each: 1, ..Series::default() });
    }

    /// Takes in the next interval of the recording, as a report of that interval alone.
    pub fn add(&mut self, interval: &Report) {
        if interval.duration_ns == 0 {
            return;
        }
        if self.recordings.is_empty() {
            self.begin_recording();
        }
        let Some(series) = self.recordings.last_mut() else { return };
        series.begin_interval(interval.duration_ns);
        let at = series.durations_ns.len() - 1;
        add_at(&mut series.waits_ns, at, interval.waits.total_ns);
        for row in &interval.rows {
            let key = key(row, &interval.by);
            let bytes = key_bytes(&key);
            let sums = series.groups.entry(key).or_insert_with(|| {
                self.keys_bytes += bytes;
                self.keys += 1;
                Sums::default()
            });
            add_at(&mut sums.total_ns, at, row.value.total_ns);
            let (count, logarithms) = logarithms(row.histogram.iter().map(|(_, count, total_ns)| (*count, *total_ns)));
            add_at(&mut sums.counts, at, count);
            add_at(&mut sums.logarithms, at, (logarithms * MILLION) as u64);
        }
    }

    /// What all of it takes, about.
    pub const fn memory_bytes(&self) -> usize {
        self.keys_bytes + self.keys * (size_of::<(DiffKey, Sums)>() + 6 * MOST_INTERVALS * size_of::<u64>())
    }

    /// All waits, interval by interval, for each recording.
    pub(super) fn of_waits(&self) -> Vec<Vec<Part>> {
        self.recordings.iter().map(|series| parts(&series.waits_ns, &series.durations_ns)).collect()
    }

    /// Those of the groups whose keys fit: of a group that changed its name, several may.
    pub(super) fn of_group(&self, keys: &[&DiffKey]) -> Parts {
        let mut all = Parts::default();
        for series in &self.recordings {
            let length = series.durations_ns.len();
            let [mut total_ns, mut counts, mut logarithms] = [(); 3].map(|()| vec![0_u64; length]);
            for group in keys.iter().filter_map(|key| series.groups.get(key)) {
                let of_group = [&group.total_ns, &group.counts, &group.logarithms];
                for (sums, more) in [&mut total_ns, &mut counts, &mut logarithms].into_iter().zip(of_group) {
                    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
                }
            }
            all.rate.push(parts(&total_ns, &series.durations_ns));
            // An interval in which nothing happened says nothing of how long it takes.
            let typical = parts(&logarithms, &counts).into_iter().filter(|(_, count)| *count > 0.0);
            all.typical.push(typical.map(|(sum, count)| (sum / MILLION, count)).collect());
        }
        all
    }
}

impl Series {
    fn begin_interval(&mut self, duration_ns: u64) {
        if self.in_last < self.intervals_each
            && let Some(last) = self.durations_ns.last_mut()
        {
            *last = last.saturating_add(duration_ns);
            self.in_last += 1;
            return;
        }
        if self.durations_ns.len() == 2 * MOST_INTERVALS {
            merge_pairs(&mut self.durations_ns);
            merge_pairs(&mut self.waits_ns);
            for sums in self.groups.values_mut() {
                merge_pairs(&mut sums.total_ns);
                merge_pairs(&mut sums.counts);
                merge_pairs(&mut sums.logarithms);
            }
            self.intervals_each *= 2;
        }
        self.durations_ns.push(duration_ns);
        self.in_last = 1;
    }
}

const MILLION: f64 = 1e6;

/// How many durations a histogram holds, and the sum of their logarithms: each bucket's are taken to be as long as their mean.
pub(super) fn logarithms(buckets: impl Iterator<Item = (u64, u64)>) -> (u64, f64) {
    buckets.filter(|(count, _)| *count > 0).fold((0, 0.0), |(all, sum), (count, total_ns)| {
        let mean_ns = (total_ns as f64 / count as f64).max(1.0);
        (u64::saturating_add(all, count), sum + count as f64 * mean_ns.ln())
    })
}

/// Each two neighbours become one.
fn merge_pairs(sums: &mut Vec<u64>) {
    *sums = sums.chunks(2).map(|two| two.iter().fold(0, |sum: u64, next| sum.saturating_add(*next))).collect();
}

fn add_at(sums: &mut Vec<u64>, at: usize, more: u64) {
    if sums.len() <= at {
        sums.resize(at + 1, 0);
    }
    sums[at] = sums[at].saturating_add(more);
}

fn parts(amounts: &[u64], of: &[u64]) -> Vec<Part> {
    let amounts = amounts.iter().copied().chain(std::iter::repeat(0));
    of.iter().zip(amounts).map(|(of, amount)| (amount as f64, *of as f64)).collect()
}

/// The text that a key holds.
fn key_bytes(key: &DiffKey) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let blocker = key.blocker.as_ref().map(|(_, stack)| stack);
    let root = key.root.as_ref().map(|root| &root.stack);
    let stacks = [key.caller.as_ref(), blocker, root].into_iter().flatten();
    let frames = stacks.flat_map(|stack| stack.iter()).map(|frame| frame.len() + size_of::<usize>() * 4);
    text(&key.lock) + text(&key.object) + text(&key.task) + text(&key.cgroup) + frames.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_recording_is_kept_in_longer_intervals_and_loses_nothing() {
        let mut series = Series { intervals_each: 1, ..Series::default() };
        for nth in 0..10_000_u64 {
            series.begin_interval(10);
            let at = series.durations_ns.len() - 1;
            add_at(&mut series.waits_ns, at, nth);
        }
        assert!((MOST_INTERVALS..=2 * MOST_INTERVALS).contains(&series.durations_ns.len()));
        assert_eq!(series.durations_ns.iter().sum::<u64>(), 100_000);
        assert_eq!(series.waits_ns.iter().sum::<u64>(), (0..10_000).sum::<u64>());
        let last = series.durations_ns.len() - 1;
        assert!(series.durations_ns[..last].iter().all(|duration_ns| *duration_ns == series.durations_ns[0]));
    }
}
