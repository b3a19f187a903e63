//! How long holds were that were timed: what those are given that were only counted.

use std::collections::BTreeMap;

use crate::sample::Bucket;

/// Holds of one bucket.
#[derive(Debug, Clone, Copy, Default)]
struct Timed {
    count: u64,
    total_ns: u64,
    /// For how many others they stand, and how long those were together if they were as long.
    others: u64,
    others_ns: u64,
    /// Sum of what the square of each one's distance from the mean enters the variance with.
    squares: f64,
}

/// How many there were and how long together, by bucket.
#[derive(Debug, Clone, Default)]
pub struct Lengths(BTreeMap<Bucket, Timed>);

impl Lengths {
    /// Adds holds of one bucket, each of which was drawn in place of this many others as well.
    pub fn add(&mut self, bucket: Bucket, count: u64, total_ns: u64, others: u64) {
        let sum = self.0.entry(bucket).or_default();
        sum.count = sum.count.saturating_add(count);
        sum.total_ns = sum.total_ns.saturating_add(total_ns);
        sum.others = sum.others.saturating_add(count.saturating_mul(others));
        sum.others_ns = sum.others_ns.saturating_add(total_ns.saturating_mul(others));
        sum.squares += count as f64 * others as f64 * (others as f64 + 1.0);
    }

    /// Adds what holds of one bucket stand for, of which only this is known: this many others, as long together, and the sum of each
    /// one's number of others × (that number + 1).
    pub fn add_others(&mut self, bucket: Bucket, others: u64, others_ns: u64, squares: u64) {
        let sum = self.0.entry(bucket).or_default();
        // As many as would stand for equal numbers of them.
        let of_squares = squares.saturating_sub(others).max(1) as f64;
        let drawn = (others as f64 * others as f64 / of_squares).round() as u64;
        sum.count = sum.count.saturating_add(drawn);
        sum.others = sum.others.saturating_add(others);
        sum.others_ns = sum.others_ns.saturating_add(others_ns);
        sum.squares += squares as f64;
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.0.values().fold(0, |sum, timed| sum.saturating_add(timed.count))
    }

    /// For how many others they stand.
    pub fn others(&self) -> u64 {
        self.0.values().fold(0, |sum, timed| sum.saturating_add(timed.others))
    }

    /// Where none was drawn in place of others, each is taken to stand for one.
    fn drawn(&self) -> impl Iterator<Item = (Bucket, Timed)> {
        let was_any_drawn = self.others() > 0;
        self.0.iter().map(move |(bucket, timed)| {
            let alone =
                Timed { others: timed.count, others_ns: timed.total_ns, squares: 2.0 * timed.count as f64, ..*timed };
            (*bucket, if was_any_drawn { *timed } else { alone })
        })
    }

    /// The variance of the time that this many others took together, given these, in square nanoseconds: how far what
    /// [`of_others`](Self::of_others) gives may be from the truth. Each of these was drawn with the chance of one in what it stands for
    /// and itself (Horvitz and Thompson), and the sum is scaled to the number that is known.
    ///
    /// Of a bucket its mean is known, and no more: what lies in it is taken to be spread over all of it. Of a single one nothing is
    /// known but its length, which is what the others may be wrong by.
    pub fn variance_of_others(&self, others: u64) -> f64 {
        let stands_for = self.drawn().map(|(_, timed)| timed.others as f64).sum::<f64>();
        if stands_for == 0.0 {
            return 0.0;
        }
        let mean_ns = self.drawn().map(|(_, timed)| timed.others_ns as f64).sum::<f64>() / stands_for;
        let is_single = self.count() < 2;
        let squares = self.drawn().filter(|(_, timed)| timed.others > 0).map(|(bucket, timed)| {
            let from_mean_ns = if is_single { mean_ns } else { timed.others_ns as f64 / timed.others as f64 - mean_ns };
            let width_ns = bucket.upper_ns().saturating_sub(bucket.lower_ns()) as f64;
            timed.squares * (from_mean_ns * from_mean_ns + width_ns * width_ns / 12.0)
        });
        let scale = others as f64 / stands_for;
        squares.sum::<f64>() * scale * scale
    }

