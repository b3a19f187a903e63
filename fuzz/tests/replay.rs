//! Every target's seeds, and a fixed number of mutations of each: none may panic, or decode more than its length is worth.

use lockmeter_fuzz::TARGETS;
use lockmeter_fuzz::mutations::mutated;
use lockmeter_statistics::Random;

/// Any: the same mutations each time.
const SEED: u64 = 25;

#[test]
fn seeds_and_their_mutations_are_taken_without_a_panic() {
    for target in TARGETS {
        let mut random = Random::new(SEED);
        for seed in (target.seeds)() {
            (target.run)(&seed);
            for _ in 0..target.replayed {
                (target.run)(&mutated(&seed, &mut random));
            }
        }
    }
}
