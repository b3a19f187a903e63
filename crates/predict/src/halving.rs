//! Looking for a value by halving an interval.

/// The least value up to `most` with which something holds that then holds for all larger ones.
pub(crate) fn first_that(most: f64, halvings: u32, holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, most);
    if holds(low) {
        return low;
    }
    for _ in 0..halvings {
        let middle = f64::midpoint(low, high);
        if holds(middle) { high = middle } else { low = middle }
    }
    low
}
