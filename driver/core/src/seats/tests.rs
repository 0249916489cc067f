//! Examples, and a comparison with all ways to seat a few workers.

use proptest::prelude::*;

use super::*;

/// A host number, and the group and the shard of a survivor.
type Plain = (u32, Option<(u32, u32)>);

fn hosts() -> Vec<HostId> {
    (0..6)
        .map(|number| HostId::new(format!("h{number}")))
        .collect()
}

/// Group and shard of each worker.
fn seated(workers: &[Plain], size: u32, groups: u32) -> Vec<Option<(u32, u32)>> {
    let hosts = hosts();
    let sitters: Vec<_> = (workers.iter())
        .map(|(host, seat)| Sitter {
            host: &hosts[*host as usize],
            group: seat.map(|seat| seat.0),
            shard: seat.map(|seat| seat.1),
        })
        .collect();
    let seats = arrange(&sitters, size, groups);
    assert!(seats.iter().flatten().all(|seat| seat.of == size));
    (seats.iter())
        .map(|seat| seat.map(|seat| (seat.group, seat.shard)))
        .collect()
}

/// Survivors of these seats on one host, and newcomers.
fn of_one_host(seats: &[(u32, u32)], newcomers: usize) -> Vec<Plain> {
    let survivors = seats.iter().map(|seat| (0, Some(*seat)));
    survivors.chain(vec![(0, None); newcomers]).collect()
}

#[test]
fn newcomers_sit_in_the_order_of_ranks() {
    let seats = seated(&of_one_host(&[], 4), 2, 2);
    assert_eq!(seats, [(0, 0), (0, 1), (1, 0), (1, 1)].map(Some));
}

#[test]
fn a_new_group_is_on_one_host_if_a_host_suffices() {
    let workers = [(0, None), (1, None), (1, None), (2, None)];
    let seats = seated(&workers, 2, 2);
    assert_eq!(seats, [(0, 0), (1, 0), (1, 1), (0, 1)].map(Some));
}

#[test]
fn a_newcomer_takes_the_shard_of_a_dead_worker() {
    let seats = seated(&of_one_host(&[(0, 0), (1, 0), (1, 1)], 1), 2, 2);
    assert_eq!(seats, [(0, 0), (1, 0), (1, 1), (0, 1)].map(Some));
}

#[test]
fn a_newcomer_refills_a_group_of_its_host() {
    let workers = [(0, Some((0, 0))), (1, Some((1, 1))), (1, None), (0, None)];
    let seats = seated(&workers, 2, 2);
    assert_eq!(seats, [(0, 0), (1, 1), (1, 0), (0, 1)].map(Some));
}

#[test]
fn a_whole_group_goes_on_and_the_survivors_of_another_one_wait() {
    let seats = seated(&of_one_host(&[(0, 0), (1, 0), (1, 1)], 0), 2, 1);
    assert_eq!(seats, [None, Some((0, 0)), Some((0, 1))]);
}

#[test]
fn a_survivor_that_lacks_the_base_goes_back_to_its_group() {
    let host = &hosts()[0];
    let sitter = |group, shard| Sitter { host, group, shard };
    let laggard = sitter(Some(1), None);
    let newcomer = sitter(None, None);
    let workers = [
        sitter(Some(0), Some(1)),
        laggard,
        sitter(Some(1), Some(1)),
        newcomer,
    ];
    let seats = arrange(&workers, 2, 2).into_iter().flatten();
    let seats: Vec<_> = seats.map(|seat| (seat.group, seat.shard)).collect();
    assert_eq!(seats, [(0, 1), (1, 0), (1, 1), (0, 0)]);
}

#[test]
fn survivors_of_two_groups_make_one_without_a_fetch() {
    let survivors = [(0, 0), (0, 1), (1, 1), (1, 2)];
    let seats = seated(&of_one_host(&survivors, 1), 3, 1);
    assert_eq!(
        seats,
        [Some((0, 0)), Some((0, 1)), None, Some((0, 2)), None]
    );
}

#[test]
fn a_spare_takes_a_shard_before_a_survivor_of_another_one_does() {
    let seats = seated(&of_one_host(&[(0, 0), (1, 0)], 1), 2, 1);
    assert_eq!(seats, [Some((0, 0)), None, Some((0, 1))]);
}

#[test]
fn without_a_spare_a_survivor_of_another_group_takes_the_shard() {
    let seats = seated(&of_one_host(&[(0, 0), (1, 0)], 0), 2, 1);
    assert_eq!(seats, [(0, 0), (0, 1)].map(Some));
}

