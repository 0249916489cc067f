//! What a later driver makes of ends that the former one has seen or missed, and of lists that it does not have.

use elasticrun_core::{
    Decision, RestartMode, Settings,
    results::{Outcome, Reason},
};
use elasticrun_protocol::{
    AgentCommand, Round,
    control::{Adoption, Exit, StopReason},
};

use crate::{
    harness::{Harness, commit, draining, host, process, range, seconds},
    later_driver::{assert_stopped, elastic, exited, failures, scripts, took_over, trains},
    returning::rounds,
};

#[test]
fn the_exit_timeout_holds_for_a_group_that_goes_on() {
    let mut harness = scripts(Settings {
        restart_mode: RestartMode::Process,
        ..elastic()
    });
    harness.ends("a", 0, Exit::Code(0));
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    harness.comes_back_with_workers("b");
    let goes_on = |note: &Decision| matches!(note, Decision::TookOver { round: Some(_), .. });
    assert!(harness.notes.iter().any(goes_on), "{:?}", harness.notes);
    let limit = harness.job.settings().exit_timeout;
    harness.pass(limit - seconds(1));
    assert_eq!(harness.outcome, None);
    harness.pass(seconds(1));
    let expected = Outcome::WorkerFailed(Reason::ExitTimeout);
    assert_eq!(harness.outcome, Some(expected));
}

/// One script still runs, and is stopped since no record says which scripts are in its group. The next group has them all.
#[test]
fn scripts_of_which_one_is_stopped_are_no_success_if_their_group_is_unknown() {
    let mut harness = scripts(Settings {
        restart_mode: RestartMode::Process,
        ..Settings::elastic(2, 1, Some(4))
    });
    harness.driver_dies(100);
    for (name, ended) in [("a", 2), ("b", 1)] {
        let ends = (0..ended).map(|slot| exited(harness.forgets(name, slot), Exit::Code(0)));
        let ends = ends.collect();
        harness.comes_back_and_says(name, ends);
    }
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.pass(seconds(12));
    assert!(took_over(&harness));
    assert_eq!(harness.outcome, None);
    assert_eq!(harness.runs("a") + harness.runs("b"), 4, "the next group");
}

/// The failure of another member has ended the group, and used the only restart.
#[test]
fn a_member_out_of_reach_that_fails_after_the_end_of_its_group_uses_no_restart() {
    let mut harness = Harness::new(Settings {
        restart_mode: RestartMode::Process,
        max_restarts: 1,
        cooldown: range(0, 0),
        ..Settings::elastic(4, 4, Some(4))
    });
    (harness.slow, harness.returns) = (true, true);
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.breaks_off("b");
    harness.kill("a", 0);
    let restarts = |note: &Decision| matches!(note, Decision::GroupRestarts { used: 1, .. });
    assert!(harness.notes.iter().any(restarts), "{:?}", harness.notes);
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    let ends = [0, 1].map(|slot| exited(harness.forgets("b", slot), Exit::Code(1)));
    harness.comes_back_and_says("b", ends.to_vec());
    assert!(took_over(&harness));
    assert_eq!((failures(&harness), harness.outcome.clone()), (0, None));
    assert_eq!(harness.runs("a") + harness.runs("b"), 4, "the next group");
}

/// No record names its group, or its agent.
#[test]
fn the_failures_of_a_group_that_is_over_count_for_no_other_one() {
    let mut late = 0;
    for lost in 0..8 {
        let mut harness = scripts(Settings {
            restart_mode: RestartMode::Process,
            max_restarts: 3,
            launches_at_once: 1,
            ..elastic()
        });
        harness.returns = true;
        harness.unreachable.insert("b".into());
        harness.driver_dies(lost);
        harness.comes_back_with_workers("a");
        if took_over(&harness) {
            late += 1;
            let ends = [0, 1].map(|slot| exited(harness.forgets("b", slot), Exit::Code(1)));
            harness.comes_back_and_says("b", ends.to_vec());
            assert_eq!(failures(&harness), 0, "{lost}: {:?}", harness.notes);
        }
    }
    assert!(late > 0);
}

