//! Hosts whose connection ends, and whose agents return with their workers.

use std::time::Duration;

use elasticrun_core::{
    Decision, FailureDomain, Rejected, RestartMode, Settings,
    blacklist::{Domain, Out},
    rounds::Phase,
};
use elasticrun_protocol::{
    AgentCommand, AgentReport, DriverEpoch, FromAgent, LocalRank, Process, Round,
    control::{AdoptedPhase, AdoptedWorker, Adoption, Exit, StopReason},
};

use crate::{harness::*, hosts::elastic};

/// Hosts a and b with two workers each, in round 1. The agents return, and `min_np` workers suffice.
pub(crate) fn training(min_np: u32) -> Harness {
    let mut harness = Harness::new(elastic(4, min_np, 4));
    harness.returns = true;
    harness.list(&[host("a", 2), host("b", 2)]);
    assert_eq!(harness.round(), Round(1));
    harness
}

fn worker(slot: u32, phase: AdoptedPhase) -> AdoptedWorker {
    AdoptedWorker {
        process: process(slot, 1),
        phase,
        attached: true,
        left: None,
        data_port: 1,
        commit: None,
        empty: false,
        stopping: false,
    }
}

/// Two workers of a host that are in this phase, and these reports.
pub(crate) fn adoption(phase: AdoptedPhase, reports: Vec<FromAgent>) -> Adoption {
    Adoption {
        run_id: "run".into(),
        epoch: DriverEpoch(1),
        workers: vec![worker(0, phase), worker(1, phase)],
        starts: vec![process(0, 1), process(1, 1)],
        cut: None,
        servers: Vec::new(),
        reports,
        ..Adoption::default()
    }
}

pub(crate) fn in_round_1() -> AdoptedPhase {
    AdoptedPhase::Training { round: Round(1) }
}

pub(crate) fn rounds(harness: &Harness) -> usize {
    let started = |note: &&Decision| matches!(note, Decision::RoundStarted { .. });
    harness.notes.iter().filter(started).count()
}

pub(crate) fn aborted(harness: &Harness) -> bool {
    let aborts = |note: &Decision| matches!(note, Decision::RoundAborted { started: true, .. });
    harness.notes.iter().any(aborts)
}

fn failed(harness: &Harness) -> bool {
    let fails = |note: &Decision| matches!(note, Decision::HostFailed { .. });
    harness.notes.iter().any(fails)
}

#[test]
fn a_round_whose_hosts_are_all_back_goes_on() {
    let mut harness = training(4);
    harness.breaks_off("a");
    harness.breaks_off("b");
    harness.pass(seconds(8));
    for host in ["a", "b"] {
        harness.returns(host, adoption(in_round_1(), Vec::new()));
    }
    harness.pass(seconds(600));
    assert!(
        !aborted(&harness) && !failed(&harness),
        "{:?}",
        harness.notes
    );
    assert_eq!(rounds(&harness), 1);
    let phase = &harness.job.rounds().phase;
    assert!(matches!(phase, Phase::Training(training) if training.round == Round(1)));
}

#[test]
fn survivors_do_not_wait_for_a_host_that_is_silent() {
    let mut harness = training(2);
    harness.pass_with(&["b"], seconds(7));
    harness.pass(Duration::from_millis(500));
    harness.breaks_off("a");
    assert!(aborted(&harness));
    assert_eq!(rounds(&harness), 2, "at once");
    assert!(!failed(&harness), "the host is only out of reach");
    harness.returns("a", adoption(in_round_1(), Vec::new()));
    let aborts = (harness.sent.iter()).any(|(host, command)| {
        host.as_str() == "a" && *command == AgentCommand::Abort { round: Round(1) }
    });
    assert!(
        aborts,
        "its workers come back as survivors: {:?}",
        harness.sent
    );
}

#[test]
fn a_host_that_does_not_return_is_lost() {
    let mut harness = training(4);
    harness.breaks_off("a");
    let keep = harness.job.settings().fence + harness.job.settings().keep;
    harness.pass(keep - seconds(1));
    assert!(!failed(&harness) && !aborted(&harness));
    harness.pass(seconds(1));
    assert!(failed(&harness) && aborted(&harness));
}

