//! The model: plain maps and lists, which each operation scans.

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use elasticrun_core::Time;
use elasticrun_protocol::{
    Round,
    store::{Blob, Op, Refused, Value},
};

use super::LIMITS;

/// Values are equal if they are the same, as they count once.
pub(super) type Shared = Rc<Vec<u8>>;
pub(super) type Map = BTreeMap<String, Shared>;

/// The values and the queues of a space.
#[derive(Clone, Default)]
pub(super) struct Keys {
    pub(super) values: Map,
    pub(super) queues: BTreeMap<String, VecDeque<Shared>>,
}

/// A value that a worker stages.
#[derive(Clone)]
pub(super) struct Upload {
    pub(super) of_job: bool,
    pub(super) length: usize,
    pub(super) bytes: Vec<u8>,
}

pub(super) type Answers = Vec<((u32, u64), Result<Value, Refused>)>;

pub(super) struct Waiting {
    pub(super) asked: (u32, u64),
    pub(super) of_job: bool,
    pub(super) op: Op,
    pub(super) until: Time,
}

#[derive(Default)]
pub(super) struct Model {
    pub(super) round: u64,
    pub(super) job: Keys,
    pub(super) current: Keys,
    /// In the order of their arrival.
    pub(super) waiting: Vec<Waiting>,
    pub(super) uploads: BTreeMap<(u32, u64), Upload>,
    /// Values that workers read, and whether they are of the job.
    pub(super) downloads: BTreeMap<(u32, u64), (bool, Shared)>,
    /// The number of the last download.
    pub(super) last: u64,
}

/// The refusal of a value that the store has no room for.
pub(super) fn refused(key: &str, length: usize) -> Refused {
    let (key, length, limit) = (key.to_owned(), length as u64, LIMITS.bytes as u64);
    if length > limit {
        return Refused::ValueTooLarge { key, length, limit };
    }
    Refused::Full { limit, key, length }
}

pub(super) fn keys_of(op: &Op) -> Vec<String> {
    match op {
        Op::Get { key } | Op::QueuePop { key, .. } => vec![key.clone()],
        Op::Wait { keys } | Op::MultiGet { keys } => keys.clone(),
        _ => Vec::new(),
    }
}

/// Whether the operation waits for its keys.
pub(super) fn may_wait(op: &Op) -> bool {
    match op {
        Op::QueuePop { block, .. } => *block,
        op => matches!(op, Op::Get { .. } | Op::Wait { .. } | Op::MultiGet { .. }),
    }
}

impl Keys {
    pub(super) fn entries(&self) -> Vec<(&String, &Shared)> {
        let elements =
            (self.queues.iter()).flat_map(|(key, queue)| queue.iter().map(move |v| (key, v)));
        self.values.iter().chain(elements).collect()
    }

    pub(super) fn queue_len(&self, key: &str) -> usize {
        self.queues.get(key).map_or(0, VecDeque::len)
    }

    /// Whether a key has what an operation needs of it.
    pub(super) fn has(&self, key: &str, op: &Op) -> bool {
        let (value, element) = (self.values.contains_key(key), self.queue_len(key) > 0);
        match op {
            Op::QueuePop { .. } => element,
            Op::Wait { .. } | Op::Check { .. } => value || element,
            _ => value,
        }
    }

    pub(super) fn first(&self, key: &str) -> Option<Shared> {
        self.queues.get(key)?.front().cloned()
    }
}