/// The records lack all of that group, and name a later one, which lives.
#[test]
fn a_failure_of_an_earlier_group_ends_no_living_one() {
    let mut harness = Harness::new(Settings {
        restart_mode: RestartMode::Process,
        max_restarts: 3,
        spares: 2,
        ..Settings::elastic(2, 2, Some(2))
    });
    (harness.slow, harness.returns) = (true, true);
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.driver_dies(0);
    let ended = exited(process(0, 1), Exit::Signal(9));
    harness.comes_back_and_says("b", vec![ended]);
    harness.comes_back_with_workers("a");
    assert!(took_over(&harness), "{:?}", harness.notes);
    let over = |note: &Decision| matches!(note, Decision::GroupEnded { .. });
    assert!(!harness.notes.iter().any(over), "{:?}", harness.notes);
    assert_eq!((harness.runs("a"), failures(&harness)), (2, 0));
}

/// No record names the group, and another host is waited for.
#[test]
fn a_script_that_no_record_names_is_not_stopped_for_a_slow_start() {
    let start_timeout = seconds(3);
    let mut harness = scripts(Settings {
        restart_mode: RestartMode::Auto,
        start_timeout,
        ..elastic()
    });
    harness.driver_dies(100);
    harness.comes_back_with_workers("a");
    harness.pass(start_timeout + seconds(1));
    assert!(!took_over(&harness), "{:?}", harness.notes);
    assert_eq!((harness.runs("a"), failures(&harness)), (2, 0));
    // A worker of b shows that they use the SDK, and now they have their time.
    let mut adoption = harness.adoption("b");
    adoption.workers[0].attached = true;
    harness.comes_back_as("b", adoption);
    harness.pass(start_timeout);
    assert_eq!(failures(&harness), 4);
}

/// Another source answers first. What the source of the host says has not come yet.
#[test]
fn a_host_drains_until_its_list_takes_that_back() {
    let mut harness = Harness::new(Settings {
        sources: 2,
        ..elastic()
    });
    let all = [host("a", 2), host("b", 2)];
    harness.list_of(1, &all);
    harness.list_of(0, &[host("a", 2), draining("b", 2)]);
    assert_eq!((harness.runs("a"), harness.runs("b")), (2, 0));
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    harness.pass(seconds(60));
    assert!(took_over(&harness));
    harness.list_of(1, &all);
    assert_eq!(harness.runs("b"), 0, "the list of the first source");
    harness.list_of(0, &all);
    assert_eq!(harness.runs("b"), 2);
}

/// The base of the round that is not recorded shows that the one before has left a commit.
#[test]
fn failures_before_a_round_that_is_not_recorded_are_none_of_the_program() {
    for lost in 0..8 {
        let mut harness = Harness::new(Settings {
            cooldown: range(20, 300),
            ..Settings::elastic(3, 1, Some(3))
        });
        harness.returns = true;
        let all = ["a", "b", "c"].map(|name| host(name, 1));
        harness.list(&all);
        harness.commit();
        let process = harness.forgets("b", 0);
        harness.report("b", exited(process, Exit::Code(1)));
        assert_eq!((harness.size(), harness.base()), (2, Some(commit(1, 1))));
        harness.driver_dies(lost);
        for name in ["a", "c", "b"] {
            harness.comes_back_with_workers(name);
        }
        harness.list(&all);
        harness.ends("a", 0, Exit::Code(1));
        // Only hosts with a failure are left.
        harness.lose("c");
        harness.list(&all[..2]);
        harness.list(&all[..2]);
        harness.pass(seconds(200));
        assert_eq!(harness.outcome, None, "{lost}");
    }
}

/// The next round started while their host was out of reach, and goes on if its members come back as well.
#[test]
fn members_of_an_older_round_leave_it_as_they_come_back() {
    let mut harness = trains(elastic());
    harness.breaks_off("b");
    harness.pass_with(&["a"], harness.job.settings().fence + seconds(5));
    assert_eq!(rounds(&harness), 2, "without b");
    harness.driver_dies(0);
    harness.comes_back_with_workers("b");
    assert!(!took_over(&harness), "a is waited for");
    let round = Round(1);
    let abort = ("b".into(), AgentCommand::Abort { round });
    assert!(harness.sent.contains(&abort), "{:?}", harness.sent);
}

