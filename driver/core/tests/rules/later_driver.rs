//! A later driver that learns late, or not at all, what the former one knew.

use elasticrun_core::{
    Decision, Departure, FailureDomain, RestartMode, Settings,
    registry::State,
    results::{Outcome, Reason},
};
use elasticrun_protocol::{
    AgentCommand, AgentReport, HostId, Process, Round,
    control::{AdoptedPhase, AdoptedRound, Adoption, Exit, StopReason},
};

use crate::{
    draining::noticed,
    harness::{Harness, commit, host, range, seconds},
    returning::rounds,
};

pub(crate) fn elastic() -> Settings {
    Settings {
        cooldown: range(20, 300),
        ..Settings::elastic(4, 1, Some(4))
    }
}

/// Two hosts with two workers each train in round 1. Agents return.
pub(crate) fn trains(settings: Settings) -> Harness {
    let mut harness = Harness::new(settings);
    harness.returns = true;
    harness.list(&[host("a", 2), host("b", 2)]);
    assert_eq!((harness.started(), harness.size()), (1, 4));
    harness.commit();
    harness
}

/// Two scripts train on each of two hosts.
pub(crate) fn scripts(settings: Settings) -> Harness {
    let mut harness = Harness::new(settings);
    harness.slow = true;
    harness.list(&[host("a", 2), host("b", 2)]);
    assert_eq!(harness.runs("a") + harness.runs("b"), 4);
    harness
}

pub(crate) fn exited(process: Process, exit: Exit) -> AgentReport {
    AgentReport::Exited {
        process,
        exit,
        tail: Vec::new(),
        stopped: false,
    }
}

pub(crate) fn took_over(harness: &Harness) -> bool {
    let is = |note: &Decision| matches!(note, Decision::TookOver { .. });
    harness.notes.iter().any(is)
}

pub(crate) fn failures(harness: &Harness) -> usize {
    let failed = |note: &&Decision| matches!(note, Decision::WorkerFailed { .. });
    harness.notes.iter().filter(failed).count()
}

#[track_caller]
pub(crate) fn assert_stopped(harness: &Harness, name: &str, process: Process, why: StopReason) {
    let stop = (name.into(), AgentCommand::Stop { process, why });
    assert!(harness.sent.contains(&stop), "{:?}", harness.sent);
}

/// What the agent of a host has kept of this driver.
pub(crate) fn kept_of(harness: &Harness, name: &str) -> Adoption {
    let mut adoption = harness.adoption(name);
    adoption.epoch.0 += 1;
    adoption
}

#[test]
fn a_failure_that_waits_for_other_hosts_waits_also_if_its_host_returns() {
    let mut harness = trains(elastic());
    harness.driver_dies(0);
    let process = harness.forgets("b", 1);
    harness.comes_back_and_says("b", vec![exited(process, Exit::Signal(9))]);
    harness.breaks_off("b");
    harness.returns("b", kept_of(&harness, "b"));
    assert_eq!(failures(&harness), 0, "a is not back");
    harness.comes_back_with_workers("a");
    assert!(took_over(&harness));
    assert_eq!((failures(&harness), harness.blacklisted()), (1, 1));
}

/// The records name the newest report that is applied, so they cannot tell that a later one is applied and an earlier is not.
#[test]
fn a_failure_of_a_host_that_returns_waits_for_the_earlier_ones() {
    let mut harness = trains(elastic());
    harness.driver_dies(0);
    let first = harness.forgets("b", 0);
    harness.comes_back_and_says("b", vec![exited(first, Exit::Signal(9))]);
    harness.breaks_off("b");
    let second = harness.forgets("b", 1);
    harness.says_to_nobody("b", exited(second, Exit::Signal(9)));
    harness.returns("b", kept_of(&harness, "b"));
    assert_eq!(failures(&harness), 0, "a is not back");
    harness.comes_back_with_workers("a");
    assert_eq!(failures(&harness), 2);
}

#[test]
fn a_spare_that_comes_back_after_the_first_success_is_stopped() {
    let mut harness = Harness::new(Settings {
        spares: 1,
        ..elastic()
    });
    harness.returns = true;
    harness.list(&[host("a", 2), host("b", 2), host("c", 1)]);
    assert_eq!((harness.size(), harness.runs("c")), (4, 1));
    harness.driver_dies(0);
    let done = harness.forgets("a", 0);
    harness.comes_back_and_says("a", vec![exited(done, Exit::Code(0))]);
    harness.comes_back_with_workers("b");
    assert!(took_over(&harness));
    let spare = harness.current("c", 0);
    harness.comes_back_with_workers("c");
    assert_stopped(&harness, "c", spare, StopReason::JobEnded);
}

