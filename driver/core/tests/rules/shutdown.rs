//! After the end of a job: the driver asks agents to end, commands them to kill, and gives them up.

use elasticrun_core::Event;
use elasticrun_protocol::{AgentCommand, HostId};

use crate::harness::{Harness, host, seconds};
use elasticrun_core::Settings;

/// Two hosts train, their agents do nothing by themselves any more, and the user stops the job.
fn stopped() -> Harness {
    let mut harness = Harness::new(Settings::elastic(2, 1, Some(2)));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.passive.extend(["a", "b"].map(HostId::new));
    harness.sent.clear();
    harness.event(Event::StopRequested { signal: 2 });
    harness
}

/// The hosts that got this order, in the order of sending.
fn told(harness: &Harness, command: &AgentCommand) -> Vec<String> {
    let same = harness.sent.iter().filter(|(_, sent)| sent == command);
    same.map(|(host, _)| host.to_string()).collect()
}

#[test]
fn agents_are_asked_and_the_driver_exits_when_the_last_one_is_gone() {
    let mut harness = stopped();
    assert_eq!(told(&harness, &AgentCommand::Shutdown), ["a", "b"]);
    harness.lose("a");
    assert!(!harness.exited);
    harness.lose("b");
    assert!(harness.exited);
    assert_eq!(told(&harness, &AgentCommand::Kill), [""; 0]);
    assert_eq!(harness.job.next_deadline(), None);
}

#[test]
fn agents_that_do_not_end_in_time_are_told_to_kill_and_then_given_up() {
    let mut harness = stopped();
    harness.lose("a");
    harness.pass(seconds(11));
    assert_eq!(
        told(&harness, &AgentCommand::Kill),
        [""; 0],
        "two times the grace, and two seconds"
    );
    harness.pass(seconds(1));
    assert_eq!(told(&harness, &AgentCommand::Kill), ["b"]);
    assert!(!harness.exited);
    let closed = harness.disconnected.len();
    harness.pass(seconds(1));
    assert_eq!(harness.disconnected.len(), closed + 1);
    assert!(harness.exited);
}

/// Seed 156958 of the simulation.
#[test]
fn an_event_behind_a_deadline_of_the_shutdown_lets_it_take_effect() {
    let mut harness = stopped();
    harness.lose("a");
    harness.now = harness.now + seconds(12);
    harness.lose("b");
    assert_eq!(
        told(&harness, &AgentCommand::Kill),
        ["b"],
        "the command came before the loss"
    );
    assert!(harness.exited);
}

#[test]
fn a_second_signal_kills_and_a_third_changes_nothing() {
    let mut harness = stopped();
    harness.pass(seconds(3));
    for _ in 0..2 {
        harness.event(Event::StopRequested { signal: 2 });
        assert_eq!(told(&harness, &AgentCommand::Kill), ["a", "b"]);
    }
    harness.pass(seconds(1));
    assert!(harness.exited);
}

#[test]
fn an_agent_that_connects_behind_the_end_is_told_what_the_others_were_told() {
    let mut harness = stopped();
    harness.connects("c");
    assert_eq!(told(&harness, &AgentCommand::Shutdown), ["a", "b", "c"]);
    harness.event(Event::StopRequested { signal: 2 });
    harness.connects("d");
    assert_eq!(told(&harness, &AgentCommand::Kill), ["a", "b", "c", "d"]);
    for host in ["a", "b", "c"] {
        harness.lose(host);
    }
    assert!(!harness.exited, "the last one is waited for");
    harness.lose("d");
    assert!(harness.exited);
}

#[test]
fn a_job_without_agents_exits_when_it_ends() {
    let mut harness = Harness::new(Settings::elastic(2, 1, Some(2)));
    let why = "no such group".to_owned();
    harness.event(Event::SourceFailed {
        source: 0,
        fatal: true,
        why,
    });
    assert!(harness.exited);
}

/// Seed 4913 of the simulation.
#[test]
fn what_fails_at_the_same_moment_is_done_with_before_the_driver_exits() {
    let mut harness = Harness::new(Settings {
        start_timeout: seconds(5),
        ..Settings::standard(2)
    });
    harness.passive.extend(["a", "b"].map(HostId::new));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(5));
    assert!(harness.exited);
    assert_eq!(harness.ended_launches.len(), 2);
}
