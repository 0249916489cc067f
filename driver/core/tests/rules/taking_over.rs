//! A later driver continues a run: with its journal, and with the agents that come back.

use elasticrun_core::{
    Cooldown, Decision, Event, RestartMode, Settings, Time,
    registry::State,
    results::{Outcome, Reason},
};
use elasticrun_protocol::{
    AgentCommand, AgentReport, HostId, Process, Round,
    control::{AdoptedPhase, Adoption, Exit, StopReason},
};

use crate::harness::{Harness, draining, host, range, seconds};

/// Two hosts with two workers each train in round 1.
fn trains(settings: Settings) -> Harness {
    let mut harness = Harness::new(settings);
    harness.list(&[host("a", 2), host("b", 2)]);
    assert_eq!((harness.started(), harness.size()), (1, 4));
    harness.commit();
    harness
}

fn elastic() -> Settings {
    Settings {
        cooldown: range(20, 300),
        ..Settings::elastic(4, 1, Some(4))
    }
}

fn scripts() -> Harness {
    let mut harness = Harness::new(Settings {
        restart_mode: RestartMode::Process,
        ..elastic()
    });
    harness.slow = true;
    harness.list(&[host("a", 2), host("b", 2)]);
    assert_eq!(harness.runs("a") + harness.runs("b"), 4);
    harness
}

/// Whether a later driver has taken over, and the round that goes on.
fn took_over(harness: &Harness) -> Option<Option<Round>> {
    harness.notes.iter().find_map(|note| match note {
        Decision::TookOver { round, .. } => Some(*round),
        _ => None,
    })
}

/// The report that a process has ended.
fn exited(process: Process, exit: Exit) -> Vec<AgentReport> {
    vec![AgentReport::Exited {
        process,
        exit,
        tail: Vec::new(),
        stopped: false,
    }]
}

fn spawned(harness: &Harness) -> Vec<(HostId, Process)> {
    let spawned = |(host, command): &(HostId, AgentCommand)| match command {
        AgentCommand::Spawn(spawn) => Some((host.clone(), spawn.process)),
        _ => None,
    };
    harness.sent.iter().filter_map(spawned).collect()
}

#[test]
fn a_round_goes_on_when_all_its_agents_are_back() {
    let mut harness = trains(elastic());
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    assert_eq!(took_over(&harness), None, "b is not back");
    harness.comes_back_with_workers("b");
    assert_eq!(took_over(&harness), Some(Some(Round(1))));
    assert_eq!(harness.adopted.len(), 2);
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.pass(seconds(100));
    assert!(harness.sent.is_empty(), "{:?}", harness.sent);
    assert!(harness.launched.is_empty());
    harness.finish_all();
    assert_eq!(harness.outcome, Some(Outcome::Succeeded));
}

#[test]
fn a_round_goes_on_although_the_journal_lacks_its_start() {
    for lost in 0..8 {
        let mut harness = trains(elastic());
        harness.driver_dies(lost);
        harness.comes_back_with_workers("b");
        harness.comes_back_with_workers("a");
        if took_over(&harness) != Some(Some(Round(1))) {
            panic!("{lost}: {:?}", harness.notes);
        }
        harness.kill("a", 0);
        assert_eq!(harness.size(), 3 - 1, "{lost}: its host is out");
        assert!(harness.round() > Round(1));
        assert!(harness.members().iter().all(|(host, _)| host == "b"));
    }
}

#[test]
fn a_round_of_which_a_member_died_does_not_go_on() {
    let mut harness = trains(elastic());
    harness.driver_dies(0);
    let process = harness.forgets("b", 1);
    harness.comes_back_with_workers("a");
    harness.comes_back_and_says("b", exited(process, Exit::Signal(9)));
    assert_eq!(took_over(&harness), Some(None));
    assert_eq!(harness.blacklisted(), 1, "the failure counts");
    assert_eq!(harness.size(), 2);
    assert!(harness.round() > Round(1));
    let base = harness.base().expect("a has kept its commits");
    assert_eq!((base.round, base.count), (Round(1), 1), "R12");
}

