//! Each operation, each refusal, and the effects of a new round and of a loss.

use std::time::Duration;

use elasticrun_core::store::{Event, Limits};
use elasticrun_protocol::{
    DriverEpoch, Round,
    store::{FromClient, Namespace, Op, Refused, Request, Value},
};

use crate::harness::{Harness, blob, bytes, client, full, get, keys, namespace, set};

const DONE: Option<Result<Value, Refused>> = Some(Ok(Value::Done));

fn number(number: i64) -> Option<Result<Value, Refused>> {
    Some(Ok(Value::Number(number)))
}

fn truth(truth: bool) -> Option<Result<Value, Refused>> {
    Some(Ok(Value::Truth(truth)))
}

fn current(text: Option<&str>) -> Option<Result<Value, Refused>> {
    Some(Ok(Value::Current(text.map(blob))))
}

fn harness() -> Harness {
    Harness::new(Limits::default())
}

fn add(key: &str, amount: i64) -> Op {
    Op::Add {
        key: key.into(),
        amount,
    }
}

fn append(key: &str, value: &str) -> Op {
    Op::Append {
        key: key.into(),
        value: blob(value),
    }
}

fn compare_set(key: &str, expected: &str, desired: &str) -> Op {
    Op::CompareSet {
        key: key.into(),
        expected: blob(expected),
        desired: blob(desired),
    }
}

fn wait(names: &[&str]) -> Op {
    Op::Wait { keys: keys(names) }
}

fn missing(names: &[&str]) -> Option<Result<Value, Refused>> {
    Some(Err(Refused::TimedOut {
        missing: keys(names),
        more: 0,
    }))
}

#[test]
fn what_one_sets_another_gets() {
    let mut harness = harness();
    assert_eq!(harness.call(0, set("a", "1")), DONE);
    assert_eq!(harness.call(1, get("a")), bytes("1"));
    assert_eq!(harness.call(1, set("a", "")), DONE);
    assert_eq!(harness.call(0, get("a")), bytes(""));
}

#[test]
fn a_get_waits_for_its_key() {
    let mut harness = harness();
    let (one, two) = (harness.ask(0, get("a")), harness.ask(1, get("a")));
    harness.call(1, set("b", "x"));
    assert_eq!((harness.said(one), harness.said(two)), (None, None));
    harness.call(1, set("a", "1"));
    assert_eq!(
        (harness.said(one), harness.said(two)),
        (bytes("1"), bytes("1"))
    );
    assert_eq!(harness.store.waiting(), 0);
}

#[test]
fn a_wait_ends_when_all_keys_are_there_at_once() {
    let mut harness = harness();
    let waits = harness.ask(0, wait(&["a", "b", "c"]));
    harness.call(1, set("c", ""));
    harness.call(1, set("a", ""));
    harness.call(1, Op::Delete { key: "a".into() });
    harness.call(1, set("b", ""));
    assert_eq!(harness.said(waits), None, "a is gone again");
    harness.call(1, set("a", ""));
    assert_eq!(harness.said(waits), DONE);
    assert_eq!(harness.call(0, wait(&[])), DONE);
}

#[test]
fn who_waits_in_vain_is_told_what_is_missing() {
    let mut harness = harness();
    harness.call(0, set("a", ""));
    let waits = harness.ask(0, wait(&["a", "b", "c"]));
    harness.pass(Duration::from_millis(999));
    assert_eq!(harness.said(waits), None);
    harness.pass(Duration::from_millis(1));
    assert_eq!(harness.said(waits), missing(&["b", "c"]));
    assert_eq!(harness.store.next_deadline(), None);
    assert_eq!(harness.call_in(0, namespace(1), get("b")), missing(&["b"]));
    let names: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    let many = harness.call_in(0, namespace(1), Op::MultiGet { keys: names });
    let Some(Err(Refused::TimedOut { missing, more })) = many else {
        panic!("{many:?}");
    };
    assert_eq!((missing.len(), more), (8, 12));
}

#[test]
fn a_time_out_that_never_ends_is_one() {
    let mut harness = harness();
    let asked = harness.ask_in(0, Namespace::Job, Duration::MAX, get("a"));
    harness.pass(Duration::from_secs(1 << 40));
    assert_eq!(harness.said(asked), None);
    harness.call_in(1, Namespace::Job, set("a", "1"));
    assert_eq!(harness.said(asked), bytes("1"));
}

