//! Whether two rates differ by more than chance makes them.
//!
//! The intervals of a recording are a sample of what the rate is. The test is Welch's (B. Welch, "The generalization of
//! 'Student's' problem when several different population variances are involved", Biometrika 1947), of the logarithm of the ratio of the
//! two rates, so that the test and the printed interval agree. Three things are adapted to intervals of a recording:
//!
//! - They are not equally long, the last above all: the variance is that of a ratio of two sums (W. Cochran, "Sampling Techniques",
//!   1977, chapter 6).
//! - Neighbours are alike: as many intervals count as independent ones would say as much (H. Zwiers and H. von Storch, "Taking serial
//!   correlation into account in tests of the mean", J. Climate 1995). The estimate of the correlation is corrected for its bias in
//!   short series (M. Kendall, "Note on bias in the estimation of autocorrelation", Biometrika 1954).
//! - Where both sides are [`RECORDINGS_FOR_A_SPREAD`] recordings or more, a recording is one observation instead: they then tell how much runs
//!   differ among themselves, which no single run can.

use super::spread::Part;
use super::student;

/// The chance that a printed interval does not hold the true value.
const INTERVAL_ERROR: f64 = 0.05;

/// The chance that a diff calls something a difference that is none. Less than that of an interval: many are looked at, and runs differ by
/// more than their intervals do.
pub(super) const VERDICT_ERROR: f64 = 0.01;

/// A time that is the sum of a few long waits says nothing: it must be spread over as many intervals as if this many had equal parts.
const FEWEST_EQUAL_PARTS: f64 = 3.0;

/// Two runs of one program differ by so much in how long a hold typically takes: other memory, other CPUs, another clock of theirs.
pub(super) const RUNS_DIFFER_BY: f64 = 1.05;

/// Fewer intervals do not tell how much they vary.
const FEWEST_INTERVALS: usize = 5;

/// As many recordings on each side tell how much runs differ.
const RECORDINGS_FOR_A_SPREAD: usize = 3;

/// A series of ten can look far more alike than it is; a larger correlation would leave nothing to test with.
const MOST_CORRELATED: f64 = 0.6;

/// A rate, and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Estimate {
    rate: f64,
    /// Of the rate.
    variance: f64,
    freedom: f64,
}

/// What a test says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tested {
    /// How often chance alone makes a difference as large.
    pub(super) p: f64,
    /// After ÷ before; `None` if one of them is nothing.
    pub(super) ratio: Option<(f64, f64)>,
    /// After less before.
    pub(super) difference: (f64, f64),
}

/// What both sides are estimated to be. `None` if one of them is too short to say how much it varies, or has too few waits.
fn estimates(before: &[Vec<Part>], after: &[Vec<Part>]) -> Option<(Estimate, Estimate)> {
    let by_recording = before.len().min(after.len()) >= RECORDINGS_FOR_A_SPREAD;
    let (old, new) = if by_recording {
        (of_recordings(before)?, of_recordings(after)?)
    } else {
        // What makes neighbours alike is the same before and after, and two recordings know it better than one.
        let correlation = f64::midpoint(correlation(before)?, correlation(after)?).clamp(0.0, MOST_CORRELATED);
        (of_intervals(before, correlation)?, of_intervals(after, correlation)?)
    };
    let is_spread = |recordings: &[Vec<Part>]| {
        let (sum, squares) = recordings
            .iter()
            .flatten()
            .fold((0.0, 0.0), |(sum, squares), (part, _)| (sum + part, squares + part * part));
        squares <= 0.0 || sum * sum >= FEWEST_EQUAL_PARTS * squares
    };
    (is_spread(before) && is_spread(after)).then_some((old, new))
}

/// Tests two rates.
pub(super) fn test(before: &[Vec<Part>], after: &[Vec<Part>]) -> Option<Tested> {
    let (old, new) = estimates(before, after)?;
    let difference = new.rate - old.rate;
    let (error, freedom) = combined((old.variance, old.freedom), (new.variance, new.freedom));
    let half = student::quantile(INTERVAL_ERROR, freedom) * error;
    let difference_interval = (difference - half, difference + half);
    if old.rate <= 0.0 || new.rate <= 0.0 {
        let p = p_of(difference, error, freedom);
        return Some(Tested { p, ratio: None, difference: difference_interval });
    }
    let relative = |of: Estimate| (of.variance / (of.rate * of.rate), of.freedom);
    let (error, freedom) = combined(relative(old), relative(new));
    let logarithm = (new.rate / old.rate).ln();
    let half = student::quantile(INTERVAL_ERROR, freedom) * error;
    let ratio = ((logarithm - half).exp(), (logarithm + half).exp());
    Some(Tested { p: p_of(logarithm, error, freedom), ratio: Some(ratio), difference: difference_interval })
}