#[test]
fn agents_that_do_not_come_back_are_launched_anew() {
    let mut harness = trains(elastic());
    harness.lose_silently("b");
    harness.driver_dies(0);
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.comes_back_with_workers("a");
    assert!(harness.launched.is_empty(), "T2");
    let limit = harness.job.settings().take_over();
    harness.pass(limit - seconds(1));
    assert_eq!((took_over(&harness), spawned(&harness)), (None, vec![]));
    harness.pass(seconds(2));
    assert_eq!(took_over(&harness), Some(None));
    assert_eq!(harness.launched, [HostId::new("b")]);
    assert!(harness.size() >= 2);
    assert!(harness.base().is_some(), "a has kept its commits");
}

#[test]
fn members_that_are_back_leave_a_round_that_cannot_go_on() {
    let mut harness = trains(elastic());
    harness.forgets("a", 0);
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    let round = Round(1);
    let abort = (HostId::new("a"), AgentCommand::Abort { round });
    assert_eq!(harness.sent, [abort], "b is on its way");
    harness.comes_back_with_workers("b");
    assert_eq!(took_over(&harness), Some(None));
    assert!(harness.size() >= 3 && harness.round() > round);
}

#[test]
fn a_run_of_which_no_agent_is_left_has_lost_its_state() {
    let mut harness = trains(elastic());
    harness.lose_silently("a");
    harness.lose_silently("b");
    harness.driver_dies(0);
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.pass(seconds(200));
    assert_eq!(harness.outcome, Some(Outcome::NoStateLeft));
}

#[test]
fn numbers_of_rounds_grow_over_all_drivers() {
    let mut harness = trains(elastic());
    let mut last = harness.round();
    for _ in 0..3 {
        harness.driver_dies(2);
        harness.lose_members();
        for name in ["a", "b"] {
            harness.comes_back_with_workers(name);
        }
        assert!(harness.round() > last, "S3");
        last = harness.round();
        harness.commit();
    }
}

#[test]
fn a_host_that_failed_stays_out() {
    for cooldown in [Cooldown::Forever, range(20, 300)] {
        let mut harness = trains(Settings {
            cooldown,
            ..elastic()
        });
        harness.kill("b", 0);
        assert_eq!(harness.size(), 2);
        harness.pass(seconds(5));
        harness.driver_dies(0);
        harness.list(&[host("a", 2), host("b", 2)]);
        for name in ["a", "b"] {
            harness.comes_back_with_workers(name);
        }
        assert!(matches!(took_over(&harness), Some(Some(_))));
        harness.pass(seconds(12));
        assert!(spawned(&harness).is_empty(), "R5");
        harness.pass(seconds(30));
        let again = !spawned(&harness).is_empty();
        assert_eq!(again, cooldown != Cooldown::Forever);
    }
}

#[test]
fn a_drain_goes_on() {
    let mut harness = trains(Settings {
        max_np: Some(8),
        ..elastic()
    });
    harness.passive.insert(HostId::new("b"));
    harness.list(&[host("a", 2), draining("b", 2)]);
    harness.passive.remove(&HostId::new("b"));
    harness.driver_dies(0);
    for name in ["a", "b"] {
        harness.comes_back_with_workers(name);
    }
    harness.list(&[host("a", 2), draining("b", 2)]);
    assert!(harness.members().iter().all(|(host, _)| host == "a"));
    assert_eq!(harness.size(), 2);
}

#[test]
fn a_success_counts_for_a_later_driver() {
    let mut harness = trains(elastic());
    harness.finishes("a", 0);
    harness.ends("a", 0, Exit::Code(0));
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    harness.comes_back_with_workers("b");
    assert_eq!(took_over(&harness), Some(Some(Round(1))));
    for (name, slot) in [("a", 1), ("b", 0), ("b", 1)] {
        harness.finishes(name, slot);
        harness.ends(name, slot, Exit::Code(0));
    }
    assert_eq!(harness.outcome, Some(Outcome::Succeeded));
}

#[test]
fn a_success_that_no_driver_has_acknowledged_counts() {
    let mut harness = trains(elastic());
    harness.driver_dies(0);
    let process = harness.forgets("a", 0);
    harness.comes_back_and_says("a", exited(process, Exit::Code(0)));
    assert_eq!(harness.outcome, None, "b is not back");
    harness.comes_back_with_workers("b");
    assert_eq!(took_over(&harness), Some(Some(Round(1))));
    for (name, slot) in [("a", 1), ("b", 0), ("b", 1)] {
        harness.finishes(name, slot);
        harness.ends(name, slot, Exit::Code(0));
    }
    assert_eq!(harness.outcome, Some(Outcome::Succeeded));
}