#[test]
fn a_host_whose_agent_has_ended_is_lost_at_once() {
    for launch_first in [false, true] {
        let mut harness = training(4);
        let ends = |harness: &mut Harness| {
            harness.event(elasticrun_core::Event::LaunchFailed {
                host: "a".into(),
                why: "it was killed".into(),
            });
        };
        if launch_first {
            ends(&mut harness);
            assert!(!failed(&harness), "its connection counts");
        }
        harness.breaks_off("a");
        if !launch_first {
            ends(&mut harness);
        }
        assert!(failed(&harness) && aborted(&harness));
    }
}

#[test]
fn reports_that_were_lost_with_the_connection_are_applied_once() {
    let mut harness = training(4);
    harness.breaks_off("a");
    let exit = Exit::Signal(9);
    let report = AgentReport::Exited {
        process: process(1, 1),
        exit,
        tail: Vec::new(),
        stopped: false,
    };
    let lost = FromAgent {
        epoch: DriverEpoch(1),
        number: 1_000,
        report,
    };
    let mut kept = adoption(in_round_1(), vec![lost.clone(), lost]);
    kept.workers.pop();
    harness.returns("a", kept);
    let fails = |note: &&Decision| matches!(note, Decision::WorkerFailed { .. });
    assert_eq!(harness.notes.iter().filter(fails).count(), 1);
    assert!(aborted(&harness));
}

#[test]
fn a_process_that_the_agent_does_not_have_is_lost() {
    let mut harness = training(4);
    harness.breaks_off("a");
    let mut kept = adoption(in_round_1(), Vec::new());
    kept.workers.pop();
    harness.returns("a", kept);
    let fails = |note: &Decision| matches!(note, Decision::WorkerFailed { process, .. } if *process == self::process(1, 1));
    assert!(harness.notes.iter().any(fails));
}

#[test]
fn a_process_that_the_job_does_not_know_is_stopped() {
    let mut harness = training(4);
    harness.breaks_off("a");
    let mut kept = adoption(in_round_1(), Vec::new());
    kept.workers.push(worker(2, AdoptedPhase::Joined));
    harness.returns("a", kept);
    let (process, why) = (process(2, 1), StopReason::Removed);
    let stop = AgentCommand::Stop { process, why };
    assert!(harness.sent.iter().any(|(_, command)| *command == stop));
    assert!(!aborted(&harness));
}

#[test]
fn agents_of_another_run_begin_anew_and_disturb_nobody() {
    let mut harness = training(4);
    let other = Adoption {
        run_id: "other".into(),
        ..adoption(in_round_1(), Vec::new())
    };
    harness.returns("a", other);
    assert_eq!(harness.sent_back.len(), 1);
    assert!(!aborted(&harness) && harness.job.fleet().host(&"a".into()).is_some());
    assert!(harness.rejected.contains(&Rejected::Unadoptable));
}

#[test]
fn an_agent_that_obeys_a_newer_driver_is_left_alone() {
    let mut harness = training(4);
    harness.breaks_off("a");
    let newer = Adoption {
        epoch: DriverEpoch(2),
        ..adoption(in_round_1(), Vec::new())
    };
    harness.returns("a", newer);
    assert_eq!(harness.sent_back, []);
    assert_eq!(harness.refused.len(), 1);
    let newer = Rejected::OtherDriver(DriverEpoch(2));
    assert!(harness.rejected.contains(&newer));
}

#[test]
fn a_connection_that_replaces_one_whose_end_is_unknown_costs_nothing() {
    let mut harness = training(2);
    harness.returns("a", adoption(in_round_1(), Vec::new()));
    assert!(!aborted(&harness) && !failed(&harness));
    assert_eq!(rounds(&harness), 1);
}

#[test]
fn a_job_that_ends_tells_a_host_that_returns() {
    let mut harness = training(4);
    harness.breaks_off("a");
    harness.event(elasticrun_core::Event::StopRequested { signal: 15 });
    harness.ends_agent("b");
    assert!(!harness.exited, "it waits as for the others");
    harness.returns("a", adoption(in_round_1(), Vec::new()));
    let told = (harness.sent.iter())
        .any(|(host, command)| host.as_str() == "a" && *command == AgentCommand::Shutdown);
    assert!(told);
    harness.pass(seconds(60));
    assert!(harness.exited, "and no longer");
}

