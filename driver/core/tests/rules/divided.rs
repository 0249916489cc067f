//! A state that is divided among workers: the base is the newest commit of which all shards are held.

use std::time::Duration;

use elasticrun_core::{
    Decision, Departure, FailureDomain, ReplicaGroupSize, Settings, results::Outcome,
};
use elasticrun_protocol::{
    HostId, Round,
    control::{BaseShards, Seat, Start},
};

use crate::{
    draining::noticed,
    harness::{Harness, commit, host, layout_of},
    hosts::elastic,
};

/// A job whose workers each hold a shard, with a worker on each of these hosts.
fn job(hosts: &[&str], min_np: u32) -> Harness {
    let np = hosts.len() as u32;
    let mut harness = Harness::new(Settings {
        failure_domain: FailureDomain::Slot,
        replica_group_size: ReplicaGroupSize::All,
        ..elastic(np, min_np, np)
    });
    let hosts: Vec<_> = hosts.iter().map(|name| host(name, 1)).collect();
    harness.list(&hosts);
    harness
}

fn seats(harness: &Harness) -> Vec<Option<Seat>> {
    let members = harness.starts.iter().flat_map(|(_, start)| &start.members);
    members.map(|member| member.seat).collect()
}

fn base_shards(harness: &Harness) -> Vec<Option<BaseShards>> {
    let starts = harness.starts.iter();
    starts.map(|(_, start)| start.base_shards).collect()
}

/// The commits that are announced as incomplete: their number in the round, and their missing shards.
fn incomplete(harness: &Harness) -> Vec<(u64, Vec<u32>)> {
    let named = |note: &Decision| match note {
        Decision::CommitIncomplete { commit, first, .. } => Some((commit.count, first.clone())),
        _ => None,
    };
    harness.notes.iter().filter_map(named).collect()
}

#[test]
fn each_member_has_the_shard_of_its_rank() {
    let harness = job(&["a", "b", "c"], 1);
    let seat = |shard| {
        Some(Seat {
            group: 0,
            shard,
            of: 3,
        })
    };
    assert_eq!(seats(&harness), [seat(0), seat(1), seat(2)]);
    assert_eq!(base_shards(&harness), [None; 3]);
}

#[test]
fn a_job_without_replica_groups_has_no_seats() {
    let mut harness = Harness::new(elastic(1, 1, 1));
    harness.list(&[host("a", 1)]);
    assert_eq!(seats(&harness), [None]);
}

#[test]
fn a_commit_that_a_dead_worker_has_not_sealed_is_no_base() {
    let mut harness = job(&["a", "b"], 1);
    harness.commit();
    harness.commit_on("a");
    harness.kill("b", 0);
    assert_eq!((harness.started(), harness.base()), (2, Some(commit(1, 1))));
    let layout = layout_of(2);
    assert_eq!(base_shards(&harness), [Some(BaseShards { layout, of: 2 })]);
    assert_eq!(
        seats(&harness),
        [Some(Seat {
            group: 0,
            shard: 0,
            of: 1
        })]
    );
    assert!(harness.keeper().is_none(), "no single process holds it");
    assert_eq!(
        incomplete(&harness),
        [],
        "a step is repeated, and nothing is lost"
    );
}

#[test]
fn a_member_that_waits_for_the_round_holds_the_older_commit_that_completes_the_base() {
    let mut harness = job(&["a", "b", "c"], 1);
    harness.commit();
    // Two of three have sealed the next commit, so theirs of this one is the older one.
    harness.commit_on("a");
    harness.commit_on("b");
    harness.kill("c", 0);
    assert_eq!((harness.started(), harness.base()), (2, Some(commit(1, 1))));
}

