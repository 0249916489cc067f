//! The contents of the store: values and queues by key, and their size.
//!
//! A value and a queue of the same key are independent. Only a [`Condition`] may see both.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound::{Excluded, Included, Unbounded},
};

use elasticrun_protocol::store::{MAX_LISTED, MISSING_NAMED, Refused, Value, shown};

use super::{
    Limits, Space,
    values::{ValueId, Values},
};

/// What a request may wait for at a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Condition {
    /// The key has a value.
    Value,
    /// The queue of the key has an element.
    Element,
    /// One or the other.
    Either,
}

/// The keys of the round or those of the job.
#[derive(Clone, Debug, Default)]
struct Keys {
    values: BTreeMap<String, ValueId>,
    /// Queues with at least one element.
    queues: BTreeMap<String, VecDeque<ValueId>>,
}

/// The values and queues of the store.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    round: Keys,
    job: Keys,
    /// Those of keys and queues, and those that workers still read.
    pub(super) values: Values,
    /// The number of values and elements of keys.
    entries: usize,
    /// The size of their keys. Each value and each element counts with its key.
    key_bytes: usize,
    /// What was created since the last [`take_fresh`](Self::take_fresh), a value or an element; requests may wait for it.
    fresh: Vec<(Space, String, Condition)>,
}

impl Contents {
    fn keys(&self, space: Space) -> &Keys {
        match space {
            Space::Round => &self.round,
            Space::Job => &self.job,
        }
    }

    fn keys_mut(&mut self, space: Space) -> &mut Keys {
        match space {
            Space::Round => &mut self.round,
            Space::Job => &mut self.job,
        }
    }

    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    /// The size of keys and values.
    pub(super) fn bytes(&self) -> usize {
        self.key_bytes + self.values.bytes()
    }

    /// The values and elements that were created since the last call.
    pub(super) fn take_fresh(&mut self) -> Vec<(Space, String, Condition)> {
        std::mem::take(&mut self.fresh)
    }

    pub(super) fn value(&self, space: Space, key: &str) -> Option<ValueId> {
        self.keys(space).values.get(key).copied()
    }

    /// The bytes of a value.
    pub(super) fn get(&self, space: Space, key: &str) -> Option<&[u8]> {
        Some(self.values.get(self.value(space, key)?))
    }

    /// The first element of a queue.
    pub(super) fn first(&self, space: Space, key: &str) -> Option<ValueId> {
        self.keys(space).queues.get(key)?.front().copied()
    }

    /// The number of elements of a queue.
    pub(super) fn queue_len(&self, space: Space, key: &str) -> usize {
        self.keys(space).queues.get(key).map_or(0, VecDeque::len)
    }

    pub(super) fn meets(&self, condition: Condition, space: Space, key: &str) -> bool {
        let keys = self.keys(space);
        match condition {
            Condition::Value => keys.values.contains_key(key),
            Condition::Element => keys.queues.contains_key(key),
            Condition::Either => keys.values.contains_key(key) || keys.queues.contains_key(key),
        }
    }

    /// Writes all entries, or none if they do not fit beside `others` bytes.
    pub(super) fn put(
        &mut self,
        space: Space,
        entries: BTreeMap<String, Vec<u8>>,
        others: usize,
        limits: &Limits,
    ) -> Result<(), Refused> {
        let (mut new, mut added, mut freed) = (0, 0, 0);
        for (key, value) in &entries {
            added += value.len();
            match self.value(space, key) {
                Some(old) => freed += self.values.freed_by_release(old),
                None => {
                    new += 1;
                    added += key.len();
                }
            }
        }
        let largest = entries.iter().max_by_key(|(_, value)| value.len());
        let largest = largest.map_or(("", 0), |(key, value)| (key.as_str(), value.len()));
        self.check_growth(new, (added, freed), others, limits, largest)?;
        for (key, value) in entries {
            let value = self.values.insert(value);
            match self.keys_mut(space).values.insert(key.clone(), value) {
                Some(old) => self.values.release(old),
                None => self.created(space, key, Condition::Value),
            }
        }
        Ok(())
    }

    /// Appends to a value, if it fits beside `others` bytes.
    pub(super) fn append(
        &mut self,
        space: Space,
        key: String,
        more: Vec<u8>,
        others: usize,
        limits: &Limits,
    ) -> Result<(), Refused> {
        let Some(old) = self.value(space, &key) else {
            return self.put(space, BTreeMap::from([(key, more)]), others, limits);
        };
        let length = self.values.get(old).len() + more.len();
        let freed = self.values.freed_by_release(old);
        self.check_growth(0, (length, freed), others, limits, (&key, length))?;
        let value = self.values.append(old, &more);
        self.keys_mut(space).values.insert(key, value);
        Ok(())
    }

