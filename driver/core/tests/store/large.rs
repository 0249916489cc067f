//! Values that do not fit a message.

use elasticrun_core::store::{Event, Limits};
use elasticrun_protocol::{
    Round,
    store::{FromClient, Namespace, Op, Refused, StagedValue, Value},
};

use crate::harness::{
    Answer, Harness, blob, bytes, client, full, get, keys, namespace, pop, push, set,
};

const DONE: Answer = Some(Ok(Value::Done));

/// Answers of 8 bytes, pieces of 4, 40 bytes in all.
fn harness() -> Harness {
    Harness::new(Limits {
        bytes: 40,
        answer: 8,
        piece: 4,
        transfers: 3,
        ..Limits::default()
    })
}

fn piece(staged: u64, length: u64, offset: u64, text: &str) -> Op {
    Op::Stage {
        staged,
        key: "k".into(),
        length,
        offset,
        bytes: blob(text),
    }
}

/// An operation whose first value is staged.
fn large(op: Op, staged: u64, length: u64) -> Op {
    let staged = vec![StagedValue {
        index: 0,
        staged,
        length,
    }];
    let op = Box::new(op);
    Op::Large { op, staged }
}

fn read(staged: u64, offset: u64) -> Op {
    Op::ReadStaged { staged, offset }
}

fn not_staged(staged: u64) -> Answer {
    Some(Err(Refused::NotStaged { staged }))
}

fn discard(uploads: &[u64], downloads: &[u64]) -> FromClient {
    FromClient::Discard {
        uploads: uploads.to_vec(),
        downloads: downloads.to_vec(),
    }
}

/// Stages a value in pieces of 4 bytes.
fn stage(harness: &mut Harness, who: u32, staged: u64, text: &str) {
    for (index, part) in text.as_bytes().chunks(4).enumerate() {
        let part = std::str::from_utf8(part).expect("ASCII");
        let op = piece(staged, text.len() as u64, 4 * index as u64, part);
        assert_eq!(harness.call(who, op), DONE);
    }
}

/// The staged values of an answer, which has `value` beside them.
fn staged_of(answer: Answer, expected: Value) -> Vec<(u32, u64, u64)> {
    let Some(Ok(Value::Large { value, staged })) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(*value, expected);
    let staged = staged.into_iter();
    staged.map(|at| (at.index, at.staged, at.length)).collect()
}

#[test]
fn a_large_value_is_written_and_read_in_pieces() {
    let mut harness = harness();
    let waits = harness.ask(1, get("k"));
    stage(&mut harness, 0, 7, "0123456789");
    assert_eq!(harness.said(waits), None, "it is not written yet");
    assert_eq!(harness.call(0, large(set("k", ""), 7, 10)), DONE);
    let staged = staged_of(harness.said(waits), Value::Bytes(blob("")));
    assert_eq!(staged, [(0, 1, 10)]);
    assert_eq!(harness.call(1, read(1, 0)), bytes("0123"));
    assert_eq!(harness.call(1, read(1, 4)), bytes("4567"));
    assert_eq!(harness.call(1, read(1, 8)), bytes("89"));
    assert_eq!(
        harness.call(1, read(1, 8)),
        not_staged(1),
        "it was the last piece"
    );
    assert_eq!(
        harness.call(0, large(set("k", ""), 7, 10)),
        not_staged(7),
        "used once"
    );
    assert_eq!(harness.store.bytes(), 11);
}

#[test]
fn every_operation_that_writes_takes_staged_values() {
    let mut harness = harness();
    stage(&mut harness, 0, 1, "0123456789");
    assert_eq!(harness.call(0, large(push("q", ""), 1, 10)), DONE);
    stage(&mut harness, 0, 2, "abcdefgh");
    let append = Op::Append {
        key: "k".into(),
        value: blob(""),
    };
    assert_eq!(harness.call(0, large(append, 2, 8)), DONE);
    assert_eq!(harness.call(0, get("k")), bytes("abcdefgh"));
    stage(&mut harness, 0, 3, "abcdefgh");
    let compare_set = Op::CompareSet {
        key: "k".into(),
        expected: blob(""),
        desired: blob("x"),
    };
    let value = harness.call(0, large(compare_set, 3, 8));
    assert_eq!(value, Some(Ok(Value::Current(Some(blob("x"))))));
    stage(&mut harness, 0, 4, "ABCDE");
    let entries = vec![("m".into(), blob("")), ("n".into(), blob("2"))];
    assert_eq!(harness.call(0, large(Op::MultiSet { entries }, 4, 5)), DONE);
    let many = harness.call(
        0,
        Op::MultiGet {
            keys: keys(&["m", "n"]),
        },
    );
    assert_eq!(many, Some(Ok(Value::Many(vec![blob("ABCDE"), blob("2")]))));
    let staged = staged_of(harness.call(1, pop("q")), Value::Bytes(blob("")));
    assert_eq!(staged, [(0, 1, 10)]);
}

