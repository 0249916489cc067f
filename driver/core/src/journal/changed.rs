//! The keys whose records have changed.

use std::collections::BTreeSet;

/// The keys that have changed since they were taken last. Its size is bounded by the number of keys.
#[derive(Clone, Debug)]
pub(crate) struct Changed<K>(BTreeSet<K>);

impl<K> Default for Changed<K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<K: Clone + Ord> Changed<K> {
    /// Adds a key.
    pub(crate) fn mark(&mut self, key: &K) {
        // Most changes of a key follow each other.
        if !self.0.contains(key) {
            self.0.insert(key.clone());
        }
    }

    /// Adds keys.
    pub(crate) fn mark_all<'a>(&mut self, keys: impl IntoIterator<Item = &'a K>)
    where
        K: 'a,
    {
        self.0.extend(keys.into_iter().cloned());
    }

    /// Takes the keys, in order.
    pub(crate) fn take(&mut self) -> BTreeSet<K> {
        std::mem::take(&mut self.0)
    }
}
