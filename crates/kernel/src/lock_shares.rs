//! What was counted of a class of locks, shared among the locks that it stands for.

use std::collections::BTreeMap;

use lockmeter_profile::Value;
use lockmeter_symbols::WHOLE_PPM;

/// The share of each that has a weight, in millionths.
pub fn shares(weights: &BTreeMap<usize, f64>) -> Vec<(usize, u64)> {
    let sum: f64 = weights.values().sum();
    let share = |weight: f64| (weight / sum * WHOLE_PPM as f64) as u64;
    weights.iter().filter(|(_, weight)| **weight > 0.0).map(|(at, weight)| (*at, share(*weight))).collect()
}

/// Shares a value among locks by millionths; what rounding leaves over goes to the first.
pub fn split<Lock: Copy>(whole: &Value, locks: &[(Lock, u64)]) -> Vec<(Lock, Value)> {
    let part = |amount: u64, share: u64| {
        u64::try_from(u128::from(amount) * u128::from(share) / u128::from(WHOLE_PPM)).unwrap_or(amount)
    };
    let mut parts: Vec<(Lock, Value)> = locks
        .iter()
        .map(|(lock, share)| {
            let value = Value {
                count: part(whole.count, *share),
                total_ns: part(whole.total_ns, *share),
                max_ns: whole.max_ns,
                spin_ns: part(whole.spin_ns, *share),
            };
            (*lock, value)
        })
        .collect();
    let given = parts.iter().fold(Value::default(), |mut sum, (_, value)| {
        sum.merge(value);
        sum
    });
    if let Some((_, first)) = parts.first_mut() {
        first.count += whole.count - given.count;
        first.total_ns += whole.total_ns - given.total_ns;
        first.spin_ns += whole.spin_ns - given.spin_ns;
    }
    parts.retain(|(_, value)| value.count > 0 || value.total_ns > 0);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockmeter_profile::LockId;

    #[test]
    fn a_class_split_among_locks_keeps_its_sum() {
        let whole = Value { count: 10, total_ns: 1_000_001, max_ns: 999, spin_ns: 7 };
        let parts = split(&whole, &[(LockId(0), 333_333), (LockId(1), 666_667)]);
        assert_eq!(parts.iter().map(|(_, value)| value.count).sum::<u64>(), whole.count);
        assert_eq!(parts.iter().map(|(_, value)| value.total_ns).sum::<u64>(), whole.total_ns);
        assert_eq!(parts.iter().map(|(_, value)| value.spin_ns).sum::<u64>(), whole.spin_ns);
    }
}
