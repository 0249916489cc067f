//! Replica groups of a fixed size: survivors keep their seats, and rounds have whole groups.

use std::{collections::BTreeMap, time::Duration};

use elasticrun_core::{FailureDomain, ReplicaGroupSize, Settings};

use crate::{
    harness::{Harness, commit, host},
    hosts::elastic,
};

/// A job with groups of two, on hosts with these slots. A failure takes out what it does by default.
fn job(hosts: &[(&str, u32)], np: u32, spares: u32) -> Harness {
    let mut harness = Harness::new(Settings {
        failure_domain: FailureDomain::Auto,
        replica_group_size: ReplicaGroupSize::Fixed(2),
        spares,
        ..elastic(np, 2, np)
    });
    let hosts: Vec<_> = hosts
        .iter()
        .map(|(name, slots)| host(name, *slots))
        .collect();
    harness.list(&hosts);
    harness.pass(Duration::from_secs(2));
    harness
}

/// Group and shard of each member, by host and slot.
fn seats(harness: &Harness) -> BTreeMap<(String, u32), (u32, u32)> {
    let members = (harness.starts.iter())
        .flat_map(|(host, start)| start.members.iter().map(move |member| (host, member)));
    members
        .filter_map(|(host, member)| {
            let seat = member.seat?;
            assert_eq!(seat.of, 2);
            let slot = member.process.local_rank.0;
            Some(((host.to_string(), slot), (seat.group, seat.shard)))
        })
        .collect()
}

fn of(seats: &[(&str, u32, u32, u32)]) -> BTreeMap<(String, u32), (u32, u32)> {
    let seat = |(host, slot, group, shard): &(&str, u32, u32, u32)| {
        (((*host).to_owned(), *slot), (*group, *shard))
    };
    seats.iter().map(seat).collect()
}

/// The ranks in the order of seats, as hosts are told.
fn order(harness: &Harness) -> Vec<u32> {
    let runs = harness.starts[0].1.order.iter();
    assert!(
        harness
            .starts
            .iter()
            .all(|start| start.1.order == harness.starts[0].1.order)
    );
    runs.flat_map(|run| run.first.0..run.first.0 + run.count)
        .collect()
}

#[test]
fn groups_are_in_the_order_of_ranks_at_first() {
    let harness = job(&[("a", 2), ("b", 3)], 4, 0);
    let first = [
        ("a", 0, 0, 0),
        ("a", 1, 0, 1),
        ("b", 0, 1, 0),
        ("b", 1, 1, 1),
    ];
    assert_eq!((harness.size(), seats(&harness)), (4, of(&first)));
    assert!(order(&harness).is_empty(), "it is that of ranks");
    assert!(
        harness
            .starts
            .iter()
            .all(|start| start.1.replica_group_size == Some(2))
    );
}

/// Kills a worker. Another one, which was no member, must have its seat afterwards, and all others theirs.
fn is_refilled(harness: &mut Harness, name: &str, slot: u32) {
    let mut before = seats(harness);
    harness.kill(name, slot);
    let mut after = seats(harness);
    let dead = before.remove(&(name.to_owned(), slot));
    after.retain(|worker, seat| before.remove(worker) != Some(*seat));
    assert!(before.is_empty(), "survivors keep their seats");
    assert_eq!(after.into_values().next(), dead);
}

#[test]
fn a_spare_takes_the_seat_of_a_dead_worker() {
    let mut harness = job(&[("a", 2), ("b", 3)], 4, 1);
    harness.commit();
    is_refilled(&mut harness, "a", 1);
    assert_eq!((harness.started(), harness.base()), (2, Some(commit(1, 1))));
    let is_by_seat = order(&harness).is_empty();
    assert!(
        is_by_seat,
        "on each host the order of ranks is that of seats"
    );
}

#[test]
fn the_seat_of_rank_0_is_refilled_and_a_survivor_becomes_rank_0() {
    let mut harness = job(&[("a", 5)], 4, 1);
    harness.commit();
    is_refilled(&mut harness, "a", 0);
    assert_eq!(harness.members()[0], ("a".to_owned(), 1));
    assert_eq!(order(&harness), [1, 0, 2, 3]);
}