#[test]
fn an_answer_has_the_values_that_fit_and_the_others_are_staged() {
    let mut harness = harness();
    for (key, value) in [("a", "123456"), ("b", "abcd"), ("c", "xy")] {
        harness.call(0, set(key, value));
    }
    let many = harness.call(
        0,
        Op::MultiGet {
            keys: keys(&["a", "b", "c"]),
        },
    );
    let beside = Value::Many(vec![blob("123456"), blob(""), blob("xy")]);
    assert_eq!(staged_of(many, beside), [(1, 1, 4)]);
    assert_eq!(harness.call(0, read(1, 0)), bytes("abcd"));
}

#[test]
fn a_value_that_is_read_stays_as_it_was() {
    let mut harness = harness();
    stage(&mut harness, 0, 1, "0123456789");
    harness.call(0, large(set("k", ""), 1, 10));
    staged_of(harness.call(1, get("k")), Value::Bytes(blob("")));
    staged_of(harness.call(2, get("k")), Value::Bytes(blob("")));
    assert_eq!(harness.store.bytes(), 11, "a value counts once");
    let append = Op::Append {
        key: "k".into(),
        value: blob("ab"),
    };
    assert_eq!(harness.call(0, append), DONE);
    assert_eq!(
        harness.store.bytes(),
        11 + 12,
        "S4: the old one and the new one"
    );
    harness.call(0, Op::Delete { key: "k".into() });
    assert_eq!(harness.call(1, read(1, 8)), bytes("89"));
    assert_eq!(harness.store.bytes(), 10, "another still reads it");
    harness.say(client(2), discard(&[], &[2]));
    assert_eq!(harness.store.bytes(), 0);
    assert_eq!(harness.call(2, read(2, 0)), not_staged(2));
}

#[test]
fn s4_the_size_of_a_value_is_reserved_with_its_first_piece() {
    let mut harness = harness();
    assert_eq!(harness.call(0, piece(1, 30, 0, "abcd")), DONE);
    assert_eq!(harness.store.bytes(), 30);
    let refused = Some(Err(full(40, "k", 11)));
    assert_eq!(harness.call(1, piece(1, 11, 0, "abcd")), refused);
    let never = Refused::ValueTooLarge {
        key: "k".into(),
        length: 41,
        limit: 40,
    };
    assert_eq!(harness.call(1, piece(1, 41, 0, "abcd")), Some(Err(never)));
    let huge = harness.call(1, piece(1, u64::MAX, 0, "abcd"));
    assert!(matches!(huge, Some(Err(Refused::ValueTooLarge { .. }))));
    assert_eq!(
        harness.call(1, set("a", "1234567890")),
        Some(Err(full(40, "a", 10)))
    );
    harness.say(client(0), discard(&[1], &[]));
    assert_eq!(harness.store.bytes(), 0);
    assert_eq!(harness.call(1, piece(1, 40, 0, "abcd")), DONE);
}

#[test]
fn pieces_come_in_order_and_the_first_one_begins_anew() {
    let mut harness = harness();
    assert_eq!(harness.call(0, piece(1, 8, 4, "late")), not_staged(1));
    assert_eq!(harness.call(0, piece(1, 8, 0, "lost")), DONE);
    assert_eq!(
        harness.call(0, large(set("k", ""), 1, 8)),
        not_staged(1),
        "not whole"
    );
    assert_eq!(
        harness.call(0, piece(1, 8, 4, "late")),
        not_staged(1),
        "dropped"
    );
    assert_eq!(harness.call(0, piece(1, 8, 0, "lost")), DONE);
    assert_eq!(harness.call(0, piece(1, 6, 0, "kept")), DONE);
    assert_eq!(harness.call(0, piece(1, 6, 4, "more than")), not_staged(1));
    assert_eq!(harness.call(0, piece(1, 6, 4, "ab")), DONE);
    assert_eq!(
        harness.call(1, large(set("k", ""), 1, 6)),
        not_staged(1),
        "of another worker"
    );
    assert_eq!(harness.call(0, large(set("k", ""), 1, 6)), DONE);
    assert_eq!(harness.call(0, get("k")), bytes("keptab"));
}

#[test]
fn what_a_worker_transfers_goes_with_it() {
    let mut harness = harness();
    stage(&mut harness, 0, 1, "0123456789");
    harness.call(0, large(set("k", ""), 1, 10));
    for who in [1, 2] {
        harness.call(who, get("k"));
        harness.call(who, piece(1, 5, 0, "abcd"));
    }
    harness.call(0, Op::Delete { key: "k".into() });
    assert_eq!(harness.store.bytes(), 10 + 5 + 5);
    harness.say(client(1), FromClient::Left);
    assert_eq!(harness.store.bytes(), 10 + 5);
    harness.step(Event::Closed { connection: 1 });
    assert_eq!(harness.store.bytes(), 0);
}

