//! Replication: which hosts keep the commits of others, and that the base may be one of theirs.

use elasticrun_core::{Decision, Settings, results::Outcome};
use elasticrun_protocol::{
    AgentCommand, CommitId, HostId, Round,
    control::{Keeper, ReplicaSource},
};

use crate::{
    going_back::lose_at_once,
    harness::{Harness, commit, host, process, range, seconds},
};

/// A job of one or two workers on the first host, whose commits are kept on so many hosts more.
fn job(replicas: u32, hosts: &[&str]) -> Harness {
    let mut harness = Harness::new(Settings {
        replicas,
        cooldown: range(200, 300),
        ..Settings::elastic(2, 1, Some(2))
    });
    let list: Vec<_> = hosts.iter().map(|name| host(name, 2)).collect();
    harness.list(&list);
    harness
}

/// What hosts were told to follow, by the last command to each: the host of the source, and the round.
fn follow(harness: &Harness) -> Vec<(&str, Option<&str>, u64)> {
    let mut all: Vec<(&str, Option<&str>, u64)> = Vec::new();
    for (host, command) in &harness.sent {
        if let AgentCommand::Replicate { source, round, .. } = command {
            let source = source.as_ref().map(|source| source.keeper.host.as_str());
            all.retain(|(other, ..)| *other != host.as_str());
            all.push((host.as_str(), source, round.0));
        }
    }
    all
}

fn orders(harness: &Harness) -> usize {
    let sent = harness.sent.iter();
    sent.filter(|(_, command)| matches!(command, AgentCommand::Replicate { .. }))
        .count()
}

#[test]
fn an_agent_is_launched_for_the_replica_and_follows_rank_0() {
    let harness = job(1, &["a", "b", "c"]);
    assert_eq!((harness.size(), harness.runs("a")), (2, 2));
    assert_eq!(harness.launched, ["a".into(), "b".into()]);
    assert_eq!((harness.runs("b"), harness.has_agent("c")), (0, false));
    let expected = AgentCommand::Replicate {
        number: (1 << 32) + 1,
        round: Round(1),
        planned: Round(1),
        base: None,
        source: Some(ReplicaSource {
            keeper: Keeper {
                host: HostId::new("a"),
                process: process(0, 1),
                address: ([10, 0, 0, 1], 1).into(),
            },
            holders: 3,
            at_once: false,
        }),
    };
    let sent = harness.sent.iter();
    let sent: Vec<_> = sent
        .filter(|(_, command)| matches!(command, AgentCommand::Replicate { .. }))
        .collect();
    assert_eq!(sent, [&(HostId::new("b"), expected)]);
}

#[test]
fn members_on_enough_hosts_need_no_replica() {
    let mut harness = Harness::new(Settings {
        replicas: 1,
        ..Settings::elastic(2, 1, Some(2))
    });
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.commit();
    assert_eq!((harness.size(), orders(&harness)), (2, 0));
    assert!(!harness.has_agent("c"));
}

#[test]
fn a_launch_that_hangs_holds_up_no_further_replica() {
    let mut harness = Harness::new(Settings {
        replicas: 2,
        launches_at_once: 1,
        ..Settings::elastic(2, 1, Some(2))
    });
    harness.passive.insert("b".into());
    harness.list(&[host("a", 2), host("b", 2), host("c", 2)]);
    harness.pass(seconds(9));
    assert_eq!(harness.launched, ["a".into(), "b".into()]);
    harness.pass(seconds(1));
    assert_eq!(harness.launched[2..], ["c".into()]);
}

#[test]
fn without_replicas_no_agent_is_launched_for_them() {
    let harness = job(0, &["a", "b"]);
    assert_eq!((harness.launched.len(), orders(&harness)), (1, 0));
}

#[test]
fn each_of_k_hosts_keeps_a_replica() {
    let harness = job(2, &["a", "b", "c", "d"]);
    assert_eq!(follow(&harness), [("b", Some("a"), 1), ("c", Some("a"), 1)]);
}

#[test]
fn the_base_after_the_loss_of_all_members_is_the_replica() {
    let mut harness = job(1, &["a", "b"]);
    harness.commit();
    harness.commit();
    harness.replicates("b", commit(1, 2));
    harness.lose("a");
    harness.pass(seconds(30));
    assert_eq!(harness.members()[0].0, "b");
    assert_eq!((harness.started(), harness.base()), (2, Some(commit(1, 2))));
    let keeper = harness.keeper().expect("no member holds it");
    assert_eq!(keeper.host, HostId::new("b"));
    assert_eq!(keeper.process.local_rank.0, u32::MAX);
}

