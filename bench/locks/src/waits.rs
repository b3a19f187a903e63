//! How long waits lasted, in buckets that are an eighth of their waits wide.

/// Waits of one thread or more.
#[derive(Debug, Clone)]
pub struct Waits {
    counts: Vec<u64>,
}

/// Buckets from one power of two to the next.
const BUCKETS_PER_DOUBLING: u32 = 8;

impl Default for Waits {
    fn default() -> Self {
        Waits { counts: vec![0; bucket(u64::MAX) + 1] }
    }
}

impl Waits {
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
    }

    pub fn add_all(&mut self, other: &Waits) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }

    /// The length that at least this many of a thousand waits did not exceed: the end of its bucket, in nanoseconds. 0 without waits.
    pub fn quantile_ns(&self, of_1000: u64) -> u64 {
        let wanted = (self.counts.iter().sum::<u64>() * of_1000).div_ceil(1000);
        let mut waits = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            waits += count;
            if waits >= wanted && waits > 0 {
                return end_of(bucket);
            }
        }
        0
    }
}

fn bucket(ns: u64) -> usize {
    let steps = u64::from(BUCKETS_PER_DOUBLING);
    if ns < steps {
        return ns as usize;
    }
    let doublings = ns.ilog2() - steps.ilog2();
    (u64::from(doublings) * steps + (ns >> doublings)) as usize
}

fn end_of(bucket: usize) -> u64 {
    let (steps, bucket) = (u64::from(BUCKETS_PER_DOUBLING), bucket as u64);
    if bucket < 2 * steps {
        return bucket;
    }
    let doublings = bucket / steps - 1;
    ((bucket % steps + steps + 1) << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_in_a_bucket_that_ends_no_more_than_an_eighth_later() {
        for ns in (0..100).chain([1_000, 1_023, 1_024, 123_456, 10_000_000_000]) {
            let end = end_of(bucket(ns));
            assert!((ns..=ns + ns / 8).contains(&end), "{ns} ns: {end}");
        }
    }

    #[test]
    fn a_quantile_is_that_of_all_threads() {
        let mut waits = Waits::default();
        (0..998).for_each(|_| waits.add(5));
        let mut others = Waits::default();
        (0..2).for_each(|_| others.add(1_000_000));
        waits.add_all(&others);
        assert_eq!(waits.quantile_ns(998), 5);
        assert!((1_000_000..=1_125_000).contains(&waits.quantile_ns(999)));
        assert_eq!(Waits::default().quantile_ns(999), 0);
    }
}
