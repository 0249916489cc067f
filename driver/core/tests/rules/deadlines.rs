//! Deadlines that take effect in the step of an event.

use elasticrun_core::{Settings, results::Outcome};
use elasticrun_protocol::{HostId, Report};

use crate::{
    hosts::elastic,
    play::{Play, host, range, seconds},
};

#[test]
fn an_agent_that_connects_as_its_start_timeout_passes_is_not_disconnected() {
    let mut play = Play::new(Settings {
        start_timeout: seconds(5),
        cooldown: range(1, 60),
        ..elastic(1, 1, 1)
    });
    play.passive.insert("a".into());
    play.list(&[host("a", 1)]);
    play.now = play.now + seconds(5);
    play.connects("a");
    let id = HostId::new("a");
    assert_eq!(play.disconnected, [], "what has just come stays");
    assert_eq!(play.ended_launches, [(id, true)], "the launch is given up");
    play.pass(seconds(2));
    assert_eq!(play.runs("a"), 1, "the agent is used after the cooldown");
    assert_eq!(play.blacklisted(), 1, "one failure, not two");
}

#[test]
fn an_event_in_the_step_that_ends_the_job_begins_nothing() {
    let mut play = Play::new(elastic(2, 1, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    play.finishes("a", 0);
    play.ends("a", 0, elasticrun_protocol::control::Exit::Code(0));
    let (orders, notes) = (play.orders.len(), play.notes.len());
    play.now = play.now + seconds(300);
    let process = play.current("b", 0);
    let silent = false;
    play.report("b", Report::Lost { process, silent });
    assert!(matches!(play.outcome, Some(Outcome::WorkerFailed(_))));
    assert_eq!(play.notes.len(), notes, "R10");
    let begun = |(_, order): &&(HostId, _)| *order != elasticrun_protocol::Order::Shutdown;
    assert_eq!(play.orders[orders..].iter().find(begun), None, "R10");
}