#[test]
fn a_failure_before_all_have_sealed_the_first_commit_of_a_round_goes_back_to_its_base() {
    let mut harness = job(&["a", "b", "c"], 1);
    harness.commit();
    harness.kill("c", 0);
    assert_eq!(harness.base(), Some(commit(1, 1)));
    // Both members of round 2 have sealed commit 0 of two shards.
    harness.kill("b", 0);
    assert_eq!((harness.started(), harness.base()), (3, Some(commit(2, 0))));
    assert_eq!(
        base_shards(&harness),
        [Some(BaseShards {
            layout: layout_of(2),
            of: 2
        })]
    );
}

#[test]
fn a_shard_that_is_lost_with_its_host_ends_the_job() {
    let mut harness = job(&["a", "b", "c"], 1);
    harness.commit();
    harness.commit();
    harness.lose("b");
    harness.pass(Duration::from_secs(700));
    assert_eq!(harness.outcome, Some(Outcome::NoStateLeft));
    assert_eq!(incomplete(&harness).last(), Some(&(2, vec![1])));
}

#[test]
fn a_host_that_comes_back_with_its_shard_completes_the_base() {
    let mut harness = job(&["a", "b"], 1);
    harness.commit();
    harness.commit();
    harness.out_of_reach("b");
    harness.pass(Duration::from_secs(30));
    assert_eq!((harness.started(), &harness.outcome), (1, &None));
    harness.connects_again("b", true);
    harness.pass(Duration::from_secs(1));
    assert_eq!(harness.base(), Some(commit(1, 2)));
}

#[test]
fn a_worker_that_dies_before_any_commit_begins_anew() {
    let mut harness = job(&["a", "b"], 1);
    // Commit 0 of round 1 holds no step, and host b takes its shard of it along.
    harness.lose("b");
    harness.pass(Duration::from_secs(700));
    assert_eq!(harness.outcome, None);
    assert_eq!((harness.started(), harness.base()), (2, None));
}

#[test]
fn a_draining_host_stays_until_all_members_have_sealed_the_next_round() {
    let mut harness = job(&["a", "b", "c"], 1);
    harness.commit();
    harness.asks_to_drain("b");
    harness.pass(Duration::from_secs(2));
    assert_eq!((harness.started(), harness.size()), (2, 2));
    let released = ("b".into(), Departure::Drained);
    let is_released = |harness: &Harness| harness.departures.contains(&released);
    assert!(!is_released(&harness), "others read its shard");
    harness.seals_on("a");
    assert!(!is_released(&harness), "one of two has sealed");
    harness.seals_on("c");
    harness.pass(Duration::from_secs(1));
    assert!(is_released(&harness));
}

#[test]
fn a_shard_of_a_host_without_a_member_is_named_in_the_start() {
    let mut harness = job(&["a", "b", "c"], 1);
    harness.commit();
    harness.asks_to_drain("b");
    harness.pass(Duration::from_secs(2));
    let holders = |(_, start): &(HostId, Start)| {
        let of = start.holders.iter();
        of.map(|holder| (holder.shard, holder.keeper.host.to_string()))
            .collect::<Vec<_>>()
    };
    let all: Vec<_> = harness.starts.iter().map(holders).collect();
    assert_eq!(all, vec![vec![(1, "b".to_owned())]; 2]);
    assert!(
        harness
            .starts
            .iter()
            .all(|(_, start)| start.memory.is_some())
    );
}

#[test]
fn rounds_have_a_multiple_of_the_size() {
    let mut harness = Harness::new(Settings {
        failure_domain: FailureDomain::Slot,
        size_multiple: 2,
        ..elastic(4, 2, 6)
    });
    harness.list(&[host("a", 5)]);
    harness.pass(Duration::from_secs(2));
    assert_eq!(harness.size(), 4, "the fifth completes nothing");
    let before = harness.started();
    harness.list(&[host("a", 6)]);
    harness.pass(Duration::from_secs(2));
    assert_eq!((harness.started(), harness.size()), (before + 1, 6));
    harness.commit();
    harness.kill("a", 1);
    assert_eq!((harness.started(), harness.size()), (before + 2, 4));
    harness.kill("a", 2);
    assert_eq!(
        (harness.started(), harness.size()),
        (before + 3, 4),
        "the one that waited replaces it"
    );
}