#[test]
fn a_whole_group_goes_on_and_rank_0_waits() {
    let mut harness = job(&[("a", 2), ("b", 2)], 4, 0);
    harness.commit();
    harness.kill("a", 1);
    assert_eq!((harness.started(), harness.base()), (2, Some(commit(1, 1))));
    assert_eq!(seats(&harness), of(&[("b", 0, 0, 0), ("b", 1, 0, 1)]));
}

#[test]
fn the_failure_of_a_worker_leaves_the_other_slots_of_its_host() {
    let mut harness = job(&[("a", 3), ("b", 3)], 6, 0);
    harness.commit();
    harness.kill("b", 2);
    assert_eq!((harness.started(), harness.size()), (2, 4));
    let left = [
        ("a", 0, 0, 0),
        ("a", 1, 0, 1),
        ("b", 0, 1, 0),
        ("b", 1, 1, 1),
    ];
    assert_eq!(seats(&harness), of(&left), "the group on two hosts is lost");
}

#[test]
fn a_death_before_the_first_commit_of_a_round_leaves_the_shards_of_the_base() {
    let mut harness = job(&[("a", 2), ("b", 4)], 4, 2);
    harness.commit();
    harness.late_to_seal = true;
    harness.kill("a", 1);
    harness.kill("b", 0);
    assert_eq!((harness.started(), harness.base()), (3, Some(commit(1, 1))));
    let seats = seats(&harness);
    assert_eq!(seats[&("a".into(), 0)].1, 0);
    assert_eq!(seats[&("b".into(), 1)].1, 1);
}

#[test]
fn a_worker_that_waits_keeps_its_shard_of_the_base_if_it_can() {
    let mut harness = job(&[("a", 4)], 4, 0);
    harness.commit();
    harness.late_to_seal = true;
    harness.kill("a", 0);
    let group = [("a", 2, 0, 0), ("a", 3, 0, 1)];
    assert_eq!(seats(&harness), of(&group), "the one in slot 1 waits");
    harness.kill("a", 3);
    assert_eq!((harness.started(), harness.base()), (3, Some(commit(1, 1))));
    assert_eq!(seats(&harness), of(&[("a", 2, 0, 0), ("a", 1, 0, 1)]));
}

#[test]
fn a_later_driver_learns_the_seats_from_the_agents() {
    let mut harness = job(&[("a", 2), ("b", 3)], 4, 1);
    harness.returns = true;
    harness.commit();
    harness.kill("a", 1);
    harness.commit();
    let before = seats(&harness);
    harness.driver_dies(0);
    for name in ["a", "b"] {
        harness.comes_back_with_workers(name);
    }
    harness.pass(Duration::from_secs(1));
    assert!(harness.trains());
    // The group on host b, and the one that has a worker on both.
    let group = |of: u32| before.iter().filter(move |(_, seat)| seat.0 == of);
    let (((_, dead), _), whole) = match group(0).all(|((host, _), _)| host == "b") {
        true => (group(0).next().expect("a member"), group(1)),
        false => (group(1).next().expect("a member"), group(0)),
    };
    harness.kill("b", *dead);
    let whole: Vec<_> = whole
        .map(|(worker, seat)| (worker.clone(), seat.1))
        .collect();
    let after: Vec<_> = (seats(&harness).into_iter())
        .map(|(worker, seat)| (worker, seat.1))
        .collect();
    assert_eq!(after, whole);
}

#[test]
fn a_growth_completes_a_group_with_the_workers_that_wait() {
    let mut harness = job(&[("a", 2), ("b", 2)], 4, 0);
    harness.commit();
    harness.kill("a", 1);
    let size = harness.size();
    harness.commit();
    harness.list(&[host("a", 3), host("b", 2)]);
    harness.pass(Duration::from_secs(3));
    assert_eq!((size, harness.size()), (2, 4));
    let seats = seats(&harness);
    assert_eq!(
        (seats[&("b".into(), 0)], seats[&("b".into(), 1)]),
        ((0, 0), (0, 1))
    );
}
