//! Queues, and lists of keys.

use std::time::Duration;

use elasticrun_core::store::{Event, Limits};
use elasticrun_protocol::{
    Round,
    store::{FromClient, MAX_LISTED, Namespace, Op, Refused, Value},
};

use crate::harness::{
    Answer, Harness, blob, bytes, client, full, get, keys, namespace, pop, push, set,
};

const DONE: Answer = Some(Ok(Value::Done));

fn harness() -> Harness {
    Harness::new(Limits::default())
}

fn number(number: i64) -> Answer {
    Some(Ok(Value::Number(number)))
}

fn current(text: Option<&str>) -> Answer {
    Some(Ok(Value::Current(text.map(blob))))
}

fn try_pop(key: &str) -> Op {
    Op::QueuePop {
        key: key.into(),
        block: false,
    }
}

fn len(key: &str) -> Op {
    Op::QueueLen { key: key.into() }
}

fn check(names: &[&str]) -> Op {
    Op::Check { keys: keys(names) }
}

fn list(prefix: &str, after: Option<&str>) -> Op {
    Op::ListKeys {
        prefix: prefix.into(),
        after: after.map(Into::into),
    }
}

#[test]
fn s5_first_in_first_out() {
    let mut harness = harness();
    for text in ["1", "2", "3"] {
        assert_eq!(harness.call(0, push("q", text)), DONE);
    }
    assert_eq!(harness.call(1, len("q")), number(3));
    assert_eq!(harness.call(1, pop("q")), bytes("1"));
    assert_eq!(harness.call(0, try_pop("q")), current(Some("2")));
    assert_eq!(harness.call(1, pop("q")), bytes("3"));
    assert_eq!(harness.call(0, try_pop("q")), current(None));
    assert_eq!(harness.call(1, len("q")), number(0));
    assert!(harness.store.is_empty());
    assert_eq!(harness.store.bytes(), 0);
}

#[test]
fn s5_elements_go_to_those_that_wait_in_the_order_of_their_arrival() {
    let mut harness = harness();
    // Neither the order of the clients nor of the numbers of their requests.
    let waiting = [3, 0, 2, 0, 1].map(|who| harness.ask(who, pop("q")));
    for (turn, text) in ["1", "2", "3", "4", "5"].into_iter().enumerate() {
        assert_eq!(harness.call(4, push("q", text)), DONE);
        assert_eq!(harness.said(waiting[turn]), bytes(text));
        assert!(harness.nothing_said(), "one element, one answer");
    }
    assert_eq!(harness.call(4, len("q")), number(0));
}

#[test]
fn who_waits_for_an_element_in_vain_is_told_and_takes_none_later() {
    let mut harness = harness();
    let late = harness.ask(0, pop("q"));
    harness.pass(Duration::from_secs(1));
    let missing = Refused::TimedOut {
        missing: keys(&["q"]),
        more: 0,
    };
    assert_eq!(harness.said(late), Some(Err(missing.clone())));
    assert_eq!(
        harness.call_in(0, namespace(1), pop("q")),
        Some(Err(missing)),
        "no time to wait"
    );
    let gone = harness.ask(0, pop("q"));
    let forgets = harness.ask(1, pop("q"));
    let stays = harness.ask(2, pop("q"));
    harness.say(client(0), FromClient::Left);
    let number = forgets.1;
    harness.say(client(1), FromClient::Forget { number });
    harness.call(3, push("q", "1"));
    assert_eq!(harness.said(stays), bytes("1"));
    assert_eq!((harness.said(gone), harness.said(forgets)), (None, None));
}

#[test]
fn a_key_counts_as_set_while_its_queue_has_an_element() {
    let mut harness = harness();
    let wait = Op::Wait {
        keys: keys(&["q", "v"]),
    };
    let waits = harness.ask(0, wait);
    harness.call(1, push("q", "1"));
    assert_eq!(harness.call(1, check(&["q"])), Some(Ok(Value::Truth(true))));
    assert_eq!(harness.call(1, pop("q")), bytes("1"));
    harness.call(1, set("v", ""));
    assert_eq!(harness.said(waits), None, "its element is gone again");
    assert_eq!(
        harness.call(1, check(&["q"])),
        Some(Ok(Value::Truth(false)))
    );
    harness.call(1, push("q", "2"));
    assert_eq!(harness.said(waits), DONE);
}

#[test]
fn who_waits_for_the_key_sees_an_element_that_another_takes_at_once() {
    let mut harness = harness();
    let takes = harness.ask(0, pop("q"));
    let sees = harness.ask(1, Op::Wait { keys: keys(&["q"]) });
    harness.call(2, push("q", "1"));
    assert_eq!(harness.said(sees), DONE);
    assert_eq!(harness.said(takes), bytes("1"));
}