/// The connection of its agent broke before the order arrived. Its host may be used again by now.
#[test]
fn a_process_that_a_former_driver_told_to_stop_is_told_again() {
    let mut harness = trains(Settings {
        cooldown: range(1, 300),
        ..elastic()
    });
    harness.passive.insert("b".into());
    harness.kill("b", 0);
    let process = harness.current("b", 1);
    assert_stopped(&harness, "b", process, StopReason::DomainFailed);
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    harness.pass(seconds(2));
    harness.comes_back_with_workers("b");
    assert_stopped(&harness, "b", process, StopReason::Removed);
    harness.kill("b", 1);
    assert_eq!(failures(&harness), 0, "its end is no failure");
}

/// All members have ended, so nothing is waited for.
#[test]
fn a_failure_that_was_reported_before_its_host_was_out_of_reach_counts() {
    let mut harness = trains(elastic());
    harness.driver_dies(0);
    for (name, exits) in [
        ("a", [Exit::Code(0), Exit::Signal(9)]),
        ("b", [Exit::Code(0), Exit::Code(0)]),
    ] {
        let ends = exits.into_iter().zip(0..);
        let ends = ends.map(|(exit, slot)| exited(harness.forgets(name, slot), exit));
        let ends = ends.collect();
        harness.comes_back_and_says(name, ends);
        if name == "a" {
            harness.breaks_off(name);
        }
    }
    assert!(!took_over(&harness), "a may return");
    harness.pass(harness.job.settings().take_over());
    assert!(took_over(&harness) && failures(&harness) == 1);
    let expected = Outcome::WorkerFailed(Reason::NotAllSucceeded);
    assert_eq!(harness.outcome, Some(expected));
}

/// Round 1 trains on a, and the second driver begins round 102 on b. The third one has no record of either. Gives what the
/// agent of a has kept.
fn two_drivers_die(lost: (usize, usize)) -> Option<(Harness, Adoption)> {
    let mut harness = Harness::new(Settings {
        spares: 2,
        ..Settings::elastic(2, 1, Some(2))
    });
    harness.returns = true;
    let all = [host("a", 2), host("b", 2)];
    harness.list(&all);
    assert_eq!(harness.members(), [("a".into(), 0), ("a".into(), 1)]);
    let unrecorded = Some((Round(1), None));
    harness.driver_dies(lost.0);
    if harness.recorded_rounds() != unrecorded {
        return None;
    }
    let kept = harness.adoption("a");
    harness.unreachable.insert("a".into());
    harness.comes_back_with_workers("b");
    harness.list(&all);
    harness.pass(seconds(30));
    assert_eq!((harness.round(), harness.runs("b")), (Round(102), 2));
    harness.driver_dies(lost.1);
    (harness.recorded_rounds() == unrecorded).then_some((harness, kept))
}

#[test]
fn a_round_does_not_go_on_while_others_may_be_in_one_of_a_driver_without_records() {
    let lost = (0..8).flat_map(|first| (0..16).map(move |second| (first, second)));
    let mut found = false;
    for (mut harness, kept) in lost.filter_map(two_drivers_die) {
        found = true;
        harness.comes_back_as("a", kept);
        assert!(!took_over(&harness), "{:?}", harness.notes);
        harness.comes_back_with_workers("b");
        assert_eq!(harness.round(), Round(102), "it goes on");
        assert!(took_over(&harness));
    }
    assert!(found);
}

/// The first driver has lost all records. The second one dies as it has recorded the agent of b, which ran no script.
#[test]
fn no_group_starts_while_one_may_run_of_which_no_driver_knows() {
    let mut harness = Harness::new(Settings {
        restart_mode: RestartMode::Process,
        ..Settings::elastic(1, 1, Some(2))
    });
    (harness.slow, harness.returns) = (true, true);
    let all = [host("a", 2), host("b", 2)];
    harness.list(&all);
    assert_eq!((harness.runs("a"), harness.runs("b")), (2, 0));
    harness.connects("b");
    harness.driver_dies(100);
    harness.list(&all);
    harness.comes_back_with_workers("b");
    assert!(!took_over(&harness));
    harness.driver_dies(0);
    harness.unreachable.insert("a".into());
    harness.list(&all);
    harness.comes_back_with_workers("b");
    assert!(!took_over(&harness), "others may come back");
    harness.pass(harness.job.settings().take_over());
    assert!(took_over(&harness));
    assert_eq!(harness.runs("b"), 0, "the group of a may run");
    harness.pass(harness.job.settings().fence);
    assert_eq!(harness.runs("b"), 2);
}
