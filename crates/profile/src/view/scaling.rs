//! Scales the estimates from sampled stacks to exact totals.
//!
//! The samples of one exact group are post-stratified by duration bucket: what was counted exactly in a bucket is shared out
//! among the sites found in that bucket, so that neither the sampling rate nor its dependence on the duration matters. Every
//! share is a whole number and the shares add up to what was counted (largest remainder).

use std::cmp::Reverse;

/// What was counted, or what a sample stands for, in one bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Portion {
    pub(super) count: u64,
    pub(super) total_ns: u64,
    pub(super) spin_ns: u64,
}

/// What the stacks of one site stand for in one bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Estimate {
    pub(super) portion: Portion,
    /// How many stacks were really taken.
    pub(super) stacks: u64,
}

/// Shares out what was counted in one bucket among the sites sampled in it. `lower_ns` and `longest_ns`: the shortest and
/// the longest duration that the bucket can hold and did hold.
///
/// Waits go by the sites' estimated counts, but no site gets fewer than the stacks that were really taken there. Each wait
/// gets the bucket's shortest duration; the time beyond that goes by how far the sites' mean durations lie beyond it, and
/// the spinning part of a site's time by its spinning share. So no site has time without waits, a mean outside the bucket,
/// or spins for longer than it waits.
pub(super) fn scale_bucket(exact: Portion, lower_ns: u64, longest_ns: u64, estimates: &[Estimate]) -> Vec<Portion> {
    let of = |weight: fn(&Estimate) -> u64| estimates.iter().map(weight).collect::<Vec<_>>();
    let stacks = of(|e| e.stacks);
    let counts = share(exact.count, &first_with_weight([of(|e| e.portion.count), stacks.clone()]));
    let counts = with_floor(exact.count, counts, &stacks);
    let totals = share_time(exact, lower_ns, longest_ns, estimates, &counts);
    let by_spin = estimates.iter().zip(&totals).map(|(e, total)| ratio(*total, e.portion.spin_ns, e.portion.total_ns));
    let spins = share_capped(exact.spin_ns, &first_with_weight([by_spin.collect(), totals.clone()]), &totals);
    counts
        .into_iter()
        .zip(totals)
        .zip(spins)
        .map(|((count, total_ns), spin_ns)| Portion { count, total_ns, spin_ns })
        .collect()
}

/// As [`scale_bucket`] where sites are told apart by blocker. One wait is the time of several of them, so that time goes by the sites'
/// estimated times, whatever the shortest duration of the bucket, and a site may have time of waits that count for others.
pub(super) fn divide_bucket(exact: Portion, estimates: &[Estimate]) -> Vec<Portion> {
    let of = |weight: fn(&Estimate) -> u64| estimates.iter().map(weight).collect::<Vec<_>>();
    let counts = of(|e| e.portion.count);
    let totals = share(exact.total_ns, &first_with_weight([of(|e| e.portion.total_ns), counts.clone()]));
    let counts = share(exact.count, &first_with_weight([counts, totals.clone()]));
    let by_spin = estimates.iter().zip(&totals).map(|(e, total)| ratio(*total, e.portion.spin_ns, e.portion.total_ns));
    let spins = share_capped(exact.spin_ns, &first_with_weight([by_spin.collect(), totals.clone()]), &totals);
    counts
        .into_iter()
        .zip(totals)
        .zip(spins)
        .map(|((count, total_ns), spin_ns)| Portion { count, total_ns, spin_ns })
        .collect()
}

