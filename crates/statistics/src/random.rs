//! Random numbers for the order of runs and for simulations.

/// Random numbers from a seed: the same for the same seed on every machine, so that a printed seed repeats a run's order exactly.
#[derive(Debug, Clone)]
pub struct Random(fastrand::Rng);

impl Random {
    /// The same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Any seed, another one each time; short enough to be written down.
    pub fn seed_from_clock() -> u64 {
        std::time::UNIX_EPOCH.elapsed().map_or(1, |since| u64::from(since.subsec_nanos() % 1_000_000))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Uniform in `0..bound`; 0 below nothing.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound.max(1))
    }

    /// Uniform in (0, 1]: its logarithm is finite.
    pub fn unit(&mut self) -> f64 {
        1.0 - self.0.f64()
    }

    /// Into a random order, each as likely as any other.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        self.0.shuffle(items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: another version of the generator would repeat no run whose seed was printed before.
    #[test]
    fn a_seed_gives_the_same_numbers_on_every_machine() {
        let mut random = Random::new(7);
        let mut order: Vec<u32> = (0..8).collect();
        random.shuffle(&mut order);
        assert_eq!(
            (order, random.bits(), random.below(1_000)),
            (vec![5, 6, 4, 0, 3, 2, 7, 1], 1_707_263_104_687_446_248, 138)
        );
    }

    #[test]
    fn numbers_stay_within_their_bounds_and_reach_both_ends() {
        let mut random = Random::new(1);
        let below: std::collections::BTreeSet<usize> = (0..1_000).map(|_| random.below(3)).collect();
        assert_eq!(below.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(random.below(0), 0);
        assert!((0..1_000).all(|_| (f64::MIN_POSITIVE..=1.0).contains(&random.unit())));
    }
}
