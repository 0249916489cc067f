//! Parameter servers: how many run, and where.

use std::{collections::BTreeMap, time::Duration};

use elasticrun_core::{Decision, Settings, results::Outcome};
use elasticrun_protocol::{AgentCommand, AgentReport, Process, control::Exit};

use crate::{
    draining::noticed,
    harness::{Harness, host, range, seconds},
};

/// A job with two workers on each host and so many servers.
fn job(servers: u32, hosts: &[&str]) -> Harness {
    let np = 2 * hosts.len() as u32;
    let mut harness = Harness::new(Settings {
        servers,
        cooldown: range(200, 300),
        ..Settings::elastic(np, 2, Some(np))
    });
    let list: Vec<_> = hosts.iter().map(|name| host(name, 2)).collect();
    harness.list(&list);
    harness
}

/// The servers that each host was told to run last.
fn told(harness: &Harness) -> BTreeMap<&str, Vec<u32>> {
    let mut all = BTreeMap::new();
    for (host, command) in &harness.sent {
        if let AgentCommand::Servers { run, .. } = command {
            let numbers = run.iter().filter_map(|process| process.server_number());
            all.insert(host.as_str(), numbers.collect());
        }
    }
    all
}

fn server(harness: &Harness, number: u32) -> Process {
    let commands = harness
        .sent
        .iter()
        .filter_map(|(_, command)| match command {
            AgentCommand::Servers { run, .. } => Some(run),
            _ => None,
        });
    let found = commands
        .flatten()
        .find(|process| process.server_number() == Some(number));
    *found.expect("it was started")
}

fn exits(harness: &mut Harness, host: &str, number: u32, exit: Exit) {
    ends(harness, host, number, exit, false);
}

fn ends(harness: &mut Harness, host: &str, number: u32, exit: Exit, stopped: bool) {
    let process = server(harness, number);
    let tail = vec!["last words".to_owned()];
    harness.report(
        host,
        AgentReport::ServerExited {
            process,
            exit,
            tail,
            stopped,
        },
    );
}

#[test]
fn servers_are_spread_over_the_hosts_and_take_no_slot() {
    let harness = job(3, &["a", "b"]);
    assert_eq!(
        told(&harness),
        BTreeMap::from([("a", vec![0, 2]), ("b", vec![1])])
    );
    assert_eq!((harness.size(), harness.runs("a")), (4, 2));
}

#[test]
fn without_ps_no_command_is_sent() {
    assert_eq!(told(&job(0, &["a"])), BTreeMap::new());
}

#[test]
fn an_older_agent_runs_none() {
    let mut harness = Harness::new(Settings {
        servers: 2,
        ..Settings::elastic(4, 2, Some(4))
    });
    harness.older.insert("a".into());
    harness.list(&[host("a", 2), host("b", 2)]);
    assert_eq!(told(&harness), BTreeMap::from([("b", vec![0, 1])]));
}

#[test]
fn a_server_that_fails_is_replaced_after_a_pause() {
    let mut harness = job(2, &["a", "b"]);
    let started = harness.started();
    exits(&mut harness, "a", 0, Exit::Signal(9));
    assert_eq!(told(&harness)["a"], [0], "not yet");
    harness.pass(Duration::from_millis(999));
    assert_eq!(told(&harness)["a"], [0], "not yet");
    harness.pass(Duration::from_millis(1));
    assert_eq!(told(&harness)["a"], [2]);
    assert_eq!(harness.started(), started, "no round is touched");
}

#[test]
fn servers_that_fail_in_a_row_end_the_job() {
    let mut harness = job(1, &["a"]);
    for number in 0..5 {
        assert_eq!(harness.outcome, None);
        exits(&mut harness, "a", number, Exit::Code(3));
        harness.pass(seconds(30));
    }
    assert_eq!(
        harness.outcome,
        Some(Outcome::ServersFailed { failures: 5 })
    );
    let failure = harness.job.results().named_failure().unwrap();
    assert_eq!(failure.exit, Some(Exit::Code(3)));
    assert_eq!(failure.tail, ["last words"]);
}

#[test]
fn servers_that_a_former_driver_has_ended_are_replaced_at_once_and_are_no_failures() {
    let mut harness = job(1, &["a"]);
    for number in 0..6 {
        ends(&mut harness, "a", number, Exit::Signal(9), true);
        assert_eq!(told(&harness)["a"], [number + 1]);
    }
    assert_eq!(harness.outcome, None);
    assert_eq!(harness.job.results().failures(), 0);
}

#[test]
fn failures_after_a_minute_are_not_in_a_row() {
    let mut harness = job(1, &["a"]);
    for number in 0..10 {
        harness.pass(seconds(61));
        exits(&mut harness, "a", number, Exit::Code(3));
        harness.pass(seconds(1));
    }
    assert_eq!(harness.outcome, None);
}

#[test]
fn a_server_that_has_finished_is_not_replaced() {
    let mut harness = job(2, &["a", "b"]);
    exits(&mut harness, "b", 1, Exit::Code(0));
    harness.pass(seconds(60));
    assert_eq!(
        told(&harness),
        BTreeMap::from([("a", vec![0]), ("b", vec![1])])
    );
}

#[test]
fn the_servers_of_a_lost_host_run_elsewhere_at_once() {
    let mut harness = job(2, &["a", "b"]);
    harness.lose("b");
    assert_eq!(told(&harness)["a"], [0, 2]);
}

#[test]
fn a_host_that_leaves_ends_its_servers_once_others_run_and_is_released_then() {
    let mut harness = job(2, &["a", "b"]);
    harness.commit();
    noticed(&mut harness, "b", Some(120));
    let orders: Vec<_> = (harness.sent.iter())
        .filter_map(|(host, command)| match command {
            AgentCommand::Servers { run, .. } => Some((host.as_str(), run.len())),
            _ => None,
        })
        .collect();
    assert_eq!(orders, [("a", 1), ("b", 1), ("a", 2), ("b", 0)]);
    let shut = |harness: &Harness| {
        let mut sent = harness.sent.iter();
        sent.any(|(host, command)| host.as_str() == "b" && *command == AgentCommand::Shutdown)
    };
    harness.pass(seconds(5));
    assert!(!shut(&harness), "its server hands over what it holds");
    exits(&mut harness, "b", 1, Exit::Signal(15));
    assert!(shut(&harness));
    let stopped = |note: &&Decision| matches!(note, Decision::ServerStopped { .. });
    assert_eq!(harness.notes.iter().filter(stopped).count(), 1);
    assert_eq!(harness.job.results().failures(), 0);
}

#[test]
fn an_agent_that_comes_back_is_told_again() {
    let mut harness = job(2, &["a", "b"]);
    let before = harness.sent.len();
    harness.lose("b");
    harness.connects("b");
    harness.pass(seconds(1));
    let after = &harness.sent[before..];
    let to_b = after.iter().filter(|(host, command)| {
        host.as_str() == "b" && matches!(command, AgentCommand::Servers { .. })
    });
    assert_eq!(
        to_b.count(),
        0,
        "its servers were replaced on the other host"
    );
    assert_eq!(told(&harness)["a"], [0, 2]);
}
