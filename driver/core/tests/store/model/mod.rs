//! The store gives the same answers as a model that keeps plain lists and scans all of them.

mod acts;
mod large;
mod state;

use std::time::Duration;

use elasticrun_core::store::{Event, Limits};
use elasticrun_protocol::{
    Round,
    store::{FromClient, Namespace, Op, Refused},
};
use proptest::prelude::*;

use crate::harness::{Harness, client, namespace};
use acts::{Act, Place, act};
use state::{Answers, Model};

/// Small limits, so that random acts reach them.
const LIMITS: Limits = Limits {
    keys: 6,
    bytes: 40,
    waits: 3,
    transfers: 3,
    answer: 8,
    piece: 4,
};

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
            Act::Stage {
                who,
                place,
                staged,
                value,
                until,
            } => {
                let of = if place == Place::Job {
                    Namespace::Job
                } else {
                    namespace(harness.round)
                };
                for (index, part) in value.0.chunks(4).enumerate().take(until / 4) {
                    let op = Op::Stage {
                        staged,
                        key: "k".into(),
                        length: value.0.len() as u64,
                        offset: 4 * index as u64,
                        bytes: part.into(),
                    };
                    let asked = (who, harness.ask_in(who, of, Duration::ZERO, op.clone()).1);
                    asked_last[who as usize] = asked.1;
                    let result = model.ask(asked, place == Place::Job, None, &op);
                    expected.extend(result.map(|result| (asked, result)));
                }
            }
            Act::Discard { who, staged } => {
                let (uploads, downloads) = (vec![staged], vec![staged]);
                harness.say(client(who), FromClient::Discard { uploads, downloads });
                model.uploads.remove(&(who, staged));
                model.downloads.remove(&(who, staged));
            }
            Act::Forget { who, back } => {
                let number = asked_last[who as usize].saturating_sub(back);
                harness.say(client(who), FromClient::Forget { number });
                model.waiting.retain(|wait| wait.asked != (who, number));
            }
            Act::Left(who) => {
                harness.say(client(who), FromClient::Left);
                model.left(|at| at == who);
            }
            Act::Closed(connection) => {
                harness.step(Event::Closed { connection });
                model.left(|who| u64::from(who / 2) == connection);
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