/// Tests two typical durations by their logarithms: a difference of these is a ratio. Chance includes what runs differ by anyhow.
pub(super) fn test_logarithms(before: &[Vec<Part>], after: &[Vec<Part>]) -> Option<Tested> {
    let (old, new) = estimates(before, after)?;
    let difference = new.rate - old.rate;
    let (error, freedom) = combined((old.variance, old.freedom), (new.variance, new.freedom));
    let half = student::quantile(INTERVAL_ERROR, freedom) * error;
    let beyond = (difference.abs() - RUNS_DIFFER_BY.ln()).max(0.0);
    Some(Tested {
        p: p_of(beyond, error, freedom),
        ratio: Some(((difference - half).exp(), (difference + half).exp())),
        difference: (difference - half, difference + half),
    })
}

/// The error of a difference, and its degrees of freedom by Welch and Satterthwaite, rounded down.
fn combined(one: (f64, f64), other: (f64, f64)) -> (f64, u32) {
    let sum = one.0 + other.0;
    let parts = one.0 * one.0 / one.1 + other.0 * other.0 / other.1;
    // Neither varies at all: any number is as good.
    let freedom = if parts > 0.0 { sum * sum / parts } else { one.1 + other.1 };
    (sum.sqrt(), freedom.clamp(1.0, 1e6) as u32)
}

fn p_of(difference: f64, error: f64, freedom: u32) -> f64 {
    if difference == 0.0 { 1.0 } else { student::two_sided_p(difference / error, freedom) }
}

fn sums(parts: &[Part]) -> Part {
    parts.iter().fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
}

/// Each recording is one observation.
fn of_recordings(recordings: &[Vec<Part>]) -> Option<Estimate> {
    let wholes: Vec<Part> = recordings.iter().map(|parts| sums(parts)).filter(|(_, time)| *time > 0.0).collect();
    of_parts(&wholes, 0.0, wholes.len() as f64)
}

fn of_intervals(recordings: &[Vec<Part>], correlation: f64) -> Option<Estimate> {
    let all: Vec<Part> = recordings.iter().flatten().copied().collect();
    of_parts(&all, correlation, all.len() as f64)
}

/// How much neighbours are alike. `None` of too few intervals.
fn correlation(recordings: &[Vec<Part>]) -> Option<f64> {
    let all: Vec<Part> = recordings.iter().flatten().copied().collect();
    if all.len() < FEWEST_INTERVALS {
        return None;
    }
    let (amount, time) = sums(&all);
    let residual = |part: &Part| part.0 - amount / time * part.1;
    let squares: f64 = all.iter().map(|part| residual(part).powi(2)).sum();
    let neighbours: f64 =
        recordings.iter().flat_map(|parts| parts.windows(2)).map(|two| residual(&two[0]) * residual(&two[1])).sum();
    let seen = if squares > 0.0 { neighbours / squares } else { 0.0 };
    Some(seen + (1.0 + 4.0 * seen) / all.len() as f64)
}

