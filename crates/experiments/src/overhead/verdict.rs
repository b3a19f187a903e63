//! Whether a cost is within a limit, or the noise too large to tell.

use std::fmt;

use lockmeter_statistics::{Estimate, counted};
use serde::Serialize;

/// The 95 % interval of a median cannot be had from fewer: even the whole range of five misses it once in sixteen times.
pub const FEWEST_ROUNDS: usize = 6;

/// A cost as close to the limit as this share of it would take for ever to tell from the limit.
const CLOSE: f64 = 0.25;

/// What an interval says about a limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval lies within the limit.
    Within {
        /// The limit, as a share.
        limit: f64,
    },
    /// The whole interval lies beyond it.
    Beyond {
        /// The limit, as a share.
        limit: f64,
    },
    /// The interval holds the limit: about this many more rounds would tell.
    Undecided {
        /// The limit, as a share.
        limit: f64,
        /// Rounds, beyond those that were made.
        more_rounds: usize,
    },
    /// Too few rounds for any interval.
    TooFew {
        /// Rounds, beyond those that were made.
        more_rounds: usize,
    },
}

impl Verdict {
    /// Judges a cost by a limit (0.01: one percent).
    pub fn of(cost: Estimate, limit: f64) -> Self {
        if cost.samples < FEWEST_ROUNDS {
            return Self::TooFew { more_rounds: FEWEST_ROUNDS - cost.samples };
        }
        if cost.high <= limit {
            return Self::Within { limit };
        }
        if cost.low > limit {
            return Self::Beyond { limit };
        }
        // An interval shrinks with the square root of the rounds. It decides once its side towards the limit ends before it.
        let target = (cost.median - limit).abs().max(limit * CLOSE);
        let side = if cost.median < limit { cost.high - cost.median } else { cost.median - cost.low };
        let needed = rounds(cost.samples) * (side / target).powi(2);
        let more = (needed - rounds(cost.samples)).max(1.0).ceil();
        Self::Undecided { limit, more_rounds: whole(more) }
    }
}

#[expect(clippy::cast_precision_loss, reason = "nobody makes 2^52 rounds")]
const fn rounds(count: usize) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and saturation is as good as any number"
)]
const fn whole(count: f64) -> usize {
    count as usize
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |limit: &f64| limit * 100.0;
        match self {
            Self::Within { limit } => write!(f, "at most {} %", percent(limit)),
            Self::Beyond { limit } => write!(f, "more than {} %", percent(limit)),
            Self::Undecided { limit, more_rounds } => {
                let more = counted(*more_rounds, "more round", "more rounds");
                write!(f, "too noisy to decide about {} %; about {more} would be enough", percent(limit))
            }
            Self::TooFew { more_rounds } => {
                let more = counted(*more_rounds, "more round", "more rounds");
                write!(f, "too few for an interval; {more} would be enough")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(median: f64, low: f64, high: f64, samples: usize) -> Estimate {
        Estimate { median, low, high, samples }
    }

    #[test]
    fn an_interval_on_one_side_of_the_limit_decides() {
        assert_eq!(Verdict::of(cost(0.002, -0.001, 0.009, 60), 0.01), Verdict::Within { limit: 0.01 });
        assert_eq!(Verdict::of(cost(0.05, 0.011, 0.09, 60), 0.01), Verdict::Beyond { limit: 0.01 });
    }

    /// Half as wide takes four times as many.
    #[test]
    fn an_interval_around_the_limit_says_how_many_more_rounds_would_tell() {
        let verdict = Verdict::of(cost(0.0, -0.02, 0.02, 20), 0.01);
        assert_eq!(verdict, Verdict::Undecided { limit: 0.01, more_rounds: 60 });
        assert!(verdict.to_string().contains("about 60 more rounds"));
    }

    #[test]
    fn the_side_towards_the_limit_is_what_has_to_shrink() {
        let needed = Verdict::Undecided { limit: 0.5, more_rounds: 270 };
        assert_eq!(Verdict::of(cost(0.0, -0.1, 1.0, 90), 0.5), needed);
        assert_eq!(Verdict::of(cost(1.0, 0.0, 1.1, 90), 0.5), needed);
    }

    #[test]
    fn a_cost_on_the_limit_does_not_ask_for_endless_rounds() {
        let Verdict::Undecided { more_rounds, .. } = Verdict::of(cost(0.01, 0.005, 0.015, 10), 0.01) else { panic!() };
        assert!((1..1_000).contains(&more_rounds), "{more_rounds}");
    }

    #[test]
    fn a_few_rounds_tell_nothing_however_close_they_lie() {
        assert_eq!(Verdict::of(cost(0.0, 0.0, 0.0, 5), 0.01), Verdict::TooFew { more_rounds: 1 });
    }
}
