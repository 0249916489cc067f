//! The store gives the same answers as a model that keeps plain lists and scans all of them.

use std::{collections::BTreeMap, time::Duration};

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
        (key(), value()).prop_map(|(key, value)| Op::Set { key, value }),
        (key(), value()).prop_map(|(key, value)| Op::Append { key, value }),
        key().prop_map(|key| Op::Get { key }),
        (key(), -9i64..9).prop_map(|(key, amount)| Op::Add { key, amount }),
        (key(), value(), value()).prop_map(|(key, expected, desired)| Op::CompareSet {
            key,
            expected,
            desired
        }),
        names().prop_map(|keys| Op::Wait { keys }),
        names().prop_map(|keys| Op::Check { keys }),
        names().prop_map(|keys| Op::MultiGet { keys }),
        key().prop_map(|key| Op::Delete { key }),
        "[ab]{0,2}".prop_map(|prefix| Op::NumKeys { prefix }),
        prop::collection::vec((key(), value()), 0..4).prop_map(|entries| Op::MultiSet { entries }),
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
    job: Map,
    current: Map,
    waiting: Vec<Waiting>,
}

fn keys_of(op: &Op) -> Vec<String> {
    match op {
        Op::Get { key } => vec![key.clone()],
        Op::Wait { keys } | Op::MultiGet { keys } => keys.clone(),
        _ => Vec::new(),
    }
}

fn size(map: &Map) -> usize {
    map.iter().map(|(key, value)| key.len() + value.len()).sum()
}

impl Model {
    fn map(&mut self, of_job: bool) -> &mut Map {
        if of_job {
            &mut self.job
        } else {
            &mut self.current
        }
    }

    fn bytes(&self) -> usize {
        let waiting = self.waiting.iter().flat_map(|wait| keys_of(&wait.op));
        size(&self.job) + size(&self.current) + waiting.map(|key| key.len()).sum::<usize>()
    }

    /// Replaces a map if the new one is within the limits.
    fn replace(&mut self, of_job: bool, new: Map) -> Result<(), Refused> {
        let old = std::mem::replace(self.map(of_job), new);
        let keys = self.job.len() + self.current.len();
        let grown = self.map(of_job).len() > old.len();
        let larger = size(self.map(of_job)) > size(&old);
        let refused = if keys > LIMITS.keys && grown {
            Refused::TooManyKeys { limit: 6 }
        } else if self.bytes() > LIMITS.bytes && larger {
            Refused::Full { limit: 40 }
        } else {
            return Ok(());
        };
        *self.map(of_job) = old;
        Err(refused)
    }

    fn read(&mut self, of_job: bool, op: &Op) -> Option<Value> {
        let map = self.map(of_job);
        let values = keys_of(op).into_iter().map(|key| map.get(&key).cloned());
        let values: Option<Vec<_>> = values.map(|value| value.map(Blob)).collect();
        values.map(|mut values| match op {
            Op::Get { .. } => Value::Bytes(values.remove(0)),
            Op::Wait { .. } => Value::Done,
            _ => Value::Many(values),
        })
    }

    fn missing(&mut self, of_job: bool, op: &Op) -> Refused {
        let map = self.map(of_job);
        let missing = keys_of(op).into_iter().filter(|key| !map.contains_key(key));
        Refused::TimedOut {
            missing: missing.collect(),
            more: 0,
        }
    }

    fn write(&mut self, of_job: bool, op: &Op) -> Result<Value, Refused> {
        let mut map = self.map(of_job).clone();
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
            Op::Check { keys } => Value::Truth(keys.iter().all(|key| map.contains_key(key))),
            Op::NumKeys { prefix } => {
                Value::Number(map.keys().filter(|key| key.starts_with(prefix)).count() as i64)
            }
            Op::Get { .. } | Op::Wait { .. } | Op::MultiGet { .. } => unreachable!("it reads"),
        };
        self.replace(of_job, map)?;
        Ok(value)
    }

    fn ask(
        &mut self,
        asked: (u32, u64),
        of_job: bool,
        until: Option<Time>,
        op: &Op,
    ) -> Option<Result<Value, Refused>> {
        if !matches!(op, Op::Get { .. } | Op::Wait { .. } | Op::MultiGet { .. }) {
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

    fn woken(&mut self) -> Answers {
        self.end(|model, wait| model.read(wait.of_job, &wait.op).map(Ok))
    }

    fn overdue(&mut self, now: Time) -> Answers {
        self.end(|model, wait| {
            (wait.until <= now).then(|| Err(model.missing(wait.of_job, &wait.op)))
        })
    }

    fn next_round(&mut self) -> Answers {
        let asked = Round(self.round);
        self.round += 1;
        self.current.clear();
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
        prop_assert_eq!(harness.store.len(), model.job.len() + model.current.len());
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