    /// Appends an element to a queue if it fits beside `others` bytes.
    pub(super) fn push(
        &mut self,
        space: Space,
        key: String,
        value: Vec<u8>,
        others: usize,
        limits: &Limits,
    ) -> Result<(), Refused> {
        let added = key.len() + value.len();
        self.check_growth(1, (added, 0), others, limits, (&key, value.len()))?;
        let value = self.values.insert(value);
        let queues = &mut self.keys_mut(space).queues;
        queues.entry(key.clone()).or_default().push_back(value);
        self.created(space, key, Condition::Element);
        Ok(())
    }

    /// Removes the first element of a queue. The caller releases it.
    #[must_use]
    pub(super) fn pop(&mut self, space: Space, key: &str) -> Option<ValueId> {
        let queues = &mut self.keys_mut(space).queues;
        let queue = queues.get_mut(key)?;
        let value = queue.pop_front()?;
        if queue.is_empty() {
            queues.remove(key);
        }
        self.entries -= 1;
        self.key_bytes -= key.len();
        Some(value)
    }

    /// Counts a value or an element that was created.
    fn created(&mut self, space: Space, key: String, what: Condition) {
        self.entries += 1;
        self.key_bytes += key.len();
        self.fresh.push((space, key, what));
    }

    /// Refuses what would grow beyond a limit: `new` values or elements, and bytes that are added and freed. `largest` is
    /// a key and the size of its new value.
    fn check_growth(
        &self,
        new: usize,
        (added, freed): (usize, usize),
        others: usize,
        limits: &Limits,
        largest: (&str, usize),
    ) -> Result<(), Refused> {
        if new > 0 && self.entries + new > limits.keys {
            let limit = limits.keys as u64;
            return Err(Refused::TooManyKeys { limit });
        }
        if added > freed && self.bytes() + others + added - freed > limits.bytes {
            let (key, length) = largest;
            return Err(limits.full(key, length));
        }
        Ok(())
    }

    /// Removes a value. Returns whether it existed.
    pub(super) fn remove(&mut self, space: Space, key: &str) -> bool {
        let Some(value) = self.keys_mut(space).values.remove(key) else {
            return false;
        };
        self.entries -= 1;
        self.key_bytes -= key.len();
        self.values.release(value);
        true
    }

    pub(super) fn clear_round(&mut self) {
        let Keys { values, queues } = std::mem::take(&mut self.round);
        let elements = (queues.into_iter())
            .flat_map(|(key, queue)| queue.into_iter().map(move |value| (key.len(), value)));
        let values = values.into_iter().map(|(key, value)| (key.len(), value));
        for (key, value) in values.chain(elements) {
            self.entries -= 1;
            self.key_bytes -= key;
            self.values.release(value);
        }
    }

    /// The number of values of keys with this prefix.
    pub(super) fn count(&self, space: Space, prefix: &str) -> usize {
        let values = &self.keys(space).values;
        if prefix.is_empty() {
            return values.len();
        }
        let from = values.range::<str, _>((Included(prefix), Unbounded));
        from.take_while(|(key, _)| key.starts_with(prefix)).count()
    }

    /// Lists keys that have a value, behind `after`: as many as an answer may have.
    pub(super) fn list(&self, space: Space, prefix: &str, after: Option<&str>) -> Value {
        let after = after.map(|after| format!("{prefix}{after}"));
        let from = after.as_deref().map_or(Included(prefix), Excluded);
        let values = &self.keys(space).values;
        let mut listed = (values.range::<str, _>((from, Unbounded)))
            .map_while(|(key, _)| key.strip_prefix(prefix))
            .peekable();
        let (mut keys, mut bytes) = (Vec::new(), 0);
        while let Some(key) = listed.next_if(|key| bytes + key.len() + 4 <= MAX_LISTED) {
            bytes += key.len() + 4;
            keys.push(key.to_owned());
        }
        let more = listed.next().is_some();
        Value::Keys { keys, more }
    }

    /// The refusal of a request that has waited for these keys until its timeout.
    pub(super) fn timed_out(&self, condition: Condition, space: Space, keys: &[String]) -> Refused {
        let mut missing = keys.iter().filter(|key| !self.meets(condition, space, key));
        let named = missing.by_ref().take(MISSING_NAMED);
        Refused::TimedOut {
            missing: named.map(|key| shown(key)).collect(),
            more: missing.count() as u64,
        }
    }
}