#[test]
fn r3_what_is_staged_for_a_round_ends_with_it() {
    let mut harness = harness();
    stage(&mut harness, 0, 1, "01234567");
    harness.call(0, large(set("k", ""), 1, 8));
    harness.call(0, piece(2, 8, 0, "abcd"));
    let of_job = harness.call_in(1, Namespace::Job, piece(3, 8, 0, "abcd"));
    assert_eq!(of_job, DONE);
    harness.start(2);
    assert_eq!(harness.store.bytes(), 8, "that of the job stays");
    assert_eq!(harness.call(0, piece(2, 8, 4, "efgh")), not_staged(2));
    let stale = Refused::StaleRound {
        asked: Round(1),
        current: Some(Round(2)),
    };
    let old = harness.call_in(0, namespace(1), piece(2, 8, 4, "efgh"));
    assert_eq!(old, Some(Err(stale)));
    let rest = harness.call_in(1, Namespace::Job, piece(3, 8, 4, "efgh"));
    assert_eq!(rest, DONE);
    // A value is of one namespace.
    assert_eq!(harness.call(1, large(set("k", ""), 3, 8)), not_staged(3));
}

#[test]
fn a_worker_transfers_a_limited_number_of_values() {
    let mut harness = harness();
    stage(&mut harness, 0, 1, "0123456789");
    harness.call(0, large(push("q", ""), 1, 10));
    for staged in 1..=3 {
        assert_eq!(harness.call(1, piece(staged, 2, 0, "a")), DONE);
    }
    let many = Some(Err(Refused::TooManyTransfers { limit: 3 }));
    assert_eq!(harness.call(1, piece(4, 2, 0, "a")), many);
    assert_eq!(harness.call(1, pop("q")), many);
    let len = Op::QueueLen { key: "q".into() };
    assert_eq!(
        harness.call(1, len),
        Some(Ok(Value::Number(1))),
        "S1: it is still there"
    );
    harness.say(client(1), discard(&[2], &[]));
    let staged = staged_of(harness.call(1, pop("q")), Value::Bytes(blob("")));
    assert_eq!(staged, [(0, 1, 10)]);
}

#[test]
fn an_element_that_one_cannot_take_goes_to_the_next() {
    let mut harness = harness();
    for staged in 1..=3 {
        harness.call(1, piece(staged, 1, 0, "a"));
    }
    let (first, second) = (harness.ask(1, pop("q")), harness.ask(0, pop("q")));
    stage(&mut harness, 2, 1, "0123456789");
    harness.call(2, large(push("q", ""), 1, 10));
    let many = Some(Err(Refused::TooManyTransfers { limit: 3 }));
    assert_eq!(harness.said(first), many);
    let staged = staged_of(harness.said(second), Value::Bytes(blob("")));
    assert_eq!(staged, [(0, 1, 10)]);
}

#[test]
fn a_worker_of_an_earlier_release_gets_no_reference() {
    let mut harness = harness();
    harness.reads_staged = false;
    for key in ["a", "b"] {
        harness.call(0, set(key, "12345"));
    }
    assert_eq!(harness.call(0, get("a")), bytes("12345"));
    let many = harness.call(
        0,
        Op::MultiGet {
            keys: keys(&["a", "b"]),
        },
    );
    let too_large = Refused::AnswerTooLarge {
        length: 10,
        limit: 8,
    };
    assert_eq!(many, Some(Err(too_large.clone())));
    harness.call(0, set("a", "123456789"));
    let compare_set = Op::CompareSet {
        key: "a".into(),
        expected: blob("123456789"),
        desired: blob("0123456789"),
    };
    assert_eq!(harness.call(0, compare_set), Some(Err(too_large)));
    harness.reads_staged = true;
    staged_of(harness.call(0, get("a")), Value::Bytes(blob("")));
    assert_eq!(
        harness.call(0, read(1, 8)),
        bytes("9"),
        "S1: nothing was written"
    );
}

#[test]
fn an_operation_within_another_is_refused() {
    let mut harness = harness();
    let inner = large(set("k", ""), 1, 4);
    let outer = large(inner, 1, 4);
    assert!(matches!(
        harness.call(0, outer),
        Some(Err(Refused::NotStaged { .. }))
    ));
    let unknown = Op::Large {
        op: Box::new(get("k")),
        staged: Vec::new(),
    };
    harness.call(0, set("k", "1"));
    assert_eq!(harness.call(0, unknown), bytes("1"));
    stage(&mut harness, 0, 1, "abcd");
    let place = harness.call(0, large(get("k"), 1, 4));
    assert_eq!(place, not_staged(1));
}
