//! Assignment of ranks to workers. A pure function.
//!
//! - The worker that had rank 0 keeps it as long as it lives. Its host is first, and it is the first worker of its host.
//! - Hosts with a survivor precede other hosts. Within both sets hosts keep their order of arrival.
//! - Within a host survivors precede new workers. Within both sets the order is that of the slots.
//! - `max_np` cuts the list.
//!
//! With replica groups of a fixed size, [`crate::seats`] cuts the list, and workers of a host are in the order of their seats, but for
//! rank 0.
//!
//! A worker keeps its local_rank for life (R2). So the ranks of a host are contiguous, but its local_ranks need not be.

use std::collections::BTreeMap;

use elasticrun_protocol::{HostId, LocalRank, Process, Rank, control::Place};

use crate::mutant::{Mutant, planted};

/// A worker that can be a member of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Position of its host in the order of arrival.
    pub arrival: u64,
    /// Its host.
    pub host: HostId,
    /// Slot and start number. The slot decides the order within a host.
    pub process: Process,
    /// Its rank in the previous round; for a round that is about to start, only if it has trained there. `None` for a
    /// newcomer.
    pub former: Option<Rank>,
}

impl Candidate {
    /// Whether it was in the previous round.
    fn survives(&self) -> bool {
        self.former.is_some()
    }

    /// Whether it had rank 0 in the previous round.
    fn leads(&self) -> bool {
        self.former == Some(Rank(0)) && !planted(Mutant::LeaderMoves)
    }
}

/// Orders candidates by the rules of the module and cuts at `max_np`.
///
/// Cost: O(workers + hosts log hosts) for candidates whose hosts stand side by side.
pub fn choose(candidates: Vec<Candidate>, max_np: Option<u32>) -> Vec<Candidate> {
    let mut candidates = in_order(candidates);
    let Some(max) = max_np else { return candidates };
    if candidates.len() > max as usize {
        // A newcomer never displaces a survivor, whatever the positions of their hosts.
        let survivors = candidates.iter().filter(|c| c.survives()).count();
        let mut newcomers = (max as usize).saturating_sub(survivors);
        candidates.retain(|c| {
            c.survives() || planted(Mutant::SurvivorDisplaced) || {
                let taken = newcomers > 0;
                newcomers = newcomers.saturating_sub(1);
                taken
            }
        });
        candidates.truncate(max as usize);
    }
    candidates
}

/// Orders candidates by the rules of the module.
fn in_order(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let count = candidates.len();
    let mut hosts: BTreeMap<HostId, Vec<Candidate>> = BTreeMap::new();
    let mut candidates = candidates.into_iter().peekable();
    while let Some(first) = candidates.next() {
        let host = first.host.clone();
        let members = hosts.entry(host.clone()).or_default();
        members.push(first);
        members.extend(std::iter::from_fn(|| {
            candidates.next_if(|next| next.host == host)
        }));
    }
    // The sort is stable: hosts that arrived together stay in the order of their ids.
    let mut hosts: Vec<Vec<Candidate>> = hosts.into_values().collect();
    hosts.sort_by_cached_key(|members| {
        let leads = members.iter().any(Candidate::leads);
        let survives = members.iter().any(Candidate::survives);
        (!leads, !survives, members[0].arrival)
    });
    let mut ordered = Vec::with_capacity(count);
    for mut members in hosts {
        members.sort_unstable_by_key(|c| (!c.leads(), !c.survives(), c.process));
        ordered.append(&mut members);
    }
    ordered
}

/// The places of workers that are given in rank order, with the ranks of a host side by side.
pub fn places(ordered: &[(&HostId, LocalRank)]) -> Vec<Place> {
    let size = ordered.len() as u32;
    let mut hosts = 0;
    let mut crosses: BTreeMap<LocalRank, u32> = BTreeMap::new();
    let mut places = Vec::with_capacity(ordered.len());
    for members in ordered.chunk_by(|a, b| a.0 == b.0) {
        hosts += 1;
        for (_, local_rank) in members {
            let cross = crosses.entry(*local_rank).or_default();
            places.push(Place {
                rank: Rank(places.len() as u32),
                size,
                local_size: members.len() as u32,
                cross_rank: *cross,
                // It is known when all are counted.
                cross_size: 0,
                local_rank: None,
            });
            *cross += 1;
        }
    }
    for (place, (_, local_rank)) in places.iter_mut().zip(ordered) {
        place.cross_size = match planted(Mutant::CrossOfAllHosts) {
            true => hosts,
            false => crosses[local_rank],
        };
    }
    places
}

