//! The operations of the store.

use std::collections::BTreeMap;

use elasticrun_protocol::store::{
    Blob, MAX_MESSAGE, MAX_VALUE, Namespace, Op, Refused, Request, Value, shown,
};

use super::{
    Client, Command, Space, Store, answer,
    contents::Condition,
    waits::{Wait, Wanted},
};
use crate::Time;

impl Store {
    /// Performs an operation and gives its value. `None` if the request waits, or if it read its keys at once: that
    /// answer is in `out` already.
    pub(super) fn perform(
        &mut self,
        now: Time,
        client: Client,
        space: Space,
        request: Request,
        out: &mut Vec<Command>,
    ) -> Result<Option<Value>, Refused> {
        request.op.check()?;
        let value = match request.op {
            Op::Get { .. }
            | Op::Wait { .. }
            | Op::MultiGet { .. }
            | Op::QueuePop { block: true, .. } => {
                return self.wait(now, client, space, request, out);
            }
            Op::Set { key, value } => self.put(space, key, value.0)?,
            Op::Append { key, value } => {
                let mut whole = self.contents.get(space, &key).cloned().unwrap_or_default();
                whole.extend_from_slice(&value.0);
                if whole.len() > MAX_VALUE {
                    return Err(Refused::ValueTooLarge {
                        key: shown(&key),
                        length: whole.len() as u64,
                        limit: MAX_VALUE as u64,
                    });
                }
                self.put(space, key, whole)?
            }
            Op::MultiSet { entries } => {
                // If a key occurs twice, its last value stays.
                let entries = entries.into_iter().map(|(key, value)| (key, value.0));
                self.put_all(space, entries.collect())?
            }
            Op::Add { key, amount } => {
                let sum = self.sum(space, &key, amount)?;
                self.put(space, key, sum.to_string().into_bytes())?;
                Value::Number(sum)
            }
            Op::CompareSet {
                key,
                expected,
                desired,
            } => {
                let there = self.contents.get(space, &key);
                let equal = there.map_or(expected.0.is_empty(), |there| *there == expected.0);
                if equal {
                    self.put(space, key.clone(), desired.0)?;
                }
                let there = self.contents.get(space, &key);
                Value::Current(there.map(|there| Blob(there.clone())))
            }
            Op::Check { keys } => {
                let exists = |key: &String| self.contents.meets(Condition::Either, space, key);
                Value::Truth(keys.iter().all(exists))
            }
            Op::Delete { key } => Value::Truth(self.contents.remove(space, &key)),
            Op::NumKeys { prefix } => Value::Number(self.contents.count(space, &prefix) as i64),
            Op::QueuePush { key, value } => {
                let waiting = self.waits.bytes();
                (self.contents).push(space, key, value.0, waiting, &self.limits)?;
                Value::Done
            }
            Op::QueuePop { key, block: false } => {
                Value::Current(self.contents.pop(space, &key).map(Blob))
            }
            Op::QueueLen { key } => Value::Number(self.contents.queue_len(space, &key) as i64),
            Op::ListKeys { prefix, after } => self.contents.list(space, &prefix, after.as_deref()),
        };
        Ok(Some(value))
    }

    fn put(&mut self, space: Space, key: String, value: Vec<u8>) -> Result<Value, Refused> {
        self.put_all(space, BTreeMap::from([(key, value)]))
    }

    fn put_all(
        &mut self,
        space: Space,
        entries: BTreeMap<String, Vec<u8>>,
    ) -> Result<Value, Refused> {
        let waiting = self.waits.bytes();
        self.contents.put(space, entries, waiting, &self.limits)?;
        Ok(Value::Done)
    }

    fn sum(&self, space: Space, key: &str, amount: i64) -> Result<i64, Refused> {
        let Some(there) = self.contents.get(space, key) else {
            return Ok(amount);
        };
        let text = std::str::from_utf8(there).ok();
        let number: Option<i64> = text.and_then(|text| text.parse().ok());
        let number = number.ok_or_else(|| Refused::NotANumber { key: shown(key) })?;
        let sum = number.checked_add(amount);
        sum.ok_or_else(|| Refused::Overflow { key: shown(key) })
    }

