//! Replica groups: who is in a round whose groups have a fixed size, and which seat each member has ([`crate::seats`]).
//!
//! A plan chooses members by their seats in the last round. At the start it is known which shard of the base each of them holds,
//! and that decides.

use std::collections::BTreeMap;

use elasticrun_protocol::{
    HostId, Process, Rank,
    control::{AdoptedRound, RankRun, Seat},
};

use super::Job;
use crate::{
    ReplicaGroupSize,
    assignment::Candidate,
    completeness::Base,
    rounds::Forming,
    seats::{FormerSeats, Sitter, arrange},
};

/// By worker, the shard that it holds.
type HeldShards<'a> = BTreeMap<(&'a HostId, Process), u32>;

impl Job {
    /// The number of workers of a replica group, if it is the same in all rounds and above 1.
    pub(super) fn replica_group_size(&self) -> Option<u32> {
        match self.settings.replica_group_size {
            ReplicaGroupSize::One | ReplicaGroupSize::All => None,
            ReplicaGroupSize::Fixed(size) => Some(size),
        }
    }

    /// Of candidates in rank order, this number of members in whole groups.
    pub(super) fn choose_groups(
        &self,
        ordered: Vec<Candidate>,
        members: u32,
        size: u32,
    ) -> Vec<Candidate> {
        if ordered.len() <= members as usize {
            return ordered;
        }
        let sitters: Vec<_> = (ordered.iter())
            .map(|candidate| self.sitter(candidate, None))
            .collect();
        let mut seats = arrange(&sitters, size, members / size).into_iter();
        let mut chosen = ordered;
        chosen.retain(|_| seats.next().flatten().is_some());
        chosen
    }

    /// The seats of the members of a round that starts, in rank order. `None` in a job whose workers each hold the whole state.
    pub(super) fn seats_of(
        &self,
        forming: &Forming,
        ordered: &[Candidate],
        base: Option<Base>,
    ) -> Vec<Option<Seat>> {
        let of = ordered.len() as u32;
        let Some(size) = self.replica_group_size() else {
            let seat = |shard| {
                let group = 0;
                self.is_divided().then_some(Seat { group, shard, of })
            };
            return (0..of).map(seat).collect();
        };
        let base = base.filter(|base| base.shards().is_some_and(|shards| shards.of == size));
        let mut held = HeldShards::new();
        for (host, answer) in &forming.ready {
            let of_base = |key: &_| base.is_some_and(|base| base.has(key));
            let copies = answer.copies().filter(|(_, key)| of_base(key));
            held.extend(copies.map(|(process, key)| ((host, process), key.shard.index)));
        }
        let sitter = |candidate| self.sitter(candidate, base.map(|_| &held));
        let sitters: Vec<_> = ordered.iter().map(sitter).collect();
        arrange(&sitters, size, of / size)
    }

    /// `held`: the shards of the base that workers hold. Without a base a worker has the shard of its seat.
    fn sitter<'a>(&self, candidate: &'a Candidate, held: Option<&HeldShards<'_>>) -> Sitter<'a> {
        let seat = self.seats.of(&candidate.host, candidate.process);
        let shard = match held {
            Some(held) => held.get(&(&candidate.host, candidate.process)).copied(),
            None => seat.map(|seat| seat.shard),
        };
        Sitter {
            host: &candidate.host,
            group: seat.map(|seat| seat.group),
            shard,
        }
    }

    /// A round has started with these seats.
    pub(super) fn note_seats(&mut self, ordered: &[Candidate], seats: &[Option<Seat>]) {
        self.seats = FormerSeats::default();
        if self.replica_group_size().is_none() {
            return;
        }
        for (candidate, seat) in ordered.iter().zip(seats) {
            if let Some(seat) = seat {
                self.seats.insert(&candidate.host, candidate.process, *seat);
            }
        }
    }

    /// Learns the seats on a host in the round of a former driver. `is_later`: it is later than that of the seats which are known.
    pub(super) fn learn_seats(&mut self, host: &HostId, round: &AdoptedRound, is_later: bool) {
        if is_later {
            self.seats = FormerSeats::default();
        }
        if self.replica_group_size().is_none() {
            return;
        }
        for member in &round.members {
            if let Some(seat) = member.seat {
                self.seats.insert(host, member.process, seat);
            }
        }
    }
}

/// Members of a host in the order of their seats, but for rank 0, which stays. So the ranks by seat are often the same after a
/// newcomer has replaced a worker of its host, and then what the SDK has cached for the mesh is of use.
pub(super) fn by_seat_within_hosts(
    ordered: Vec<Candidate>,
    seats: Vec<Option<Seat>>,
) -> (Vec<Candidate>, Vec<Option<Seat>>) {
    let mut members: Vec<_> = ordered.into_iter().zip(seats).collect();
    if let Some((_, others)) = members.split_first_mut() {
        for of_host in others.chunk_by_mut(|one, other| one.0.host == other.0.host) {
            of_host.sort_by_key(|(_, seat)| seat.map(|seat| (seat.group, seat.shard)));
        }
    }
    members.into_iter().unzip()
}

/// The ranks in the order of their seats. Empty if that is the order of ranks.
pub(super) fn order_of(seats: &[Option<Seat>]) -> Vec<RankRun> {
    let mut order: Vec<_> = (seats.iter().zip(0..))
        .filter_map(|(seat, rank)| seat.map(|seat| ((seat.group, seat.shard), rank)))
        .collect();
    order.sort_unstable();
    let mut runs: Vec<RankRun> = Vec::new();
    for (_, rank) in order {
        match runs.last_mut() {
            Some(run) if run.first.0 + run.count == rank => run.count += 1,
            _ => runs.push(RankRun {
                first: Rank(rank),
                count: 1,
            }),
        }
    }
    if runs.len() == 1 {
        runs.clear();
    }
    runs
}
