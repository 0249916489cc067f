//! The scenarios of ps-lite's tests with its numbers, with real processes: a scheduler, 2 servers, 2 workers.

#![allow(clippy::unwrap_used, reason = "a helper of a test is a test")]

#[allow(dead_code)]
mod support;

use support::{finish, start};

const LOSSY: &[(&str, &str)] = &[
    ("PS_RESEND", "1"),
    ("PS_RESEND_TIMEOUT", "50"),
    ("PS_DROP_MSG", "10"),
];

fn without_error(scenario: &str, variables: &[(&str, &str)]) {
    for (role, lines) in finish(start(scenario, 2, 2, variables)) {
        let error = lines.iter().find(|line| line.starts_with("error"));
        let expected = (role == "worker").then_some("error 0");
        assert_eq!(error.map(String::as_str), expected, "{role}: {lines:?}");
    }
}

#[test]
fn ten_thousand_keys() {
    without_error("kv", &[]);
}

#[test]
fn ten_thousand_keys_with_drops() {
    without_error("kv", LOSSY);
}

#[test]
fn ten_million_keys() {
    without_error("many-keys", &[]);
}

#[test]
fn two_customers_in_a_process() {
    without_error("customers", &[]);
}

#[test]
fn two_customers_in_a_process_with_drops() {
    without_error("customers", LOSSY);
}

fn a_hundred_requests_each(variables: &[(&str, &str)]) {
    let ends = finish(start("simple", 2, 2, variables));
    assert_eq!(ends.len(), 5);
    for (role, lines) in ends {
        assert!(
            lines.contains(&"received 100".to_owned()),
            "{role}: {lines:?}"
        );
        let answered = lines.contains(&"answered 500".to_owned());
        assert_eq!(answered, role == "scheduler", "{lines:?}");
    }
}

#[test]
fn a_hundred_simple_requests_to_all_five() {
    a_hundred_requests_each(&[]);
}

#[test]
fn a_hundred_simple_requests_to_all_five_with_drops() {
    a_hundred_requests_each(LOSSY);
}

const NO_MEMORY: (&str, &str) = ("ELASTICRUN_PS_SHARED_MEMORY", "0");

#[test]
fn ten_thousand_keys_over_tcp() {
    without_error("kv", &[NO_MEMORY]);
    without_error("kv", &[LOSSY, &[NO_MEMORY]].concat());
    a_hundred_requests_each(&[NO_MEMORY]);
}

#[test]
fn ten_thousand_keys_over_unix_sockets() {
    for memory in [&[][..], &[NO_MEMORY]] {
        let variables = [&[("DMLC_LOCAL", "1")][..], memory].concat();
        without_error("kv", &variables);
        a_hundred_requests_each(&variables);
    }
}

/// A payload fits now and then only.
#[test]
fn ten_thousand_keys_with_little_shared_memory() {
    let memory = ("ELASTICRUN_PS_SHARED_MEMORY", "70000");
    without_error("kv", &[memory]);
    without_error("kv", &[LOSSY, &[memory]].concat());
}