#[test]
fn resets_count_over_all_drivers() {
    let mut harness = trains(Settings {
        reset_limit: Some(2),
        ..elastic()
    });
    for _ in 0..2 {
        harness.driver_dies(0);
        harness.lose_members();
        for name in ["a", "b"] {
            harness.comes_back_with_workers(name);
        }
    }
    assert_eq!(harness.outcome, None);
    harness.driver_dies(0);
    harness.lose_members();
    for name in ["a", "b"] {
        harness.comes_back_with_workers(name);
    }
    assert_eq!(harness.outcome, Some(Outcome::ResetLimit { limit: 2 }));
}

/// All members have failed, and the records do not name them any more when the driver dies.
#[test]
fn a_round_without_recorded_members_counts_once() {
    let mut harness = trains(Settings {
        max_restarts: 1,
        ..elastic()
    });
    let rounds = ["a", "b"].map(|name| harness.adoption(name).round);
    harness.slow = true;
    harness.together(|harness| {
        for (name, slot) in [("a", 0), ("a", 1), ("b", 0), ("b", 1)] {
            harness.kill(name, slot);
        }
    });
    assert_eq!(harness.recorded_state("a", 0), None);
    harness.driver_dies(0);
    for (name, round) in ["a", "b"].into_iter().zip(rounds) {
        assert!(round.is_some(), "its agent still names the round");
        let adoption = harness.adoption(name);
        harness.comes_back_as(name, Adoption { round, ..adoption });
    }
    assert_eq!(took_over(&harness), Some(None));
    assert_eq!(harness.job.rounds_started(), 1);
}

#[test]
fn an_agent_that_comes_after_the_take_over_begins_anew() {
    let mut harness = trains(elastic());
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    harness.passive.insert(HostId::new("b"));
    harness.pass(seconds(30));
    assert_eq!(harness.adopted, [HostId::new("a")]);
    harness.comes_back_with_workers("b");
    assert_eq!(harness.adopted, [HostId::new("a")]);
}

#[test]
fn a_job_that_is_killed_before_its_first_round_starts_it() {
    let mut harness = Harness::new(elastic());
    harness.slow = true;
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.joins("a", 0);
    harness.driver_dies(0);
    for name in ["a", "b"] {
        harness.comes_back_with_workers(name);
    }
    assert_eq!(took_over(&harness), Some(None));
    harness.list(&[host("a", 2), host("b", 2)]);
    assert!(spawned(&harness).is_empty(), "all slots have their process");
    for (name, slot) in [("a", 1), ("b", 0), ("b", 1)] {
        harness.joins(name, slot);
    }
    assert_eq!(harness.size(), 4);
}

#[test]
fn the_first_failure_is_named_by_a_later_driver() {
    let mut harness = trains(Settings {
        cooldown: Cooldown::Forever,
        ..elastic()
    });
    harness.ends("b", 0, Exit::Code(7));
    harness.driver_dies(0);
    harness.list(&[host("a", 2), host("b", 2)]);
    for name in ["a", "b"] {
        harness.comes_back_with_workers(name);
    }
    harness.ends("a", 0, Exit::Code(9));
    let results = harness.job.results();
    let first = results.first_failure().expect("b failed");
    assert_eq!(
        (first.host.as_str(), &first.exit),
        ("b", &Some(Exit::Code(7)))
    );
    assert_eq!(
        harness.outcome,
        Some(Outcome::WorkerFailed(Reason::AllHostsOut))
    );
}

#[test]
fn scripts_go_on_when_all_of_them_are_there() {
    let mut harness = scripts();
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    harness.comes_back_with_workers("b");
    assert!(matches!(took_over(&harness), Some(Some(_))));
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.pass(seconds(100));
    assert!(harness.sent.is_empty(), "{:?}", harness.sent);
    for (name, slot) in [("a", 0), ("a", 1), ("b", 0), ("b", 1)] {
        harness.ends(name, slot, Exit::Code(0));
    }
    assert_eq!(harness.outcome, Some(Outcome::Succeeded));
}

