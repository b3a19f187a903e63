//! What a group measured, by bucket: a sorted list, for most groups have durations of a few buckets only and there may be
//! many groups.

/// How many buckets most groups have at most.
const FEW: usize = 4;

/// A small map from buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Buckets<T>(Vec<(u8, T)>);

impl<T> Default for Buckets<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default> Buckets<T> {
    /// What is counted in a bucket, which is added if it is new.
    pub(super) fn entry(&mut self, bucket: u8) -> &mut T {
        let at = match self.0.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(at) => at,
            Err(at) => {
                // Most have one or two, and a file can make many of them.
                if self.0.len() == self.0.capacity() {
                    self.0.reserve_exact(if self.0.len() < FEW { 1 } else { FEW });
                }
                self.0.insert(at, (bucket, T::default()));
                at
            }
        };
        &mut self.0[at].1
    }
}

impl<T> Buckets<T> {
    pub(super) fn get(&self, bucket: u8) -> Option<&T> {
        let at = self.0.binary_search_by_key(&bucket, |(bucket, _)| *bucket).ok()?;
        self.0.get(at).map(|(_, item)| item)
    }

    /// Shortest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u8, &T)> {
        self.0.iter().map(|(bucket, item)| (*bucket, item))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, item)| item)
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = (u8, T)> {
        self.0.into_iter()
    }
}

impl<T> FromIterator<(u8, T)> for Buckets<T> {
    /// From buckets in their order.
    fn from_iter<I: IntoIterator<Item = (u8, T)>>(items: I) -> Self {
        Self(items.into_iter().collect())
    }
}
