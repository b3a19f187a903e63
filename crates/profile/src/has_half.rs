//! What most of a time was spent on.

/// What has at least half of the sum of all.
pub fn has_half<T: PartialEq>(all: impl Iterator<Item = (T, u64)>) -> Option<T> {
    let (mut sums, mut all_ns) = (Vec::<(T, u64)>::new(), 0_u64);
    for (what, ns) in all {
        all_ns = all_ns.saturating_add(ns);
        match sums.iter_mut().find(|(known, _)| *known == what) {
            Some((_, sum)) => *sum = sum.saturating_add(ns),
            None => sums.push((what, ns)),
        }
    }
    let (what, ns) = sums.into_iter().max_by_key(|(_, ns)| *ns)?;
    (ns.saturating_mul(2) >= all_ns).then_some(what)
}
