//! Cuts: which commit of a divided state is copied, by whom, and that the job goes on from it after the loss of hosts.

use elasticrun_core::{Decision, FailureDomain, ReplicaGroupSize, Settings};
use elasticrun_protocol::{
    AgentCommand, AgentReport, CommitId, Shard,
    control::{Cut, CutShard},
};

use crate::{
    harness::{Harness, commit, host, layout_of, process, seconds},
    hosts::elastic,
};

/// A job with a worker on each of these hosts, and further hosts. Shards are kept on so many hosts beyond one.
fn job(replicas: u32, hosts: &[&str], np: u32) -> Harness {
    let mut harness = Harness::new(Settings {
        failure_domain: FailureDomain::Slot,
        replica_group_size: ReplicaGroupSize::All,
        replicas,
        ..elastic(np, 1, np)
    });
    let hosts: Vec<_> = hosts.iter().map(|name| host(name, 1)).collect();
    harness.list(&hosts);
    harness
}

/// The last command about cuts to a host.
fn last<'a>(harness: &'a Harness, name: &str) -> &'a Cut {
    let of_host = harness
        .sent
        .iter()
        .rev()
        .find_map(|(host, command)| match command {
            AgentCommand::Cut(cut) if host.as_str() == name => Some(cut),
            _ => None,
        });
    of_host.expect("it was told of a cut")
}

/// What a host copies: the hosts and shards.
fn copies(harness: &Harness, name: &str) -> Vec<(String, u32)> {
    let copies = last(harness, name).copies.iter();
    let copies = copies.map(|copy| (copy.keeper.host.as_str().to_owned(), copy.shard.index));
    copies.collect()
}

/// The members of these hosts, one each, hold the next cut.
fn held(harness: &mut Harness, hosts: &[&str]) {
    let of = hosts.len() as u32;
    let layout = layout_of(of);
    for (name, index) in hosts.iter().zip(0..) {
        let commit = last(harness, name).next.expect("there is one");
        let shard = Shard { layout, index, of };
        let process = harness.current(name, 0);
        let held = vec![CutShard { process, shard }];
        harness.report(name, AgentReport::CutHeld { commit, held });
    }
}

fn copied(harness: &mut Harness, name: &str) {
    let commit = last(harness, name).next.expect("there is one");
    let (bytes, took) = (8, seconds(0));
    let report = AgentReport::Replicated {
        commit,
        bytes,
        took,
    };
    harness.report(name, report);
}

fn beats(harness: &mut Harness, name: &str, sealed: CommitId) {
    let beat = AgentReport::Heartbeat {
        commits: 0,
        count: 0,
        held: None,
        sealed: Some(sealed),
    };
    harness.report(name, beat);
}

#[test]
fn the_first_cut_is_the_first_commit_and_each_host_copies_the_shard_of_the_one_before() {
    let mut harness = job(1, &["a", "b", "c"], 3);
    for name in ["a", "b", "c"] {
        let cut = last(&harness, name);
        assert_eq!((cut.keep, cut.next), (None, Some(commit(1, 0))));
        assert_eq!(cut.copies, []);
    }
    held(&mut harness, &["a", "b", "c"]);
    assert_eq!(copies(&harness, "a"), [("c".into(), 2)]);
    assert_eq!(copies(&harness, "b"), [("a".into(), 0)]);
    assert_eq!(copies(&harness, "c"), [("b".into(), 1)]);
    copied(&mut harness, "a");
    copied(&mut harness, "b");
    assert_eq!(last(&harness, "b").keep, None, "c lacks its copy");
    copied(&mut harness, "c");
    let complete = Decision::CutComplete {
        commit: commit(1, 0),
    };
    assert!(harness.notes.contains(&complete));
    // The first one stays, and the next one is named after the interval.
    assert_eq!(
        (last(&harness, "a").keep, last(&harness, "a").next),
        (Some(commit(1, 0)), None)
    );
    harness.pass(seconds(1));
    for name in ["a", "b", "c"] {
        assert_eq!(last(&harness, name).next, Some(commit(1, 1)));
    }
}

#[test]
fn a_cut_is_named_ahead_of_what_workers_may_have_sealed() {
    let mut harness = job(1, &["a", "b"], 2);
    held(&mut harness, &["a", "b"]);
    harness.pass(seconds(1));
    beats(&mut harness, "a", commit(1, 100));
    copied(&mut harness, "a");
    copied(&mut harness, "b");
    // A hundred commits in a second, and the command takes a moment.
    let next = last(&harness, "a").next.expect("there is one").count;
    assert!((110..140).contains(&next), "{next}");
    // The workers of one host were faster.
    let late = AgentReport::CutHeld {
        commit: commit(1, next),
        held: Vec::new(),
    };
    harness.report("a", late.clone());
    harness.report("b", late);
    let further = last(&harness, "a").next.expect("there is one").count;
    assert!(further > next + 30, "{further}");
    assert_eq!(last(&harness, "a").keep, Some(commit(1, 0)));
}