/// Whether the job has said that it waits for a host.
fn awaits(harness: &Harness, name: &str) -> bool {
    let names = |note: &Decision| match note {
        Decision::AwaitingNewer { hosts, .. } => hosts.contains(&HostId::new(name)),
        _ => false,
    };
    harness.notes.iter().any(names)
}

/// Hosts that were released.
fn drained(harness: &Harness) -> usize {
    let drained = |note: &&Decision| matches!(note, Decision::Drained { .. });
    harness.notes.iter().filter(drained).count()
}

#[test]
fn a_host_with_a_shard_is_waited_for_though_it_was_not_in_the_last_round() {
    let mut harness = job(&["a", "b", "c"], 1);
    harness.commit();
    harness.late_to_seal = true;
    // Its slot is out, and its agent has the shard of the dead worker.
    harness.kill("c", 0);
    assert_eq!((harness.started(), harness.size()), (2, 2));
    assert_eq!(harness.base(), Some(commit(1, 1)));
    harness.out_of_reach("c");
    harness.kill("b", 0);
    assert_eq!(harness.outcome, None, "c may come back");
    assert!(awaits(&harness, "c"));
    harness.connects_again("c", true);
    harness.pass(Duration::from_secs(1));
    assert_eq!((harness.started(), harness.base()), (3, Some(commit(1, 1))));
}

#[test]
fn a_later_driver_releases_a_host_once_all_have_sealed_the_first_commit() {
    let mut harness = job(&["a", "b", "c"], 1);
    harness.returns = true;
    harness.commit();
    noticed(&mut harness, "b", None);
    assert_eq!((harness.started(), drained(&harness)), (2, 0));
    harness.commit();
    harness.driver_dies(0);
    for name in ["a", "b", "c"] {
        harness.comes_back_with_workers(name);
    }
    harness.pass(Duration::from_secs(1));
    assert!(harness.trains());
    assert_eq!(drained(&harness), 0, "it does not know yet what is sealed");
    harness.seals_on("a");
    harness.seals_on("c");
    harness.pass(Duration::from_secs(1));
    assert_eq!(drained(&harness), 1);
}

#[test]
fn a_member_that_has_read_no_shard_does_not_show_that_the_base_is_lost() {
    let mut harness = job(&["a", "b"], 1);
    harness.commit();
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.late_to_seal = true;
    for name in ["a", "b"] {
        harness.kill(name, 0);
        harness.pass(Duration::from_secs(1));
    }
    assert_eq!(harness.members(), [("c".to_owned(), 0)]);
    assert_eq!(harness.base(), Some(commit(1, 1)));
    let started = harness.started();
    harness.out_of_reach("a");
    harness.breaks_away("c");
    harness.pass(Duration::from_secs(1));
    assert_eq!(harness.outcome, None, "a may come back");
    harness.connects_again("a", true);
    harness.pass(Duration::from_secs(1));
    assert_eq!(harness.base(), Some(commit(1, 1)));
    assert_eq!(harness.started(), started + 1);
}

#[test]
fn a_later_driver_waits_for_a_host_with_a_shard_of_a_round_that_no_record_names() {
    let mut harness = job(&["a", "b", "c"], 1);
    harness.returns = true;
    harness.commit();
    harness.kill("c", 0);
    harness.commit();
    assert_eq!((harness.started(), harness.size()), (2, 2));
    harness.loses_record_of(Round(2));
    harness.unreachable.insert("a".into());
    harness.driver_dies(0);
    harness.comes_back_with_workers("b");
    harness.comes_back_with_workers("c");
    for _ in 0..100 {
        if !awaits(&harness, "a") {
            harness.pass_with(&["b", "c"], Duration::from_secs(1));
        }
    }
    assert_eq!((awaits(&harness, "a"), &harness.outcome), (true, &None));
    harness.connects_again("a", true);
    harness.pass(Duration::from_secs(1));
    assert_eq!(harness.base(), Some(commit(2, 1)));
}