    fn wait(
        &mut self,
        now: Time,
        client: Client,
        space: Space,
        request: Request,
        out: &mut Vec<Command>,
    ) -> Result<Option<Value>, Refused> {
        let (keys, wanted) = match request.op {
            Op::Get { key } => (vec![key], Wanted::One),
            Op::MultiGet { keys } => (keys, Wanted::All),
            Op::Wait { keys } => (keys, Wanted::Presence),
            Op::QueuePop { key, .. } => (vec![key], Wanted::Element),
            // Other operations never wait.
            _ => return Ok(None),
        };
        let wait = Wait {
            client,
            number: request.number,
            space,
            round: match request.namespace {
                Namespace::Round { round, .. } => Some(round),
                Namespace::Job => None,
            },
            keys,
            wanted,
            until: now + request.timeout,
            arrival: self.waits.next_arrival(),
            watched: 0,
        };
        let missing = self.first_missing(&wait);
        if missing.is_some() {
            if request.timeout.is_zero() {
                let condition = wanted.condition();
                return Err(self.contents.timed_out(condition, space, &wait.keys));
            }
            if self.waits.of(client) >= self.limits.waits {
                let limit = self.limits.waits as u64;
                return Err(Refused::TooManyWaits { limit });
            }
            let bytes: usize = wait.keys.iter().map(String::len).sum();
            if self.bytes() + bytes > self.limits.bytes {
                let limit = self.limits.bytes as u64;
                return Err(Refused::Full { limit });
            }
        }
        self.settle(wait, missing, out);
        Ok(None)
    }

    /// Answers the requests whose last missing key has arrived. A new element wakes those first that wait for its key, then
    /// the one that takes it.
    pub(super) fn wake(&mut self, out: &mut Vec<Command>) {
        for (space, key, created) in self.contents.take_fresh() {
            let mut watched = (space, key, Condition::Either);
            let mut woken = self.waits.take_watchers(&watched);
            watched.2 = created;
            match created {
                Condition::Element => woken.extend(self.waits.take_first_watcher(&watched)),
                _ => woken.extend(self.waits.take_watchers(&watched)),
            }
            for wait in woken {
                let missing = self.first_missing(&wait);
                self.settle(wait, missing, out);
            }
        }
    }

    fn settle(&mut self, mut wait: Wait, missing: Option<usize>, out: &mut Vec<Command>) {
        match missing {
            Some(missing) => {
                wait.watched = missing;
                self.waits.add(wait);
            }
            None => {
                let result = self.collect(&wait);
                out.push(answer(wait.client, wait.number, result));
            }
        }
    }

    /// The index of a missing key of a wait, searched from the key that it watches.
    fn first_missing(&self, wait: &Wait) -> Option<usize> {
        let condition = wait.wanted.condition();
        let is_missing =
            |at: &usize| !(self.contents).meets(condition, wait.space, &wait.keys[*at]);
        let mut rest = wait.watched..wait.keys.len();
        // Earlier keys existed when they were checked, but may have been deleted since.
        rest.find(is_missing)
            .or_else(|| (0..wait.watched).find(is_missing))
    }

    /// The answer to a wait, whose keys are all present.
    fn collect(&mut self, wait: &Wait) -> Result<Value, Refused> {
        let read = |key: &String| self.contents.get(wait.space, key);
        let mut values: Vec<_> = match wait.wanted {
            Wanted::Presence => return Ok(Value::Done),
            Wanted::Element => {
                let element =
                    (wait.keys.first()).and_then(|key| self.contents.pop(wait.space, key));
                return Ok(Value::Bytes(Blob(element.unwrap_or_default())));
            }
            Wanted::One | Wanted::All => wait.keys.iter().filter_map(read).collect(),
        };
        let length: usize = values.iter().map(|value| value.len()).sum();
        if length > MAX_MESSAGE {
            return Err(Refused::AnswerTooLarge {
                length: length as u64,
                limit: MAX_MESSAGE as u64,
            });
        }
        let copied = |value: &Vec<u8>| Blob(value.clone());
        Ok(match wait.wanted {
            Wanted::One => Value::Bytes(values.pop().map(copied).unwrap_or_default()),
            _ => Value::Many(values.into_iter().map(copied).collect()),
        })
    }
}
