//! Rules 5, 6 and 9, and the ways a job ends.

use elasticrun_core::{
    Cooldown, Decision, Event, RestartMode, Settings,
    results::{Outcome, Reason},
};
use elasticrun_hosts::Snapshot;
use elasticrun_protocol::{AgentCommand, AgentReport, control::Exit};

use crate::{
    harness::{Harness, draining, host, seconds},
    hosts::elastic,
};

#[test]
fn standard_mode_ends_at_the_first_failure() {
    let mut harness = Harness::new(Settings::standard(2));
    harness.list(&[host("a", 2)]);
    harness.kill("a", 1);
    assert_eq!(
        harness.outcome,
        Some(Outcome::WorkerFailed(Reason::Standard))
    );
}

#[test]
fn a_single_worker_is_a_job() {
    let mut harness = Harness::new(Settings::standard(1));
    harness.list(&[host("a", 1)]);
    assert_eq!(harness.size(), 1);
    harness.finish_all();
    assert_eq!(harness.outcome, Some(Outcome::Succeeded));
}

#[test]
fn too_few_slots_for_too_long() {
    let settings = Settings {
        elastic_timeout: seconds(1),
        ..elastic(4, 4, 4)
    };
    let mut harness = Harness::new(settings);
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.commit();
    harness.kill("a", 0);
    harness.pass(seconds(1));
    let ended = harness.outcome.clone();
    assert!(
        matches!(
            ended,
            Some(Outcome::TimedOut {
                usable: 2,
                needed: 4,
                ..
            })
        ),
        "{ended:?}"
    );
}

#[test]
fn the_wait_for_np_ends_with_min_np() {
    let settings = Settings {
        elastic_timeout: seconds(5),
        ..elastic(4, 2, 4)
    };
    let mut harness = Harness::new(settings);
    harness.list(&[host("a", 2)]);
    assert_eq!(harness.started(), 0);
    harness.pass(seconds(5));
    assert_eq!((harness.outcome.clone(), harness.size()), (None, 2));
}

#[test]
fn a_shortage_below_min_np_counts_from_its_own_beginning() {
    let settings = Settings {
        elastic_timeout: seconds(10),
        ..elastic(4, 2, 4)
    };
    let mut harness = Harness::new(settings);
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(9));
    harness.list(&[host("a", 1), draining("b", 1)]);
    harness.pass(seconds(9));
    assert_eq!(harness.outcome, None, "for nine seconds there were enough");
    harness.pass(seconds(1));
    assert!(matches!(
        harness.outcome,
        Some(Outcome::TimedOut {
            usable: 1,
            needed: 2,
            ..
        })
    ));
}

#[test]
fn reset_limit_one_fails_and_two_succeeds() {
    for (limit, outcome) in [
        (1, Outcome::ResetLimit { limit: 1 }),
        (2, Outcome::Succeeded),
    ] {
        let mut harness = Harness::new(Settings {
            reset_limit: Some(limit),
            ..elastic(1, 1, 3)
        });
        harness.list(&[host("a", 1)]);
        harness.list(&[host("a", 1), host("b", 1)]);
        harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
        if harness.outcome.is_none() {
            assert_eq!(harness.started(), 3);
            harness.finish_all();
        }
        assert_eq!(harness.outcome, Some(outcome));
    }
}