#[test]
fn numbers_are_decimal_text() {
    let mut harness = harness();
    assert_eq!(harness.call(0, add("n", 5)), number(5));
    assert_eq!(harness.call(1, add("n", -7)), number(-2));
    assert_eq!(harness.call(0, get("n")), bytes("-2"));
    harness.call(0, set("n", "40"));
    assert_eq!(harness.call(0, add("n", 2)), number(42));
    harness.call(0, set("n", "forty"));
    let none = Refused::NotANumber { key: "n".into() };
    assert_eq!(harness.call(0, add("n", 2)), Some(Err(none)));
    harness.call(0, set("n", &i64::MAX.to_string()));
    let beyond = Refused::Overflow { key: "n".into() };
    assert_eq!(harness.call(0, add("n", 1)), Some(Err(beyond)));
    assert_eq!(harness.call(0, get("n")), bytes(&i64::MAX.to_string()));
}

#[test]
fn compare_set_writes_what_was_expected_or_absent() {
    let mut harness = harness();
    assert_eq!(harness.call(0, compare_set("a", "x", "1")), current(None));
    assert_eq!(
        harness.call(0, compare_set("a", "", "1")),
        current(Some("1"))
    );
    assert_eq!(
        harness.call(1, compare_set("a", "", "2")),
        current(Some("1"))
    );
    assert_eq!(
        harness.call(1, compare_set("a", "1", "2")),
        current(Some("2"))
    );
    assert_eq!(harness.call(1, get("a")), bytes("2"));
}

#[test]
fn every_way_to_make_a_key_wakes_who_waits_for_it() {
    let ways = [
        set("k", "1"),
        add("k", 1),
        append("k", "1"),
        compare_set("k", "", "1"),
        Op::MultiSet {
            entries: vec![("j".into(), blob("")), ("k".into(), blob("1"))],
        },
    ];
    for way in ways {
        let mut harness = harness();
        let waits = harness.ask(0, get("k"));
        harness.call(1, way.clone());
        assert_eq!(harness.said(waits), bytes("1"), "{way:?}");
    }
}

#[test]
fn append_writes_behind() {
    let mut harness = harness();
    assert_eq!(harness.call(0, append("a", "x")), DONE);
    assert_eq!(harness.call(1, append("a", "yz")), DONE);
    assert_eq!(harness.call(0, get("a")), bytes("xyz"));
}

#[test]
fn check_delete_and_count() {
    let mut harness = harness();
    for key in ["a/1", "a/2", "b"] {
        harness.call(0, set(key, ""));
    }
    let check = |names: &[&str]| Op::Check { keys: keys(names) };
    assert_eq!(harness.call(1, check(&["a/1", "b"])), truth(true));
    assert_eq!(harness.call(1, check(&["a/1", "c"])), truth(false));
    let count = |prefix: &str| Op::NumKeys {
        prefix: prefix.into(),
    };
    assert_eq!(harness.call(1, count("")), number(3));
    assert_eq!(harness.call(1, count("a/")), number(2));
    assert_eq!(harness.call(1, count("c")), number(0));
    let delete = Op::Delete { key: "a/1".into() };
    assert_eq!(harness.call(1, delete.clone()), truth(true));
    assert_eq!(harness.call(1, delete), truth(false));
    assert_eq!(harness.call(1, count("a/")), number(1));
}

#[test]
fn many_values_are_written_and_read_at_once() {
    let mut harness = harness();
    let asked = harness.ask(
        0,
        Op::MultiGet {
            keys: keys(&["b", "a", "b"]),
        },
    );
    let entries = vec![("a".into(), blob("1")), ("b".into(), blob("2"))];
    assert_eq!(harness.call(1, Op::MultiSet { entries }), DONE);
    let values = Value::Many(vec![blob("2"), blob("1"), blob("2")]);
    assert_eq!(harness.said(asked), Some(Ok(values)));
}

#[test]
fn r3_a_new_round_begins_empty_and_an_older_one_is_refused() {
    let mut harness = harness();
    harness.call(0, set("address", "dead:1"));
    harness.call_in(0, Namespace::Job, set("kept", "1"));
    let waits = harness.ask(1, get("more"));
    harness.start(2);
    let stale = |current| {
        Some(Err(Refused::StaleRound {
            asked: Round(1),
            current,
        }))
    };
    assert_eq!(harness.said(waits), stale(Some(Round(2))));
    assert_eq!(
        harness.call_in(1, namespace(1), get("address")),
        stale(Some(Round(2)))
    );
    assert_eq!(
        harness.call_in(1, namespace(1), set("late", "")),
        stale(Some(Round(2)))
    );
    assert_eq!(
        harness.call_in(1, namespace(2), get("address")),
        missing(&["address"])
    );
    assert_eq!(harness.call_in(1, Namespace::Job, get("kept")), bytes("1"));
    assert_eq!(harness.store.len(), 1);
    assert_eq!(harness.store.bytes(), "kept1".len());
    // An older start changes nothing.
    harness.call_in(1, namespace(2), set("address", "new:1"));
    harness.start(1);
    assert_eq!(
        harness.call_in(1, namespace(2), get("address")),
        bytes("new:1")
    );
}

