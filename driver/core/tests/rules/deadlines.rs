//! Deadlines that take effect in the step of an event.

use elasticrun_core::{Settings, results::Outcome};
use elasticrun_protocol::{AgentReport, HostId};

use crate::{
    harness::{Harness, host, range, seconds},
    hosts::elastic,
};

#[test]
fn an_agent_that_connects_as_its_start_timeout_passes_is_not_disconnected() {
    let mut harness = Harness::new(Settings {
        start_timeout: seconds(5),
        cooldown: range(1, 60),
        ..elastic(1, 1, 1)
    });
    harness.passive.insert("a".into());
    harness.list(&[host("a", 1)]);
    harness.now = harness.now + seconds(5);
    harness.connects("a");
    let id = HostId::new("a");
    assert_eq!(harness.disconnected, [], "what has just come stays");
    assert_eq!(
        harness.ended_launches,
        [(id, true)],
        "the launch is given up"
    );
    harness.pass(seconds(2));
    assert_eq!(harness.runs("a"), 1, "the agent is used after the cooldown");
    assert_eq!(harness.blacklisted(), 1, "one failure, not two");
}

#[test]
fn an_event_in_the_step_that_ends_the_job_begins_nothing() {
    let mut harness = Harness::new(elastic(2, 1, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.finishes("a", 0);
    harness.ends("a", 0, elasticrun_protocol::control::Exit::Code(0));
    let (commands, notes) = (harness.sent.len(), harness.notes.len());
    harness.now = harness.now + seconds(300);
    let process = harness.current("b", 0);
    let silent = false;
    harness.report("b", AgentReport::WorkerLost { process, silent });
    assert!(matches!(harness.outcome, Some(Outcome::WorkerFailed(_))));
    assert_eq!(harness.notes.len(), notes, "R10");
    let begun =
        |(_, command): &&(HostId, _)| *command != elasticrun_protocol::AgentCommand::Shutdown;
    assert_eq!(harness.sent[commands..].iter().find(begun), None, "R10");
}