/// The workers of b have attached, so the failure is that of one worker.
#[test]
fn a_script_that_fails_before_all_hosts_are_back_ends_no_job() {
    let mut harness = scripts(Settings {
        restart_mode: RestartMode::Auto,
        ..elastic()
    });
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    harness.kill("a", 0);
    assert_eq!((failures(&harness), harness.outcome.clone()), (0, None));
    let mut adoption = harness.adoption("b");
    for worker in &mut adoption.workers {
        worker.attached = true;
    }
    harness.comes_back_as("b", adoption);
    assert!(took_over(&harness) && failures(&harness) == 1);
    assert_eq!((harness.blacklisted(), harness.outcome), (1, None));
}

/// Of four scripts three have ended with code 0. The records of the later driver do not name their group.
fn unknown_scripts_of_which_one_failed() -> Harness {
    let mut harness = scripts(Settings {
        restart_mode: RestartMode::Process,
        max_restarts: 1,
        failure_domain: FailureDomain::Slot,
        ..elastic()
    });
    harness.driver_dies(100);
    for (name, exits) in [("a", [0, 0]), ("b", [0, 1])] {
        let ends = [0, 1].map(|slot| {
            let process = harness.forgets(name, slot);
            exited(process, Exit::Code(exits[slot as usize]))
        });
        harness.comes_back_and_says(name, ends.to_vec());
    }
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.pass(seconds(10));
    assert!(took_over(&harness) && failures(&harness) == 1);
    harness
}

#[test]
fn scripts_of_which_one_failed_are_no_success_if_their_group_is_unknown() {
    let harness = unknown_scripts_of_which_one_failed();
    assert_eq!(harness.outcome, None);
}

/// Three slots have succeeded, and two are left.
#[test]
fn scripts_on_a_host_that_has_left_do_not_stand_for_one_that_failed() {
    let mut harness = unknown_scripts_of_which_one_failed();
    for _ in 0..2 {
        harness.list(&[host("b", 2)]);
    }
    assert_eq!(harness.outcome, None);
}

#[test]
fn failures_of_a_round_that_left_a_commit_are_none_of_the_program() {
    let mut harness = trains(Settings {
        min_np: 4,
        ..elastic()
    });
    harness.driver_dies(0);
    for name in ["a", "b"] {
        let process = harness.forgets(name, 0);
        harness.comes_back_and_says(name, vec![exited(process, Exit::Code(1))]);
    }
    assert_eq!(harness.blacklisted(), 2);
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.pass(seconds(30));
    assert_eq!((rounds(&harness), harness.size()), (1, 4));
    assert!(harness.base().is_some_and(|base| base.count > 0));
    for name in ["a", "b"] {
        harness.ends(name, 0, Exit::Code(1));
    }
    harness.pass(seconds(100));
    assert_eq!((rounds(&harness), harness.outcome), (2, None));
}

/// The loss of the host is recorded, and the start of the round without it is not.
#[test]
fn a_host_that_was_lost_before_is_launched_at_once() {
    let mut harness = Harness::new(Settings {
        cooldown: range(1, 1),
        ..elastic()
    });
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.commit();
    harness.lose("a");
    assert_eq!((harness.started(), harness.size()), (2, 2));
    harness.driver_dies(1);
    assert_eq!(harness.recorded_state("a", 0), Some(State::LostWithHost));
    harness.comes_back_with_workers("b");
    assert!(took_over(&harness));
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.pass(seconds(2));
    assert!(seconds(2) < harness.job.settings().take_over());
    assert_eq!(harness.launched, [HostId::new("a")]);
}

#[test]
fn a_host_that_was_released_is_released_again_if_its_agent_comes_back() {
    let mut harness = Harness::new(elastic());
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.commit();
    noticed(&mut harness, "a", Some(120));
    let released = (HostId::new("a"), Departure::Drained);
    assert!(harness.departures.contains(&released));
    harness.driver_dies(0);
    harness.departures.clear();
    harness.comes_back_with_workers("b");
    assert!(took_over(&harness));
    let adoption = Adoption {
        run_id: "run".into(),
        epoch: harness.former_epoch(),
        ..Adoption::default()
    };
    harness.comes_back_as("a", adoption);
    assert!(harness.departures.contains(&released));
    let dismissed = (HostId::new("a"), AgentCommand::Shutdown);
    assert!(harness.sent.contains(&dismissed), "{:?}", harness.sent);
}

