//! Whether hosts differ from what they were by more than chance.

use lockmeter_profile::diff::two_sided_p;

/// Up to this many differences, the chance is counted and not approximated.
const COUNTED: usize = 50;

/// As good as a normal distribution.
const MANY: u32 = 10_000;

/// How likely it is that as many hosts rose or fell as far if each had been as likely to do either: the signed-rank test of F. Wilcoxon,
/// "Individual Comparisons by Ranking Methods", 1945. It asks nothing of how waiting is distributed over hosts, and one host that waits a
/// thousand times longer than others has one rank. Differences of zero say nothing. `None` without any other.
pub fn signed_rank_p(differences: &[f64]) -> Option<f64> {
    let mut differences = differences.iter().copied().filter(|difference| *difference != 0.0).collect::<Vec<_>>();
    differences.sort_by(|one, other| one.abs().total_cmp(&other.abs()));
    // Twice the ranks, which are whole numbers also where equal ones share the mean of theirs.
    let (mut ranks, mut positive) = (Vec::<usize>::new(), 0);
    for equal in differences.chunk_by(|one, other| one.abs() == other.abs()) {
        let rank = 2 * ranks.len() + equal.len() + 1;
        ranks.extend(equal.iter().map(|_| rank));
        positive += rank * equal.iter().filter(|difference| **difference > 0.0).count();
    }
    let sum = ranks.iter().sum::<usize>();
    let smaller = positive.min(sum - positive);
    if ranks.is_empty() {
        return None;
    }
    Some(if ranks.len() > COUNTED { approximated(&ranks, smaller) } else { counted(&ranks, smaller) })
}

/// How often the positive ranks sum up to as little, or the negative ones, of all ways to give them signs.
fn counted(ranks: &[usize], smaller: usize) -> f64 {
    let sum = ranks.iter().sum::<usize>();
    let mut ways = vec![0.0_f64; sum + 1];
    ways[0] = 1.0;
    for rank in ranks {
        for total in (*rank..=sum).rev() {
            ways[total] += ways[total - rank];
        }
    }
    let as_far = ways[..=smaller].iter().sum::<f64>() * 2.0;
    (as_far / ways.iter().sum::<f64>()).min(1.0)
}

/// The same of this many ranks that their sum is normally distributed.
fn approximated(ranks: &[usize], smaller: usize) -> f64 {
    let sum = ranks.iter().sum::<usize>() as f64;
    let spread = ranks.iter().map(|rank| (rank * rank) as f64).sum::<f64>().sqrt() / 2.0;
    two_sided_p((sum / 2.0 - smaller as f64) / spread, MANY)
}

/// Each chance as it is beside all that were asked: S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979.
pub fn holm(chances: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut order = chances.iter().enumerate().filter_map(|(at, p)| Some(((*p)?, at))).collect::<Vec<_>>();
    order.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut adjusted, mut highest) = (vec![None; chances.len()], 0.0_f64);
    for (rank, (p, at)) in order.iter().enumerate() {
        highest = highest.max(p * (order.len() - rank) as f64).min(1.0);
        adjusted[*at] = Some(highest);
    }
    adjusted
}

/// Fewer hosts have no usual one.
const FEWEST_FOR_OUTLIERS: usize = 10;

/// The modified z-score from which a value is an outlier: B. Iglewicz and D. Hoaglin, "How to Detect and Handle Outliers", 1993.
const OUTLIER: f64 = 3.5;

/// What makes the median, and the mean, of absolute deviations comparable to a standard deviation.
const OF_MEDIAN: f64 = 1.482_6;
const OF_MEAN: f64 = 1.253_314;

/// Which values are far from where most are: by the median of the deviations, or by their mean where most do not deviate at all.
pub fn outliers(values: &[f64], least: f64) -> Vec<usize> {
    if values.len() < FEWEST_FOR_OUTLIERS {
        return Vec::new();
    }
    let middle = median(values.to_vec());
    let deviations = values.iter().map(|value| (value - middle).abs()).collect::<Vec<_>>();
    let spread = match median(deviations.clone()) * OF_MEDIAN {
        0.0 => deviations.iter().sum::<f64>() / deviations.len() as f64 * OF_MEAN,
        spread => spread,
    };
    let is_outlier = |deviation: f64| deviation > (OUTLIER * spread).max(least);
    (0..values.len()).filter(|at| is_outlier(deviations[*at])).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_near(found: Option<f64>, expected: f64) {
        assert!((found.unwrap() - expected).abs() < expected * 1e-3, "{found:?}, not {expected}");
    }

    #[test]
    fn the_signed_rank_test_is_that_of_the_books() {
        assert_eq!(signed_rank_p(&[]), None);
        assert_eq!(signed_rank_p(&[0.0; 9]), None);
        // All ways but two have ranks of both signs.
        assert_near(signed_rank_p(&[1.0, 2.0, 3.0]), 2.0 / 8.0);
        assert_near(signed_rank_p(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]), 2.0 / 1024.0);
        // Darwin's maize, in R: wilcox.test(x, exact = TRUE) of distinct values.
        let maize = [49.0, -67.0, 8.0, 16.0, 6.0, 23.0, 28.0, 41.0, 14.0, 29.0, 56.0, 24.0, 75.0, 60.0, -48.0];
        assert_near(signed_rank_p(&maize), 0.041_26);
        assert_eq!(signed_rank_p(&[1.0, -1.0, 1.0, -1.0]), Some(1.0));
    }

    #[test]
    fn many_hosts_are_approximated_as_well_as_they_are_counted() {
        let ranks = (1..=COUNTED).map(|rank| 2 * rank).collect::<Vec<_>>();
        for smaller in [700, 800, 900, 1_000, 1_200] {
            let (counted, approximated) = (counted(&ranks, smaller), approximated(&ranks, smaller));
            assert!((counted / approximated - 1.0).abs() < 0.15, "{smaller}: {counted} and {approximated}");
        }
    }

    #[test]
    fn chances_are_adjusted_for_how_many_were_asked() {
        assert_eq!(holm(&[Some(0.01), None, Some(0.04), Some(0.03)]), [Some(0.03), None, Some(0.06), Some(0.06)]);
    }

    #[test]
    fn three_hosts_of_a_hundred_are_outliers_also_where_nothing_else_changed() {
        let mut values = vec![0.0; 100];
        for at in [0, 33, 66] {
            values[at] = 0.5;
        }
        assert_eq!(outliers(&values, 0.01), [0, 33, 66]);
        for (at, value) in values.iter_mut().enumerate() {
            *value += (at % 7) as f64 * 0.01;
        }
        assert_eq!(outliers(&values, 0.01), [0, 33, 66]);
        assert!(outliers(&values, 1.0).is_empty());
        assert!(outliers(&values[..9], 0.01).is_empty(), "too few to know what is usual");
    }
}