#[test]
fn a_value_and_a_queue_of_one_key_are_independent() {
    let mut harness = harness();
    let gets = harness.ask(0, get("k"));
    harness.call(1, push("k", "element"));
    assert_eq!(harness.said(gets), None);
    let pops = harness.ask(0, pop("other"));
    harness.call(1, set("other", "value"));
    assert_eq!(harness.said(pops), None);
    harness.call(1, set("k", "value"));
    assert_eq!(harness.said(gets), bytes("value"));
    let delete = Op::Delete { key: "k".into() };
    assert_eq!(
        harness.call(1, delete.clone()),
        Some(Ok(Value::Truth(true)))
    );
    assert_eq!(harness.call(1, delete), Some(Ok(Value::Truth(false))));
    let count = Op::NumKeys { prefix: "".into() };
    assert_eq!(harness.call(1, count), number(1));
    assert_eq!(harness.call(1, pop("k")), bytes("element"));
}

#[test]
fn r3_queues_of_a_round_end_with_it() {
    let mut harness = harness();
    harness.call(0, push("q", "1"));
    harness.call_in(0, Namespace::Job, push("q", "job"));
    let waits = harness.ask(1, pop("empty"));
    harness.start(2);
    let stale = Refused::StaleRound {
        asked: Round(1),
        current: Some(Round(2)),
    };
    assert_eq!(harness.said(waits), Some(Err(stale)));
    assert_eq!(harness.call(0, len("q")), number(0));
    assert_eq!(harness.store.bytes(), "qjob".len());
    assert_eq!(harness.call_in(0, Namespace::Job, pop("q")), bytes("job"));
    assert_eq!(harness.store.bytes(), 0);
}

#[test]
fn an_element_stays_if_who_waits_for_it_is_gone_with_its_connection() {
    let mut harness = harness();
    let lost = harness.ask(2, pop("q"));
    harness.step(Event::Closed { connection: 1 });
    harness.call(0, push("q", "1"));
    assert_eq!(harness.said(lost), None);
    assert_eq!(harness.call(0, pop("q")), bytes("1"));
}

#[test]
fn s4_elements_count_against_the_limits() {
    let mut harness = Harness::new(Limits {
        keys: 2,
        bytes: 10,
        waits: 2,
        ..Limits::default()
    });
    assert_eq!(harness.call(0, push("q", "")), DONE);
    assert_eq!(harness.call(0, push("q", "1234567")), DONE);
    let many = Refused::TooManyKeys { limit: 2 };
    assert_eq!(harness.call(0, push("q", "")), Some(Err(many.clone())));
    assert_eq!(harness.call(0, set("v", "")), Some(Err(many)));
    assert_eq!(harness.call(0, pop("q")), bytes(""));
    let refused = Some(Err(full(10, "q", 2)));
    assert_eq!(harness.call(0, push("q", "12")), refused);
    assert_eq!(harness.call(0, push("q", "1")), DONE);
}

#[test]
fn lists_leave_out_the_prefix_and_elements() {
    let mut harness = harness();
    for key in ["a/2", "a/1", "b", "a/"] {
        harness.call(0, set(key, ""));
    }
    harness.call(0, push("a/queue", ""));
    let listed = |names: &[&str]| {
        let keys = keys(names);
        Some(Ok(Value::Keys { keys, more: false }))
    };
    assert_eq!(harness.call(1, list("a/", None)), listed(&["", "1", "2"]));
    assert_eq!(harness.call(1, list("a/", Some("1"))), listed(&["2"]));
    assert_eq!(
        harness.call(1, list("", None)),
        listed(&["a/", "a/1", "a/2", "b"])
    );
    assert_eq!(harness.call(1, list("c", None)), listed(&[]));
    assert_eq!(harness.call(1, list("b", Some(""))), listed(&[]));
}

#[test]
fn a_long_list_comes_in_parts() {
    let mut harness = harness();
    let name = |n: usize| format!("{n:04}{}", "x".repeat(1000));
    let all: Vec<_> = (0..1200).map(name).collect();
    for key in &all {
        harness.call(0, set(key, ""));
    }
    let (mut listed, mut parts) = (Vec::<String>::new(), 0);
    loop {
        let answer = harness.call(0, list("", listed.last().map(String::as_str)));
        let Some(Ok(Value::Keys { keys, more })) = answer else {
            panic!("{answer:?}");
        };
        let size: usize = keys.iter().map(String::len).sum();
        assert!(size <= MAX_LISTED && !keys.is_empty());
        listed.extend(keys);
        parts += 1;
        if !more {
            break;
        }
    }
    assert_eq!((listed, parts), (all, 3));
}