#[test]
fn scripts_start_again_if_one_of_them_is_gone() {
    let mut harness = scripts();
    harness.driver_dies(0);
    harness.forgets("b", 1);
    harness.comes_back_with_workers("a");
    assert!(harness.sent.is_empty(), "b is not back");
    harness.comes_back_with_workers("b");
    assert_eq!(took_over(&harness), Some(None));
    let stopped = |(_, command): &&(HostId, AgentCommand)| {
        let why = StopReason::Removed;
        matches!(command, AgentCommand::Stop { why: said, .. } if *said == why)
    };
    assert_eq!(harness.sent.iter().filter(stopped).count(), 3);
    harness.pass(seconds(60));
    assert_eq!(spawned(&harness).len(), 4);
    assert!(harness.now > Time::ZERO);
}

/// Four scripts on two hosts, with one restart.
fn scripts_with_a_restart() -> Harness {
    let mut harness = Harness::new(Settings {
        restart_mode: RestartMode::Process,
        max_restarts: 1,
        cooldown: range(0, 0),
        ..elastic()
    });
    harness.slow = true;
    harness.list(&[host("a", 2), host("b", 2)]);
    assert_eq!(harness.runs("a") + harness.runs("b"), 4);
    harness
}

#[test]
fn the_end_of_an_earlier_process_does_not_replace_the_one_that_runs() {
    for lost in 0..4 {
        let mut harness = scripts_with_a_restart();
        harness.ends("a", 0, Exit::Code(1));
        assert_eq!(harness.current("a", 0).generation.0, 2, "the next group");
        // Its agent has not been told that the end is known, and repeats it.
        harness.driver_dies(lost);
        harness.comes_back_with_workers("a");
        harness.comes_back_with_workers("b");
        harness.list(&[host("a", 2), host("b", 2)]);
        harness.pass(seconds(100));
        assert_eq!(harness.outcome, None, "{lost}: the restart is used once");
        assert_eq!(harness.runs("a") + harness.runs("b"), 4, "{lost}");
        for (name, slot) in [("a", 0), ("a", 1), ("b", 0), ("b", 1)] {
            harness.ends(name, slot, Exit::Code(0));
        }
        assert_eq!(harness.outcome, Some(Outcome::Succeeded), "{lost}");
    }
}

#[test]
fn a_failure_that_is_recorded_is_not_counted_again() {
    let mut harness = trains(Settings {
        max_host_failures: Some(2),
        cooldown: range(0, 0),
        ..elastic()
    });
    harness.ends("a", 0, Exit::Code(1));
    let blamed = harness.job.results().failures();
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    harness.comes_back_with_workers("b");
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.pass(seconds(1));
    assert_eq!(harness.job.results().failures(), blamed);
    assert_eq!(harness.blacklisted(), 0, "{:?}", harness.notes);
}

#[test]
fn a_script_that_succeeded_counts_once() {
    let mut harness = Harness::new(Settings {
        cooldown: range(0, 0),
        ..Settings::standard(2)
    });
    harness.slow = true;
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.ends("a", 0, Exit::Code(0));
    assert_eq!(harness.outcome, None);
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    harness.lose_silently("b");
    harness.pass(seconds(100));
    assert_ne!(harness.outcome, Some(Outcome::Succeeded), "b has not ended");
}

#[test]
fn one_answer_without_a_host_removes_none_under_a_later_driver() {
    let mut harness = trains(elastic());
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    harness.comes_back_with_workers("b");
    harness.list(&[host("a", 2)]);
    assert_eq!(harness.round(), Round(1), "b was omitted once");
    harness.list(&[host("a", 2)]);
    assert_eq!(harness.size(), 2, "b was omitted twice");
}

#[test]
fn a_source_that_fails_for_good_does_not_end_a_run_that_has_begun() {
    let mut harness = trains(elastic());
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    harness.comes_back_with_workers("b");
    harness.event(Event::SourceFailed {
        source: 0,
        fatal: true,
        why: "the script is gone".into(),
    });
    assert_eq!((harness.round(), harness.outcome.clone()), (Round(1), None));
}

#[test]
fn agents_that_come_back_after_a_signal_end_their_workers() {
    let mut harness = trains(elastic());
    harness.driver_dies(0);
    harness.event(Event::StopRequested { signal: 2 });
    assert!(!harness.exited, "the agents are on their way");
    harness.comes_back_with_workers("a");
    let ended = |(host, command): &(HostId, AgentCommand)| {
        host.as_str() == "a" && *command == AgentCommand::Shutdown
    };
    assert!(harness.sent.iter().any(ended), "{:?}", harness.sent);
    harness.pass(seconds(60));
    assert!(harness.exited, "b is given up");
}