#[test]
fn the_job_waits_for_a_replica_that_is_cut_off() {
    let mut harness = job(1, &["a", "b", "c"]);
    harness.commit();
    harness.replicates("b", commit(1, 1));
    lose_at_once(&mut harness, &["b"]);
    // The only member dies with its host, which is not expected back.
    harness.lose("a");
    for _ in 0..2 {
        harness.list(&[host("b", 2), host("c", 2)]);
    }
    harness.pass(seconds(30));
    assert_eq!((harness.started(), harness.outcome.clone()), (1, None));
    harness.connects_again("b", true);
    harness.pass(seconds(1));
    assert_eq!((harness.started(), harness.base()), (2, Some(commit(1, 1))));
}

/// The report that its replica is complete was lost with its connection.
#[test]
fn the_job_waits_for_a_host_that_follows_and_is_cut_off() {
    let mut harness = job(1, &["a", "b", "c"]);
    harness.commit();
    lose_at_once(&mut harness, &["b"]);
    harness.keeps("b", commit(1, 1));
    harness.lose("a");
    for _ in 0..2 {
        harness.list(&[host("b", 2), host("c", 2)]);
    }
    harness.pass(seconds(30));
    assert_eq!((harness.started(), harness.outcome.clone()), (1, None));
    harness.connects_again("b", true);
    harness.pass(seconds(1));
    assert_eq!((harness.started(), harness.base()), (2, Some(commit(1, 1))));
}

#[test]
fn a_replica_that_is_not_reported_yet_is_found() {
    let mut harness = job(1, &["a", "b"]);
    harness.commit();
    harness.keeps("b", commit(1, 1));
    harness.lose("a");
    harness.pass(seconds(30));
    assert_eq!((harness.started(), harness.base()), (2, Some(commit(1, 1))));
}

#[test]
fn a_replica_of_a_void_commit_is_void() {
    let mut harness = job(1, &["a", "b"]);
    harness.commit();
    harness.commit();
    harness.replicates("b", commit(1, 2));
    lose_at_once(&mut harness, &["b"]);
    harness.commit();
    // The commits after the first are lost with their process, so the next round begins from an older one.
    harness.forget_commits_on("a");
    harness.keeps("a", commit(1, 1));
    harness.kill("a", 0);
    harness.pass(seconds(250));
    assert_eq!((harness.started(), harness.base()), (2, Some(commit(1, 1))));
    harness.forget_commits();
    harness.drops("a");
    harness.unreachable.remove(&HostId::new("b"));
    harness.connects_again("b", true);
    harness.lose("a");
    harness.pass(seconds(700));
    assert_ne!(harness.base(), Some(commit(1, 2)), "round 2 made it void");
    assert_eq!(harness.outcome, Some(Outcome::NoStateLeft));
}

#[test]
fn another_host_takes_the_place_of_a_lost_one() {
    let mut harness = job(1, &["a", "b", "c"]);
    harness.commit();
    harness.lose("b");
    harness.pass(seconds(1));
    assert_eq!(follow(&harness), [("b", Some("a"), 1), ("c", Some("a"), 1)]);
    assert_eq!(harness.started(), 1, "nothing is interrupted");
}

#[test]
fn a_host_that_becomes_a_member_follows_nothing_more() {
    let mut harness = Harness::new(Settings {
        replicas: 1,
        max_restarts: 1,
        cooldown: range(200, 300),
        ..Settings::elastic(1, 1, Some(1))
    });
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.replicates("b", commit(1, 1));
    harness.kill("a", 0);
    harness.pass(seconds(30));
    assert_eq!(harness.members(), [("b".to_owned(), 0)]);
    // The agent of the host that is out for a while still keeps commits.
    assert_eq!(follow(&harness), [("a", Some("b"), 2), ("b", None, 2)]);
}

/// Round 2 is on `a`, from which `c` has commit 1. Then round 3 begins on `a` and `d`, from a newer one.
fn grows_by_a_newcomer() -> Harness {
    let mut harness = Harness::new(Settings {
        replicas: 1,
        cooldown: range(2_000, 3_000),
        max_restarts: 1,
        ..Settings::elastic(1, 1, Some(2))
    });
    harness.list(&[host("a", 1), host("c", 1)]);
    harness.commit();
    harness.kill("c", 0);
    harness.pass(seconds(30));
    assert_eq!(harness.members(), [("a".to_owned(), 0)]);
    harness.commit();
    harness.replicates("c", commit(2, 1));
    harness.commit();
    harness.list(&[host("a", 1), host("c", 1), host("d", 1)]);
    harness.pass(seconds(30));
    assert_eq!((harness.size(), harness.round()), (2, Round(3)));
    assert!(harness.base() > Some(commit(2, 1)));
    harness
}

#[test]
fn a_replica_is_needed_until_the_newcomer_has_the_base() {
    let mut harness = grows_by_a_newcomer();
    assert_eq!(follow(&harness), [("c", Some("a"), 3)]);
    harness.beats_with("d", None);
    harness.pass(seconds(1));
    assert_eq!(follow(&harness), [("c", Some("a"), 3)]);
    let base = harness.base();
    harness.beats_with("d", base);
    harness.pass(seconds(1));
    assert_eq!(follow(&harness), [("c", None, 3)]);
}

