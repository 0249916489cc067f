//! Rules 4 to 6: what fails, what it takes out, and how the others go on.

use elasticrun_core::{
    FailureDomain, Note, Settings,
    blacklist::Domain,
    results::{Outcome, Reason},
    rounds::Cause,
};
use elasticrun_protocol::{HostId, Rank, Report, Round, control::Exit};

use crate::{
    hosts::elastic,
    play::{Play, commit, host, process, range, seconds},
};

#[test]
fn rank_0_dies_and_the_old_rank_2_goes_on_as_rank_0() {
    for exit in [Exit::Code(1), Exit::Signal(9)] {
        let mut play = Play::new(elastic(4, 2, 4));
        play.list(&[host("a", 2), host("b", 2)]);
        play.commit();
        play.ends("a", 0, exit);
        assert_eq!((play.started(), play.size()), (2, 2));
        assert_eq!(play.members(), [("b".to_owned(), 0), ("b".to_owned(), 1)]);
        assert_eq!(play.base(), Some(commit(1, 1)), "R12");
        assert_eq!(play.runs("a"), 0, "the failure takes out the host");
    }
}

#[test]
fn all_ranks_die_by_themselves() {
    let mut play = Play::new(elastic(2, 2, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    play.kill("a", 0);
    assert_eq!(play.outcome, None);
    play.kill("b", 0);
    assert_eq!(play.outcome, Some(Outcome::WorkerFailed(Reason::AllFailed)));
    let first = play.job.results().first_failure().expect("there was one");
    assert_eq!(first.host, HostId::new("a"), "the first is named");
}

#[test]
fn the_failure_that_is_named_is_of_the_round_in_which_all_failed() {
    let mut play = Play::new(Settings {
        cooldown: range(1, 4),
        failure_domain: FailureDomain::Slot,
        ..elastic(2, 2, 2)
    });
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    play.kill("a", 0);
    while play.started() < 2 {
        play.pass(seconds(1));
    }
    play.commit();
    play.kill("b", 0);
    play.kill("a", 0);
    assert_eq!(play.outcome, Some(Outcome::WorkerFailed(Reason::AllFailed)));
    let results = play.job.results();
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
    let mut play = Play::new(Settings {
        max_restarts: 1,
        ..elastic(2, 2, 2)
    });
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    play.kill("a", 0);
    play.kill("b", 0);
    assert_eq!(
        (play.started(), play.size(), play.base()),
        (2, 2, Some(commit(1, 1)))
    );
    play.kill("a", 0);
    play.kill("b", 0);
    assert_eq!(play.outcome, Some(Outcome::WorkerFailed(Reason::AllFailed)));
}

#[test]
fn a_restart_before_the_first_commit_begins_anew() {
    let mut play = Play::new(Settings {
        max_restarts: 1,
        ..elastic(1, 1, 1)
    });
    play.list(&[host("a", 1)]);
    play.forget_commits();
    play.kill("a", 0);
    assert_eq!(
        (play.outcome.clone(), play.started(), play.base()),
        (None, 2, None)
    );
}

#[test]
fn one_rank_of_each_host_dies_and_all_hosts_are_out() {
    let mut play = Play::new(elastic(4, 1, 4));
    play.list(&[host("a", 2), host("b", 2)]);
    play.commit();
    play.kill("a", 0);
    play.kill("b", 1);
    let ended = play.outcome.clone();
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

#[test]
fn who_is_stopped_with_its_host_did_not_fail_by_itself() {
    let mut play = Play::new(elastic(2, 1, 3));
    play.list(&[host("a", 2)]);
    play.commit();
    play.slow = true;
    play.list(&[host("a", 2), host("b", 1)]);
    play.kill("a", 0);
    assert_eq!(play.outcome, None, "b can go on from what a keeps");
    play.joins("b", 0);
    assert_eq!(
        (play.outcome.clone(), play.started(), play.base()),
        (None, 2, Some(commit(1, 1)))
    );
}

#[test]
fn who_was_dying_when_it_was_told_to_stop_failed_by_itself() {
    let mut play = Play::new(elastic(2, 1, 3));
    play.list(&[host("a", 2)]);
    play.commit();
    play.passive.insert("a".into());
    play.slow = true;
    play.list(&[host("a", 2), host("b", 1)]);
    for slot in 0..2 {
        let process = play.current("a", slot);
        let silent = false;
        play.report("a", Report::Lost { process, silent });
    }
    assert_eq!(play.outcome, Some(Outcome::WorkerFailed(Reason::AllFailed)));
}

#[test]
fn failures_of_one_domain_between_two_rounds_count_once() {
    let mut play = Play::new(Settings {
        cooldown: range(0, 10),
        ..elastic(3, 1, 3)
    });
    play.list(&[host("a", 2), host("b", 1)]);
    play.commit();
    let (one, two) = (play.current("a", 0), play.current("a", 1));
    play.passive.insert("a".into());
    play.report(
        "a",
        Report::Lost {
            process: one,
            silent: false,
        },
    );
    play.pass(seconds(0));
    play.report(
        "a",
        Report::Lost {
            process: two,
            silent: false,
        },
    );
    assert_eq!(
        play.blacklisted(),
        1,
        "also when the cooldown is over at once"
    );
}

#[test]
fn a_process_that_dies_at_every_start_waits_longer_each_time() {
    let mut play = Play::new(Settings {
        cooldown: range(1, 60),
        max_host_failures: Some(4),
        ..elastic(1, 1, 2)
    });
    play.list(&[host("a", 1)]);
    play.slow = true;
    play.list(&[host("a", 1), host("b", 1)]);
    let mut starts = 0;
    for _ in 0..30 {
        if play.runs("b") > 0 {
            starts += 1;
            play.ends("b", 0, Exit::Code(1));
        }
        play.pass(seconds(1));
    }
    assert_eq!(starts, 4, "after 0, 1, 3 and 7 s, and then never again");
    assert_eq!(play.started(), 1, "it costs nobody a round");
}

#[test]
fn a_cooldown_that_ends_while_the_job_waits_is_used_at_once() {
    let mut play = Play::new(Settings {
        cooldown: range(1, 4),
        ..elastic(2, 2, 2)
    });
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    for round in 2..4 {
        let before = play.now;
        play.kill("b", 0);
        assert_eq!(play.started(), round - 1);
        while play.started() < round {
            play.pass(std::time::Duration::from_millis(10));
        }
        let took = play.now.since(before);
        let least = seconds(u64::from(round) - 1);
        assert!(
            took >= least && took <= least + least / 8,
            "round {round} after {took:?}"
        );
    }
}

#[test]
fn a_second_failure_while_the_round_is_formed() {
    let mut play = Play::new(Settings {
        failure_domain: FailureDomain::Slot,
        ..elastic(3, 1, 3)
    });
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    play.commit();
    play.passive.insert("c".into());
    play.kill("a", 0);
    assert_eq!(play.started(), 1, "c has not come back");
    play.kill("c", 0);
    assert_eq!((play.started(), play.size()), (2, 1));
    assert_eq!(play.members(), [("b".to_owned(), 0)]);
    assert_eq!(play.base(), Some(commit(1, 1)));
}

#[test]
fn a_member_that_answered_and_dies_aborts_the_plan() {
    let mut play = Play::new(Settings {
        failure_domain: FailureDomain::Slot,
        ..elastic(3, 1, 3)
    });
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    play.commit();
    play.passive.insert("c".into());
    play.kill("a", 0);
    play.kill("b", 0);
    assert_eq!(play.started(), 1);
    play.comes_back("c");
    assert_eq!((play.started(), play.size()), (2, 1));
}

#[test]
fn a_lost_peer_without_a_death_starts_a_new_round_with_all() {
    let mut play = Play::new(elastic(2, 2, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    let round = play.round();
    play.report(
        "a",
        Report::Broken {
            round,
            process: process(0, 1),
            unreachable: Vec::new(),
        },
    );
    play.comes_back("a");
    play.pass(seconds(1));
    assert_eq!((play.started(), play.size()), (2, 2));
    let cause = play.notes.iter().rev().find_map(|note| match note {
        Note::RoundStarted { cause, .. } => Some(cause.clone()),
        _ => None,
    });
    assert_eq!(cause, Some(Cause::PeerLost { host: "a".into() }));
}

#[test]
fn a_host_that_cannot_begin_a_round_has_failed_and_the_others_train() {
    let mut play = Play::new(elastic(4, 2, 4));
    play.list(&[host("a", 2), host("b", 2)]);
    play.commit();
    let round = play.round();
    let why = "no memory".to_owned();
    play.report("b", Report::Unable { round, why });
    play.comes_back("a");
    play.pass(seconds(1));
    assert_eq!((play.started(), play.size()), (2, 2));
    let said = play.notes.iter().any(|note| {
        matches!(note, Note::HostFailed { host, why } if host.as_str() == "b" && why == "no memory")
    });
    assert!(said, "{:?}", play.notes);
    let out = play.notes.iter().any(|note| {
        matches!(note, Note::Blacklisted { domain: Domain::Host(host), .. } if host.as_str() == "b")
    });
    assert!(out, "{:?}", play.notes);
    // Of a round that is over it says nothing.
    let why = "no memory".to_owned();
    play.report("a", Report::Unable { round, why });
    assert_eq!((play.started(), play.size()), (2, 2));
}

#[test]
fn a_member_that_waits_for_slots_and_fails_is_a_member_that_fails() {
    let mut play = Play::new(elastic(2, 2, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    play.list(&[host("a", 1)]);
    play.list(&[host("a", 1)]);
    assert_eq!(play.started(), 1, "a waits for a second slot");
    play.kill("a", 0);
    let domains: Vec<_> = (play.notes.iter())
        .filter_map(|note| match note {
            Note::Blacklisted { domain, .. } => Some(domain.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(
        domains,
        [Domain::Slot("a".into(), elasticrun_protocol::LocalRank(0))],
        "one host: its slot"
    );
    let member = play
        .job
        .results()
        .first_failure()
        .and_then(|failure| failure.member);
    assert!(member.is_some());
}

/// A member raises; the others are told that the round is over.
fn raises(play: &mut Play, host: &str, slot: u32) {
    play.ends(host, slot, Exit::Code(1));
    play.pass(seconds(1));
}

#[test]
fn an_error_of_the_script_ends_the_job_in_the_second_round_without_a_commit() {
    let mut play = Play::new(Settings {
        cooldown: range(10, 300),
        ..elastic(4, 2, 4)
    });
    play.list(&[host("a", 2), host("b", 2)]);
    play.commit();
    // In the round that made a commit it may have been anything.
    raises(&mut play, "a", 0);
    assert_eq!((play.started(), play.size()), (2, 2));
    raises(&mut play, "b", 1);
    assert_eq!(
        play.outcome, None,
        "how it goes on is known when somebody is there"
    );
    play.pass(seconds(9));
    assert_eq!(play.started(), 3, "a has not failed without a commit");
    raises(&mut play, "a", 1);
    play.pass(seconds(25));
    assert_eq!(
        (play.started(), play.outcome.clone()),
        (3, Some(Outcome::WorkerFailed(Reason::FailsEverywhere)))
    );
}

#[test]
fn failures_between_commits_or_by_signals_or_after_a_long_time_are_none_of_the_program() {
    let mut play = Play::new(Settings {
        cooldown: range(10, 300),
        max_host_failures: None,
        ..elastic(2, 1, 2)
    });
    play.list(&[host("a", 1), host("b", 1)]);
    for round in 0..4 {
        for name in ["a", "b"] {
            match round {
                0 => play.commit(),
                1 => play.kill(name, 0),
                _ => play.pass(seconds(700)),
            }
            if round != 1 {
                raises(&mut play, name, 0);
            }
            play.pass(seconds(310));
            assert_eq!(
                (play.outcome.clone(), play.size()),
                (None, 2),
                "{round} {name}"
            );
        }
    }
}

#[test]
fn a_restart_for_the_program_leaves_rank_0_where_it_is() {
    let mut play = Play::new(Settings {
        cooldown: range(1, 1),
        max_restarts: 1,
        max_host_failures: None,
        ..elastic(3, 1, 3)
    });
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    play.commit();
    for name in ["b", "c"] {
        raises(&mut play, name, 0);
        play.pass(seconds(3));
    }
    assert_eq!(play.outcome, None);
    assert_eq!(
        play.members()[0],
        ("a".to_owned(), 0),
        "it has trained all along"
    );
}
