//! The contents of the store: values and queues by key, and their size.
//!
//! A value and a queue of the same key are independent. Only a [`Condition`] may see both.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound::{Excluded, Included, Unbounded},
};

use elasticrun_protocol::store::{MAX_LISTED, MISSING_NAMED, Refused, Value, shown};

use super::{Limits, Space};

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
    values: BTreeMap<String, Vec<u8>>,
    /// Queues with at least one element.
    queues: BTreeMap<String, VecDeque<Vec<u8>>>,
}

/// The values and queues of the store.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    round: Keys,
    job: Keys,
    /// The number of values and elements.
    entries: usize,
    /// The size of all of them. Each counts with its key.
    bytes: usize,
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

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The values and elements that were created since the last call.
    pub(super) fn take_fresh(&mut self) -> Vec<(Space, String, Condition)> {
        std::mem::take(&mut self.fresh)
    }

    pub(super) fn get(&self, space: Space, key: &str) -> Option<&Vec<u8>> {
        self.keys(space).values.get(key)
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
        let (mut count, mut bytes) = (self.entries, self.bytes);
        for (key, value) in &entries {
            match self.get(space, key) {
                Some(old) => bytes -= old.len(),
                None => {
                    count += 1;
                    bytes += key.len();
                }
            }
            bytes += value.len();
        }
        self.grow_to(count, bytes, others, limits)?;
        for (key, value) in entries {
            let values = &mut self.keys_mut(space).values;
            if values.insert(key.clone(), value).is_none() {
                self.fresh.push((space, key, Condition::Value));
            }
        }
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
        let bytes = self.bytes + key.len() + value.len();
        self.grow_to(self.entries + 1, bytes, others, limits)?;
        let queues = &mut self.keys_mut(space).queues;
        queues.entry(key.clone()).or_default().push_back(value);
        self.fresh.push((space, key, Condition::Element));
        Ok(())
    }

    /// Takes the first element of a queue.
    pub(super) fn pop(&mut self, space: Space, key: &str) -> Option<Vec<u8>> {
        let queues = &mut self.keys_mut(space).queues;
        let queue = queues.get_mut(key)?;
        let value = queue.pop_front()?;
        if queue.is_empty() {
            queues.remove(key);
        }
        self.entries -= 1;
        self.bytes -= key.len() + value.len();
        Some(value)
    }

    /// Counts with the new numbers from now on, unless they have grown beyond a limit.
    fn grow_to(
        &mut self,
        entries: usize,
        bytes: usize,
        others: usize,
        limits: &Limits,
    ) -> Result<(), Refused> {
        if entries > limits.keys && entries > self.entries {
            let limit = limits.keys as u64;
            return Err(Refused::TooManyKeys { limit });
        }
        if bytes + others > limits.bytes && bytes > self.bytes {
            let limit = limits.bytes as u64;
            return Err(Refused::Full { limit });
        }
        (self.entries, self.bytes) = (entries, bytes);
        Ok(())
    }

    /// Removes a value. Returns whether it existed.
    pub(super) fn remove(&mut self, space: Space, key: &str) -> bool {
        let Some(value) = self.keys_mut(space).values.remove(key) else {
            return false;
        };
        self.entries -= 1;
        self.bytes -= key.len() + value.len();
        true
    }

    pub(super) fn clear_round(&mut self) {
        let Keys { values, queues } = std::mem::take(&mut self.round);
        let elements = (queues.iter()).flat_map(|(key, queue)| queue.iter().map(move |v| (key, v)));
        for (key, value) in values.iter().chain(elements) {
            self.entries -= 1;
            self.bytes -= key.len() + value.len();
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
