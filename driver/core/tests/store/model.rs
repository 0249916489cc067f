//! The store gives the same answers as a model that keeps plain lists and scans all of them.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use elasticrun_core::{
    Time,
    store::{Event, Limits},
};
use elasticrun_protocol::{
    Round,
    store::{Blob, FromClient, Namespace, Op, Refused, Value},
};
use proptest::prelude::*;

use crate::harness::{Harness, client, namespace};

/// Small limits, so that random acts reach them.
const LIMITS: Limits = Limits {
    keys: 6,
    bytes: 40,
    waits: 3,
};

#[derive(Clone, Debug)]
enum Act {
    Ask {
        who: u32,
        /// The namespace: of the job, of the current round, or of the one before.
        place: Place,
        wait_ms: u64,
        op: Op,
    },
    Forget {
        who: u32,
        back: u64,
    },
    Left(u32),
    Closed(u64),
    Pass(u64),
    NextRound,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Job,
    Current,
    Before,
}

fn key() -> impl Strategy<Value = String> {
    "[ab]{1,2}"
}

fn value() -> impl Strategy<Value = Blob> {
    prop_oneof![
        3 => "[0-9]{0,3}",
        1 => "x{0,12}",
    ]
    .prop_map(|text: String| Blob(text.into_bytes()))
}

fn names() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(key(), 0..4)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        1 => (key(), value()).prop_map(|(key, value)| Op::Set { key, value }),
        1 => (key(), value()).prop_map(|(key, value)| Op::Append { key, value }),
        1 => key().prop_map(|key| Op::Get { key }),
        1 => (key(), -9i64..9).prop_map(|(key, amount)| Op::Add { key, amount }),
        1 => (key(), value(), value()).prop_map(|(key, expected, desired)| Op::CompareSet {
            key,
            expected,
            desired
        }),
        1 => names().prop_map(|keys| Op::Wait { keys }),
        1 => names().prop_map(|keys| Op::Check { keys }),
        1 => names().prop_map(|keys| Op::MultiGet { keys }),
        1 => key().prop_map(|key| Op::Delete { key }),
        1 => "[ab]{0,2}".prop_map(|prefix| Op::NumKeys { prefix }),
        1 => prop::collection::vec((key(), value()), 0..4).prop_map(|entries| Op::MultiSet { entries }),
        2 => (key(), value()).prop_map(|(key, value)| Op::QueuePush { key, value }),
        2 => (key(), any::<bool>()).prop_map(|(key, block)| Op::QueuePop { key, block }),
        1 => key().prop_map(|key| Op::QueueLen { key }),
        1 => ("[ab]{0,1}", prop::option::of(key()))
            .prop_map(|(prefix, after)| Op::ListKeys { prefix, after }),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let place = prop_oneof![
        4 => Just(Place::Current),
        2 => Just(Place::Job),
        1 => Just(Place::Before),
    ];
    prop_oneof![
        20 => (0..4u32, place, 0..30u64, op()).prop_map(|(who, place, wait_ms, op)| Act::Ask {
            who, place, wait_ms, op
        }),
        1 => (0..4u32, 0..3u64).prop_map(|(who, back)| Act::Forget { who, back }),
        1 => (0..4u32).prop_map(Act::Left),
        1 => (0..2u64).prop_map(Act::Closed),
        3 => (0..20u64).prop_map(Act::Pass),
        1 => Just(Act::NextRound),
    ]
}

type Map = BTreeMap<String, Vec<u8>>;

/// The values and the queues of a space.
#[derive(Clone, Default)]
struct Keys {
    values: Map,
    queues: BTreeMap<String, VecDeque<Vec<u8>>>,
}

type Answers = Vec<((u32, u64), Result<Value, Refused>)>;

struct Waiting {
    asked: (u32, u64),
    of_job: bool,
    op: Op,
    until: Time,
}

#[derive(Default)]
struct Model {
    round: u64,
    job: Keys,
    current: Keys,
    /// In the order of their arrival.
    waiting: Vec<Waiting>,
}

fn keys_of(op: &Op) -> Vec<String> {
    match op {
        Op::Get { key } | Op::QueuePop { key, .. } => vec![key.clone()],
        Op::Wait { keys } | Op::MultiGet { keys } => keys.clone(),
        _ => Vec::new(),
    }
}

/// Whether the operation waits for its keys.
fn may_wait(op: &Op) -> bool {
    match op {
        Op::QueuePop { block, .. } => *block,
        op => matches!(op, Op::Get { .. } | Op::Wait { .. } | Op::MultiGet { .. }),
    }
}

impl Keys {
    fn entries(&self) -> Vec<(&String, &Vec<u8>)> {
        let elements =
            (self.queues.iter()).flat_map(|(key, queue)| queue.iter().map(move |v| (key, v)));
        self.values.iter().chain(elements).collect()
    }

