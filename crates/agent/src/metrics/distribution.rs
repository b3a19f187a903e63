//! Durations by powers of two of nanoseconds.

use std::collections::BTreeMap;

use lockmeter_profile::Bucket;

const NS: f64 = 1e-9;

/// Durations that were counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Distribution {
    buckets: BTreeMap<Bucket, u64>,
    /// How many, and how long all together.
    pub count: u64,
    /// In nanoseconds.
    pub total_ns: u64,
}

/// The upper bounds of the buckets of classic histograms, as powers of two of nanoseconds: 1 µs to 17 s, each four times the last.
const BOUNDS: std::ops::RangeInclusive<u8> = 10..=34;
const STEP: usize = 2;

impl Distribution {
    /// Adds a row of a report. What is counted and in no bucket gets into the sum alone.
    pub fn add(&mut self, histogram: &[(Bucket, u64, u64)], count: u64, total_ns: u64) {
        for (bucket, in_bucket, _) in histogram {
            let sum = self.buckets.entry(*bucket).or_default();
            *sum = sum.saturating_add(*in_bucket);
        }
        self.count = self.count.saturating_add(count);
        self.total_ns = self.total_ns.saturating_add(total_ns);
    }

    /// How long all together, in seconds.
    pub fn seconds(&self) -> f64 {
        self.total_ns as f64 * NS
    }

    /// Upper bound in seconds, and how many durations lie below it. The last bound is infinity.
    pub fn cumulative(&self) -> Vec<(f64, u64)> {
        let below = |exponent: u8| self.buckets.range(..Bucket(exponent)).map(|(_, count)| count).sum::<u64>();
        let bounds = BOUNDS.step_by(STEP).map(|exponent| ((1_u64 << exponent) as f64 * NS, below(exponent)));
        bounds.chain([(f64::INFINITY, self.count)]).collect()
    }

    /// The buckets of a native histogram with one bucket a power of two (schema 0): index and count.
    ///
    /// Bucket `i` ends at 2^i seconds, ours at 2^(n+1) ns, which is 2^(n-29) s of 1.074 s: each lies by 7 % lower than what it holds.
    pub fn native(&self) -> impl Iterator<Item = (i32, u64)> {
        self.buckets.iter().filter(|(_, count)| **count > 0).map(|(bucket, count)| (i32::from(bucket.0) - 29, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(durations_ns: &[u64]) -> Distribution {
        let mut distribution = Distribution::default();
        durations_ns.iter().for_each(|ns| distribution.add(&[(Bucket::of(*ns), 1, *ns)], 1, *ns));
        distribution
    }

    #[test]
    fn a_bound_counts_what_is_shorter_and_the_last_one_counts_all() {
        let bounds = of(&[500, 1_024, 5_000, 60_000_000_000]).cumulative();
        assert_eq!(bounds.len(), 14);
        assert_eq!(&bounds[..3], &[(1.024e-6, 1), (4.096e-6, 2), (1.6384e-5, 3)]);
        assert_eq!(bounds[12], (17.179_869_184, 3));
        assert_eq!(bounds[13], (f64::INFINITY, 4));
    }

    #[test]
    fn a_native_bucket_ends_seven_percent_below_what_it_holds() {
        // 1.5 s is in the bucket of 2^30 ns (1.07 s) to 2^31 ns (2.15 s): natively (1 s, 2 s].
        assert_eq!(of(&[1_500_000_000]).native().collect::<Vec<_>>(), [(1, 1)]);
        assert_eq!(of(&[1_500]).native().collect::<Vec<_>>(), [(-19, 1)], "(2^-20, 2^-19] s is 0.95 to 1.9 µs");
    }
}
