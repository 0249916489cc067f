//! The contents of the store: two maps and their size.

use std::collections::BTreeMap;

use elasticrun_protocol::store::{MISSING_NAMED, Refused, shown};

use super::{Limits, Space};

/// The keys and values of the store.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    round: BTreeMap<String, Vec<u8>>,
    job: BTreeMap<String, Vec<u8>>,
    /// The size of all keys and values.
    bytes: usize,
    /// Keys that were created since the last [`take_fresh`](Self::take_fresh); requests may wait for them.
    fresh: Vec<(Space, String)>,
}

impl Contents {
    pub(super) fn map(&self, space: Space) -> &BTreeMap<String, Vec<u8>> {
        match space {
            Space::Round => &self.round,
            Space::Job => &self.job,
        }
    }

    fn map_mut(&mut self, space: Space) -> &mut BTreeMap<String, Vec<u8>> {
        match space {
            Space::Round => &mut self.round,
            Space::Job => &mut self.job,
        }
    }

    pub(super) fn keys(&self) -> usize {
        self.round.len() + self.job.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The keys that were created since the last call.
    pub(super) fn take_fresh(&mut self) -> Vec<(Space, String)> {
        std::mem::take(&mut self.fresh)
    }

    pub(super) fn get(&self, space: Space, key: &str) -> Option<&Vec<u8>> {
        self.map(space).get(key)
    }

    /// Writes all entries, or none if they do not fit beside `others` bytes.
    pub(super) fn put(
        &mut self,
        space: Space,
        entries: BTreeMap<String, Vec<u8>>,
        others: usize,
        limits: &Limits,
    ) -> Result<(), Refused> {
        let (mut keys, mut bytes) = (self.keys(), self.bytes + others);
        for (key, value) in &entries {
            match self.get(space, key) {
                Some(old) => bytes -= old.len(),
                None => {
                    keys += 1;
                    bytes += key.len();
                }
            }
            bytes += value.len();
        }
        if keys > limits.keys && keys > self.keys() {
            let limit = limits.keys as u64;
            return Err(Refused::TooManyKeys { limit });
        }
        if bytes > limits.bytes && bytes > self.bytes + others {
            let limit = limits.bytes as u64;
            return Err(Refused::Full { limit });
        }
        self.bytes = bytes - others;
        for (key, value) in entries {
            if self.map_mut(space).insert(key.clone(), value).is_none() {
                self.fresh.push((space, key));
            }
        }
        Ok(())
    }

    /// Removes a key. Returns whether it existed.
    pub(super) fn remove(&mut self, space: Space, key: &str) -> bool {
        let Some(value) = self.map_mut(space).remove(key) else {
            return false;
        };
        self.bytes -= key.len() + value.len();
        true
    }

    pub(super) fn clear_round(&mut self) {
        let gone = std::mem::take(&mut self.round);
        self.bytes -= gone.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
    }

    /// The number of keys with this prefix.
    pub(super) fn count(&self, space: Space, prefix: &str) -> usize {
        let map = self.map(space);
        if prefix.is_empty() {
            return map.len();
        }
        let from = map.range::<str, _>((
            std::ops::Bound::Included(prefix),
            std::ops::Bound::Unbounded,
        ));
        from.take_while(|(key, _)| key.starts_with(prefix)).count()
    }

    /// The refusal of a request that has waited for these keys until its timeout.
    pub(super) fn timed_out(&self, space: Space, keys: &[String]) -> Refused {
        let map = self.map(space);
        let mut missing = keys.iter().filter(|key| !map.contains_key(*key));
        let named = missing.by_ref().take(MISSING_NAMED);
        Refused::TimedOut {
            missing: named.map(|key| shown(key)).collect(),
            more: missing.count() as u64,
        }
    }
}