/// The agents of the former driver do not come back, and their workers train on for as long as these may.
#[test]
fn no_round_starts_while_one_may_train_that_is_not_recorded() {
    let mut launched = 0;
    for lost in 0..14 {
        let mut harness = trains(elastic());
        harness.driver_dies(lost);
        harness.unreachable.extend(["a".into(), "b".into()]);
        harness.list(&[host("a", 2), host("b", 2), host("c", 4)]);
        let settings = harness.job.settings();
        let (fence, limit) = (settings.fence, settings.take_over());
        harness.pass(fence - seconds(1));
        assert!(limit < fence && took_over(&harness));
        assert_eq!(rounds(&harness), 0, "{lost}");
        launched += usize::from(harness.runs("c") == 4);
        harness.pass(seconds(100));
    }
    assert!(launched > 0);
}

/// The driver went on with b when a was out of reach, and died with this many of its last records lost. The plan of that round
/// is recorded, and its start is not; none if it is otherwise. Gives what the agent of a was told of its round as well.
pub(crate) fn went_on_without_a(lost: usize) -> Option<(Harness, Option<AdoptedRound>)> {
    let mut harness = Harness::new(Settings {
        spares: 2,
        ..Settings::elastic(2, 1, Some(2))
    });
    harness.returns = true;
    harness.list(&[host("a", 2), host("b", 2)]);
    assert_eq!(harness.members(), [("a".into(), 0), ("a".into(), 1)]);
    harness.commit();
    harness.keeps("b", commit(1, 1));
    let round_of_a = harness.adoption("a").round;
    harness.breaks_off("a");
    harness.pass_with(&["b"], seconds(30));
    assert_eq!((harness.started(), harness.size()), (2, 2));
    harness.driver_dies(lost);
    let sought = harness.recorded_rounds() == Some((Round(2), Some(Round(1))));
    sought.then_some((harness, round_of_a))
}

#[test]
fn a_round_does_not_go_on_while_others_may_be_in_a_later_one() {
    let mut found = false;
    for (mut harness, _) in (0..6).filter_map(went_on_without_a) {
        found = true;
        harness.comes_back_with_workers("a");
        assert!(!took_over(&harness), "{:?}", harness.notes);
        harness.comes_back_with_workers("b");
        let goes_on = |note: &Decision| {
            matches!(
                note,
                Decision::TookOver {
                    round: Some(Round(2)),
                    ..
                }
            )
        };
        assert!(harness.notes.iter().any(goes_on), "{:?}", harness.notes);
    }
    assert!(found);
}

/// Whether its host is needed depends on workers that are not back. The agent of b says how many slots b has, so the slots are
/// counted before a is back.
#[test]
fn a_worker_of_a_draining_host_is_not_stopped_before_the_others_are_back() {
    let b = elasticrun_hosts::Host {
        slots: None,
        slots_from: None,
        ..host("b", 1)
    };
    let list = [host("a", 2), b, host("c", 1)];
    let mut harness = Harness::new(Settings {
        min_np: 3,
        ..elastic()
    });
    harness.list(&list);
    assert_eq!((harness.started(), harness.size()), (1, 4));
    noticed(&mut harness, "a", Some(120));
    harness.driver_dies(0);
    harness.list(&list);
    harness.comes_back_with_workers("b");
    let mut adoption = harness.adoption("a");
    for worker in &mut adoption.workers {
        worker.phase = AdoptedPhase::Returning { round: Round(1) };
    }
    harness.comes_back_as("a", adoption);
    harness.comes_back("a");
    assert!(!took_over(&harness), "c is not back");
    let stops = |(host, command): &(HostId, AgentCommand)| {
        host.as_str() == "a" && matches!(command, AgentCommand::Stop { .. })
    };
    assert!(!harness.sent.iter().any(stops), "{:?}", harness.sent);
}

/// All agents are back, so no process of a former group may run unseen.
#[test]
fn scripts_that_were_never_started_start_when_all_agents_are_back() {
    let mut harness = Harness::new(Settings {
        restart_mode: RestartMode::Process,
        ..elastic()
    });
    harness.unreachable.insert("b".into());
    harness.list(&[host("a", 2), host("b", 2)]);
    assert_eq!(harness.runs("a"), 0, "b is waited for");
    harness.driver_dies(0);
    harness.unreachable.clear();
    harness.list(&[host("a", 4)]);
    harness.comes_back_with_workers("a");
    assert!(took_over(&harness));
    harness.pass(seconds(1));
    assert_eq!(harness.runs("a"), 4);
}

