//! Random acts of workers and of the job.

use elasticrun_protocol::store::{Blob, Op, StagedValue};
use proptest::prelude::*;

use crate::harness::{blob, push, set};

#[derive(Clone, Debug)]
pub(super) enum Act {
    Ask {
        who: u32,
        /// The namespace: of the job, of the current round, or of the one before.
        place: Place,
        wait_ms: u64,
        op: Op,
    },
    /// Stages a value in pieces, and loses some of them if `until` is smaller than the value.
    Stage {
        who: u32,
        place: Place,
        staged: u64,
        value: Blob,
        until: usize,
    },
    Discard {
        who: u32,
        staged: u64,
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

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Place {
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

/// An operation with a staged value, and reads of values that the store has staged.
fn large() -> impl Strategy<Value = Op> {
    let write = prop_oneof![
        key().prop_map(|key| set(&key, "")),
        key().prop_map(|key| push(&key, "")),
        key().prop_map(|key| Op::Append {
            key,
            value: blob("")
        }),
        (key(), value()).prop_map(|(key, desired)| Op::CompareSet {
            key,
            expected: blob(""),
            desired
        }),
    ];
    let staged = 0..3u64;
    prop_oneof![
        (write, staged).prop_map(|(op, staged)| Op::Large {
            op: Box::new(op),
            staged: vec![StagedValue {
                index: 0,
                staged,
                length: 0
            }],
        }),
        (1..6u64, 0..4u64).prop_map(|(staged, piece)| Op::ReadStaged {
            staged,
            offset: 4 * piece
        }),
    ]
}

pub(super) fn act() -> impl Strategy<Value = Act> {
    let place = prop_oneof![
        4 => Just(Place::Current),
        2 => Just(Place::Job),
        1 => Just(Place::Before),
    ];
    prop_oneof![
        20 => (0..4u32, place.clone(), 0..30u64, prop_oneof![3 => op(), 1 => large()])
            .prop_map(|(who, place, wait_ms, op)| Act::Ask { who, place, wait_ms, op }),
        4 => (0..4u32, place, 0..3u64, "[0-9]{1,14}", 8..20usize).prop_map(
            |(who, place, staged, value, until)| Act::Stage {
                who, place, staged, value: blob(&value), until
            }
        ),
        1 => (0..4u32, 0..4u64).prop_map(|(who, staged)| Act::Discard { who, staged }),
        1 => (0..4u32, 0..3u64).prop_map(|(who, back)| Act::Forget { who, back }),
        1 => (0..4u32).prop_map(Act::Left),
        1 => (0..2u64).prop_map(Act::Closed),
        3 => (0..20u64).prop_map(Act::Pass),
        1 => Just(Act::NextRound),
    ]
}