fn share_time(exact: Portion, lower_ns: u64, longest_ns: u64, estimates: &[Estimate], counts: &[u64]) -> Vec<u64> {
    let least = |count: u64| count.saturating_mul(lower_ns);
    let Some(beyond_ns) = exact.total_ns.checked_sub(least(exact.count)).filter(|_| exact.count > 0) else {
        // Only a damaged file has less time than its waits must have taken, or time without waits.
        return share(exact.total_ns, &first_with_weight([counts.to_vec()]));
    };
    let beyond = estimates
        .iter()
        .zip(counts)
        .map(|(e, count)| ratio(*count, e.portion.total_ns, e.portion.count).saturating_sub(least(*count)));
    let caps: Vec<u64> = counts.iter().map(|count| count.saturating_mul(longest_ns.saturating_sub(lower_ns))).collect();
    let beyond = share_capped(beyond_ns, &first_with_weight([beyond.collect(), counts.to_vec()]), &caps);
    counts.iter().zip(beyond).map(|(count, beyond_ns)| least(*count) + beyond_ns).collect()
}

/// `amount` × `part` ÷ `whole`, 0 for a part of nothing.
fn ratio(amount: u64, part: u64, whole: u64) -> u64 {
    let scaled = (u128::from(amount) * u128::from(part)).checked_div(u128::from(whole));
    u64::try_from(scaled.unwrap_or(0)).unwrap_or(u64::MAX)
}

/// The first list of weights that are not all zero; equal weights if there is none.
fn first_with_weight<const N: usize>(candidates: [Vec<u64>; N]) -> Vec<u64> {
    let sites = candidates[0].len();
    candidates.into_iter().find(|weights| weights.iter().any(|weight| *weight > 0)).unwrap_or_else(|| vec![1; sites])
}

/// Shares out `amount` in proportion to the weights, in whole numbers that add up to it. Of equal remainders the first wins.
fn share(amount: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if sum == 0 {
        return vec![0; weights.len()];
    }
    let product = |weight: &u64| u128::from(amount) * u128::from(*weight);
    // At most `amount`, so it fits.
    let mut shares: Vec<u64> = weights.iter().map(|weight| (product(weight) / sum) as u64).collect();
    let left = (amount - shares.iter().sum::<u64>()) as usize;
    if left > 0 {
        let mut by_remainder: Vec<_> =
            weights.iter().enumerate().map(|(site, weight)| (Reverse(product(weight) % sum), site)).collect();
        // The first this many, in any order: there may be very many sites. Fewer are left than have a remainder.
        by_remainder.select_nth_unstable(left - 1);
        for (_, site) in by_remainder.into_iter().take(left) {
            shares[site] += 1;
        }
    }
    shares
}

/// Lifts every share to its floor at the cost of those above theirs; leaves the shares as they are if `amount` is too small.
fn with_floor(amount: u64, shares: Vec<u64>, floors: &[u64]) -> Vec<u64> {
    let needed: u128 = floors.iter().map(|floor| u128::from(*floor)).sum();
    if needed > u128::from(amount) || shares.iter().zip(floors).all(|(share, floor)| share >= floor) {
        return shares;
    }
    let surplus: Vec<u64> = shares.iter().zip(floors).map(|(share, floor)| share.saturating_sub(*floor)).collect();
    let rest = share(amount - needed as u64, &surplus);
    floors.iter().zip(rest).map(|(floor, rest)| floor + rest).collect()
}

