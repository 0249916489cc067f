//! Rules 2 and 8: the commit that a round begins from, and its rank 0.

use elasticrun_core::{FailureDomain, Settings, results::Outcome};
use elasticrun_protocol::{AgentCommand, AgentReport, HostId};

use crate::{
    harness::{Harness, commit, host, range, seconds},
    hosts::elastic,
};

#[test]
fn a_host_that_keeps_the_newest_commit_and_dies_while_others_answer() {
    let mut harness = Harness::new(Settings {
        failure_domain: FailureDomain::Slot,
        ..elastic(2, 1, 2)
    });
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    // Only the memory of host a has the newest commit. Its worker is dead, and b is slow to come back.
    harness.commit_on("a");
    harness.passive.insert("b".into());
    harness.kill("a", 0);
    harness.lose("a");
    harness.comes_back("b");
    assert_eq!(
        (harness.started(), harness.base()),
        (2, Some(commit(1, 1))),
        "a commit that no process can give is no base"
    );
}

#[test]
fn the_newest_commit_of_a_dead_worker_is_the_base() {
    let mut harness = Harness::new(Settings {
        failure_domain: FailureDomain::Slot,
        ..elastic(2, 1, 2)
    });
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.commit_on("a");
    harness.kill("a", 0);
    assert_eq!(
        (harness.started(), harness.base()),
        (2, Some(commit(1, 2))),
        "R12"
    );
    let keeper = harness.keeper().expect("no member holds it");
    assert_eq!(keeper.host, HostId::new("a"));
}

#[test]
fn rank_0_is_a_survivor_also_if_the_base_is_that_of_a_dead_worker() {
    let mut harness = Harness::new(Settings {
        failure_domain: FailureDomain::Slot,
        cooldown: range(1, 4),
        ..elastic(2, 2, 2)
    });
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.commit_on("a");
    harness.kill("a", 0);
    while harness.started() < 2 {
        harness.pass(std::time::Duration::from_millis(10));
    }
    assert_eq!(harness.base(), Some(commit(1, 2)));
    assert_eq!(
        harness.members(),
        [("b".to_owned(), 0), ("a".to_owned(), 0)]
    );
}

#[test]
fn rank_0_stays_rank_0_although_another_survivor_has_committed_once_more() {
    let mut harness = Harness::new(Settings {
        cooldown: range(1, 4),
        ..elastic(3, 1, 3)
    });
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.commit();
    harness.commit_on("b");
    harness.kill("c", 0);
    assert_eq!(harness.base(), Some(commit(1, 2)));
    assert_eq!(
        harness.members(),
        [("a".to_owned(), 0), ("b".to_owned(), 0)]
    );
    let keeper = harness.keeper().expect("rank 0 has to get the base");
    assert_eq!(keeper.host, HostId::new("b"), "a living process has it");
}

fn passes_until_round(harness: &mut Harness, round: u32) {
    while harness.started() < round {
        harness.pass(std::time::Duration::from_millis(10));
    }
}

/// The rank that the last process of a slot got at its start.
fn expected_rank(harness: &Harness, name: &str, slot: u32) -> u32 {
    let spawned = |(host, command): &(HostId, AgentCommand)| match command {
        AgentCommand::Spawn(spawn)
            if *host == name.into() && spawn.process.local_rank.0 == slot =>
        {
            Some(spawn.place.rank.0)
        }
        _ => None,
    };
    let mut ranks = harness.sent.iter().filter_map(spawned);
    ranks.next_back().expect("a process was started there")
}

#[test]
fn a_worker_is_rank_0_as_long_as_it_lives() {
    let mut harness = Harness::new(Settings {
        failure_domain: FailureDomain::Slot,
        cooldown: range(1, 4),
        ..elastic(2, 2, 4)
    });
    harness.list(&[host("a", 2)]);
    harness.commit();
    harness.kill("a", 0);
    passes_until_round(&mut harness, 2);
    assert_eq!(
        harness.members(),
        [("a".to_owned(), 1), ("a".to_owned(), 0)]
    );
    assert_eq!(expected_rank(&harness, "a", 0), 1, "at its start, too");
    // No worker fails. The replacement is a survivor by now, in the first slot of the host.
    harness.commit();
    harness.list(&[host("a", 2), host("b", 1)]);
    passes_until_round(&mut harness, 3);
    assert_eq!(
        harness.members(),
        [
            ("a".to_owned(), 1),
            ("a".to_owned(), 0),
            ("b".to_owned(), 0)
        ]
    );
    assert_eq!(expected_rank(&harness, "b", 0), 2);
}

