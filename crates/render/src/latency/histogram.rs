//! A power-of-two histogram as lines of text.

use lockmeter_profile::Bucket;

use crate::units::{count, duration};

/// Width of the longest bar.
const LONGEST_BAR: u64 = 32;

/// A line for each bucket from the first to the last that is not empty.
pub fn lines(what: &str, histogram: &[(Bucket, u64, u64)]) -> Vec<String> {
    let (Some((first, ..)), Some((last, ..))) = (histogram.first(), histogram.last()) else { return Vec::new() };
    let most = histogram.iter().map(|(_, count, _)| *count).max().unwrap_or(1).max(1);
    let in_bucket = |bucket: u8| histogram.iter().find(|(at, ..)| at.0 == bucket).map_or(0, |(_, count, _)| *count);
    (first.0..=last.0)
        .map(|bucket| {
            let times = in_bucket(bucket);
            // What happened at all is seen.
            let bar = (times * LONGEST_BAR).div_ceil(most);
            let bar = "#".repeat(usize::try_from(bar).unwrap_or(0));
            let line =
                format!("      {what:<5}  {:>8}+  {bar:<32}  {}", duration(Bucket(bucket).lower_ns()), count(times));
            line
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_buckets_between_full_ones_have_a_line_and_a_single_run_has_a_bar() {
        let lines = lines("runs", &[(Bucket(10), 1, 1500), (Bucket(12), 1000, 5_000_000)]);
        assert_eq!(lines.len(), 3);
        assert!(lines[0].contains("1.02 µs+  # "), "{}", lines[0]);
        assert!(lines[1].trim_end().ends_with('0') && !lines[1].contains('#'), "{}", lines[1]);
        assert!(lines[2].contains(&"#".repeat(32)), "{}", lines[2]);
    }
}