    fn size(&self) -> usize {
        let sizes = self
            .entries()
            .into_iter()
            .map(|(key, value)| key.len() + value.len());
        sizes.sum()
    }

    fn queue_len(&self, key: &str) -> usize {
        self.queues.get(key).map_or(0, VecDeque::len)
    }

    /// Whether a key has what an operation needs of it.
    fn has(&self, key: &str, op: &Op) -> bool {
        let (value, element) = (self.values.contains_key(key), self.queue_len(key) > 0);
        match op {
            Op::QueuePop { .. } => element,
            Op::Wait { .. } | Op::Check { .. } => value || element,
            _ => value,
        }
    }

    fn pop(&mut self, key: &str) -> Option<Blob> {
        self.queues.get_mut(key)?.pop_front().map(Blob)
    }
}

impl Model {
    fn keys(&mut self, of_job: bool) -> &mut Keys {
        if of_job {
            &mut self.job
        } else {
            &mut self.current
        }
    }

    fn bytes(&self) -> usize {
        let waiting = self.waiting.iter().flat_map(|wait| keys_of(&wait.op));
        self.job.size() + self.current.size() + waiting.map(|key| key.len()).sum::<usize>()
    }

    fn entries(&self) -> usize {
        self.job.entries().len() + self.current.entries().len()
    }

    /// Replaces the keys of a space if the new ones are within the limits.
    fn replace(&mut self, of_job: bool, new: Keys) -> Result<(), Refused> {
        let old = std::mem::replace(self.keys(of_job), new);
        let grown = self.keys(of_job).entries().len() > old.entries().len();
        let larger = self.keys(of_job).size() > old.size();
        let refused = if self.entries() > LIMITS.keys && grown {
            Refused::TooManyKeys { limit: 6 }
        } else if self.bytes() > LIMITS.bytes && larger {
            Refused::Full { limit: 40 }
        } else {
            return Ok(());
        };
        *self.keys(of_job) = old;
        Err(refused)
    }

    fn read(&mut self, of_job: bool, op: &Op) -> Option<Value> {
        let keys = self.keys(of_job);
        if !keys_of(op).iter().all(|key| keys.has(key, op)) {
            return None;
        }
        let value = |key: &String| Blob(keys.values[key].clone());
        Some(match op {
            Op::Wait { .. } => Value::Done,
            Op::QueuePop { key, .. } => Value::Bytes(keys.pop(key)?),
            Op::Get { key } => Value::Bytes(value(key)),
            op => Value::Many(keys_of(op).iter().map(value).collect()),
        })
    }

    fn missing(&mut self, of_job: bool, op: &Op) -> Refused {
        let keys = self.keys(of_job);
        let missing = keys_of(op).into_iter().filter(|key| !keys.has(key, op));
        Refused::TimedOut {
            missing: missing.collect(),
            more: 0,
        }
    }

    fn write(&mut self, of_job: bool, op: &Op) -> Result<Value, Refused> {
        let mut keys = self.keys(of_job).clone();
        let map = &mut keys.values;
        let value = match op {
            Op::Set { key, value } => {
                map.insert(key.clone(), value.0.clone());
                Value::Done
            }
            Op::Append { key, value } => {
                map.entry(key.clone()).or_default().extend(&value.0);
                Value::Done
            }
            Op::MultiSet { entries } => {
                map.extend(
                    entries
                        .iter()
                        .map(|(key, value)| (key.clone(), value.0.clone())),
                );
                Value::Done
            }
            Op::Add { key, amount } => {
                let text = map
                    .get(key)
                    .map_or("0".into(), |v| String::from_utf8_lossy(v));
                let sum = text.parse::<i64>().map(|number| number + amount);
                let sum = sum.map_err(|_| Refused::NotANumber { key: key.clone() })?;
                map.insert(key.clone(), sum.to_string().into());
                Value::Number(sum)
            }
            Op::CompareSet {
                key,
                expected,
                desired,
            } => {
                // An absent value equals an empty one.
                if map.get(key).cloned().unwrap_or_default() == expected.0 {
                    map.insert(key.clone(), desired.0.clone());
                }
                Value::Current(map.get(key).cloned().map(Blob))
            }
            Op::Delete { key } => Value::Truth(map.remove(key).is_some()),
            Op::Check { keys: names } => Value::Truth(names.iter().all(|key| keys.has(key, op))),
            Op::NumKeys { prefix } => {
                Value::Number(map.keys().filter(|key| key.starts_with(prefix)).count() as i64)
            }
            Op::QueuePush { key, value } => {
                let queue = keys.queues.entry(key.clone()).or_default();
                queue.push_back(value.0.clone());
                Value::Done
            }
            Op::QueuePop { key, .. } => Value::Current(keys.pop(key)),
            Op::QueueLen { key } => Value::Number(keys.queue_len(key) as i64),
            Op::ListKeys { prefix, after } => {
                let listed = map.keys().filter_map(|key| key.strip_prefix(prefix));
                let behind = |key: &&str| after.as_deref().is_none_or(|after| *key > after);
                let keys = listed.filter(behind).map(str::to_owned).collect();
                Value::Keys { keys, more: false }
            }
            Op::Get { .. } | Op::Wait { .. } | Op::MultiGet { .. } => unreachable!("it reads"),
        };
        self.replace(of_job, keys)?;
        Ok(value)
    }