/// The record of the group is lost with all others.
#[test]
fn the_failures_of_a_group_that_is_unknown_use_one_restart() {
    let mut harness = Harness::new(Settings {
        restart_mode: RestartMode::Process,
        max_restarts: 1,
        cooldown: range(1, 1),
        ..elastic()
    });
    harness.slow = true;
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.driver_dies(100);
    for name in ["a", "b"] {
        let ends = [0, 1].map(|slot| exited(harness.forgets(name, slot), Exit::Code(1)));
        harness.comes_back_and_says(name, ends.concat());
    }
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.pass(seconds(100));
    assert_eq!(harness.outcome, None, "{:?}", harness.notes);
    assert_eq!(harness.runs("a") + harness.runs("b"), 4, "the next group");
}

/// The former driver has asked for the end of a member, and has lost the record of that.
#[test]
fn the_end_of_a_process_that_was_told_to_stop_is_no_failure() {
    for stopped in [false, true] {
        let mut harness = trains(elastic());
        harness.driver_dies(0);
        let process = harness.forgets("b", 1);
        harness.comes_back_with_workers("a");
        let end = AgentReport::Exited {
            process,
            exit: Exit::Signal(15),
            tail: Vec::new(),
            stopped,
        };
        harness.comes_back_and_says("b", vec![end]);
        assert_eq!(took_over(&harness), Some(None), "the round is over");
        assert_eq!(harness.blacklisted(), usize::from(!stopped));
    }
}

/// Host a is lost with its members for the driver, which dies before the next round starts.
fn dies_without_a() -> Harness {
    let mut harness = Harness::new(elastic());
    harness.returns = true;
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.commit();
    for _ in 0..8 {
        harness.pass(seconds(1));
        harness.beats("b");
    }
    // The next round never starts, so the members of b are back in the round that they know of.
    harness.passive.insert("b".into());
    harness.breaks_off("a");
    assert_eq!(harness.started(), 1);
    harness.passive.clear();
    assert_eq!(harness.recorded_state("a", 0), Some(State::LostWithHost));
    harness.driver_dies(0);
    harness
}

#[test]
fn a_member_that_was_lost_with_its_host_is_no_more_lost_if_it_was_told_to_stop() {
    for (phase, state) in [
        (AdoptedPhase::Joined, State::StoppedWithDomain),
        (AdoptedPhase::Dying, State::Stopped),
    ] {
        let mut harness = dies_without_a();
        let mut adoption = harness.adoption("a");
        (adoption.workers[0].phase, adoption.workers[0].stopping) = (phase, true);
        harness.comes_back_as("a", adoption);
        assert_eq!(harness.recorded_state("a", 0), Some(state));
        assert_eq!(harness.recorded_state("a", 1), Some(State::Ready));
    }
}

#[test]
fn a_member_that_was_lost_with_its_host_fails_as_one_once_it_is_back() {
    let mut harness = dies_without_a();
    harness.comes_back_with_workers("a");
    harness.comes_back_with_workers("b");
    assert_eq!(took_over(&harness), Some(Some(Round(1))));
    harness.kill("a", 0);
    let all = |note: &Decision| {
        let domain = elasticrun_core::blacklist::Domain::Host("a".into());
        matches!(note, Decision::Blacklisted { domain: out, .. } if *out == domain)
    };
    assert!(harness.notes.iter().any(all), "{:?}", harness.notes);
}

#[test]
fn a_host_that_its_list_has_dropped_does_not_come_back_with_its_agent() {
    let mut harness = trains(elastic());
    harness.driver_dies(0);
    harness.list(&[host("b", 2)]);
    harness.list(&[host("b", 2)]);
    harness.comes_back_with_workers("a");
    harness.comes_back_with_workers("b");
    assert!(harness.size() == 2 && harness.round() > Round(1));
    assert!(harness.members().iter().all(|(host, _)| host == "b"));
}

#[test]
fn scripts_that_went_on_start_again_when_a_host_is_lost() {
    let mut harness = scripts();
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    harness.comes_back_with_workers("b");
    assert!(matches!(took_over(&harness), Some(Some(_))));
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.lose("b");
    let ended = |note: &Decision| matches!(note, Decision::GroupEnded { .. });
    assert!(harness.notes.iter().any(ended), "{:?}", harness.notes);
    harness.pass(seconds(60));
    assert!(harness.runs("a") >= 2 && spawned(&harness).len() >= 2);
}
