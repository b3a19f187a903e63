//! Medians with a bootstrap confidence interval.

use serde::Serialize;

use crate::Random;

/// Enough that the ends of the interval no longer move in the digits that are printed.
const RESAMPLES: usize = 4_000;

/// A median and the interval that holds the true one with 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// Of the samples.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// How many.
    pub samples: usize,
}

impl Estimate {
    /// The percentile bootstrap of the median. `None` of nothing.
    pub fn of(samples: &[f64], random: &mut Random) -> Option<Self> {
        if samples.is_empty() {
            return None;
        }
        let mut medians: Vec<f64> = (0..RESAMPLES)
            .map(|_| median(samples.iter().map(|_| samples[random.below(samples.len())]).collect()))
            .collect();
        medians.sort_by(f64::total_cmp);
        Some(Self {
            median: median(samples.to_vec()),
            low: medians[RESAMPLES / 40],
            high: medians[RESAMPLES - 1 - RESAMPLES / 40],
            samples: samples.len(),
        })
    }

    /// The same, in other terms; `convert` may turn the order round.
    pub fn map(self, convert: impl Fn(f64) -> f64) -> Self {
        let (a, b) = (convert(self.low), convert(self.high));
        Self { median: convert(self.median), low: a.min(b), high: a.max(b), samples: self.samples }
    }
}

/// Half of them lie below; 0 of nothing.
pub fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    let middle = samples.len() / 2;
    match samples.len() {
        0 => 0.0,
        count if count.is_multiple_of(2) => f64::midpoint(samples[middle - 1], samples[middle]),
        _ => samples[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert!((median(vec![4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < 1e-12);
        assert!((median(vec![9.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn nothing_has_no_median() {
        assert_eq!(Estimate::of(&[], &mut Random::new(1)), None);
    }

    /// Makes sure that the interval is an interval: around the median, inside the data, and narrow where the data agree.
    #[test]
    fn the_interval_holds_the_median_and_shrinks_with_the_spread() {
        let mut random = Random::new(7);
        let wide: Vec<f64> = (0..100).map(f64::from).collect();
        let estimate = Estimate::of(&wide, &mut random).unwrap();
        assert!(estimate.low < estimate.median && estimate.median < estimate.high);
        assert!(estimate.low > 25.0 && estimate.high < 75.0);
        let same = Estimate::of(&[5.0; 20], &mut random).unwrap();
        assert!((same.high - same.low).abs() < 1e-12);
    }

    /// Makes sure that "95 %" is about true: of many samples from one distribution, few intervals miss its median.
    #[test]
    fn about_19_of_20_intervals_hold_the_true_median() {
        let mut random = Random::new(11);
        let held = (0..50)
            .filter(|_| {
                let samples: Vec<f64> = (0..60)
                    .map(|_| f64::from(u32::try_from(random.bits() >> 40).unwrap()) / f64::from(1 << 24))
                    .collect();
                let estimate = Estimate::of(&samples, &mut random).unwrap();
                estimate.low <= 0.5 && 0.5 <= estimate.high
            })
            .count();
        assert!((43..=50).contains(&held), "{held} of 50");
    }

    #[test]
    fn turning_the_order_round_keeps_low_below_high() {
        let loss = Estimate { median: 0.9, low: 0.8, high: 0.95, samples: 3 }.map(|ratio| 1.0 - ratio);
        assert!(loss.low < loss.median && loss.median < loss.high);
    }

    #[test]
    fn the_same_seed_gives_the_same_order() {
        let order = |seed| {
            let mut items: Vec<u32> = (0..20).collect();
            Random::new(seed).shuffle(&mut items);
            items
        };
        assert_eq!(order(3), order(3));
        assert_ne!(order(3), order(4));
    }
}