/// As [`share`], but no share exceeds its cap as long as the caps together suffice.
fn share_capped(amount: u64, weights: &[u64], caps: &[u64]) -> Vec<u64> {
    let shares = share(amount, weights);
    let room: u128 = caps.iter().map(|cap| u128::from(*cap)).sum();
    if room < u128::from(amount) || shares.iter().zip(caps).all(|(share, cap)| share <= cap) {
        return shares;
    }
    let capped: Vec<u64> = shares.iter().zip(caps).map(|(share, cap)| *share.min(cap)).collect();
    let excess = amount - capped.iter().sum::<u64>();
    let room: Vec<u64> = caps.iter().zip(&capped).map(|(cap, taken)| cap - taken).collect();
    // The excess is at most the room, so in proportion to the room nothing exceeds its cap again.
    capped.iter().zip(share(excess, &room)).map(|(taken, more)| taken + more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn estimate(count: u64, total_ns: u64, spin_ns: u64, stacks: u64) -> Estimate {
        Estimate { portion: Portion { count, total_ns, spin_ns }, stacks }
    }

    #[test]
    fn shares_follow_the_weights() {
        assert_eq!(share(10, &[1, 1, 2]), [3, 2, 5]);
        assert_eq!(share(0, &[1, 2]), [0, 0]);
        assert_eq!(share(5, &[0, 0]), [0, 0]);
        assert_eq!(share(u64::MAX, &[u64::MAX, u64::MAX]).iter().sum::<u64>(), u64::MAX);
    }

    #[test]
    fn a_site_whose_stack_was_taken_has_at_least_that_wait() {
        let sites = [estimate(100, 100_000, 0, 5), estimate(1, 1_000, 0, 1)];
        let shares = scale_bucket(Portion { count: 50, total_ns: 50_000, spin_ns: 0 }, 512, 1_000, &sites);
        assert_eq!(shares.iter().map(|s| s.count).collect::<Vec<_>>(), [49, 1]);
        assert!(shares[1].total_ns > 0);
    }

    /// Four waits of a second behind one holder, and the last of them behind another as well.
    #[test]
    fn a_blocker_may_have_a_small_part_of_waits_that_count_for_another() {
        let sites = [estimate(4, 3_990_000_000, 0, 4), estimate(0, 10_000_000, 0, 0)];
        let exact = Portion { count: 4, total_ns: 4_000_000_000, spin_ns: 0 };
        let shares = divide_bucket(exact, &sites);
        assert_eq!(
            shares.iter().map(|s| (s.count, s.total_ns)).collect::<Vec<_>>(),
            [(4, 3_990_000_000), (0, 10_000_000)]
        );
    }

    fn arbitrary_estimate() -> impl Strategy<Value = Estimate> {
        (0u64..1000, 0u64..1 << 40, 0u64..=100, 0u64..5).prop_map(|(count, total_ns, spin_percent, stacks)| {
            estimate(count, total_ns, total_ns / 100 * spin_percent, stacks)
        })
    }

    proptest! {
        #[test]
        fn no_site_gets_a_mean_outside_the_bucket(
            estimates in prop::collection::vec(arbitrary_estimate(), 1..30),
            durations in prop::collection::vec(1_024u64..2_048, 1..200),
        ) {
            let (count, total_ns) = (durations.len() as u64, durations.iter().sum());
            let longest_ns = *durations.iter().max().unwrap();
            let exact = Portion { count, total_ns, spin_ns: 0 };
            for share in scale_bucket(exact, 1_024, longest_ns, &estimates) {
                prop_assert!(share.total_ns >= share.count * 1_024 && share.total_ns <= share.count * longest_ns);
            }
        }

        #[test]
        fn shares_add_up_exactly_and_spin_no_longer_than_they_wait(
            estimates in prop::collection::vec(arbitrary_estimate(), 1..30),
            count in 0u64..10_000, total_ns in 0u64..1 << 45, spin_percent in 0u64..=100,
            lower_ns in 0u64..1 << 20, longest_ns in 0u64..1 << 40,
        ) {
            let exact = Portion { count, total_ns, spin_ns: total_ns / 100 * spin_percent };
            let shares = scale_bucket(exact, lower_ns, longest_ns, &estimates);
            prop_assert_eq!(shares.iter().map(|s| s.count).sum::<u64>(), exact.count);
            prop_assert_eq!(shares.iter().map(|s| s.total_ns).sum::<u64>(), exact.total_ns);
            prop_assert_eq!(shares.iter().map(|s| s.spin_ns).sum::<u64>(), exact.spin_ns);
            for share in shares {
                prop_assert!(share.spin_ns <= share.total_ns);
                prop_assert!(share.count > 0 || share.total_ns == 0 || count == 0);
            }
        }
    }
}