impl Model {
    pub(super) fn keys(&mut self, of_job: bool) -> &mut Keys {
        if of_job {
            &mut self.job
        } else {
            &mut self.current
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let waiting = self.waiting.iter().flat_map(|wait| keys_of(&wait.op));
        let entries = [self.job.entries(), self.current.entries()].concat();
        let read = self.downloads.values().map(|(_, value)| value);
        let values = entries.iter().map(|(_, value)| *value).chain(read);
        // Each value once.
        let values: BTreeMap<_, _> = values
            .map(|value| (Rc::as_ptr(value), value.len()))
            .collect();
        waiting.map(|key| key.len()).sum::<usize>()
            + entries.iter().map(|(key, _)| key.len()).sum::<usize>()
            + values.values().sum::<usize>()
            + self
                .uploads
                .values()
                .map(|upload| upload.length)
                .sum::<usize>()
    }

    pub(super) fn entries(&self) -> usize {
        self.job.entries().len() + self.current.entries().len()
    }

    /// Replaces the keys of a space if the new ones are within the limits. `value` is the new value of a key, which a
    /// refusal names.
    pub(super) fn replace(
        &mut self,
        of_job: bool,
        new: Keys,
        value: (&str, usize),
    ) -> Result<(), Refused> {
        let (entries, bytes) = (self.entries(), self.bytes());
        let old = std::mem::replace(self.keys(of_job), new);
        let refused = if self.entries() > LIMITS.keys.max(entries) {
            Refused::TooManyKeys { limit: 6 }
        } else if self.bytes() > LIMITS.bytes.max(bytes) {
            refused(value.0, value.1)
        } else {
            return Ok(());
        };
        *self.keys(of_job) = old;
        Err(refused)
    }

    pub(super) fn read(
        &mut self,
        who: u32,
        of_job: bool,
        op: &Op,
    ) -> Option<Result<Value, Refused>> {
        let keys = self.keys(of_job);
        if !keys_of(op).iter().all(|key| keys.has(key, op)) {
            return None;
        }
        let reader = (who, of_job);
        let bytes = |blob: Option<Blob>| Value::Bytes(blob.expect("one value"));
        Some(match op {
            Op::Wait { .. } => Ok(Value::Done),
            Op::QueuePop { key, .. } => self.pop(reader, key, bytes),
            op => {
                let values = keys_of(op)
                    .iter()
                    .map(|key| Rc::clone(&keys.values[key]))
                    .collect::<Vec<_>>();
                match op {
                    Op::Get { .. } => self.give(reader, &values, |mut blobs| bytes(blobs.pop())),
                    _ => self.give(reader, &values, Value::Many),
                }
            }
        })
    }

    pub(super) fn left(&mut self, which: impl Fn(u32) -> bool) {
        self.waiting.retain(|wait| !which(wait.asked.0));
        self.uploads.retain(|(who, _), _| !which(*who));
        self.downloads.retain(|(who, _), _| !which(*who));
    }

    pub(super) fn missing(&mut self, of_job: bool, op: &Op) -> Refused {
        let keys = self.keys(of_job);
        let missing = keys_of(op).into_iter().filter(|key| !keys.has(key, op));
        Refused::TimedOut {
            missing: missing.collect(),
            more: 0,
        }
    }

    pub(super) fn write(&mut self, who: u32, of_job: bool, op: &Op) -> Result<Value, Refused> {
        let reader = (who, of_job);
        let mut keys = self.keys(of_job).clone();
        let map = &mut keys.values;
        let mut largest = (String::new(), 0);
        let mut new = |key: &String, value: Vec<u8>| {
            if value.len() >= largest.1 {
                largest = (key.clone(), value.len());
            }
            Rc::new(value)
        };
        let value = match op {
            Op::Set { key, value } => {
                map.insert(key.clone(), new(key, value.0.clone()));
                Value::Done
            }
            Op::Append { key, value } => {
                let old = map.get(key).map_or(&[][..], |old| old.as_slice());
                let whole = [old, &value.0].concat();
                map.insert(key.clone(), new(key, whole));
                Value::Done
            }
            Op::MultiSet { entries } => {
                // The last value of a key counts.
                let entries: BTreeMap<_, _> = entries.iter().cloned().collect();
                for (key, value) in entries {
                    map.insert(key.clone(), new(&key, value.0));
                }
                Value::Done
            }
            Op::Add { key, amount } => {
                let text = map
                    .get(key)
                    .map_or("0".into(), |v| String::from_utf8_lossy(v));
                let sum = text.parse::<i64>().map(|number| number + amount);
                let sum = sum.map_err(|_| Refused::NotANumber { key: key.clone() })?;
                map.insert(key.clone(), new(key, sum.to_string().into()));
                Value::Number(sum)
            }
            Op::CompareSet {
                key,
                expected,
                desired,
            } => {
                let there = map.get(key).cloned();
                // An absent value equals an empty one.
                let equal = there.as_deref().is_none_or(Vec::is_empty) && expected.0.is_empty()
                    || there.as_deref() == Some(&expected.0);
                let desired = new(key, desired.0.clone());
                let current = if equal {
                    Some(Rc::clone(&desired))
                } else {
                    there
                };
                let current: Vec<_> = current.into_iter().collect();
                self.plan(who, &current)?;
                if equal {
                    map.insert(key.clone(), desired);
                    self.replace(of_job, keys, (&largest.0, largest.1))?;
                }
                return self.give(reader, &current, |mut blobs| Value::Current(blobs.pop()));
            }
            Op::Delete { key } => Value::Truth(map.remove(key).is_some()),
            Op::Check { keys: names } => Value::Truth(names.iter().all(|key| keys.has(key, op))),
            Op::NumKeys { prefix } => {
                Value::Number(map.keys().filter(|key| key.starts_with(prefix)).count() as i64)
            }
            Op::QueuePush { key, value } => {
                let queue = keys.queues.entry(key.clone()).or_default();
                queue.push_back(new(key, value.0.clone()));
                Value::Done
            }
            Op::QueuePop { key, .. } => return self.pop(reader, key, Value::Current),
            Op::QueueLen { key } => Value::Number(keys.queue_len(key) as i64),
            Op::ListKeys { prefix, after } => {
                let listed = map.keys().filter_map(|key| key.strip_prefix(prefix));
                let behind = |key: &&str| after.as_deref().is_none_or(|after| *key > after);
                let keys = listed.filter(behind).map(str::to_owned).collect();
                Value::Keys { keys, more: false }
            }
            Op::Stage { staged, .. } => return self.stage((who, *staged), of_job, op),
            Op::ReadStaged { staged, offset } => return self.read_staged((who, *staged), *offset),
            op => unreachable!("{op:?} does not write"),
        };
        self.replace(of_job, keys, (&largest.0, largest.1))?;
        Ok(value)
    }

    pub(super) fn ask(
        &mut self,
        asked: (u32, u64),
        of_job: bool,
        until: Option<Time>,
        op: &Op,
    ) -> Option<Result<Value, Refused>> {
        let op = &match self.unstage(asked.0, of_job, op) {
            Ok(op) => op,
            Err(refused) => return Some(Err(refused)),
        };
        if !may_wait(op) {
            return Some(self.write(asked.0, of_job, op));
        }
        if let Some(result) = self.read(asked.0, of_job, op) {
            return Some(result);
        }
        let Some(until) = until else {
            return Some(Err(self.missing(of_job, op)));
        };
        let mine = self.waiting.iter().filter(|wait| wait.asked.0 == asked.0);
        if mine.count() >= LIMITS.waits {
            return Some(Err(Refused::TooManyWaits { limit: 3 }));
        }
        let bytes: usize = keys_of(op).iter().map(String::len).sum();
        if self.bytes() + bytes > LIMITS.bytes {
            return Some(Err(refused("", 0)));
        }
        self.waiting.push(Waiting {
            asked,
            of_job,
            op: op.clone(),
            until,
        });
        None
    }

    /// Ends the waits for which `how` gives an answer.
    pub(super) fn end(
        &mut self,
        mut how: impl FnMut(&mut Self, &Waiting) -> Option<Result<Value, Refused>>,
    ) -> Answers {
        let mut answers = Answers::new();
        for wait in std::mem::take(&mut self.waiting) {
            match how(self, &wait) {
                Some(result) => answers.push((wait.asked, result)),
                None => self.waiting.push(wait),
            }
        }
        answers
    }

    /// A request that takes an element gets it after all others have seen it.
    pub(super) fn woken(&mut self) -> Answers {
        let takes = |wait: &Waiting| matches!(wait.op, Op::QueuePop { .. });
        let mut woken = Answers::new();
        for takers in [false, true] {
            woken.extend(self.end(|model, wait| {
                let who = wait.asked.0;
                let result =
                    (takes(wait) == takers).then(|| model.read(who, wait.of_job, &wait.op));
                result.flatten()
            }));
        }
        woken
    }

    pub(super) fn overdue(&mut self, now: Time) -> Answers {
        self.end(|model, wait| {
            (wait.until <= now).then(|| Err(model.missing(wait.of_job, &wait.op)))
        })
    }

    pub(super) fn next_round(&mut self) -> Answers {
        let asked = Round(self.round);
        self.round += 1;
        self.current = Keys::default();
        self.uploads.retain(|_, upload| upload.of_job);
        self.downloads.retain(|_, (of_job, _)| *of_job);
        let current = Some(Round(self.round));
        self.end(|_, wait| (!wait.of_job).then_some(Err(Refused::StaleRound { asked, current })))
    }
}
