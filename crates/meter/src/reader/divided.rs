//! Waits that were divided among those who had the lock meanwhile: the parts are counted beside the waits.

use std::collections::HashMap;

use super::segment::Delta;
use crate::layout::{Meta, blocked, happened};

/// What waits and their parts have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct WaitKey {
    lock: u32,
    owner: u32,
    site: u64,
    meta: u64,
}

impl WaitKey {
    pub(super) fn of(delta: &Delta) -> Self {
        let Delta { lock, owner, site, meta, .. } = *delta;
        let whole = happened::whole_of(meta.happened).unwrap_or(meta.happened);
        let bucket = if whole == happened::IDLE { 0 } else { meta.bucket };
        let meta = Meta { happened: whole, bucket, blocked: blocked::DIVIDED, ..meta }.pack();
        Self { lock, owner, site, meta }
    }
}

/// Waits that were divided, with their parts.
#[derive(Debug, Default)]
pub(super) struct DividedWaits {
    waits: HashMap<WaitKey, Divided>,
}

#[derive(Debug, Default)]
struct Divided {
    /// By bucket.
    waits: Vec<Delta>,
    /// By blocker, of all these waits together.
    parts: Vec<Delta>,
}

impl DividedWaits {
    /// Takes the parts out of what was counted. The waits stay there.
    pub(super) fn take(deltas: &mut Vec<Delta>) -> Self {
        let parts: Vec<Delta> =
            deltas.extract_if(.., |delta| happened::whole_of(delta.meta.happened).is_some()).collect();
        let mut waits = HashMap::<WaitKey, Divided>::new();
        for delta in deltas.iter().filter(|delta| is_divided(delta)) {
            add_to(&mut waits.entry(WaitKey::of(delta)).or_default().waits, delta);
        }
        for part in parts {
            // A writer may be between the parts of a wait and the wait itself, which then is seen without them.
            if let Some(divided) = waits.get_mut(&WaitKey::of(&part)) {
                add_to(&mut divided.parts, &part);
            }
        }
        Self { waits }
    }

    /// What each blocker had of the waits. What is left of one has no blocker: the lock was free, and the waiter not yet running; or, where
    /// a condition made the lock, nobody has signalled it yet.
    pub(super) fn by_blocker(&self) -> impl Iterator<Item = Delta> {
        self.waits.values().flat_map(|Divided { waits, parts }| {
            let all_ns = waits.iter().fold(0, |sum: u64, waits| sum.saturating_add(waits.total_ns));
            waits.iter().flat_map(move |waits| divide(waits, parts, all_ns))
        })
    }
}

/// Whether its parts say who is to blame.
pub(super) const fn is_divided(delta: &Delta) -> bool {
    happened::part_of(delta.meta.happened).is_some() && delta.meta.blocked == blocked::DIVIDED
}

fn add_to(known: &mut Vec<Delta>, more: &Delta) {
    let key = |delta: &Delta| (delta.blocker, delta.root, delta.meta);
    let Some(sum) = known.iter_mut().find(|known| key(known) == key(more)) else { return known.push(*more) };
    sum.count = sum.count.saturating_add(more.count);
    sum.total_ns = sum.total_ns.saturating_add(more.total_ns);
    sum.max_ns = sum.max_ns.max(more.max_ns);
}

/// Divides waits, which have so much of `all_ns`, by their share of the parts of all.
fn divide(waits: &Delta, parts: &[Delta], all_ns: u64) -> Vec<Delta> {
    let mut left = *waits;
    let mut divided: Vec<Delta> = parts
        .iter()
        .map(|part| {
            let total_ns = rounded_share(part.total_ns, waits.total_ns, all_ns).min(left.total_ns);
            let count = rounded_share(waits.count, total_ns, waits.total_ns).min(left.count);
            left.total_ns -= total_ns;
            left.count -= count;
            let meta = Meta { happened: waits.meta.happened, bucket: waits.meta.bucket, ..part.meta };
            Delta { meta, count, total_ns, max_ns: part.max_ns.min(waits.max_ns).min(total_ns), ..*part }
        })
        .collect();
    left.max_ns = left.max_ns.min(left.total_ns);
    if left.meta.happened == happened::IDLE {
        left.meta.blocked = blocked::UNKNOWN;
    }
    divided.push(left);
    divided.retain(|part| part.total_ns > 0 || part.count > 0);
    divided
}