    /// This many others that were as long as those that these stand for: buckets, with counts that add up to `others`, and times. Of no
    /// length at all if nothing is known.
    pub fn of_others(&self, others: u64) -> Vec<(Bucket, u64, u64)> {
        let all: u128 = self.drawn().map(|(_, timed)| u128::from(timed.others)).sum();
        if all == 0 {
            return vec![(Bucket(0), others, 0)];
        }
        let (mut before, mut given) = (0_u128, 0);
        let mut shares = Vec::with_capacity(self.0.len());
        for (bucket, timed) in self.drawn() {
            // Differences of rounded sums: they add up to the whole.
            before += u128::from(timed.others);
            let until = u64::try_from(u128::from(others).saturating_mul(before.min(all)) / all).unwrap_or(others);
            let share = until.saturating_sub(given);
            given = given.max(until);
            if share > 0 {
                let share_ns = u128::from(timed.others_ns) * u128::from(share) / u128::from(timed.others.max(1));
                shares.push((bucket, share, u64::try_from(share_ns).unwrap_or(u64::MAX)));
            }
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_as_long_as_those_that_were_timed() {
        let mut lengths = Lengths::default();
        lengths.add(Bucket(4), 90, 90 * 20, 9);
        lengths.add(Bucket(10), 10, 10 * 1500, 9);
        assert_eq!(lengths.of_others(900), [(Bucket(4), 810, 810 * 20), (Bucket(10), 90, 90 * 1500)]);
    }

    #[test]
    fn shares_too_small_for_a_bucket_of_their_own_are_not_lost() {
        let mut lengths = Lengths::default();
        (0..10).for_each(|bucket| lengths.add(Bucket(bucket), 1, 8, 1));
        assert_eq!(lengths.of_others(3).iter().map(|(_, count, _)| count).sum::<u64>(), 3);
    }

    /// Ten thousand holds, of which every tenth is ten times as long, and of which a hundred are drawn, again and again.
    #[test]
    fn the_truth_lies_as_far_from_the_estimate_as_its_variance_says() {
        let ns_of = |hold: u64| if hold.is_multiple_of(10) { 1_500 + hold % 97 } else { 150 + hold % 13 };
        let truth: u64 = (0..10_000).map(ns_of).sum();
        let (mut random, mut within) = (1_u64, 0);
        for _ in 0..1_000 {
            let mut lengths = Lengths::default();
            let mut timed_ns = 0;
            for _ in 0..100 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let ns = ns_of((random >> 33) % 10_000);
                timed_ns += ns;
                lengths.add(Bucket::of(ns), 1, ns, 99);
            }
            let estimate: u64 = timed_ns + lengths.of_others(9_900).iter().map(|(_, _, ns)| ns).sum::<u64>();
            let error_ns = 1.96 * lengths.variance_of_others(9_900).sqrt();
            within += u32::from((estimate as f64 - truth as f64).abs() <= error_ns);
        }
        assert!((920..=990).contains(&within), "{within} of 1000 within an interval of 95 %");
    }

    /// Regression: in a time in which few were made, and all of them timed, they were longer; the others of another time got their mean.
    #[test]
    fn those_that_stand_for_nothing_but_themselves_say_nothing_of_others() {
        let mut lengths = Lengths::default();
        lengths.add(Bucket(20), 50, 50 << 20, 0);
        lengths.add(Bucket(4), 10, 10 * 20, 99);
        assert_eq!(lengths.of_others(990), [(Bucket(4), 990, 990 * 20)]);
    }

    #[test]
    fn nothing_known_gives_no_length() {
        assert_eq!(Lengths::default().of_others(7), [(Bucket(0), 7, 0)]);
    }
}
