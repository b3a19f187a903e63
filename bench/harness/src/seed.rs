//! The random order of a run, which its seed repeats.

use clap::Args;
use lockmeter_statistics::{Machine, Random};

/// The seed, as all benches take it.
#[derive(Debug, Args)]
pub struct SeedArguments {
    /// Seed of the random order [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
}

impl SeedArguments {
    /// The order, and the machine of the run, whose description tells the seed.
    pub fn begin(&self) -> (Random, Machine) {
        let seed = self.seed.unwrap_or_else(Random::seed_from_clock);
        (Random::new(seed), Machine::here(seed))
    }
}