#[test]
fn a_cut_that_a_host_cannot_copy_is_given_up() {
    let mut harness = job(1, &["a", "b"], 2);
    held(&mut harness, &["a", "b"]);
    let failed = AgentReport::ReplicaFailed {
        why: "cut".into(),
        commit: Some(commit(1, 0)),
    };
    harness.report("a", failed);
    let cut = last(&harness, "a");
    assert_eq!((cut.keep, cut.copies.len()), (None, 0));
    assert!(cut.next > Some(commit(1, 0)), "{cut:?}");
    // The other one has copied it in vain.
    copied(&mut harness, "b");
    assert_eq!(last(&harness, "b").keep, None);
}

#[test]
fn a_spare_host_keeps_the_shards_of_the_only_host() {
    let mut harness = job(1, &["a", "b"], 1);
    assert_eq!(harness.launched, ["a".into(), "b".into()]);
    held(&mut harness, &["a"]);
    assert_eq!(copies(&harness, "b"), [("a".into(), 0)]);
    assert_eq!(copies(&harness, "a"), []);
    // Without its copy the cut is never complete, so another one is named for those that are left.
    harness.lose("b");
    harness.pass(seconds(1));
    assert_eq!(last(&harness, "a").keep, None);
}

#[test]
fn shards_that_are_on_enough_hosts_anyway_are_not_copied() {
    let mut harness = job(1, &["a", "b"], 2);
    let shard = Shard {
        layout: 9,
        index: 0,
        of: 1,
    };
    for name in ["a", "b"] {
        let process = process(0, 1);
        let held = vec![CutShard { process, shard }];
        let commit = commit(1, 0);
        harness.report(name, AgentReport::CutHeld { commit, held });
    }
    let cut = last(&harness, "a");
    assert_eq!((cut.keep, cut.next, cut.copies.len()), (None, None, 0));
    beats(&mut harness, "a", commit(1, 7));
    harness.pass(seconds(5));
    assert_eq!(last(&harness, "a").next, None);
}

#[test]
fn the_complete_cut_is_kept_beyond_its_round_until_the_next_one_is_complete() {
    let mut harness = job(1, &["a", "b", "c"], 3);
    harness.commit();
    held(&mut harness, &["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        copied(&mut harness, name);
    }
    harness.commit();
    harness.kill("c", 0);
    assert_eq!((harness.started(), harness.base()), (2, Some(commit(1, 2))));
    let cut = last(&harness, "a");
    assert_eq!(
        (cut.keep, cut.base),
        (Some(commit(1, 0)), Some(commit(1, 2)))
    );
    assert_eq!(cut.next, Some(commit(2, 0)));
    held(&mut harness, &["a", "b"]);
    assert_eq!(copies(&harness, "b"), [("a".into(), 0)]);
    copied(&mut harness, "a");
    copied(&mut harness, "b");
    let cut = last(&harness, "c");
    assert_eq!((cut.keep, cut.base), (Some(commit(2, 0)), None));
}

#[test]
fn without_replicas_the_job_warns_once_if_the_loss_of_a_host_would_end_it() {
    let mut harness = job(0, &["a", "b"], 2);
    held(&mut harness, &["a", "b"]);
    let warning = Decision::ShardsUnprotected { hosts: 2 };
    let warnings = |harness: &Harness| {
        let warnings = harness.notes.iter().filter(|note| **note == warning);
        warnings.count()
    };
    assert_eq!(warnings(&harness), 1);
    let cut = last(&harness, "a");
    assert_eq!((cut.keep, cut.next, cut.copies.len()), (None, None, 0));
    harness.commit();
    beats(&mut harness, "a", commit(1, 7));
    harness.pass(seconds(5));
    harness.kill("b", 0);
    harness.pass(seconds(5));
    assert_eq!((warnings(&harness), last(&harness, "a").next), (1, None));
}

#[test]
fn without_replicas_a_job_on_one_host_names_no_cut() {
    let harness = job(0, &["a"], 1);
    let is_cut = |(_, command): &(_, AgentCommand)| matches!(command, AgentCommand::Cut(_));
    assert!(!harness.sent.iter().any(is_cut));
}
