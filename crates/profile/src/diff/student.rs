//! Student's t distribution: what a test of few intervals needs of it.

/// The chance that |t| is larger than this if there is no difference, for whole degrees of freedom; 1 without any.
///
/// The finite sums of M. Abramowitz and I. Stegun, "Handbook of Mathematical Functions", 26.7.3 and 26.7.4.
pub fn two_sided_p(t: f64, freedom: u32) -> f64 {
    if freedom == 0 || t.is_nan() {
        return 1.0;
    }
    let angle = (t.abs() / f64::from(freedom).sqrt()).atan();
    let (sine, cosine) = (angle.sin(), angle.cos());
    let is_odd = freedom % 2 == 1;
    // Each term follows from the one before; odd degrees begin with cos θ, even ones with 1.
    let (mut term, first) = if is_odd { (cosine, 3) } else { (1.0, 2) };
    let mut sum = if freedom == 1 { 0.0 } else { term };
    for step in (first..freedom).step_by(2) {
        term *= cosine * cosine * f64::from(step - 1) / f64::from(step);
        sum += term;
    }
    let within = if is_odd { (angle + sine * sum) * std::f64::consts::FRAC_2_PI } else { sine * sum };
    (1.0 - within).clamp(0.0, 1.0)
}

/// Enough for ten digits.
const HALVINGS: u32 = 60;

/// Larger than any quantile that is asked for: one degree of freedom has 12.7.
const LARGEST_QUANTILE: f64 = 1_000.0;

/// The t that is exceeded, either way, with this chance if there is no difference.
pub(super) fn quantile(two_sided_p_of: f64, freedom: u32) -> f64 {
    let (mut low, mut high) = (0.0, LARGEST_QUANTILE);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if two_sided_p(middle, freedom) > two_sided_p_of { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes sure of the values in the tables of the books.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, of_95, of_99) in
            [(1, 12.706, 63.657), (2, 4.303, 9.925), (3, 3.182, 5.841), (10, 2.228, 3.169), (30, 2.042, 2.750)]
        {
            assert!((quantile(0.05, freedom) - of_95).abs() < 1e-3, "{freedom}: {}", quantile(0.05, freedom));
            assert!((quantile(0.01, freedom) - of_99).abs() < 1e-3, "{freedom}: {}", quantile(0.01, freedom));
        }
        assert!((quantile(0.05, 10_000) - 1.960).abs() < 1e-3);
        assert!((two_sided_p(0.0, 5) - 1.0).abs() < 1e-12 && two_sided_p(f64::INFINITY, 5) < 1e-12);
        assert!((two_sided_p(9.0, 0) - 1.0).abs() < 1e-12);
    }
}
