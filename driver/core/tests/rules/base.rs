//! Rules 2 and 8: which commit a round begins from, and who is rank 0 of it.

use elasticrun_core::{FailureDomain, Settings, results::Outcome};
use elasticrun_protocol::{HostId, Order, Report};

use crate::{
    hosts::elastic,
    play::{Play, commit, host, range, seconds},
};

#[test]
fn a_host_that_keeps_the_newest_commit_and_dies_while_others_answer() {
    let mut play = Play::new(Settings {
        failure_domain: FailureDomain::Slot,
        ..elastic(2, 1, 2)
    });
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    // Only a's memory has the newest commit; its worker is dead and b is slow to come back.
    play.commit_on("a");
    play.passive.insert("b".into());
    play.kill("a", 0);
    play.lose("a");
    play.comes_back("b");
    assert_eq!(
        (play.started(), play.base()),
        (2, Some(commit(1, 1))),
        "what nobody can give is no base"
    );
}

#[test]
fn the_newest_commit_of_a_dead_worker_is_the_base() {
    let mut play = Play::new(Settings {
        failure_domain: FailureDomain::Slot,
        ..elastic(2, 1, 2)
    });
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    play.commit_on("a");
    play.kill("a", 0);
    assert_eq!(
        (play.started(), play.base()),
        (2, Some(commit(1, 2))),
        "R12"
    );
    let keeper = play.keeper().expect("no member holds it");
    assert_eq!(keeper.host, HostId::new("a"));
}

#[test]
fn rank_0_is_a_survivor_also_if_the_base_is_that_of_a_dead_worker() {
    let mut play = Play::new(Settings {
        failure_domain: FailureDomain::Slot,
        cooldown: range(1, 4),
        ..elastic(2, 2, 2)
    });
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    play.commit_on("a");
    play.kill("a", 0);
    while play.started() < 2 {
        play.pass(std::time::Duration::from_millis(10));
    }
    assert_eq!(play.base(), Some(commit(1, 2)));
    assert_eq!(play.members(), [("b".to_owned(), 0), ("a".to_owned(), 0)]);
}

#[test]
fn rank_0_stays_rank_0_although_another_survivor_has_committed_once_more() {
    let mut play = Play::new(Settings {
        cooldown: range(1, 4),
        ..elastic(3, 1, 3)
    });
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    play.commit();
    play.commit_on("b");
    play.kill("c", 0);
    assert_eq!(play.base(), Some(commit(1, 2)));
    assert_eq!(play.members(), [("a".to_owned(), 0), ("b".to_owned(), 0)]);
    let keeper = play.keeper().expect("rank 0 has to get the base");
    assert_eq!(keeper.host, HostId::new("b"), "a living process has it");
}

fn passes_until_round(play: &mut Play, round: u32) {
    while play.started() < round {
        play.pass(std::time::Duration::from_millis(10));
    }
}

/// The rank that the last process of a slot was told at its start.
fn expected_rank(play: &Play, name: &str, slot: u32) -> u32 {
    let spawned = |(host, order): &(HostId, Order)| match order {
        Order::Spawn(spawn) if *host == name.into() && spawn.process.local_rank.0 == slot => {
            Some(spawn.place.rank.0)
        }
        _ => None,
    };
    let mut ranks = play.orders.iter().filter_map(spawned);
    ranks.next_back().expect("a process was started there")
}

#[test]
fn a_worker_is_rank_0_as_long_as_it_lives() {
    let mut play = Play::new(Settings {
        failure_domain: FailureDomain::Slot,
        cooldown: range(1, 4),
        ..elastic(2, 2, 4)
    });
    play.list(&[host("a", 2)]);
    play.commit();
    play.kill("a", 0);
    passes_until_round(&mut play, 2);
    assert_eq!(play.members(), [("a".to_owned(), 1), ("a".to_owned(), 0)]);
    assert_eq!(expected_rank(&play, "a", 0), 1, "at its start, too");
    // Nobody fails, and the replacement is a survivor by now, in the first slot of the host.
    play.commit();
    play.list(&[host("a", 2), host("b", 1)]);
    passes_until_round(&mut play, 3);
    assert_eq!(
        play.members(),
        [
            ("a".to_owned(), 1),
            ("a".to_owned(), 0),
            ("b".to_owned(), 0)
        ]
    );
    assert_eq!(expected_rank(&play, "b", 0), 2);
}

