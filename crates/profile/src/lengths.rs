//! How long holds were that were timed: what those are given that were only counted.

use std::collections::BTreeMap;

use crate::sample::Bucket;

/// How many there were and how long together, by bucket.
#[derive(Debug, Clone, Default)]
pub struct Lengths(BTreeMap<Bucket, (u64, u64)>);

impl Lengths {
    /// Adds holds of one bucket.
    pub fn add(&mut self, bucket: Bucket, count: u64, total_ns: u64) {
        let sum = self.0.entry(bucket).or_default();
        *sum = (sum.0.saturating_add(count), sum.1.saturating_add(total_ns));
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.0.values().fold(0, |sum, (count, _)| sum.saturating_add(*count))
    }

    /// So many others that were as long as these: buckets, with counts that add up to `others`, and times. Of no length at all if
    /// nothing is known.
    pub fn of_others(&self, others: u64) -> Vec<(Bucket, u64, u64)> {
        let all = u128::from(self.count());
        if all == 0 {
            return vec![(Bucket(0), others, 0)];
        }
        let (mut before, mut given) = (0_u128, 0);
        let mut shares = Vec::with_capacity(self.0.len());
        for (bucket, (count, total_ns)) in &self.0 {
            // Differences of rounded sums: they add up to the whole.
            before += u128::from(*count);
            let until = u64::try_from(u128::from(others) * before.min(all) / all).unwrap_or(others);
            let share = until.saturating_sub(given);
            given = given.max(until);
            if share > 0 {
                let share_ns = u128::from(*total_ns) * u128::from(share) / u128::from((*count).max(1));
                shares.push((*bucket, share, u64::try_from(share_ns).unwrap_or(u64::MAX)));
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
        lengths.add(Bucket(4), 90, 90 * 20);
        lengths.add(Bucket(10), 10, 10 * 1500);
        assert_eq!(lengths.of_others(900), [(Bucket(4), 810, 810 * 20), (Bucket(10), 90, 90 * 1500)]);
    }

    #[test]
    fn shares_too_small_for_a_bucket_of_their_own_are_not_lost() {
        let mut lengths = Lengths::default();
        (0..10).for_each(|bucket| lengths.add(Bucket(bucket), 1, 8));
        assert_eq!(lengths.of_others(3).iter().map(|(_, count, _)| count).sum::<u64>(), 3);
    }

    #[test]
    fn nothing_known_gives_no_length() {
        assert_eq!(Lengths::default().of_others(7), [(Bucket(0), 7, 0)]);
    }
}
