//! Rules 4 to 6: what fails, which domain that excludes, and how the other workers go on.

use elasticrun_core::{
    Decision, FailureDomain, Settings,
    blacklist::Domain,
    results::{Outcome, Reason},
    rounds::Cause,
};
use elasticrun_protocol::{AgentReport, HostId, Rank, Round, control::Exit};

use crate::{
    harness::{Harness, commit, gone, host, process, range, seconds},
    hosts::elastic,
};

#[test]
fn rank_0_dies_and_the_old_rank_2_goes_on_as_rank_0() {
    for exit in [Exit::Code(1), Exit::Signal(9)] {
        let mut harness = Harness::new(elastic(4, 2, 4));
        harness.list(&[host("a", 2), host("b", 2)]);
        harness.commit();
        harness.ends("a", 0, exit);
        assert_eq!((harness.started(), harness.size()), (2, 2));
        assert_eq!(
            harness.members(),
            [("b".to_owned(), 0), ("b".to_owned(), 1)]
        );
        assert_eq!(harness.base(), Some(commit(1, 1)), "R12");
        assert_eq!(harness.runs("a"), 0, "the failure takes out the host");
    }
}

#[test]
fn all_ranks_die_by_themselves() {
    let mut harness = Harness::new(elastic(2, 2, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.kill("a", 0);
    assert_eq!(harness.outcome, None);
    harness.kill("b", 0);
    assert_eq!(
        harness.outcome,
        Some(Outcome::WorkerFailed(Reason::AllFailed))
    );
    let first = harness
        .job
        .results()
        .first_failure()
        .expect("there was one");
    assert_eq!(first.host, HostId::new("a"), "the first is named");
}

#[test]
fn the_exit_of_a_failed_worker_is_announced_once_it_is_known() {
    let mut harness = Harness::new(elastic(2, 1, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    let process = harness.current("a", 0);
    let round = harness.round();
    harness.kill("a", 0);
    let exit = Exit::Signal(9);
    let report = AgentReport::Exited {
        process,
        exit: exit.clone(),
        tail: Vec::new(),
        stopped: false,
    };
    harness.report("a", report);
    let about = |note: &&Decision| {
        matches!(
            note,
            Decision::WorkerFailed { .. } | Decision::WorkerEnded { .. }
        )
    };
    let notes: Vec<_> = harness.notes.iter().filter(about).cloned().collect();
    let (host, member) = (HostId::new("a"), Some((Rank(0), round)));
    let failed = Decision::WorkerFailed {
        host: host.clone(),
        process,
        member,
        exit: None,
    };
    let ended = Decision::WorkerEnded {
        host,
        process,
        member,
        exit,
    };
    assert_eq!(notes, [failed, ended], "a second report adds nothing");
}

#[test]
fn a_worker_that_is_stopped_is_not_announced_to_have_ended() {
    let mut harness = Harness::new(elastic(2, 1, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.list(&[host("a", 1)]);
    let ended = |note: &Decision| matches!(note, Decision::WorkerEnded { .. });
    assert!(!harness.notes.iter().any(ended));
}

#[test]
fn the_failure_that_is_named_is_of_the_round_in_which_all_failed() {
    let mut harness = Harness::new(Settings {
        cooldown: range(1, 4),
        failure_domain: FailureDomain::Slot,
        ..elastic(2, 2, 2)
    });
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.kill("a", 0);
    while harness.started() < 2 {
        harness.pass(seconds(1));
    }
    harness.commit();
    harness.kill("b", 0);
    harness.kill("a", 0);
    assert_eq!(
        harness.outcome,
        Some(Outcome::WorkerFailed(Reason::AllFailed))
    );
    let results = harness.job.results();
    let first = results.first_failure().expect("there was one");
    assert_eq!(first.member, Some((Rank(0), Round(1))));
    let named = results.named_failure().expect("there was one");
    assert_eq!(
        (&named.host, named.member),
        (&"b".into(), Some((Rank(0), Round(2))))
    );
}

#[test]
fn a_restart_goes_on_from_the_last_commit() {
    let mut harness = Harness::new(Settings {
        max_restarts: 1,
        ..elastic(2, 2, 2)
    });
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.kill("a", 0);
    harness.kill("b", 0);
    assert_eq!(
        (harness.started(), harness.size(), harness.base()),
        (2, 2, Some(commit(1, 1)))
    );
    harness.kill("a", 0);
    harness.kill("b", 0);
    assert_eq!(
        harness.outcome,
        Some(Outcome::WorkerFailed(Reason::AllFailed))
    );
}

#[test]
fn a_restart_before_the_first_commit_begins_anew() {
    let mut harness = Harness::new(Settings {
        max_restarts: 1,
        ..elastic(1, 1, 1)
    });
    harness.list(&[host("a", 1)]);
    harness.forget_commits();
    harness.kill("a", 0);
    assert_eq!(
        (harness.outcome.clone(), harness.started(), harness.base()),
        (None, 2, None)
    );
}

#[test]
fn one_rank_of_each_host_dies_and_all_hosts_are_out() {
    let mut harness = Harness::new(elastic(4, 1, 4));
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.commit();
    harness.kill("a", 0);
    harness.kill("b", 1);
    let ended = harness.outcome.clone();
    assert!(
        matches!(
            ended,
            Some(Outcome::WorkerFailed(
                Reason::AllHostsOut | Reason::AllFailed
            ))
        ),
        "at once: {ended:?}"
    );
}

/// Host a has failed before. Host b goes as its worker fails, so the restart has nowhere to begin.
#[test]
fn a_restart_without_any_host_left_ends_the_job() {
    let mut harness = Harness::new(Settings {
        max_restarts: 1,
        ..elastic(2, 1, 2)
    });
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.kill("a", 0);
    assert_eq!((harness.started(), harness.size()), (2, 1));
    harness.together(|harness| {
        harness.list(&[host("a", 1), gone("b")]);
        harness.kill("b", 0);
    });
    assert_eq!(
        harness.outcome,
        Some(Outcome::WorkerFailed(Reason::AllHostsOut))
    );
}

#[test]
fn who_is_stopped_with_its_host_did_not_fail_by_itself() {
    let mut harness = Harness::new(elastic(2, 1, 3));
    harness.list(&[host("a", 2)]);
    harness.commit();
    harness.slow = true;
    harness.list(&[host("a", 2), host("b", 1)]);
    harness.kill("a", 0);
    assert_eq!(harness.outcome, None, "b can go on from what a keeps");
    harness.joins("b", 0);
    assert_eq!(
        (harness.outcome.clone(), harness.started(), harness.base()),
        (None, 2, Some(commit(1, 1)))
    );
}

#[test]
fn who_was_dying_when_it_was_told_to_stop_failed_by_itself() {
    let mut harness = Harness::new(elastic(2, 1, 3));
    harness.list(&[host("a", 2)]);
    harness.commit();
    harness.passive.insert("a".into());
    harness.slow = true;
    harness.list(&[host("a", 2), host("b", 1)]);
    for slot in 0..2 {
        let process = harness.current("a", slot);
        let silent = false;
        harness.report("a", AgentReport::WorkerLost { process, silent });
    }
    assert_eq!(
        harness.outcome,
        Some(Outcome::WorkerFailed(Reason::AllFailed))
    );
}

#[test]
fn failures_of_one_domain_between_two_rounds_count_once() {
    let mut harness = Harness::new(Settings {
        cooldown: range(0, 10),
        ..elastic(3, 1, 3)
    });
    harness.list(&[host("a", 2), host("b", 1)]);
    harness.commit();
    let (one, two) = (harness.current("a", 0), harness.current("a", 1));
    harness.passive.insert("a".into());
    harness.report(
        "a",
        AgentReport::WorkerLost {
            process: one,
            silent: false,
        },
    );
    harness.pass(seconds(0));
    harness.report(
        "a",
        AgentReport::WorkerLost {
            process: two,
            silent: false,
        },
    );
    assert_eq!(
        harness.blacklisted(),
        1,
        "also when the cooldown is over at once"
    );
}

#[test]
fn a_process_that_dies_at_every_start_waits_longer_each_time() {
    let mut harness = Harness::new(Settings {
        cooldown: range(1, 60),
        max_host_failures: Some(4),
        ..elastic(1, 1, 2)
    });
    harness.list(&[host("a", 1)]);
    harness.slow = true;
    harness.list(&[host("a", 1), host("b", 1)]);
    let mut starts = 0;
    for _ in 0..30 {
        if harness.runs("b") > 0 {
            starts += 1;
            harness.ends("b", 0, Exit::Code(1));
        }
        harness.pass(seconds(1));
    }
    assert_eq!(starts, 4, "after 0, 1, 3 and 7 s, and then never again");
    assert_eq!(harness.started(), 1, "the other workers lose no round");
}

#[test]
fn a_cooldown_that_ends_while_the_job_waits_is_used_at_once() {
    let mut harness = Harness::new(Settings {
        cooldown: range(1, 4),
        ..elastic(2, 2, 2)
    });
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    for round in 2..4 {
        let before = harness.now;
        harness.kill("b", 0);
        assert_eq!(harness.started(), round - 1);
        while harness.started() < round {
            harness.pass(std::time::Duration::from_millis(10));
        }
        let took = harness.now.since(before);
        let least = seconds(u64::from(round) - 1);
        assert!(
            took >= least && took <= least + least / 8,
            "round {round} after {took:?}"
        );
    }
}

#[test]
fn a_second_failure_while_the_round_is_formed() {
    let mut harness = Harness::new(Settings {
        failure_domain: FailureDomain::Slot,
        ..elastic(3, 1, 3)
    });
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.commit();
    harness.passive.insert("c".into());
    harness.kill("a", 0);
    assert_eq!(harness.started(), 1, "c has not come back");
    harness.kill("c", 0);
    assert_eq!((harness.started(), harness.size()), (2, 1));
    assert_eq!(harness.members(), [("b".to_owned(), 0)]);
    assert_eq!(harness.base(), Some(commit(1, 1)));
}

#[test]
fn a_member_that_answered_and_dies_aborts_the_plan() {
    let mut harness = Harness::new(Settings {
        failure_domain: FailureDomain::Slot,
        ..elastic(3, 1, 3)
    });
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.commit();
    harness.passive.insert("c".into());
    harness.kill("a", 0);
    harness.kill("b", 0);
    assert_eq!(harness.started(), 1);
    harness.comes_back("c");
    assert_eq!((harness.started(), harness.size()), (2, 1));
}

#[test]
fn a_lost_peer_without_a_death_starts_a_new_round_with_all() {
    let mut harness = Harness::new(elastic(2, 2, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    let round = harness.round();
    harness.report(
        "a",
        AgentReport::PeerLost {
            round,
            process: process(0, 1),
            unreachable: Vec::new(),
        },
    );
    harness.comes_back("a");
    harness.pass(seconds(1));
    assert_eq!((harness.started(), harness.size()), (2, 2));
    let cause = harness.notes.iter().rev().find_map(|note| match note {
        Decision::RoundStarted { cause, .. } => Some(cause.clone()),
        _ => None,
    });
    assert_eq!(cause, Some(Cause::PeerLost { host: "a".into() }));
}

#[test]
fn a_host_that_cannot_begin_a_round_has_failed_and_the_others_train() {
    let mut harness = Harness::new(elastic(4, 2, 4));
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.commit();
    let round = harness.round();
    let why = "no memory".to_owned();
    harness.report("b", AgentReport::Unable { round, why });
    harness.comes_back("a");
    harness.pass(seconds(1));
    assert_eq!((harness.started(), harness.size()), (2, 2));
    let said = harness.notes.iter().any(|note| {
        matches!(note, Decision::HostFailed { host, why } if host.as_str() == "b" && why == "no memory")
    });
    assert!(said, "{:?}", harness.notes);
    let out = harness.notes.iter().any(|note| {
        matches!(note, Decision::Blacklisted { domain: Domain::Host(host), .. } if host.as_str() == "b")
    });
    assert!(out, "{:?}", harness.notes);
    // A report about a round that is over has no effect.
    let why = "no memory".to_owned();
    harness.report("a", AgentReport::Unable { round, why });
    assert_eq!((harness.started(), harness.size()), (2, 2));
}

#[test]
fn a_member_that_waits_for_slots_and_fails_is_a_member_that_fails() {
    let mut harness = Harness::new(elastic(2, 2, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.list(&[host("a", 1)]);
    harness.list(&[host("a", 1)]);
    assert_eq!(harness.started(), 1, "a waits for a second slot");
    harness.kill("a", 0);
    let domains: Vec<_> = (harness.notes.iter())
        .filter_map(|note| match note {
            Decision::Blacklisted { domain, .. } => Some(domain.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(
        domains,
        [Domain::Slot("a".into(), elasticrun_protocol::LocalRank(0))],
        "one host: its slot"
    );
    let member = harness
        .job
        .results()
        .first_failure()
        .and_then(|failure| failure.member);
    assert!(member.is_some());
}

/// A member raises an error. The other members leave the round.
fn raises(harness: &mut Harness, host: &str, slot: u32) {
    harness.ends(host, slot, Exit::Code(1));
    harness.pass(seconds(1));
}

#[test]
fn an_error_of_the_script_ends_the_job_in_the_second_round_without_a_commit() {
    let mut harness = Harness::new(Settings {
        cooldown: range(10, 300),
        ..elastic(4, 2, 4)
    });
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.commit();
    // The round made a commit, so the cause is unknown and the job goes on.
    raises(&mut harness, "a", 0);
    assert_eq!((harness.started(), harness.size()), (2, 2));
    raises(&mut harness, "b", 1);
    assert_eq!(
        harness.outcome, None,
        "the job decides once a worker is back"
    );
    harness.pass(seconds(9));
    assert_eq!(harness.started(), 3, "a has not failed without a commit");
    raises(&mut harness, "a", 1);
    harness.pass(seconds(25));
    assert_eq!(
        (harness.started(), harness.outcome.clone()),
        (3, Some(Outcome::WorkerFailed(Reason::FailsEverywhere)))
    );
}

#[test]
fn failures_between_commits_or_by_signals_or_after_a_long_time_are_none_of_the_program() {
    let mut harness = Harness::new(Settings {
        cooldown: range(10, 300),
        max_host_failures: None,
        ..elastic(2, 1, 2)
    });
    harness.list(&[host("a", 1), host("b", 1)]);
    for round in 0..4 {
        for name in ["a", "b"] {
            match round {
                0 => harness.commit(),
                1 => harness.kill(name, 0),
                _ => harness.pass(seconds(700)),
            }
            if round != 1 {
                raises(&mut harness, name, 0);
            }
            harness.pass(seconds(310));
            assert_eq!(
                (harness.outcome.clone(), harness.size()),
                (None, 2),
                "{round} {name}"
            );
        }
    }
}

#[test]
fn a_restart_for_the_program_leaves_rank_0_where_it_is() {
    let mut harness = Harness::new(Settings {
        cooldown: range(1, 1),
        max_restarts: 1,
        max_host_failures: None,
        ..elastic(3, 1, 3)
    });
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.commit();
    for name in ["b", "c"] {
        raises(&mut harness, name, 0);
        harness.pass(seconds(3));
    }
    assert_eq!(harness.outcome, None);
    assert_eq!(
        harness.members()[0],
        ("a".to_owned(), 0),
        "the worker of a was never interrupted"
    );
}