#[test]
fn a_host_that_gets_a_new_worker_is_not_before_that_of_rank_0() {
    let mut harness = Harness::new(Settings {
        failure_domain: FailureDomain::Slot,
        cooldown: range(1, 4),
        ..elastic(2, 1, 4)
    });
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.kill("a", 0);
    passes_until_round(&mut harness, 3);
    let expected = [("b".to_owned(), 0), ("a".to_owned(), 0)];
    assert_eq!(harness.members(), expected);
    assert_eq!(expected_rank(&harness, "a", 0), 1);
    // Now both hosts have survivors, and a arrived first.
    harness.commit();
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    passes_until_round(&mut harness, 4);
    assert_eq!(harness.members()[..2], expected);
    assert_eq!(expected_rank(&harness, "c", 0), 2);
    harness.kill("b", 0);
    assert_eq!(
        harness.members()[0],
        ("a".to_owned(), 0),
        "the next survivor"
    );
}

#[test]
fn who_has_made_a_commit_that_nobody_can_fetch_is_rank_0() {
    let mut harness = Harness::new(Settings {
        cooldown: range(1, 4),
        ..elastic(3, 1, 3)
    });
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.commit();
    harness.commit_on("b");
    harness.keep_states_on("b");
    harness.kill("c", 0);
    assert_eq!(harness.base(), Some(commit(1, 2)));
    assert_eq!(
        harness.members(),
        [("b".to_owned(), 0), ("a".to_owned(), 0)]
    );
    assert_eq!(harness.keeper(), None);
}

#[test]
fn a_keeper_is_not_dismissed_before_a_member_has_the_base() {
    let mut harness = Harness::new(elastic(1, 1, 1));
    harness.list(&[host("a", 1)]);
    harness.commit();
    harness.passive.insert("b".into());
    harness.list(&[host("b", 1)]);
    harness.list(&[host("b", 1)]);
    harness.connects("b");
    harness.joins("b", 0);
    assert_eq!((harness.started(), harness.base()), (2, Some(commit(1, 2))));
    let dismissed = |(host, command): &(HostId, AgentCommand)| {
        *host == "a".into() && *command == AgentCommand::Shutdown
    };
    assert!(
        !harness.sent.iter().any(dismissed),
        "b has yet to fetch the base from a"
    );
}

#[test]
fn state_that_is_lost_is_said_to_be_lost() {
    let mut harness = Harness::new(elastic(1, 1, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(1));
    harness.commit();
    harness.lose("a");
    assert_eq!(
        (harness.outcome.clone(), harness.started()),
        (None, 2),
        "b holds it too"
    );
    harness.commit();
    harness.passive.insert("c".into());
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.unreachable.insert("b".into());
    harness.lose("b");
    harness.connects("c");
    harness.joins("c", 0);
    assert_eq!(harness.outcome, None, "b may come back");
    harness.pass(seconds(60));
    assert_eq!(harness.outcome, Some(Outcome::NoStateLeft));
}

#[test]
fn commits_of_hosts_that_were_all_out_of_reach_are_the_base_when_they_are_back() {
    let mut harness = Harness::new(Settings {
        cooldown: range(1, 4),
        ..elastic(2, 2, 2)
    });
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.out_of_reach("a");
    harness.out_of_reach("b");
    harness.connects_again("a", true);
    harness.connects_again("b", true);
    harness.pass(seconds(30));
    assert_eq!(
        (harness.outcome.clone(), harness.started(), harness.base()),
        (None, 2, Some(commit(1, 1))),
        "nothing is lost"
    );
}

#[test]
fn a_newcomer_that_was_never_synced_is_no_state() {
    let mut harness = Harness::new(elastic(1, 1, 2));
    harness.list(&[host("a", 1)]);
    harness.commit();
    harness.list(&[host("a", 1), host("b", 1)]);
    assert_eq!(harness.started(), 2);
    harness.forget_commits_on("b");
    harness.lose("a");
    assert_eq!(harness.outcome, None, "a may come back with the state");
    harness.pass(seconds(60));
    assert_eq!(
        harness.outcome,
        Some(Outcome::NoStateLeft),
        "a began with a base, and it is gone"
    );
}

#[test]
fn what_was_committed_last_on_hosts_that_go_is_kept() {
    let mut harness = Harness::new(elastic(1, 1, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(1));
    harness.commit();
    harness.passive.insert("b".into());
    // Both hosts go. Host a leaves at the boundary and ends; b has not reached it yet.
    harness.list(&[]);
    harness.list(&[]);
    let round = harness.round();
    let highest = elasticrun_protocol::Boundary(4);
    harness.report("b", AgentReport::BoundaryCounted { round, highest });
    assert_eq!(harness.runs("a"), 0);
    harness.list(&[]);
    let dismissed = |(host, command): &(HostId, AgentCommand)| {
        *host == "a".into() && *command == AgentCommand::Shutdown
    };
    assert!(!harness.sent.iter().any(dismissed));
}