/// How many of the workers keep the shard that they have, and how many groups stay together.
fn kept(workers: &[Plain], size: u32, seats: &[Option<(u32, u32)>]) -> (usize, usize) {
    let keeps = |(worker, seat): &(&Plain, &Option<(u32, u32)>)| {
        worker.1.is_some() && worker.1.map(|w| w.1) == seat.map(|s| s.1)
    };
    let pairs = || workers.iter().zip(seats);
    let stays = |group: &u32| {
        let mut now = pairs().filter(|(worker, _)| worker.1.is_some_and(|seat| seat.0 == *group));
        let is_whole = now.clone().count() == size as usize;
        let first = now
            .clone()
            .next()
            .and_then(|(_, seat)| seat.map(|seat| seat.0));
        is_whole && first.is_some() && now.all(|(_, seat)| seat.map(|seat| seat.0) == first)
    };
    (pairs().filter(keeps).count(), (0..4).filter(stays).count())
}

/// The most workers that can keep their shards, and the most groups that can stay together, in all ways to choose members.
fn best(workers: &[Plain], size: u32, groups: u32) -> (usize, usize) {
    let count = (size * groups) as usize;
    let mut most = (0, 0);
    for set in 0_u32..1 << workers.len() {
        if set.count_ones() as usize != count {
            continue;
        }
        let is_in = |at: usize| set >> at & 1 == 1;
        let members = || (0..workers.len()).filter(|at| is_in(*at));
        let keeps = |shard: u32| {
            let holders = members().filter(|at| workers[*at].1.is_some_and(|seat| seat.1 == shard));
            holders.count().min(groups as usize)
        };
        let is_whole = |group: &u32| {
            let of = members().filter(|at| workers[*at].1.is_some_and(|seat| seat.0 == *group));
            of.count() == size as usize
        };
        let kept = (0..size).map(keeps).sum();
        let whole = (0..4).filter(is_whole).count();
        most = (most.0.max(kept), most.1.max(whole));
    }
    most
}

proptest! {
    #[test]
    fn agrees_with_all_ways_to_choose_and_to_seat(
        size in 1u32..=4,
        groups in 1u32..=4,
        dead in prop::collection::vec(any::<bool>(), 16),
        places in prop::collection::vec(0u32..6, 20),
        newcomers in 0usize..4,
        max in 1u32..=4,
    ) {
        let seats = (0..groups).flat_map(|group| (0..size).map(move |shard| (group, shard)));
        let lives = seats.zip(&dead).filter(|(_, dead)| !**dead).map(|(seat, _)| Some(seat));
        let all = lives.chain(vec![None; newcomers]);
        let mut workers: Vec<Plain> = places.iter().copied().zip(all).collect();
        workers.sort_by_key(|worker| worker.0);
        let count = (workers.len() as u32 / size).min(max);
        prop_assume!(count > 0 && workers.len() <= 16);
        let seats = seated(&workers, size, count);
        let mut taken: Vec<_> = seats.iter().flatten().copied().collect();
        taken.sort_unstable();
        let full: Vec<_> = (0..count).flat_map(|g| (0..size).map(move |s| (g, s))).collect();
        prop_assert_eq!(taken, full, "R18: each group has each shard once");
        let found = kept(&workers, size, &seats);
        let best = best(&workers, size, count);
        prop_assert_eq!(found, best, "R19: shards kept, groups that stay together");
        // A survivor moves only if no newcomer waits.
        let moved = workers.iter().zip(&seats).any(|(worker, seat)| {
            matches!((worker.1, seat), (Some(former), Some(seat)) if former.1 != seat.1)
        });
        let waits = workers.iter().zip(&seats).any(|(worker, seat)| worker.1.is_none() && seat.is_none());
        prop_assert!(!(moved && waits));
    }

    #[test]
    fn members_that_were_chosen_keep_the_seats_by_which_they_were_chosen(
        size in 1u32..=4,
        seats in prop::collection::vec((0u32..4, prop::option::of((0u32..4, 0u32..5))), 1..16),
        max in 1u32..=4,
    ) {
        // Also with seats that two workers claim, and with shards that no group has.
        let count = (seats.len() as u32 / size).min(max);
        let found = seated(&seats, size, count);
        let chosen: Vec<_> = seats.iter().zip(&found).filter(|(_, seat)| seat.is_some()).map(|(worker, _)| *worker).collect();
        prop_assert_eq!(chosen.len() as u32, count * size);
        let again = seated(&chosen, size, count);
        let first: Vec<_> = found.iter().flatten().map(|seat| seat.1).collect();
        let second: Vec<_> = again.iter().flatten().map(|seat| seat.1).collect();
        let keeps = |shards: &[u32]| chosen.iter().zip(shards).filter(|(worker, shard)| worker.1.map(|w| w.1) == Some(**shard)).count();
        prop_assert_eq!(keeps(&first), keeps(&second));
    }
}
