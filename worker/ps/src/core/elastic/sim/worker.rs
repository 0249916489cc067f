//! A worker of the simulation, and what its requests should have led to.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use crate::core::{
    elastic::{
        client::{Part, Requests},
        filter::Identity,
        message::{Op, Origin},
        store::{ElasticStore, aligned},
    },
    frame::{PULL, PUSH},
    keys::Lens,
    node::NodeId,
    store::Expected,
};

/// What is known of a key: each push adds 1 and a number to its two values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) count: i64,
    pub(super) total: i64,
}

/// A request as it was made.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) keys: Arc<[u64]>,
    pub(super) numbers: Vec<i64>,
    pub(super) flags: u8,
    /// The pushes of each key that were acknowledged when it began.
    acknowledged: Vec<i64>,
    /// What a pull must find, if there is a reference.
    expected: Bytes,
}

/// All keys, as the workers know them.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) acknowledged: BTreeMap<u64, Sum>,
    pub(super) begun: BTreeMap<u64, i64>,
}

/// A worker.
pub(super) struct Worker {
    pub(super) id: NodeId,
    pub(super) requests: Requests<Arc<[u64]>>,
    pub(super) made: BTreeMap<u64, Made>,
    pub(super) next: u64,
    /// A store that gets all pushes at once. There is one worker then, with one request at a time.
    pub(super) reference: Option<Box<dyn ElasticStore>>,
}

impl Worker {
    pub(super) fn new(rank: u32, reference: Option<Box<dyn ElasticStore>>) -> Self {
        Self {
            id: NodeId::worker(rank),
            requests: Requests::default(),
            made: BTreeMap::new(),
            next: 0,
            reference,
        }
    }

    /// Begins a request.
    pub(super) fn begin(
        &mut self,
        keys: Vec<u64>,
        numbers: Vec<i64>,
        flags: u8,
        book: &mut Book,
    ) -> Result<Vec<Part>, String> {
        let timestamp = self.next;
        self.next += 1;
        let keys: Arc<[u64]> = keys.into();
        let acknowledged = keys.iter().map(|key| {
            let sum = book.acknowledged.get(key);
            sum.map_or(0, |sum| sum.count)
        });
        let mut made = Made {
            expected: Bytes::new(),
            acknowledged: acknowledged.collect(),
            keys: Arc::clone(&keys),
            numbers,
            flags,
        };
        if let Some(reference) = &mut self.reference {
            let lens = Lens::Uniform(2);
            if flags & PUSH != 0 {
                let pushed = reference.push(&keys, lens, &gradients(&made.numbers));
                pushed.map_err(|error| error.to_string())?;
            }
            let found = reference.pull(&keys, Expected::Known(lens));
            made.expected = found.map_err(|error| error.to_string())?.values;
        }
        self.made.insert(timestamp, made);
        if flags & PUSH != 0 {
            keys.iter()
                .for_each(|key| *book.begun.entry(*key).or_default() += 1);
        }
        let parts = self.requests.begin(timestamp, keys, flags & PUSH != 0);
        parts.map_err(|failure| format!("a request failed: {failure:?}"))
    }

    /// The request of a part.
    pub(super) fn op(&self, part: &Part) -> Op {
        let made = &self.made[&part.timestamp];
        let positions = part.keys.clone();
        let values = match made.flags & PUSH {
            0 => Vec::new(),
            _ if self.reference.is_some() => gradients(&made.numbers[positions.clone()]),
            _ => {
                let numbers = made.numbers[positions.clone()].iter();
                let values: Vec<i64> = numbers.flat_map(|&number| [1, number]).collect();
                bytemuck::cast_slice(&values).to_vec()
            }
        };
        Op {
            origin: Origin {
                identity: Identity {
                    worker: self.id,
                    session: 7,
                    timestamp: part.timestamp,
                },
                floor: part.floor,
                app: 3,
                customer: 1,
                cmd: -4,
                priority: -1,
                part: part.part,
                flags: made.flags,
                dtype: match &self.reference {
                    Some(reference) => reference.dtype(),
                    None => elasticrun_collectives::DType::I64 as u8,
                },
            },
            keys: made.keys[positions].to_vec(),
            lens: Vec::new(),
            per_key: 2,
            values: values.into(),
        }
    }

    /// An answer has come.
    pub(super) fn answer(
        &mut self,
        origin: &Origin,
        values: Option<&[u8]>,
        book: &mut Book,
    ) -> Result<(), String> {
        let timestamp = origin.identity.timestamp;
        let Some(positions) = self.requests.claim(timestamp, origin.part) else {
            return Ok(());
        };
        let made = &self.made[&timestamp];
        if made.flags & PULL != 0 {
            let values = values.ok_or("an answer to a pull has no values")?;
            let expected = match self.reference.is_some() {
                true => &made.expected[positions.start * 16..positions.end * 16],
                false => values,
            };
            if values != expected {
                return Err(format!("{positions:?} are not as if they had never moved"));
            }
            let values: Vec<i64> = aligned(values);
            if values.len() != positions.len() * 2 {
                return Err(format!("{} values for {positions:?}", values.len()));
            }
            let sums = positions.zip(values.chunks(2));
            for (position, found) in sums.filter(|_| self.reference.is_none()) {
                let key = made.keys[position];
                let own = i64::from(made.flags & PUSH != 0);
                let least = made.acknowledged[position] + own;
                if found[0] < least {
                    return Err(format!(
                        "PS6: a pull of key {key} sees {} pushes, and {least} were acknowledged",
                        found[0]
                    ));
                }
                let most = book.begun.get(&key).copied().unwrap_or(0);
                if found[0] > most {
                    return Err(format!("PS4: key {key} has {} pushes of {most}", found[0]));
                }
            }
        }
        if self.requests.answered(timestamp, origin.part) {
            let made = self.made.remove(&timestamp).ok_or("no such request")?;
            if made.flags & PUSH != 0 {
                for (key, number) in made.keys.iter().zip(&made.numbers) {
                    let sum = book.acknowledged.entry(*key).or_default();
                    sum.count += 1;
                    sum.total = sum.total.wrapping_add(*number);
                }
            }
        }
        Ok(())
    }
}

/// Two gradients for each key.
fn gradients(numbers: &[i64]) -> Vec<u8> {
    let small = |number: i64| (number % 1000) as f64;
    let values = numbers.iter().flat_map(|&number| [1.0, small(number)]);
    bytemuck::cast_slice(&values.collect::<Vec<f64>>()).to_vec()
}
