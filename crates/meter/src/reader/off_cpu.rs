//! For how much of their waits threads that spun had no CPU: counted beside the waits.

use std::collections::HashMap;

use lockmeter_profile::{Happened, Key, Kind, Value};

use super::divided::WaitKey;
use super::segment::Delta;
use crate::layout::happened;

/// How long waits for spinning locks were, and for how much of that the threads were preempted.
#[derive(Debug, Default)]
pub(super) struct OffCpu {
    waits: HashMap<WaitKey, (u64, u64)>,
}

impl OffCpu {
    /// Takes these parts out of what was counted.
    pub(super) fn take(deltas: &mut Vec<Delta>) -> Self {
        let mut waits = HashMap::<WaitKey, (u64, u64)>::new();
        for part in deltas.extract_if(.., |delta| delta.meta.happened == happened::OFF_CPU) {
            let (_, off_ns) = waits.entry(WaitKey::of(&part)).or_default();
            *off_ns = off_ns.saturating_add(part.total_ns);
        }
        for delta in deltas.iter().filter(|delta| delta.meta.happened == happened::WAIT) {
            if let Some((total_ns, _)) = waits.get_mut(&WaitKey::of(delta)) {
                *total_ns = total_ns.saturating_add(delta.total_ns);
            }
        }
        Self { waits }
    }

    /// How often and for how long, and the part of it that a thread spun.
    pub(super) fn value_of(&self, delta: &Delta, key: &Key) -> Value {
        let is_spinning = key.kind == Kind::Spin && key.happened == Happened::Wait;
        let spin_ns = if is_spinning { delta.total_ns - self.off_ns(delta).min(delta.total_ns) } else { 0 };
        Value { count: delta.count, total_ns: delta.total_ns, max_ns: delta.max_ns, spin_ns }
    }

    fn off_ns(&self, delta: &Delta) -> u64 {
        let Some((total_ns, off_ns)) = self.waits.get(&WaitKey::of(delta)) else { return 0 };
        // Waits of one length, site and lock are preempted alike.
        let share = u128::from(delta.total_ns) * u128::from(*off_ns);
        u64::try_from(share / u128::from(*total_ns).max(1)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use lockmeter_profile::{Bucket, LockId, Mode};

    use super::*;
    use crate::layout::{Meta, blocked};

    fn delta(happened: u8, blocked: u8, total_ns: u64) -> Delta {
        let meta = Meta { kind: 1, mode: 1, bucket: 20, blocked, comm: 1, ..Meta::of(happened) };
        let (lock, owner, site, max_ns) = (7, 9, 0x1000, total_ns);
        Delta { meta, lock, releaser_comm: 0, owner, site, blocker: 0, root: None, count: 1, total_ns, max_ns }
    }

    #[test]
    fn what_a_spinning_thread_was_preempted_is_no_spinning() {
        let mut deltas = vec![
            delta(happened::OFF_CPU, blocked::UNKNOWN, 900_000),
            delta(happened::WAIT, blocked::RELEASER, 1_500_000),
            delta(happened::WAIT, blocked::DIVIDED, 1_500_000),
        ];
        let off = OffCpu::take(&mut deltas);
        let key = |kind| Key { bucket: Bucket(20), ..Key::of(Happened::Wait, LockId(0), kind, Mode::Exclusive) };
        let spun: Vec<u64> = deltas.iter().map(|delta| off.value_of(delta, &key(Kind::Spin)).spin_ns).collect();
        assert_eq!(spun, [1_050_000, 1_050_000]);
        assert_eq!(off.value_of(&deltas[0], &key(Kind::Mutex)).spin_ns, 0);
        assert_eq!(OffCpu::default().value_of(&deltas[0], &key(Kind::Spin)).spin_ns, 1_500_000);
    }
}