#[cfg(test)]
mod tests {
    use elasticrun_protocol::Generation;
    use proptest::prelude::*;

    use super::*;

    fn candidate(arrival: u64, slot: u32, survivor: bool) -> Candidate {
        let process = Process {
            local_rank: LocalRank(slot),
            generation: Generation(1),
        };
        Candidate {
            arrival,
            host: HostId::new(format!("h{arrival}")),
            process,
            former: survivor.then_some(Rank(9)),
        }
    }

    fn names(chosen: &[Candidate]) -> Vec<(u64, u32)> {
        chosen
            .iter()
            .map(|c| (c.arrival, c.process.local_rank.0))
            .collect()
    }

    #[test]
    fn hosts_with_survivors_come_first() {
        let all = vec![
            candidate(0, 0, false),
            candidate(1, 1, true),
            candidate(1, 0, false),
        ];
        assert_eq!(names(&choose(all, None)), [(1, 1), (1, 0), (0, 0)]);
    }

    #[test]
    fn who_was_rank_0_is_rank_0_and_its_host_is_first() {
        let mut all = vec![
            candidate(0, 0, true),
            candidate(1, 0, true),
            candidate(1, 1, true),
            candidate(1, 2, false),
        ];
        all[2].former = Some(Rank(0));
        let expected = [(1, 1), (1, 0), (1, 2), (0, 0)];
        assert_eq!(names(&choose(all.clone(), None)), expected);
        assert_eq!(names(&choose(all, Some(3))), [(1, 1), (1, 0), (0, 0)]);
    }

    #[test]
    fn a_newcomer_never_displaces_a_survivor() {
        let all = vec![
            candidate(0, 0, true),
            candidate(0, 1, false),
            candidate(1, 0, true),
            candidate(1, 1, false),
        ];
        assert_eq!(names(&choose(all, Some(2))), [(0, 0), (1, 0)]);
    }

    #[test]
    fn cross_rank_counts_the_hosts_that_have_the_local_rank() {
        let (a, b) = (HostId::new("a"), HostId::new("b"));
        let places = places(&[(&a, LocalRank(1)), (&b, LocalRank(0)), (&b, LocalRank(1))]);
        let cross: Vec<_> = places
            .iter()
            .map(|p| (p.cross_rank, p.cross_size, p.local_size))
            .collect();
        assert_eq!(cross, [(0, 2, 1), (0, 1, 2), (1, 2, 2)]);
    }

    proptest! {
        #[test]
        fn ranks_are_contiguous_per_host_and_rank_0_survives(
            seeds in prop::collection::btree_map((0u64..5, 0u32..4), any::<bool>(), 0..16),
            max in prop::option::of(1u32..12),
            leader in any::<prop::sample::Index>(),
            lives in any::<bool>(),
        ) {
            let mut all: Vec<_> = seeds.iter().map(|((a, s), v)| candidate(*a, *s, *v)).collect();
            let survivors = all.iter().filter(|c| c.survives()).count();
            let mut leaders: Vec<_> = all.iter_mut().filter(|c| c.survives()).collect();
            let leader = (lives && survivors > 0).then(|| {
                let leader = leader.get_mut(&mut leaders);
                leader.former = Some(Rank(0));
                leader.clone()
            });
            let chosen = choose(all.clone(), max);
            let most = max.map_or(usize::MAX, |max| max as usize);
            prop_assert_eq!(chosen.len(), all.len().min(most));
            prop_assert_eq!(chosen.iter().filter(|c| c.survives()).count(), survivors.min(most));
            if survivors > 0 {
                prop_assert!(chosen[0].survives(), "R2");
            }
            if let Some(leader) = leader {
                prop_assert_eq!(&chosen[0], &leader, "R2: who was rank 0 stays it");
            }
            let mut hosts: Vec<_> = chosen.iter().map(|c| c.arrival).collect();
            hosts.dedup();
            let mut unique = hosts.clone();
            unique.sort_unstable();
            unique.dedup();
            prop_assert_eq!(hosts.len(), unique.len(), "ranks of a host stand side by side");
        }
    }
}