/// The rate of all together. `count` observations, neighbours of which are correlated.
fn of_parts(parts: &[Part], correlation: f64, count: f64) -> Option<Estimate> {
    let (amount, time) = sums(parts);
    if count < 2.0 || time <= 0.0 {
        return None;
    }
    let rate = amount / time;
    let squares: f64 = parts.iter().map(|part| (part.0 - rate * part.1).powi(2)).sum();
    let independent = (count * (1.0 - correlation) / (1.0 + correlation)).max(2.0);
    // Of one observation, as the average of all would have it; then of the average of this many independent ones.
    let of_one = squares / (count - 1.0) / (time / count).powi(2);
    Some(Estimate { rate, variance: of_one / independent, freedom: independent - 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    /// Rates that vary by a fifth, each like the one before by `correlation`.
    fn series(random: &mut Rng, mean: f64, correlation: f64, count: usize) -> Vec<Vec<Part>> {
        let mut normal = move || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let mut state = normal();
        let mut next = || {
            let value = mean * (1.0 + 0.2 * state);
            state = correlation * state + (1.0 - correlation * correlation).sqrt() * normal();
            (value, 1.0)
        };
        vec![(0..count).map(|_| next()).collect()]
    }

    fn alarms(correlation: f64, after: f64, count: usize) -> usize {
        let mut random = Rng::with_seed(5);
        let is_alarm = |_: &usize| {
            let before = series(&mut random, 1.0, correlation, count);
            let after = series(&mut random, after, correlation, count);
            test(&before, &after).unwrap().p < INTERVAL_ERROR
        };
        (0..1_000).filter(is_alarm).count()
    }

    /// Makes sure of the error that is promised, also where neighbours are alike: without the correction 0.6 gives one in three.
    #[test]
    fn chance_gives_a_false_alarm_in_about_one_of_twenty() {
        for (correlation, count) in [(0.0, 10), (0.0, 30), (0.3, 10), (0.3, 30), (0.6, 30)] {
            let alarms = alarms(correlation, 1.0, count);
            assert!(alarms <= 100, "{alarms} of 1,000 with a correlation of {correlation} and {count} intervals");
        }
    }

    #[test]
    fn a_fifth_more_is_found_in_ten_intervals_if_they_vary_by_less() {
        let mut random = Rng::with_seed(5);
        let quiet = |random: &mut Rng, mean: f64| -> Vec<Vec<Part>> {
            vec![(0..10).map(|_| (mean * (0.95 + 0.1 * random.f64()), 1.0)).collect()]
        };
        let is_found = |_: &usize| {
            let tested = test(&quiet(&mut random, 1.0), &quiet(&mut random, 1.2)).unwrap();
            let (low, high) = tested.ratio.unwrap();
            assert!(low < 1.25 && high > 1.15, "{tested:?}");
            tested.p < INTERVAL_ERROR
        };
        let found = (0..1_000).filter(is_found).count();
        assert!(found > 950, "{found} of 1,000");
    }

    /// Regression: other work stretches some holds fifty times, more in one interval than in the next; means then tell nothing.
    #[test]
    fn a_fifth_more_is_found_beside_holds_that_other_work_stretched() {
        let mut random = Rng::with_seed(5);
        let intervals = |random: &mut Rng, ns: f64| -> [Vec<Vec<Part>>; 2] {
            let mut interval = || {
                let (holds, stretched) = (1_000.0, random.u32(0..40) as f64);
                let total_ns = (holds - stretched) * ns + stretched * 50.0 * ns;
                let logarithms = holds * ns.ln() + stretched * 50_f64.ln();
                ((total_ns, holds), (logarithms, holds))
            };
            let (totals, logarithms) = (0..8).map(|_| interval()).unzip();
            [vec![totals], vec![logarithms]]
        };
        let (mut by_means, mut typically) = (0, 0);
        for _ in 0..200 {
            let [old_totals, old_logarithms] = intervals(&mut random, 100_000.0);
            let [new_totals, new_logarithms] = intervals(&mut random, 120_000.0);
            by_means += u32::from(test(&old_totals, &new_totals).unwrap().p < VERDICT_ERROR);
            let tested = test_logarithms(&old_logarithms, &new_logarithms).unwrap();
            typically += u32::from(tested.p < VERDICT_ERROR && tested.ratio.unwrap().0 > 1.0);
        }
        assert!(by_means < 20 && typically > 150, "{by_means} of 200 by means, {typically} by typical durations");
    }

    /// Makes sure that what two runs of one program differ by is no verdict, however even their intervals are.
    #[test]
    fn less_than_what_runs_differ_by_is_no_difference() {
        let even = |ns: f64| vec![vec![(ns.ln() * 100.0, 100.0); 10]];
        assert!(test_logarithms(&even(100.0), &even(104.0)).unwrap().p > 0.9);
        assert!(test_logarithms(&even(100.0), &even(107.0)).unwrap().p < 0.001);
        assert!(test_logarithms(&even(107.0), &even(100.0)).unwrap().p < 0.001);
    }

    #[test]
    fn a_short_last_interval_counts_for_as_long_as_it_is() {
        let even = |rate: f64| vec![vec![(rate, 1.0), (rate, 1.0), (rate, 1.0), (rate, 1.0), (rate * 0.01, 0.01)]];
        let tested = test(&even(2.0), &even(2.0)).unwrap();
        assert!(tested.p > 0.99 && (tested.ratio.unwrap().0 - 1.0).abs() < 1e-6, "{tested:?}");
    }

    #[test]
    fn what_is_in_one_recording_only_is_a_difference_once_it_is_in_enough_intervals() {
        let nothing = vec![vec![(0.0, 1.0); 10]];
        let once = vec![vec![(5.0, 1.0), (0.0, 1.0), (0.0, 1.0), (0.0, 1.0), (0.0, 1.0), (0.0, 1.0)]];
        let always = vec![vec![(5.0, 1.0), (4.0, 1.0), (6.0, 1.0), (5.0, 1.0), (4.0, 1.0), (6.0, 1.0)]];
        assert_eq!(test(&nothing, &once), None, "one wait is no rate");
        let tested = test(&nothing, &always).unwrap();
        assert!(tested.p < 0.001 && tested.ratio.is_none() && tested.difference.0 > 3.0, "{tested:?}");
        assert_eq!(test(&nothing, &[vec![(5.0, 1.0); 4]]), None, "too few intervals");
    }

    /// Makes sure that intervals which agree do not hide that runs differ.
    #[test]
    fn several_recordings_tell_how_much_runs_differ() {
        let run = |rate: f64| vec![(rate, 1.0); 10];
        let (before, after) = ([1.0, 1.3, 0.9], [1.1, 1.4, 1.0]);
        let all = |rates: [f64; 3]| rates.map(run).to_vec();
        assert!(test(&all(before)[..1], &all(after)[..1]).unwrap().p < 1e-6, "two runs differ");
        assert!(test(&all(before), &all(after)).unwrap().p > 0.3, "the program does not");
    }
}
