//! Sets of shards that hold the same cells.

use std::collections::BTreeMap;

/// Sets of shards, each once.
#[derive(Debug, Default)]
pub(super) struct Groups {
    lists: Vec<Vec<u32>>,
    ids: BTreeMap<Vec<u32>, u32>,
}

impl Groups {
    /// The id of a set, which is sorted.
    pub(super) fn intern(&mut self, shards: Vec<u32>) -> u32 {
        let next = self.lists.len() as u32;
        *self.ids.entry(shards).or_insert_with_key(|shards| {
            self.lists.push(shards.clone());
            next
        })
    }

    /// The shards of a set, sorted.
    pub(super) fn shards(&self, group: u32) -> &[u32] {
        &self.lists[group as usize]
    }

    /// All sets, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        self.lists.iter().map(Vec::as_slice)
    }
}