fn rounded_share(of: u64, part: u64, whole: u64) -> u64 {
    let (of, part, whole) = (u128::from(of), u128::from(part), u128::from(whole.max(1)));
    u64::try_from((of * part + whole / 2) / whole).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(happened: u8, blocked: u8, blocker: u64, count: u64, total_ns: u64) -> Delta {
        let meta = Meta { kind: 3, mode: 1, bucket: 20, blocked, comm: 1, ..Meta::of(happened) };
        let (releaser_comm, max_ns) = (u32::from(blocker > 0), total_ns);
        Delta { meta, lock: 7, releaser_comm, owner: 9, site: 0x1000, blocker, root: None, count, total_ns, max_ns }
    }

    #[test]
    fn waits_are_divided_among_their_blockers_and_what_is_left_has_none() {
        let waits = delta(happened::WAIT, blocked::DIVIDED, 0, 4, 4_000_000);
        let mut deltas = vec![
            delta(happened::PART, blocked::RELEASER, 0x10, 4, 3_800_000),
            waits,
            delta(happened::PART, blocked::RELEASER, 0x20, 3, 150_000),
            delta(happened::PART, blocked::EARLIER, 0, 1, 20_000),
        ];
        let parts = DividedWaits::take(&mut deltas);
        assert_eq!(deltas, [waits]);
        let divided: Vec<Delta> = parts.by_blocker().collect();
        let seen: Vec<_> = divided.iter().map(|part| (part.meta.blocked, part.blocker, part.total_ns)).collect();
        assert_eq!(
            seen,
            [
                (blocked::RELEASER, 0x10, 3_800_000),
                (blocked::RELEASER, 0x20, 150_000),
                (blocked::EARLIER, 0, 20_000),
                (blocked::DIVIDED, 0, 30_000),
            ]
        );
        assert_eq!(divided.iter().map(|part| part.count).sum::<u64>(), 4);
        assert!(divided.iter().all(|part| part.meta.happened == happened::WAIT));
    }

    #[test]
    fn of_waits_for_a_condition_that_timed_out_nobody_has_what_no_signal_says() {
        let waits = delta(happened::IDLE, blocked::DIVIDED, 0, 3, 15_000_000);
        let mut deltas = vec![waits, delta(happened::PART_OF_IDLE, blocked::RELEASER, 0x10, 2, 10_000_000)];
        let divided: Vec<Delta> = DividedWaits::take(&mut deltas).by_blocker().collect();
        let seen: Vec<_> =
            divided.iter().map(|part| (part.meta.happened, part.meta.blocked, part.blocker, part.total_ns)).collect();
        assert_eq!(
            seen,
            [(happened::IDLE, blocked::RELEASER, 0x10, 10_000_000), (happened::IDLE, blocked::UNKNOWN, 0, 5_000_000)]
        );
    }

    /// One after the other, they lasted long and short, and one signal said who had the lock during all of them.
    #[test]
    fn waits_for_a_condition_are_divided_alike_in_every_power_of_two_of_length() {
        let of_bucket = |delta: Delta, bucket| Delta { meta: Meta { bucket, ..delta.meta }, ..delta };
        let waits = |bucket, ns| of_bucket(delta(happened::IDLE, blocked::DIVIDED, 0, 1, ns), bucket);
        let part = of_bucket(delta(happened::PART_OF_IDLE, blocked::RELEASER, 0x10, 1, 18_000_000), 0);
        let mut deltas = vec![waits(22, 5_000_000), waits(23, 15_000_000), part];
        let divided: Vec<Delta> = DividedWaits::take(&mut deltas).by_blocker().collect();
        let seen: Vec<_> = divided.iter().map(|part| (part.meta.bucket, part.blocker, part.total_ns)).collect();
        assert_eq!(seen, [(22, 0x10, 4_500_000), (22, 0, 500_000), (23, 0x10, 13_500_000), (23, 0, 1_500_000)]);
    }

    /// Threads that have ended are not told apart any more.
    #[test]
    fn waits_of_several_threads_are_divided_together() {
        let waits = delta(happened::WAIT, blocked::DIVIDED, 0, 1, 1_000_000);
        let part = |blocker, ns| delta(happened::PART, blocked::RELEASER, blocker, 1, ns);
        let mut deltas = vec![waits, part(0x10, 1_000_000), waits, part(0x10, 900_000), part(0x20, 100_000)];
        let divided: Vec<Delta> = DividedWaits::take(&mut deltas).by_blocker().collect();
        let seen: Vec<_> = divided.iter().map(|part| (part.blocker, part.count, part.total_ns)).collect();
        assert_eq!(seen, [(0x10, 2, 1_900_000), (0x20, 0, 100_000)]);
        assert_eq!(deltas, [waits, waits]);
    }

    /// A drain may come between the parts of a wait and the wait.
    #[test]
    fn parts_are_never_more_than_their_waits() {
        let waits = delta(happened::WAIT, blocked::DIVIDED, 0, 1, 1_000_000);
        let mut deltas = vec![waits, delta(happened::PART, blocked::RELEASER, 0x10, 2, 1_900_000)];
        let divided: Vec<Delta> = DividedWaits::take(&mut deltas).by_blocker().collect();
        assert_eq!(divided.iter().map(|part| part.total_ns).sum::<u64>(), 1_000_000);
        assert_eq!(divided.iter().map(|part| part.count).sum::<u64>(), 1);
    }
}
