//! Quantiles of a power-of-two histogram whose buckets also know their totals.
//!
//! A bucket's width alone would leave a quantile uncertain by a factor of two. The total gives the mean of the durations in
//! the bucket, so they are taken to lie with a linear density whose mean is that one: across the whole bucket where the mean
//! is near its middle, bunched into a triangle at one end where it is not. The topmost bucket ends at the longest duration.
//!
//! The exact quantile and the one given lie in the same bucket, so neither is ever twice the other. Where the durations
//! spread smoothly over the bucket (uniform, exponential, log-logistic, Pareto) the error stays below 5 %, where they have
//! a sharp edge inside it (the shortest possible wait) below 25 %: the tests check both.

use crate::sample::Bucket;

/// One bucket of a histogram: which, how many durations, and their sum.
pub(crate) type Counted = (Bucket, u64, u64);

/// The duration of which `millionths` of all are no longer. `histogram` is in the order of its buckets; 0 if it is empty.
pub(crate) fn quantile_ns(histogram: &[Counted], max_ns: u64, millionths: u32) -> u64 {
    let count: u128 = histogram.iter().map(|(_, count, _)| u128::from(*count)).sum();
    let rank = (count * u128::from(millionths)).div_ceil(1_000_000).clamp(1, count.max(1));
    if rank == count && max_ns > 0 {
        return max_ns;
    }
    let mut before = 0;
    for &(bucket, in_bucket, total_ns) in histogram {
        let within = rank - before;
        if within <= u128::from(in_bucket) {
            let share = (within as f64 - 0.5) / in_bucket as f64;
            let found_ns = within_bucket_ns(bucket, in_bucket, total_ns, max_ns, share);
            // Only a damaged file has a bucket beyond its longest duration.
            return if max_ns > 0 { found_ns.min(max_ns) } else { found_ns };
        }
        before += u128::from(in_bucket);
    }
    max_ns
}

/// The duration below which a `share` (0 to 1) of the bucket's durations lies.
fn within_bucket_ns(bucket: Bucket, count: u64, total_ns: u64, max_ns: u64, share: f64) -> u64 {
    let lower_ns = bucket.lower_ns();
    let upper_ns = bucket.upper_ns().saturating_sub(1).min(max_ns).max(lower_ns);
    let (lower, width) = (lower_ns as f64, (upper_ns - lower_ns) as f64);
    if width == 0.0 {
        return lower_ns;
    }
    let mean = ((total_ns as f64 / count as f64 - lower) / width).clamp(0.0, 1.0);
    let place = linear_density_quantile(mean, share);
    // Rounding in floating point must not carry a value out of its bucket.
    ((lower + place * width).round() as u64).clamp(lower_ns, upper_ns)
}