#[test]
fn r3_the_round_of_another_driver_is_another_round() {
    let mut harness = harness();
    harness.call(0, set("a", "old"));
    harness.step(Event::RoundStarted {
        epoch: DriverEpoch(2),
        round: Round(1),
    });
    let old = harness.call_in(0, namespace(1), get("a"));
    assert!(matches!(old, Some(Err(Refused::StaleRound { .. }))));
}

#[test]
fn before_the_first_round_there_are_keys_of_the_job_only() {
    let mut harness = Harness::new(Limits::default());
    harness.store = Default::default();
    let none = Refused::StaleRound {
        asked: Round(1),
        current: None,
    };
    assert_eq!(
        harness.call_in(0, namespace(1), set("a", "")),
        Some(Err(none))
    );
    assert_eq!(harness.call_in(0, Namespace::Job, set("a", "")), DONE);
}

#[test]
fn r3_a_repeated_request_changes_nothing() {
    let mut harness = harness();
    let (client, number) = harness.ask(0, add("n", 1));
    for number in [number, number - 1] {
        let again = Request {
            number,
            namespace: namespace(1),
            timeout: Duration::ZERO,
            op: add("n", 1),
            reads_staged: true,
        };
        harness.say(client, FromClient::Ask(again));
    }
    assert_eq!(harness.rejected, [(client, 1), (client, 0)]);
    assert_eq!(harness.call(1, get("n")), bytes("1"));
}

#[test]
fn who_has_left_waits_no_more() {
    let mut harness = harness();
    let gone = harness.ask(0, get("a"));
    let (stays, forgets) = (harness.ask(1, get("a")), harness.ask(1, get("a")));
    let lost = harness.ask(2, get("a"));
    harness.say(client(0), FromClient::Left);
    harness.say(client(1), FromClient::Forget { number: forgets.1 });
    harness.step(Event::Closed { connection: 1 });
    harness.call(4, set("a", "1"));
    assert_eq!(harness.said(stays), bytes("1"));
    for asked in [gone, forgets, lost] {
        assert_eq!(harness.said(asked), None);
    }
    assert_eq!((harness.store.waiting(), harness.store.bytes()), (0, 2));
}

#[test]
fn s4_the_store_is_full_and_says_so() {
    let limits = Limits {
        keys: 2,
        bytes: 10,
        waits: 2,
        ..Limits::default()
    };
    let mut harness = Harness::new(limits);
    assert_eq!(harness.call(0, set("a", "123")), DONE);
    let refused = |key, length| Some(Err(full(10, key, length)));
    assert_eq!(harness.call(0, set("b", "123456")), refused("b", 6));
    assert_eq!(harness.call(0, append("a", "4567890")), refused("a", 10));
    assert_eq!(harness.call(0, get("a")), bytes("123"));
    assert_eq!(harness.call(0, set("b", "1234")), DONE);
    let entries = vec![("c".into(), blob("")), ("a".into(), blob(""))];
    let many = Some(Err(Refused::TooManyKeys { limit: 2 }));
    assert_eq!(harness.call(0, Op::MultiSet { entries }), many);
    assert_eq!(
        harness.call(0, get("a")),
        bytes("123"),
        "S1: all or nothing"
    );
    // A smaller value is always accepted.
    assert_eq!(harness.call(0, set("a", "1")), DONE);
    let waits = harness.ask(0, get("c"));
    assert_eq!(harness.call(0, get("too long")), refused("", 0));
    let more = harness.ask(0, get("c"));
    let waits_too_often = Some(Err(Refused::TooManyWaits { limit: 2 }));
    assert_eq!(harness.call(0, get("c")), waits_too_often);
    assert_eq!(harness.call(0, Op::Delete { key: "a".into() }), truth(true));
    assert_eq!(harness.call(1, set("c", "")), DONE);
    assert_eq!(
        (harness.said(waits), harness.said(more)),
        (bytes(""), bytes(""))
    );
}