#[test]
fn a_host_that_gets_a_new_worker_is_not_before_that_of_rank_0() {
    let mut play = Play::new(Settings {
        failure_domain: FailureDomain::Slot,
        cooldown: range(1, 4),
        ..elastic(2, 1, 4)
    });
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    play.kill("a", 0);
    passes_until_round(&mut play, 3);
    let expected = [("b".to_owned(), 0), ("a".to_owned(), 0)];
    assert_eq!(play.members(), expected);
    assert_eq!(expected_rank(&play, "a", 0), 1);
    // Now both have survivors, and a arrived first.
    play.commit();
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    passes_until_round(&mut play, 4);
    assert_eq!(play.members()[..2], expected);
    assert_eq!(expected_rank(&play, "c", 0), 2);
    play.kill("b", 0);
    assert_eq!(play.members()[0], ("a".to_owned(), 0), "the next survivor");
}

#[test]
fn who_has_made_a_commit_that_nobody_can_fetch_is_rank_0() {
    let mut play = Play::new(Settings {
        cooldown: range(1, 4),
        ..elastic(3, 1, 3)
    });
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    play.commit();
    play.commit_on("b");
    play.keep_states_on("b");
    play.kill("c", 0);
    assert_eq!(play.base(), Some(commit(1, 2)));
    assert_eq!(play.members(), [("b".to_owned(), 0), ("a".to_owned(), 0)]);
    assert_eq!(play.keeper(), None);
}

#[test]
fn a_keeper_is_not_dismissed_before_a_member_has_the_base() {
    let mut play = Play::new(elastic(1, 1, 1));
    play.list(&[host("a", 1)]);
    play.commit();
    play.passive.insert("b".into());
    play.list(&[host("b", 1)]);
    play.list(&[host("b", 1)]);
    play.connects("b");
    play.joins("b", 0);
    assert_eq!((play.started(), play.base()), (2, Some(commit(1, 2))));
    let dismissed =
        |(host, order): &(HostId, Order)| *host == "a".into() && *order == Order::Shutdown;
    assert!(
        !play.orders.iter().any(dismissed),
        "b has yet to fetch the base from a"
    );
}

#[test]
fn state_that_is_lost_is_said_to_be_lost() {
    let mut play = Play::new(elastic(1, 1, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    play.pass(seconds(1));
    play.commit();
    play.lose("a");
    assert_eq!(
        (play.outcome.clone(), play.started()),
        (None, 2),
        "b holds it too"
    );
    play.commit();
    play.passive.insert("c".into());
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    play.unreachable.insert("b".into());
    play.lose("b");
    play.connects("c");
    play.joins("c", 0);
    assert_eq!(play.outcome, None, "b may come back");
    play.pass(seconds(60));
    assert_eq!(play.outcome, Some(Outcome::NoStateLeft));
}

#[test]
fn commits_of_hosts_that_were_all_out_of_reach_are_the_base_when_they_are_back() {
    let mut play = Play::new(Settings {
        cooldown: range(1, 4),
        ..elastic(2, 2, 2)
    });
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    play.out_of_reach("a");
    play.out_of_reach("b");
    play.connects_again("a", true);
    play.connects_again("b", true);
    play.pass(seconds(30));
    assert_eq!(
        (play.outcome.clone(), play.started(), play.base()),
        (None, 2, Some(commit(1, 1))),
        "nothing is lost"
    );
}

#[test]
fn a_newcomer_that_was_never_synced_is_no_state() {
    let mut play = Play::new(elastic(1, 1, 2));
    play.list(&[host("a", 1)]);
    play.commit();
    play.list(&[host("a", 1), host("b", 1)]);
    assert_eq!(play.started(), 2);
    play.forget_commits_on("b");
    play.lose("a");
    assert_eq!(
        play.outcome,
        Some(Outcome::NoStateLeft),
        "a began with a base, and it is gone"
    );
}

#[test]
fn what_was_committed_last_on_hosts_that_go_is_kept() {
    let mut play = Play::new(elastic(1, 1, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    play.pass(seconds(1));
    play.commit();
    play.passive.insert("b".into());
    // Both go; a leaves at the boundary and ends, b has not come to it yet.
    play.list(&[]);
    play.list(&[]);
    let round = play.round();
    let highest = elasticrun_protocol::Boundary(4);
    play.report("b", Report::Counted { round, highest });
    assert_eq!(play.runs("a"), 0);
    play.list(&[]);
    let dismissed =
        |(host, order): &(HostId, Order)| *host == "a".into() && *order == Order::Shutdown;
    assert!(!play.orders.iter().any(dismissed));
}
