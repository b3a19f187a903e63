//! What the runs say: medians, ratios within rounds, and whether that is a difference.

use std::time::Duration;

use lockmeter_cli::swaps::Swap;
use lockmeter_profile::Swaps;
use lockmeter_statistics::{Estimate, Machine, Random};
use regex_lite::Regex;

/// A ratio whose interval holds 1 and is wider than this does not tell whether there is a difference.
const MOST_SPREAD: f64 = 0.10;

/// Fewer pairs can all lie on one side by chance more than once in twenty times.
const FEWEST_PAIRS: usize = 6;

/// Which numbers are good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    Higher,
    Lower,
}

/// What was measured.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The regular expression; `None`: the time a run took, in nanoseconds.
    pub metric: Option<String>,
    pub better: Better,
}

/// What a ratio says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Baseline,
    Better,
    Worse,
    /// The interval holds 1, and is narrow.
    NoDifference,
    /// The interval holds 1 and is wide, or rests on too few runs.
    CannotTell,
    /// No lock was swapped, so there is nothing to compare.
    NotSwapped,
    /// A run did not end in time.
    Hung,
}

impl Verdict {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoDifference => "no difference",
            Self::CannotTell => "cannot tell",
            Self::NotSwapped => "not swapped",
            Self::Hung => "hung",
        }
    }
}

/// One variant's runs.
#[derive(Debug)]
pub struct Outcome {
    pub swap: Swap,
    /// Of all its runs together.
    pub swaps: Swaps,
    pub samples: Vec<f64>,
    /// How long the run that hung was waited for.
    pub hung_after: Option<Duration>,
    /// How many runs `swaps` is of.
    pub all_runs: u64,
    pub value: Option<Estimate>,
    /// To the first variant's run of the same round.
    pub ratio: Option<Estimate>,
    pub verdict: Verdict,
}

/// What there is of a variant's runs.
#[derive(Debug)]
pub struct Runs {
    pub swap: Swap,
    pub swaps: Swaps,
    /// Of whole rounds.
    pub samples: Vec<f64>,
    pub hung_after: Option<Duration>,
    /// With those that are not measured.
    pub all_runs: u64,
}

#[derive(Debug)]
pub struct Comparison {
    pub machine: Machine,
    pub command: String,
    pub measured: Measured,
    pub variants: Vec<Outcome>,
}

impl Comparison {
    pub fn of(
        machine: Machine,
        command: String,
        measured: Measured,
        variants: impl Iterator<Item = Runs>,
        seed: u64,
    ) -> Self {
        let mut random = Random::new(seed);
        let mut baseline: Option<Vec<f64>> = None;
        let variants = variants
            .map(|Runs { swap, swaps, samples, hung_after, all_runs }| {
                let value = Estimate::of(&samples, &mut random);
                let ratio = baseline.as_ref().and_then(|baseline| {
                    let ratios: Vec<f64> = samples.iter().zip(baseline).map(|(sample, base)| sample / base).collect();
                    Estimate::of(&ratios, &mut random)
                });
                let is_baseline = baseline.is_none();
                baseline.get_or_insert_with(|| samples.clone());
                let verdict = match ratio {
                    _ if hung_after.is_some() => Verdict::Hung,
                    _ if is_baseline => Verdict::Baseline,
                    _ if !swap.is_std() && swaps.swapped() == 0 => Verdict::NotSwapped,
                    ratio => verdict(ratio, measured.better),
                };
                Outcome { swap, swaps, samples, hung_after, all_runs, value, ratio, verdict }
            })
            .collect();
        Self { machine, command, measured, variants }
    }

    /// Whether no round was finished.
    pub fn is_empty(&self) -> bool {
        self.variants.iter().any(|variant| variant.samples.is_empty() && variant.hung_after.is_none())
    }

    pub fn has_hung(&self) -> bool {
        self.variants.iter().any(|variant| variant.hung_after.is_some())
    }