#[test]
fn the_base_is_the_replica_if_the_newcomer_has_nothing_yet() {
    let mut harness = grows_by_a_newcomer();
    harness.forget_commits_on("d");
    harness.lose("a");
    harness.pass(seconds(400));
    assert_eq!(
        (harness.outcome.clone(), harness.base()),
        (None, Some(commit(2, 1)))
    );
}

#[test]
fn a_draining_host_is_copied_at_once() {
    let mut harness = job(1, &["a", "b", "c"]);
    harness.slow = true;
    harness.commit();
    let before = harness.sent.len();
    harness.asks_to_drain("a");
    let at_once = harness.sent[before..].iter().any(|(host, command)| {
        let urgent = |source: &ReplicaSource| source.at_once;
        matches!(command, AgentCommand::Replicate { source, .. }
            if host.as_str() == "b" && source.as_ref().is_some_and(urgent))
    });
    assert!(at_once, "{:?}", &harness.sent[before..]);
}

#[test]
fn an_agent_that_connects_anew_is_told_again() {
    let mut harness = job(1, &["a", "b"]);
    harness.commit();
    let before = orders(&harness);
    harness.connects_again("b", false);
    assert_eq!(orders(&harness), before + 1);
}

#[test]
fn a_host_that_returns_is_told_to_stop_once_another_one_has_its_place() {
    let mut harness = job(1, &["a", "b", "c"]);
    harness.commit();
    harness.breaks_off("b");
    harness.pass(seconds(1));
    assert_eq!(follow(&harness), [("b", Some("a"), 1), ("c", Some("a"), 1)]);
    harness.connects_again("b", true);
    harness.pass(seconds(1));
    assert_eq!(follow(&harness), [("b", Some("a"), 1), ("c", Some("a"), 1)]);
    harness.replicates("c", commit(1, 1));
    harness.pass(seconds(1));
    assert_eq!(follow(&harness), [("c", Some("a"), 1), ("b", None, 1)]);
}

/// What was announced about the number of hosts.
fn announced(harness: &Harness) -> Vec<Decision> {
    let is_number = |note: &&Decision| {
        matches!(
            note,
            Decision::ReplicasLacking { .. } | Decision::ReplicasComplete { .. }
        )
    };
    harness.notes.iter().filter(is_number).cloned().collect()
}

#[test]
fn a_lack_of_hosts_that_lasts_is_announced_once_and_so_is_its_end() {
    let mut harness = job(2, &["a", "b"]);
    harness.pass(seconds(59));
    assert_eq!(announced(&harness), []);
    harness.pass(seconds(600));
    let lacking = Decision::ReplicasLacking {
        hosts: 2,
        needed: 3,
    };
    assert_eq!(announced(&harness).len(), 1);
    harness.list(&[host("a", 2), host("b", 2), host("c", 2)]);
    let complete = Decision::ReplicasComplete { needed: 3 };
    assert_eq!(announced(&harness), [lacking, complete]);
}

#[test]
fn a_short_lack_of_hosts_is_not_announced() {
    let mut harness = job(1, &["a"]);
    harness.pass(seconds(30));
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.pass(seconds(600));
    assert_eq!(announced(&harness), []);
}

#[test]
fn an_agent_of_an_earlier_release_keeps_no_replica() {
    let mut harness = Harness::new(Settings {
        replicas: 1,
        ..Settings::elastic(1, 1, Some(1))
    });
    harness.older.insert("b".into());
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(1));
    assert_eq!((harness.size(), orders(&harness)), (1, 0));
}

#[test]
fn a_host_that_cannot_be_launched_is_tried_again_after_its_cooldown() {
    let mut harness = job(1, &["a", "b"]);
    assert_eq!(orders(&harness), 1);
    harness.unreachable.insert("b".into());
    harness.lose("b");
    harness.pass(seconds(1));
    let failed = |note: &&Decision| matches!(note, Decision::HostFailed { .. });
    assert_eq!(harness.notes.iter().filter(failed).count(), 1);
    harness.unreachable.clear();
    harness.pass(seconds(400));
    assert_eq!(orders(&harness), 2);
    assert_eq!(harness.started(), 1);
}

#[test]
fn the_order_of_a_round_names_its_base() {
    let mut harness = job(1, &["a", "b"]);
    harness.commit();
    let process = harness.current("a", 1);
    harness.ends(
        "a",
        process.local_rank.0,
        elasticrun_protocol::control::Exit::Code(1),
    );
    harness.pass(seconds(1));
    let base = harness.base();
    let last = harness
        .sent
        .iter()
        .rev()
        .find_map(|(_, command)| match command {
            AgentCommand::Replicate { round, base, .. } => Some((*round, *base)),
            _ => None,
        });
    let expected: (Round, Option<CommitId>) = (harness.round(), base);
    assert_eq!(last, Some(expected));
}