/// The agents have withdrawn the hold with the connection, so the members cannot leave their round together.
#[test]
fn a_standard_job_whose_members_leave_names_the_host_that_goes() {
    let mut harness = Harness::new(Settings::standard(4));
    harness.returns = true;
    harness.passive.extend(["a".into(), "b".into()]);
    harness.list(&[host("a", 2), host("b", 2)]);
    for name in ["a", "b"] {
        harness.connects(name);
    }
    for (name, slot) in [("a", 0), ("a", 1), ("b", 0), ("b", 1)] {
        harness.joins(name, slot);
    }
    assert_eq!((harness.started(), harness.size()), (1, 4));
    harness.list(&[host("a", 2)]);
    harness.list(&[host("a", 2)]);
    let held = |(_, command): &(HostId, AgentCommand)| matches!(command, AgentCommand::Hold { .. });
    assert!(harness.sent.iter().any(held), "{:?}", harness.notes);
    harness.breaks_off("a");
    let failed =
        |note: &Decision| matches!(note, Decision::HostFailed { host, .. } if host.as_str() == "a");
    assert!(harness.notes.iter().any(failed), "{:?}", harness.notes);
    let first = harness.job.results().first_failure();
    assert_eq!(first.map(|first| first.host.as_str()), Some("a"));
    let reason = Reason::Standard;
    assert_eq!(harness.outcome, Some(Outcome::WorkerFailed(reason)));
}

/// The driver between them has lost the agent.
#[test]
fn a_process_that_was_ending_when_its_agent_was_lost_does_not_fail_again() {
    let mut harness = trains(Settings {
        failure_domain: FailureDomain::Slot,
        ..elastic()
    });
    let process = harness.current("a", 0);
    let silent = false;
    harness.report("a", AgentReport::WorkerLost { process, silent });
    assert_eq!(failures(&harness), 1);
    harness.forgets("a", 0);
    harness.unreachable.insert("a".into());
    for comes_back in [false, true] {
        harness.driver_dies(0);
        harness.comes_back_with_workers("b");
        if comes_back {
            harness.comes_back_and_says("a", vec![exited(process, Exit::Code(1))]);
        }
        harness.list(&[host("a", 2), host("b", 2)]);
        harness.pass(seconds(10));
        assert!(took_over(&harness));
        assert_eq!(failures(&harness), 0);
    }
}

/// The former driver has lost the agent of the host, which has failed.
#[test]
fn workers_that_come_back_to_an_excluded_host_are_stopped() {
    let mut harness = Harness::new(elastic());
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.commit();
    harness.breaks_off("a");
    assert_eq!((harness.blacklisted(), harness.size()), (1, 2));
    harness.driver_dies(0);
    harness.comes_back_with_workers("b");
    assert!(took_over(&harness));
    let mut adoption = harness.adoption("a");
    for worker in &mut adoption.workers {
        worker.phase = AdoptedPhase::Joined;
    }
    let processes: Vec<_> = (adoption.workers.iter())
        .map(|worker| worker.process)
        .collect();
    harness.comes_back_as("a", adoption);
    for process in processes {
        assert_stopped(&harness, "a", process, StopReason::DomainFailed);
    }
}

#[test]
fn scripts_go_on_although_their_host_was_out_of_reach_before_the_others_were_back() {
    for fails in [false, true] {
        let mut harness = scripts(Settings {
            restart_mode: RestartMode::Process,
            max_restarts: 1,
            ..elastic()
        });
        harness.returns = true;
        harness.driver_dies(0);
        harness.comes_back_with_workers("a");
        if fails {
            harness.kill("a", 0);
        }
        harness.breaks_off("a");
        harness.returns("a", kept_of(&harness, "a"));
        harness.comes_back_with_workers("b");
        let goes_on = |note: &Decision| matches!(note, Decision::TookOver { round: Some(_), .. });
        assert_eq!(harness.notes.iter().any(goes_on), !fails);
        assert_eq!(failures(&harness), usize::from(fails));
    }
}

/// A member is known to have ended, so the others cannot go on unseen.
#[test]
fn the_next_group_does_not_wait_for_a_host_that_went_after_its_script_had_ended() {
    let mut harness = scripts(Settings {
        restart_mode: RestartMode::Process,
        max_restarts: 1,
        ..elastic()
    });
    harness.returns = true;
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    for slot in [0, 1] {
        harness.kill("a", slot);
    }
    harness.breaks_off("a");
    harness.unreachable.insert("b".into());
    harness.list(&[host("a", 2), host("b", 2), host("c", 4)]);
    let limit = harness.job.settings().take_over();
    assert!(limit + seconds(2) < harness.job.settings().fence);
    harness.pass(limit + seconds(2));
    assert!(took_over(&harness));
    assert_eq!(harness.runs("c"), 4);
}