    pub fn rounds(&self) -> usize {
        self.variants.iter().map(|variant| variant.samples.len()).max().unwrap_or(0)
    }
}

fn verdict(ratio: Option<Estimate>, better: Better) -> Verdict {
    match ratio {
        Some(ratio) if ratio.samples < FEWEST_PAIRS => Verdict::CannotTell,
        Some(ratio) if ratio.low > 1.0 || ratio.high < 1.0 => {
            if (ratio.low > 1.0) == (better == Better::Higher) {
                Verdict::Better
            } else {
                Verdict::Worse
            }
        }
        Some(ratio) if ratio.high - ratio.low <= MOST_SPREAD => Verdict::NoDifference,
        _ => Verdict::CannotTell,
    }
}

/// The last number in a text that a regular expression finds: its first group, or all of it where it has none.
pub fn captured(metric: &Regex, text: &str) -> Option<f64> {
    let last = metric.captures_iter(text).last()?;
    let number = last.get(1).or_else(|| last.get(0))?.as_str();
    let digits: String = number.chars().filter(|c| !matches!(c, ',' | '_' | ' ')).collect();
    digits.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_counts_with_or_without_a_group_and_thousands() {
        let metric = Regex::new(r"([0-9,.]+) ops").unwrap();
        assert_eq!(captured(&metric, "10 ops\n1,234.5 ops/s\n"), Some(1234.5));
        assert_eq!(captured(&Regex::new("[0-9]+").unwrap(), "a 7 b"), Some(7.0));
        for none in ["", "x ops", "0 ops"] {
            assert_eq!(captured(&metric, none), None, "{none}");
        }
    }

    #[test]
    fn an_interval_on_one_side_of_one_is_a_difference_and_a_wide_one_tells_nothing() {
        let ratio = |low, high| Some(Estimate { median: f64::midpoint(low, high), low, high, samples: 9 });
        assert_eq!(verdict(ratio(1.1, 1.2), Better::Higher), Verdict::Better);
        assert_eq!(verdict(ratio(1.1, 1.2), Better::Lower), Verdict::Worse);
        assert_eq!(verdict(ratio(0.8, 0.9), Better::Lower), Verdict::Better);
        assert_eq!(verdict(ratio(0.98, 1.03), Better::Lower), Verdict::NoDifference);
        assert_eq!(verdict(ratio(0.992, 1.004), Better::Lower).name(), "no difference");
        assert_eq!(verdict(ratio(0.8, 1.3), Better::Lower), Verdict::CannotTell);
        assert_eq!(verdict(None, Better::Lower), Verdict::CannotTell);
    }

    #[test]
    fn few_runs_show_no_difference() {
        let ratio = Estimate { median: 0.5, low: 0.49, high: 0.51, samples: 3 };
        assert_eq!(verdict(Some(ratio), Better::Lower), Verdict::CannotTell);
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        let swap = |variant| Swap { kind: "mutex", variant };
        // Each round is as slow as it is; within one the second variant takes half the time.
        let slow: Vec<f64> = (1..=9).map(f64::from).collect();
        let fast: Vec<f64> = slow.iter().map(|time| time / 2.0).collect();
        let mut swaps = Swaps::default();
        swaps.add(lockmeter_profile::Swap::Mutex, 9);
        let runs = |swap, swaps, samples| Runs { swap, swaps, samples, hung_after: None, all_runs: 10 };
        let variants = [runs(swap("std"), Swaps::default(), slow), runs(swap("mutex"), swaps, fast)];
        let measured = Measured { metric: None, better: Better::Lower };
        let comparison = Comparison::of(Machine::here(1), String::new(), measured, variants.into_iter(), 1);
        let ratio = comparison.variants[1].ratio.unwrap();
        assert!((ratio.low - 0.5).abs() < 1e-9 && (ratio.high - 0.5).abs() < 1e-9, "{ratio:?}");
        assert_eq!(comparison.variants[1].verdict, Verdict::Better);
    }
}
