//! The operations of the store.

use std::collections::BTreeMap;

use elasticrun_protocol::store::{Blob, Op, Refused, Request, Value, shown};

use super::{
    Client, Command, Space, Store,
    contents::Condition,
    large::{Piece, Reader},
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
        mut request: Request,
        out: &mut Vec<Command>,
    ) -> Result<Option<Value>, Refused> {
        request.op.check()?;
        if let Op::Large { op, staged } = request.op {
            request.op = self.unstage(client, space, *op, &staged)?;
        }
        let reader = Reader {
            client,
            space,
            reads_staged: request.reads_staged,
        };
        let value = match request.op {
            Op::Get { .. }
            | Op::Wait { .. }
            | Op::MultiGet { .. }
            | Op::QueuePop { block: true, .. } => {
                return self.wait(now, reader, request, out);
            }
            Op::Stage {
                staged,
                key,
                length,
                offset,
                bytes,
            } => {
                let piece = Piece {
                    staged,
                    key,
                    length,
                    offset,
                    bytes: bytes.0,
                };
                self.stage(client, space, piece)?;
                Value::Done
            }
            Op::ReadStaged { staged, offset } => self.read_staged(client, staged, offset)?,
            Op::QueuePop { key, block: false } => self.pop(reader, &key, Value::Current)?,
            Op::CompareSet {
                key,
                expected,
                desired,
            } => self.compare_set(reader, key, &expected.0, desired.0)?,
            op => self.perform_small(space, op)?,
        };
        Ok(Some(value))
    }

    /// Performs an operation whose answer has a limited size.
    fn perform_small(&mut self, space: Space, op: Op) -> Result<Value, Refused> {
        let others = self.other_bytes();
        Ok(match op {
            Op::Set { key, value } => self.put(space, key, value.0)?,
            Op::Append { key, value } => {
                (self.contents).append(space, key, value.0, others, &self.limits)?;
                Value::Done
            }
            Op::MultiSet { entries } => {
                // If a key occurs twice, its last value stays.
                let entries = entries.into_iter().map(|(key, value)| (key, value.0));
                (self.contents).put(space, entries.collect(), others, &self.limits)?;
                Value::Done
            }
            Op::QueuePush { key, value } => {
                (self.contents).push(space, key, value.0, others, &self.limits)?;
                Value::Done
            }
            Op::Add { key, amount } => {
                let sum = self.sum(space, &key, amount)?;
                self.put(space, key, sum.to_string().into_bytes())?;
                Value::Number(sum)
            }
            Op::Check { keys } => {
                let exists = |key: &String| self.contents.meets(Condition::Either, space, key);
                Value::Truth(keys.iter().all(exists))
            }
            Op::Delete { key } => Value::Truth(self.contents.remove(space, &key)),
            Op::NumKeys { prefix } => Value::Number(self.contents.count(space, &prefix) as i64),
            Op::QueueLen { key } => Value::Number(self.contents.queue_len(space, &key) as i64),
            Op::ListKeys { prefix, after } => self.contents.list(space, &prefix, after.as_deref()),
            // `perform` has carried out all others; a large operation within another one is not known.
            _ => return Err(Refused::NotStaged { staged: 0 }),
        })
    }

    fn put(&mut self, space: Space, key: String, value: Vec<u8>) -> Result<Value, Refused> {
        let (entries, others) = (BTreeMap::from([(key, value)]), self.other_bytes());
        self.contents.put(space, entries, others, &self.limits)?;
        Ok(Value::Done)
    }

    fn compare_set(
        &mut self,
        reader: Reader,
        key: String,
        expected: &[u8],
        desired: Vec<u8>,
    ) -> Result<Value, Refused> {
        let space = reader.space;
        let there = self.contents.get(space, &key);
        let is_equal = there.unwrap_or_default() == expected;
        let length = if is_equal {
            desired.len()
        } else {
            there.map_or(0, <[u8]>::len)
        };
        // Nothing is written if the worker cannot get the answer.
        self.plan(reader, &[length])?;
        if is_equal {
            self.put(space, key.clone(), desired)?;
        }
        let there: Vec<_> = self.contents.value(space, &key).into_iter().collect();
        self.give(reader, &there, |mut blobs| Value::Current(blobs.pop()))
    }

    /// Takes the first element of a queue. `answer` makes an answer of its bytes, if there is one.
    pub(super) fn pop(
        &mut self,
        reader: Reader,
        key: &str,
        answer: impl FnOnce(Option<Blob>) -> Value,
    ) -> Result<Value, Refused> {
        let first: Vec<_> = self.contents.first(reader.space, key).into_iter().collect();
        let value = self.give(reader, &first, |mut blobs| answer(blobs.pop()))?;
        if let Some(popped) = self.contents.pop(reader.space, key) {
            self.contents.values.release(popped);
        }
        Ok(value)
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
}