#[test]
fn the_others_get_the_exit_timeout() {
    let mut harness = Harness::new(elastic(2, 1, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.finishes("a", 0);
    harness.ends("a", 0, Exit::Code(0));
    harness.pass(seconds(299));
    assert_eq!(harness.outcome, None);
    harness.pass(seconds(1));
    assert_eq!(
        harness.outcome,
        Some(Outcome::WorkerFailed(Reason::ExitTimeout))
    );
}

#[test]
fn after_a_success_no_round_is_formed_and_a_failure_fails_the_job() {
    let mut harness = Harness::new(elastic(2, 1, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.finishes("a", 0);
    harness.ends("a", 0, Exit::Code(0));
    harness.kill("b", 0);
    assert_eq!(harness.started(), 1);
    assert_eq!(
        harness.outcome,
        Some(Outcome::WorkerFailed(Reason::NotAllSucceeded))
    );
}

#[test]
fn who_has_finished_is_left_to_end_by_itself_when_another_fails() {
    let mut harness = Harness::new(elastic(3, 1, 3));
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.commit();
    harness.finishes("a", 0);
    harness.kill("b", 0);
    let stopped = |(host, command): &(_, AgentCommand)| {
        *host == "a".into() && matches!(command, AgentCommand::Stop { .. })
    };
    assert!(
        !harness.sent.iter().any(stopped),
        "it may be saving the model"
    );
    assert_eq!(harness.outcome, None);
    harness.ends("a", 0, Exit::Code(0));
    assert_eq!(
        harness.outcome,
        Some(Outcome::WorkerFailed(Reason::NotAllSucceeded))
    );
}

#[test]
fn the_first_success_takes_back_a_plan() {
    let mut harness = Harness::new(elastic(2, 1, 3));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    assert_eq!(harness.started(), 2);
    // A plan would add a third worker at a boundary, but the training of host a ends before it.
    let mut harness = Harness::new(elastic(2, 1, 3));
    harness.list(&[host("a", 1), host("b", 1)]);
    for name in ["a", "b"] {
        harness.passive.insert(name.into());
    }
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    let round = harness.round();
    for name in ["a", "b"] {
        let highest = elasticrun_protocol::Boundary(9);
        harness.report(name, AgentReport::BoundaryCounted { round, highest });
    }
    harness.finishes("a", 0);
    let withdrawn = |(host, command): &(_, AgentCommand)| {
        *host == "b".into() && *command == AgentCommand::Withdraw { round }
    };
    assert!(harness.sent.iter().any(withdrawn));
    harness.pass(seconds(120));
    let aborted = |(host, command): &(_, AgentCommand)| {
        *host == "b".into() && *command == AgentCommand::Abort { round }
    };
    assert!(!harness.sent.iter().any(aborted), "b trains on to its end");
    harness.finishes("b", 0);
    harness.ends("a", 0, Exit::Code(0));
    harness.ends("b", 0, Exit::Code(0));
    assert_eq!(harness.outcome, Some(Outcome::Succeeded));
}

#[test]
fn a_host_that_goes_after_its_workers_succeeded_is_no_failure() {
    let mut harness = Harness::new(elastic(2, 1, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.finishes("a", 0);
    harness.ends("a", 0, Exit::Code(0));
    harness.lose("a");
    harness.finishes("b", 0);
    harness.ends("b", 0, Exit::Code(0));
    assert_eq!(harness.outcome, Some(Outcome::Succeeded));
}

#[test]
fn a_repeated_exit_changes_nothing() {
    let mut harness = Harness::new(elastic(2, 1, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    let process = harness.current("a", 0);
    harness.finishes("a", 0);
    harness.ends("a", 0, Exit::Code(0));
    let tail = Vec::new();
    harness.report(
        "a",
        AgentReport::Exited {
            process,
            exit: Exit::Code(1),
            tail,
            stopped: false,
        },
    );
    harness.finishes("b", 0);
    harness.ends("b", 0, Exit::Code(0));
    assert_eq!(harness.outcome, Some(Outcome::Succeeded));
}

#[test]
fn a_first_discovery_that_cannot_work_ends_the_job_and_a_later_one_does_not() {
    let failed = |fatal| Event::SourceFailed {
        source: 0,
        fatal,
        why: "no such group".into(),
    };
    let mut harness = Harness::new(elastic(1, 1, 1));
    harness.event(failed(false));
    assert_eq!(harness.outcome, None);
    harness.event(failed(true));
    assert!(matches!(
        harness.outcome,
        Some(Outcome::DiscoveryFailed { .. })
    ));
    let mut harness = Harness::new(elastic(1, 1, 1));
    harness.list(&[host("a", 1)]);
    harness.event(failed(true));
    assert_eq!(
        (harness.outcome.clone(), harness.size()),
        (None, 1),
        "the last good list stays"
    );
}

#[test]
fn discovery_that_works_again_is_said() {
    let mut harness = Harness::new(Settings {
        sources: 2,
        ..elastic(1, 1, 1)
    });
    let failed = |source| Event::SourceFailed {
        source,
        fatal: false,
        why: "no route".into(),
    };
    let said = |harness: &Harness| {
        let works = |decision: &&Decision| **decision == Decision::DiscoveryWorks;
        harness.notes.iter().filter(works).count()
    };
    harness.list(&[host("a", 1)]);
    assert_eq!(said(&harness), 0, "nothing has failed");
    harness.event(failed(0));
    harness.event(failed(0));
    harness.event(failed(1));
    harness.list(&[host("a", 1)]);
    assert_eq!(said(&harness), 0, "the other source still fails");
    let snapshot = Snapshot::new(vec![]);
    harness.event(Event::SourceAnswered {
        source: 1,
        snapshot,
    });
    harness.list(&[host("a", 1)]);
    assert_eq!(said(&harness), 1, "it is said once");
}

#[test]
fn a_source_that_is_wrong_from_the_start_ends_a_job_that_others_have_hosts_for() {
    let failed = |fatal| Event::SourceFailed {
        source: 1,
        fatal,
        why: "no such option".into(),
    };
    let two = || {
        let mut harness = Harness::new(Settings {
            sources: 2,
            ..elastic(1, 1, 1)
        });
        harness.list(&[host("a", 1)]);
        harness
    };
    let mut harness = two();
    harness.event(failed(true));
    assert!(matches!(
        harness.outcome,
        Some(Outcome::DiscoveryFailed { .. })
    ));
    // A source that has failed once for a passing reason is not wrong from the start, and the job has a list.
    let mut harness = two();
    harness.event(failed(false));
    harness.event(failed(true));
    assert_eq!((harness.outcome.clone(), harness.size()), (None, 1));
}

#[test]
fn a_stop_ends_the_job_once_and_nothing_begins_after_it() {
    let mut harness = Harness::new(elastic(1, 1, 2));
    harness.list(&[host("a", 1)]);
    harness.event(Event::StopRequested { signal: 2 });
    assert_eq!(harness.outcome, Some(Outcome::Stopped { signal: 2 }));
    let before = harness.sent.len();
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.kill("a", 0);
    assert_eq!(harness.sent.len(), before);
    harness.event(Event::StopRequested { signal: 15 });
    assert_eq!(harness.outcome, Some(Outcome::Stopped { signal: 2 }));
}

#[test]
fn scripts_that_never_join_may_end_the_job_well() {
    let mut harness = Harness::new(Settings::standard(2));
    harness.slow = true;
    harness.list(&[host("a", 2)]);
    harness.ends("a", 0, Exit::Code(0));
    harness.pass(seconds(3_000));
    assert_eq!(harness.outcome, None, "the other one still runs");
    harness.ends("a", 1, Exit::Code(0));
    assert_eq!(harness.outcome, Some(Outcome::Succeeded));
}

#[test]
fn a_process_that_ends_well_before_it_joined_does_not_keep_the_job_waiting_for_ever() {
    let settings = Settings {
        elastic_timeout: seconds(10),
        cooldown: Cooldown::Forever,
        ..elastic(2, 1, 2)
    };
    let mut harness = Harness::new(settings);
    harness.slow = true;
    harness.list(&[host("a", 2)]);
    harness.ends("a", 0, Exit::Code(0));
    harness.ends("a", 1, Exit::Code(1));
    harness.pass(seconds(20));
    assert!(harness.outcome.is_some(), "R9");
}

#[test]
fn processes_that_all_fail_before_the_first_round_fail_the_job() {
    let mut harness = Harness::new(Settings {
        restart_mode: RestartMode::InProcess,
        ..elastic(2, 2, 2)
    });
    harness.slow = true;
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.ends("a", 0, Exit::Code(2));
    assert_eq!(harness.outcome, None);
    harness.ends("b", 0, Exit::Code(2));
    assert!(
        matches!(harness.outcome, Some(Outcome::WorkerFailed(_))),
        "a typo is not retried for minutes"
    );
}

/// Seed 513700 of the simulation.
#[test]
fn a_standard_job_with_too_few_slots_waits_for_no_start_timeout() {
    let mut harness = Harness::new(Settings {
        elastic_timeout: seconds(5),
        start_timeout: seconds(60),
        ..Settings::standard(2)
    });
    harness.slow = true;
    harness.list(&[host("a", 1)]);
    harness.pass(seconds(5));
    assert!(
        matches!(harness.outcome, Some(Outcome::TimedOut { .. })),
        "its only process is there, and the other never comes"
    );
}