    fn ask(
        &mut self,
        asked: (u32, u64),
        of_job: bool,
        until: Option<Time>,
        op: &Op,
    ) -> Option<Result<Value, Refused>> {
        if !may_wait(op) {
            return Some(self.write(of_job, op));
        }
        if let Some(value) = self.read(of_job, op) {
            return Some(Ok(value));
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
            return Some(Err(Refused::Full { limit: 40 }));
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
    fn end(
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
    fn woken(&mut self) -> Answers {
        let takes = |wait: &Waiting| matches!(wait.op, Op::QueuePop { .. });
        let mut woken = Answers::new();
        for takers in [false, true] {
            woken.extend(self.end(|model, wait| {
                let result = (takes(wait) == takers).then(|| model.read(wait.of_job, &wait.op));
                result.flatten().map(Ok)
            }));
        }
        woken
    }

    fn overdue(&mut self, now: Time) -> Answers {
        self.end(|model, wait| {
            (wait.until <= now).then(|| Err(model.missing(wait.of_job, &wait.op)))
        })
    }

    fn next_round(&mut self) -> Answers {
        let asked = Round(self.round);
        self.round += 1;
        self.current = Keys::default();
        let current = Some(Round(self.round));
        self.end(|_, wait| (!wait.of_job).then_some(Err(Refused::StaleRound { asked, current })))
    }
}

/// Applies each act to both, and compares all answers and the count of bytes.
fn compare(acts: Vec<Act>) -> Result<(), TestCaseError> {
    let mut harness = Harness::new(LIMITS);
    let mut model = Model {
        round: 1,
        ..Model::default()
    };
    let mut asked_last = [0; 4];
    for act in acts {
        let mut expected = Answers::new();
        match act.clone() {
            Act::Ask {
                who,
                place,
                wait_ms,
                op,
            } => {
                let round = harness.round;
                let of = match place {
                    Place::Job => Namespace::Job,
                    Place::Current => namespace(round),
                    Place::Before => namespace(round - 1),
                };
                let timeout = Duration::from_millis(wait_ms);
                let asked = (who, harness.ask_in(who, of, timeout, op.clone()).1);
                asked_last[who as usize] = asked.1;
                let until = (wait_ms > 0).then_some(harness.now + timeout);
                let result = match place {
                    Place::Before => Some(Err(Refused::StaleRound {
                        asked: Round(round - 1),
                        current: Some(Round(round)),
                    })),
                    place => model.ask(asked, matches!(place, Place::Job), until, &op),
                };
                expected.extend(result.map(|result| (asked, result)));
                expected.extend(model.woken());
            }
            Act::Forget { who, back } => {
                let number = asked_last[who as usize].saturating_sub(back);
                harness.say(client(who), FromClient::Forget { number });
                model.waiting.retain(|wait| wait.asked != (who, number));
            }
            Act::Left(who) => {
                harness.say(client(who), FromClient::Left);
                model.waiting.retain(|wait| wait.asked.0 != who);
            }
            Act::Closed(connection) => {
                harness.step(Event::Closed { connection });
                let of_it = |who: u32| u64::from(who / 2) == connection;
                model.waiting.retain(|wait| !of_it(wait.asked.0));
            }
            Act::Pass(ms) => {
                harness.pass(Duration::from_millis(ms));
                expected = model.overdue(harness.now);
            }
            Act::NextRound => {
                harness.start(harness.round + 1);
                expected = model.next_round();
            }
        }
        for ((who, number), result) in expected {
            let said = harness.said((client(who), number));
            prop_assert_eq!(said, Some(result), "{} of {} after {:?}", number, who, &act);
        }
        prop_assert!(harness.nothing_said(), "unexpected answers after {act:?}");
        prop_assert_eq!(harness.store.bytes(), model.bytes());
        prop_assert_eq!(harness.store.len(), model.entries());
        prop_assert_eq!(harness.store.waiting(), model.waiting.len());
        prop_assert!(model.bytes() <= LIMITS.bytes, "S4");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn machine_and_model_say_the_same(acts in prop::collection::vec(act(), 0..60)) {
        compare(acts)?;
    }
}