/// The quantile of the linear density on [0, 1] with this mean. Means beyond the thirds are those of triangles that do not
/// reach across.
fn linear_density_quantile(mean: f64, share: f64) -> f64 {
    if mean < 1.0 / 3.0 {
        return 3.0 * mean * (1.0 - (1.0 - share).sqrt());
    }
    if mean > 2.0 / 3.0 {
        return 1.0 - 3.0 * (1.0 - mean) * (1.0 - share.sqrt());
    }
    // Density 1 + slope·(2x − 1), whose mean is 1/2 + slope/6.
    let slope = 6.0 * mean - 3.0;
    if slope.abs() < 1e-6 {
        return share;
    }
    let level = 1.0 - slope;
    ((level * level + 4.0 * slope * share).max(0.0).sqrt() - level) / (2.0 * slope)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn histogram(durations: &[u64]) -> Vec<Counted> {
        let mut buckets = BTreeMap::<Bucket, (u64, u64)>::new();
        for duration in durations {
            let (count, total) = buckets.entry(Bucket::of(*duration)).or_default();
            *count += 1;
            *total += duration;
        }
        buckets.into_iter().map(|(bucket, (count, total))| (bucket, count, total)).collect()
    }

    /// Durations whose quantiles are those of a known distribution.
    fn known(inverse: impl Fn(f64) -> f64) -> Vec<u64> {
        (0..20_000).map(|i| inverse((f64::from(i) + 0.5) / 20_000.0) as u64).collect()
    }

    const MILLIONTHS: [u32; 8] = [10_000, 100_000, 250_000, 500_000, 750_000, 900_000, 990_000, 999_000];

    /// Checks the quantiles of sorted durations against the exact ones.
    fn check(name: &str, durations: &[u64], allowed: f64) {
        let max_ns = *durations.last().unwrap();
        for millionths in MILLIONTHS {
            let exact = durations[(durations.len() * millionths as usize).div_ceil(1_000_000) - 1] as f64;
            let estimate = quantile_ns(&histogram(durations), max_ns, millionths) as f64;
            let error = (estimate - exact).abs() / exact;
            assert!(error < allowed, "{name}, {millionths} millionths: {estimate} for {exact}");
        }
    }

    #[test]
    fn quantiles_of_smooth_distributions_are_within_five_percent() {
        let distributions: [(&str, Vec<u64>); 5] = [
            ("uniform", known(|p| 1_000.0 + 9_000.0 * p)),
            ("wide uniform", known(|p| 1_000_000.0 * p)),
            ("exponential", known(|p| -5_000.0 * (1.0 - p).ln())),
            ("pareto", known(|p| 512.0 / (1.0 - p).powf(1.0 / 1.5))),
            // Logistic stands in for the normal: it has an inverse.
            ("log-logistic", known(|p| 3_000.0 * (p / (1.0 - p)).powf(0.6))),
        ];
        for (name, durations) in distributions {
            check(name, &durations, 0.05);
        }
    }

    #[test]
    fn quantiles_beside_a_sharp_edge_are_within_a_quarter() {
        check("pareto from 700", &known(|p| 700.0 / (1.0 - p).powf(1.0 / 1.5)), 0.25);
        check("uniform from 800", &known(|p| 800.0 + 1_000.0 * p), 0.25);
    }

    #[test]
    fn a_quantile_lies_in_the_bucket_of_the_exact_one_whatever_the_distribution() {
        use proptest::prelude::*;
        proptest!(|(mut durations in prop::collection::vec(0u64..1 << 40, 1..60), millionths in 0u32..=1_000_000)| {
            durations.sort_unstable();
            let rank = (durations.len() * millionths as usize).div_ceil(1_000_000).max(1);
            let estimate = quantile_ns(&histogram(&durations), *durations.last().unwrap(), millionths);
            prop_assert_eq!(Bucket::of(estimate), Bucket::of(durations[rank - 1]));
            prop_assert!(estimate <= *durations.last().unwrap());
        });
    }

    #[test]
    fn equal_durations_are_found_exactly_when_they_are_the_longest() {
        assert_eq!(quantile_ns(&histogram(&[1_500; 100]), 1_500, 500_000), 1_500);
    }

    #[test]
    fn the_last_rank_is_the_longest_duration() {
        assert_eq!(quantile_ns(&histogram(&[10, 20, 30, 5_000]), 5_000, 990_000), 5_000);
        assert_eq!(quantile_ns(&[], 0, 500_000), 0);
    }

    /// Found by the fuzz target `recording`.
    #[test]
    fn no_quantile_is_longer_than_the_longest_duration() {
        let beyond = [(Bucket(10), 3, 4_000)];
        assert_eq!([500_000, 990_000].map(|millionths| quantile_ns(&beyond, 31, millionths)), [31, 31]);
    }

    #[test]
    fn nonsense_from_a_damaged_file_gives_a_number_all_the_same() {
        for histogram in [vec![(Bucket(63), u64::MAX, 0)], vec![(Bucket(255), 9, 1)], vec![(Bucket(3), 0, 7)]] {
            quantile_ns(&histogram, 5, 500_000);
        }
    }
}
