//! Agents that come back twice, after the end of the job, or replaced by another one.

use std::time::Duration;

use elasticrun_core::{Decision, Event, results::Outcome};
use elasticrun_protocol::{
    AgentCommand, AgentReport, HostId, Round,
    control::{Adoption, Exit, Kept},
};

use crate::{
    harness::{Harness, commit, process, seconds},
    later_driver::{elastic, trains, went_on_without_a},
    returning::{adoption, in_round_1, rounds, training},
};

fn took_over(harness: &Harness) -> Option<Option<Round>> {
    harness.notes.iter().find_map(|note| match note {
        Decision::TookOver { round, .. } => Some(*round),
        _ => None,
    })
}

fn count(harness: &Harness, counts: impl Fn(&Decision) -> bool) -> usize {
    harness.notes.iter().filter(|note| counts(note)).count()
}

/// Seed 588432 of the simulation: the connection over which an agent was taken back broke before the agent knew that.
#[test]
fn an_agent_that_does_not_know_that_it_was_taken_back_comes_back_as_any_other() {
    for breaks in [true, false] {
        let mut harness = trains(elastic());
        harness.driver_dies(0);
        let process = harness.forgets("b", 1);
        harness.says_to_nobody(
            "b",
            AgentReport::Exited {
                process,
                exit: Exit::Signal(9),
                tail: Vec::new(),
                stopped: false,
            },
        );
        let kept = harness.adoption("b");
        harness.comes_back_with_workers("a");
        harness.comes_back_as("b", kept.clone());
        assert_eq!(took_over(&harness), Some(None));
        if breaks {
            harness.breaks_off("b");
        }
        harness.comes_back_as("b", kept);
        let failed = |note: &Decision| matches!(note, Decision::WorkerFailed { .. });
        assert_eq!(count(&harness, failed), 1, "{breaks}: {:?}", harness.notes);
        let lost = |note: &Decision| matches!(note, Decision::HostFailed { .. });
        assert_eq!(count(&harness, lost), 0, "{breaks}: {:?}", harness.notes);
        let back = |note: &Decision| matches!(note, Decision::HostReturned { .. });
        assert_eq!(count(&harness, back), 1, "{breaks}: {:?}", harness.notes);
    }
}

/// Seed 324292 of the simulation: the host of the last round, whose start was not recorded, has another agent since.
#[test]
fn a_round_does_not_go_on_if_an_agent_is_gone_that_may_have_been_in_a_later_one() {
    let mut found = false;
    for (mut harness, round) in (0..6).filter_map(went_on_without_a) {
        found = true;
        let adoption = harness.adoption("a");
        harness.comes_back_as("a", Adoption { round, ..adoption });
        assert_eq!(took_over(&harness), None, "b is not back");
        harness.begins_anew("b");
        assert_eq!(took_over(&harness), Some(None), "T1");
    }
    assert!(found);
}

/// Seeds 197510 and 688912 of the simulation: the driver that has counted the round dies as well.
#[test]
fn a_round_that_was_not_recorded_counts_once_for_all_later_drivers() {
    let mut found = false;
    for lost in 0..8 {
        let mut harness = trains(elastic());
        let kept = Kept::new(process(0, 1), &[commit(1, 1).into()]);
        harness.lose_members();
        harness.driver_dies(lost);
        if harness.recorded_rounds() != Some((Round(1), None)) {
            continue;
        }
        found = true;
        for _ in 0..2 {
            let kept = vec![kept.clone()];
            let adoption = harness.adoption("a");
            harness.comes_back_as("a", Adoption { kept, ..adoption });
            assert_eq!(took_over(&harness), None, "{lost}: b is not back");
            assert_eq!(harness.job.rounds_started(), 1, "{lost}");
            harness.driver_dies(0);
        }
    }
    assert!(found);
}

/// Seed 961160 of the simulation: the first answer to a heartbeat renewed the lease of a round that was over.
#[test]
fn workers_that_come_back_after_the_end_leave_a_round_that_was_over_before() {
    let mut harness = training(2);
    harness.pass_with(&["b"], seconds(7));
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

/// Seed 867052 of the simulation.
#[test]
fn the_end_of_a_launch_is_not_that_of_the_agent_that_has_connected_since() {
    let mut harness = training(4);
    harness.breaks_off("a");
    harness.passive.extend(["a".into(), "b".into()]);
    harness.event(Event::StopRequested { signal: 15 });
    harness.connects_again("a", true);
    harness.disconnected.clear();
    harness.event(Event::LaunchFailed {
        host: "a".into(),
        why: "its agent has ended".into(),
    });
    assert_eq!(harness.disconnected, [], "its connection counts");
    assert_eq!(harness.outcome, Some(Outcome::Stopped { signal: 15 }));
}
