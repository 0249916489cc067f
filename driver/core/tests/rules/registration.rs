//! Hosts that register themselves, beside a source that lists hosts.

use elasticrun_core::{Decision, Event, FailureDomain, Settings};
use elasticrun_protocol::{AgentCommand, HostId};

use crate::{
    draining::failures,
    harness::{Harness, gone, host, pending, range, seconds},
    hosts::elastic,
};

/// A job whose agents register themselves. The agents of these hosts have registered, and their workers train.
fn job(hosts: &[&str]) -> Harness {
    job_of(elastic(1, 1, 4), hosts)
}

fn job_of(settings: Settings, hosts: &[&str]) -> Harness {
    begin(Harness::new(of_registration(settings)), hosts)
}

/// A job whose agents return over a new connection when one ends.
fn returning(settings: Settings, hosts: &[&str]) -> Harness {
    let mut harness = Harness::new(of_registration(settings));
    harness.returns = true;
    begin(harness, hosts)
}

fn of_registration(settings: Settings) -> Settings {
    Settings {
        self_registration: true,
        ..settings
    }
}

fn begin(mut harness: Harness, hosts: &[&str]) -> Harness {
    let list: Vec<_> = hosts.iter().map(|name| host(name, 1)).collect();
    harness.list(&list);
    for name in hosts {
        harness.connects(name);
    }
    harness.pass(seconds(2));
    assert_eq!(harness.size() as usize, hosts.len());
    harness.commit();
    harness
}

#[test]
fn a_list_that_says_not_yet_holds_for_a_host_that_registered_itself() {
    let mut harness = job(&["a"]);
    harness.list(&[host("a", 1), pending("b", 1)]);
    harness.connects("b");
    harness.pass(seconds(5));
    assert_eq!((harness.runs("b"), harness.size()), (0, 1));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(5));
    assert_eq!(harness.size(), 2, "it is ready now");
    for _ in 0..2 {
        harness.list(&[host("a", 1), pending("b", 1)]);
    }
    harness.pass(seconds(5));
    assert_eq!((harness.runs("b"), harness.size()), (0, 1));
    let ordered = (HostId::new("b"), AgentCommand::Shutdown);
    assert!(!harness.sent.contains(&ordered), "its agent stays");
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(5));
    assert_eq!((harness.size(), failures(&harness)), (2, 0));
}

#[test]
fn a_list_that_says_gone_removes_a_host_that_registered_itself() {
    let mut harness = job(&["a", "b"]);
    harness.list(&[host("a", 1), gone("b")]);
    harness.pass(seconds(5));
    assert_eq!((harness.runs("b"), harness.size()), (0, 1));
    let ordered = (HostId::new("b"), AgentCommand::Shutdown);
    assert!(harness.sent.contains(&ordered), "its agent is dismissed");
    assert_eq!(failures(&harness), 0);
}

#[test]
fn a_host_that_no_list_has_is_a_further_host() {
    let mut harness = job(&["a"]);
    harness.connects("z");
    harness.pass(seconds(5));
    for _ in 0..3 {
        harness.list(&[host("a", 1)]);
    }
    harness.pass(seconds(5));
    assert_eq!(harness.size(), 2);
}

#[test]
fn the_end_of_an_agent_whose_host_has_left_the_list_is_no_failure() {
    let mut harness = job(&["a", "b"]);
    for _ in 0..2 {
        harness.list(&[host("a", 1)]);
    }
    assert_eq!(harness.size(), 2, "it trains as long as its agent is there");
    harness.lose("b");
    harness.pass(seconds(15));
    assert_eq!((harness.size(), failures(&harness)), (1, 0));
    let early = |note: &Decision| matches!(note, Decision::WentEarly { .. });
    assert!(harness.notes.iter().any(early));
}

#[test]
fn hosts_that_are_gone_are_not_visited() {
    let mut harness = job(&["a"]);
    for number in 0..200 {
        let name = format!("attempt-{number}");
        harness.connects(&name);
        harness.lose(&name);
    }
    let hosts: Vec<_> = harness
        .job
        .fleet()
        .hosts()
        .map(|(host, _)| host.as_str())
        .collect();
    assert_eq!(hosts, ["a"]);
}

#[test]
fn a_cooldown_of_a_host_that_is_gone_is_not_announced() {
    let settings = Settings {
        cooldown: range(5, 5),
        failure_domain: FailureDomain::Host,
        ..elastic(1, 1, 4)
    };
    let mut harness = job_of(settings, &["a", "b", "c"]);
    let over = |harness: &Harness| {
        let over = |note: &Decision| match note {
            Decision::CooldownOver { domain } => Some(domain.host().to_string()),
            _ => None,
        };
        harness.notes.iter().filter_map(over).collect::<Vec<_>>()
    };
    harness.lose("b");
    harness.kill("c", 0);
    assert_eq!(harness.blacklisted(), 2);
    harness.pass(seconds(20));
    assert_eq!(over(&harness), ["c"], "b has not registered again");
}

/// The reaper process of an agent reports its death.
fn died(harness: &mut Harness, name: &str, agent: u64) {
    harness.event(Event::AgentDied {
        host: name.into(),
        agent,
        why: "its agent died".to_owned(),
    });
}

#[test]
fn a_host_fails_at_once_when_its_agent_has_died() {
    for connection_ends_first in [true, false] {
        let mut harness = returning(elastic(1, 1, 4), &["a", "b"]);
        if connection_ends_first {
            harness.breaks_off("a");
            assert_eq!(failures(&harness), 0, "the agent may return");
            died(&mut harness, "a", 1);
        } else {
            died(&mut harness, "a", 1);
            assert_eq!(failures(&harness), 0, "the end of the connection follows");
            harness.breaks_off("a");
        }
        assert!(failures(&harness) > 0);
        assert_eq!(harness.size(), 1, "b goes on at once");
    }
}

#[test]
fn the_death_of_an_agent_that_was_replaced_changes_nothing() {
    let mut harness = returning(elastic(1, 1, 4), &["a", "b"]);
    harness.breaks_off("a");
    died(&mut harness, "a", 7);
    died(&mut harness, "c", 1);
    assert_eq!(failures(&harness), 0);
}

#[test]
fn a_job_that_ends_does_not_wait_for_an_agent_that_has_died() {
    let mut harness = returning(elastic(1, 1, 4), &["a", "b"]);
    harness.breaks_off("a");
    harness.event(Event::StopRequested { signal: 15 });
    harness.ends_agent("b");
    assert!(!harness.exited);
    died(&mut harness, "a", 1);
    assert!(harness.exited);
}

#[test]
fn a_job_that_ends_waits_for_agents_that_are_away_no_longer_than_usual_with_a_long_grace() {
    let grace = seconds(300);
    let mut harness = returning(
        Settings {
            grace,
            ..elastic(1, 1, 4)
        },
        &["a", "b"],
    );
    harness.breaks_off("a");
    harness.event(Event::StopRequested { signal: 15 });
    harness.ends_agent("b");
    harness.pass(seconds(11));
    assert!(!harness.exited);
    harness.pass(seconds(2));
    assert!(harness.exited);
}
