//! Frames that earlier releases wrote are still read, and no word of them is dropped.
//!
//! `earlier/COMMIT.jsonl` was recorded between a driver and three agents of that commit, through a first round, a killed
//! worker, new workers, a drain and the end. It has one frame of each form. `earlier/COMMIT-store.jsonl` has the messages
//! of the store and of the fetch of a commit, written by the types of that commit. `earlier/version-4-store.jsonl` has those
//! that protocol version 4 added. Add a file when the wire changes; change none.
//!
//! The handshake of protocol version 1 is not spoken any more. Its hello is still read, to refuse it by its version.

#![allow(clippy::unwrap_used)]

use elasticrun_protocol::{
    FromAgent, FromWorker, ToAgent, ToWorker,
    control::{MemoryAnswer, MemoryRequest, Output, OutputOf, Register},
    opening::{Error, Hello, Purpose},
    store::{FromHost, StoreOf, ToHost},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

#[test]
fn frames_of_853f9b3_are_read() {
    assert_eq!(read_all(include_str!("earlier/853f9b3.jsonl")), 37);
}

#[test]
fn messages_of_the_store_of_853f9b3_are_read() {
    assert_eq!(read_all(include_str!("earlier/853f9b3-store.jsonl")), 37);
}

#[test]
fn messages_of_the_store_of_version_4_are_read() {
    let frames = include_str!("earlier/version-4-store.jsonl");
    assert_eq!(read_all(frames), 18);
}

/// Reads each message of a file. Returns how many there are.
fn read_all(frames: &str) -> usize {
    let mut count = 0;
    for line in frames.lines() {
        let frame: Map<String, Value> = serde_json::from_str(line).unwrap();
        for (kind, wire) in frame {
            match kind.as_str() {
                "Hello" => refuse(&wire),
                "Challenge" | "Proof" | "Verdict" => {}
                "Register" => read::<Register>(&wire),
                "FromAgent" => read::<FromAgent>(&wire),
                "ToAgent" => read::<ToAgent>(&wire),
                "OutputOf" => read::<OutputOf>(&wire),
                "Output" => read::<Output>(&wire),
                "StoreOf" => read::<StoreOf>(&wire),
                "FromHost" => read::<FromHost>(&wire),
                "ToHost" => read::<ToHost>(&wire),
                "FromWorker" => read::<FromWorker>(&wire),
                "ToWorker" => read::<ToWorker>(&wire),
                "MemoryRequest" => read::<MemoryRequest>(&wire),
                "MemoryAnswer" => read::<MemoryAnswer>(&wire),
                _ => panic!("{kind} is no message"),
            }
            count += 1;
        }
    }
    count
}

/// Reads the hello of protocol version 1, and checks that it is refused by this version.
fn refuse(wire: &Value) {
    let hello: Hello = serde_json::from_value(wire.clone()).unwrap();
    let purposes = [
        Purpose::Control,
        Purpose::Output,
        Purpose::Memory,
        Purpose::Store,
    ];
    let error = hello.check(&purposes).unwrap_err();
    assert!(
        matches!(error, Error::Version { min: 1, max: 1, .. }),
        "{error}"
    );
}

/// Reads a message, and checks that it holds all that the frame says.
fn read<T: Serialize + DeserializeOwned>(wire: &Value) {
    let message: T =
        serde_json::from_value(wire.clone()).unwrap_or_else(|error| panic!("{wire}: {error}"));
    let rewritten = serde_json::to_value(&message).unwrap();
    assert!(holds(&rewritten, wire), "{wire} became {rewritten}");
}

/// Whether `new` has all that `old` has. New fields are allowed, and so is leaving out one that is empty.
fn holds(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            (old.iter()).all(|(name, value)| match new.get(name) {
                Some(kept) => holds(kept, value),
                None => matches!(value, Value::Null),
            })
        }
        (Value::Array(new), Value::Array(old)) => {
            new.len() == old.len() && new.iter().zip(old).all(|(new, old)| holds(new, old))
        }
        _ => new == old,
    }
}
