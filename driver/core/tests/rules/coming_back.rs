//! Agents that come back twice, after the end of the job, or replaced by another one.

use std::time::Duration;

use elasticrun_core::Event;
use elasticrun_protocol::{AgentCommand, HostId, Round};

use crate::{
    harness::seconds,
    returning::{adoption, in_round_1, rounds, training},
};

/// Seed 961160 of the simulation: the first answer to a heartbeat renewed the lease of a round that was over.
#[test]
fn workers_that_come_back_after_the_end_leave_a_round_that_was_over_before() {
    let mut harness = training(2);
    for _ in 0..7 {
        harness.pass(seconds(1));
        harness.beats("b");
    }
    harness.pass(Duration::from_millis(500));
    harness.breaks_off("a");
    assert_eq!(rounds(&harness), 2);
    harness.passive.insert("b".into());
    harness.event(Event::StopRequested { signal: 15 });
    harness.sent.clear();
    harness.returns("a", adoption(in_round_1(), Vec::new()));
    let (abort, end) = (
        AgentCommand::Abort { round: Round(1) },
        AgentCommand::Shutdown,
    );
    let to_a = |(host, command): &(HostId, AgentCommand)| {
        (host.as_str() == "a" && (*command == abort || *command == end)).then(|| command.clone())
    };
    let told: Vec<_> = harness.sent.iter().filter_map(to_a).collect();
    assert_eq!(told, [abort.clone(), end.clone()], "R11");
}