#[test]
fn a_group_that_is_over_is_stopped_where_its_host_was_out_of_reach() {
    let settings = Settings {
        restart_mode: elasticrun_core::RestartMode::Process,
        ..elastic(4, 2, 4)
    };
    let mut harness = Harness::new(settings);
    (harness.returns, harness.slow) = (true, true);
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.breaks_off("a");
    let over = |note: &Decision| matches!(note, Decision::GroupEnded { .. });
    harness.pass_with(&["b"], harness.job.settings().fence - seconds(1));
    assert!(
        !harness.notes.iter().any(over),
        "a short break costs nothing"
    );
    harness.pass_with(&["b"], seconds(2));
    assert!(harness.notes.iter().any(over), "{:?}", harness.notes);
    harness.sent.clear();
    harness.returns("a", adoption(AdoptedPhase::Starting, Vec::new()));
    let stopped: Vec<Process> = (harness.sent.iter())
        .filter_map(|(host, command)| match command {
            AgentCommand::Stop { process, .. } if host.as_str() == "a" => Some(*process),
            _ => None,
        })
        .collect();
    assert_eq!(stopped, [process(0, 1), process(1, 1)], "R11");
}

#[test]
fn the_slots_of_a_host_that_returns_before_its_connection_ends_count_once() {
    let settings = Settings {
        restart_mode: elasticrun_core::RestartMode::Process,
        max_np: Some(6),
        ..elastic(4, 2, 6)
    };
    let mut harness = Harness::new(settings);
    (harness.returns, harness.slow) = (true, true);
    harness.list(&[host("a", 2), host("b", 2)]);
    for host in ["a", "b"] {
        harness.returns(host, adoption(AdoptedPhase::Starting, Vec::new()));
    }
    harness.pass(seconds(600));
    let over = |note: &Decision| matches!(note, Decision::GroupEnded { .. });
    assert!(
        !harness.notes.iter().any(over),
        "no slot was added: {:?}",
        harness.notes
    );
}

#[test]
fn a_host_whose_agent_is_leaving_is_lost_with_its_connection() {
    let mut harness = training(4);
    harness.report("a", AgentReport::Leaving);
    assert!(!failed(&harness));
    harness.breaks_off("a");
    assert!(failed(&harness) && aborted(&harness));
}

/// The slot stays empty for longer than a failure takes to be forgiven.
#[test]
fn a_process_whose_start_was_lost_gives_its_slot_no_health() {
    let mut harness = Harness::new(Settings {
        restart_mode: RestartMode::Process,
        max_restarts: 9,
        max_host_failures: Some(2),
        failure_domain: FailureDomain::Slot,
        cooldown: range(0, 10),
        ..Settings::elastic(2, 2, Some(2))
    });
    (harness.slow, harness.returns) = (true, true);
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.kill("b", 0);
    harness.list(&[host("a", 2), host("b", 1)]);
    assert_eq!((harness.runs("a"), harness.runs("b")), (1, 1));
    harness.breaks_off("b");
    harness.forgets("b", 0);
    let kept = Adoption {
        run_id: "run".into(),
        epoch: DriverEpoch(1),
        starts: vec![process(0, 1)],
        ..Adoption::default()
    };
    harness.returns("b", kept);
    assert_eq!((harness.runs("a"), harness.runs("b")), (2, 0));
    harness.pass_with(&["a", "b"], seconds(30));
    harness.list(&[host("a", 1), host("b", 1)]);
    assert_eq!((harness.runs("a"), harness.runs("b")), (1, 1));
    harness.kill("b", 0);
    let out = Decision::Blacklisted {
        domain: Domain::Slot("b".into(), LocalRank(0)),
        out: Out::ForGood,
    };
    assert!(harness.notes.contains(&out), "{:?}", harness.notes);
}

/// Rounds count from 1, and so have groups.
#[test]
fn a_member_of_a_group_that_is_out_of_reach_is_in_no_round() {
    let mut harness = Harness::new(Settings {
        restart_mode: RestartMode::Auto,
        ..elastic(2, 2, 4)
    });
    (harness.slow, harness.returns) = (true, true);
    let hosts = ["a", "b", "c", "d"].map(|name| host(name, 1));
    harness.list(&hosts[..3]);
    assert_eq!(harness.job.groups().running(), Some(Round(1)));
    harness.breaks_off("c");
    harness.joins("a", 0);
    harness.joins("b", 0);
    harness.pass_with(&["a", "b"], seconds(1));
    assert_eq!((harness.round(), harness.size()), (Round(1), 2));
    harness.list(&hosts);
    harness.joins("d", 0);
    harness.pass_with(&["a", "b", "d"], seconds(2));
    assert_eq!(harness.size(), 3, "d need not wait for c");
}
