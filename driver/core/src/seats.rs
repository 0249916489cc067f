//! Seats: which shard of which replica group each worker of a round holds. A pure function.
//!
//! ```text
//!  groups of 4, 2 of them                      after the loss of one worker, with a newcomer N
//!
//!  group 0   [ 0 ][ 1 ][ 2 ][ 3 ]              [ 0 ][ 1 ][ 2 ][ 3 ]      goes on
//!  group 1   [ 0 ][ 1 ] X   [ 3 ]   -------->  [ 0 ][ 1 ][ N ][ 3 ]      refilled: N takes shard 2
//! ```
//!
//! - Each group has each shard once (R18).
//! - A survivor keeps its shard if it can: of the workers that hold one shard, at most one for each group has another one
//!   afterwards (R19).
//! - A group that all of its workers survive stays together, also if one of them lacks the base. Of the others, those that have lost the fewest are refilled.
//! - A seat goes to a survivor that holds its shard, then to a newcomer, and last to a survivor that holds another one. Groups of
//!   one data are copies of each other, so a survivor of another group that holds the shard fetches nothing.
//! - A new group is on one host where the workers of a host suffice. A newcomer refills a group of its host if it can.
//! - Whoever has no seat waits as a spare.
//!
//! Cost: O(workers log workers).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
};

use elasticrun_protocol::{HostId, Process, control::Seat};

use crate::mutant::{Mutant, planted};

/// The seats of the members of the last started round, as far as they are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormerSeats(BTreeMap<HostId, BTreeMap<Process, Seat>>);

impl FormerSeats {
    /// The seat of a member.
    pub(crate) fn of(&self, host: &HostId, process: Process) -> Option<Seat> {
        self.0.get(host)?.get(&process).copied()
    }

    /// Learns the seat of a member.
    pub(crate) fn insert(&mut self, host: &HostId, process: Process, seat: Seat) {
        match self.0.get_mut(host) {
            Some(seats) => drop(seats.insert(process, seat)),
            None => drop(
                self.0
                    .insert(host.clone(), BTreeMap::from([(process, seat)])),
            ),
        }
    }
}

/// A worker that can have a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sitter<'a> {
    /// Its host.
    pub host: &'a HostId,
    /// The group that it was in before. `None` for a newcomer.
    pub group: Option<u32>,
    /// The shard of the base that it holds. `None` for a newcomer, and for a survivor that has not sealed the base: they can
    /// take any.
    pub shard: Option<u32>,
}

/// The seats of workers that are given in rank order, in this number of groups with `size` workers each. Those without a seat
/// wait. There must be enough workers, else some groups are not full.
pub fn arrange(sitters: &[Sitter<'_>], size: u32, groups: u32) -> Vec<Option<Seat>> {
    let mut hall = Hall::new(sitters, size, groups);
    if planted(Mutant::SeatByRank) {
        hall.fill(|_| true);
        return hall.seats();
    }
    hall.seat_former_groups();
    hall.seat_holders();
    hall.seat_laggards();
    hall.seat_newcomers_of_the_host();
    hall.seat_groups_on_one_host();
    if !planted(Mutant::SpareLeftIdle) {
        hall.fill(|sitter| sitter.shard.is_none());
    }
    hall.fill(|_| true);
    hall.seats()
}

/// The seats while they are given away.
struct Hall<'a> {
    sitters: &'a [Sitter<'a>],
    size: u32,
    groups: u32,
    /// Seats of groups of the last round that stay.
    former: Vec<Group<'a>>,
    /// Seats of new groups.
    new: Vec<Group<'a>>,
    /// Workers that have a seat.
    seated: Vec<bool>,
}

/// The seats of a group.
#[derive(Clone, Debug)]
struct Group<'a> {
    /// Its index in the last round.
    index: Option<u32>,
    /// The host of most of its survivors.
    home: Option<&'a HostId>,
    /// By shard, the worker that has it.
    seats: Vec<Option<usize>>,
}

impl Group<'_> {
    fn empty(size: u32) -> Self {
        Self {
            index: None,
            home: None,
            seats: vec![None; size as usize],
        }
    }

    fn taken(&self) -> usize {
        self.seats.iter().flatten().count()
    }

    fn first(&self) -> Option<usize> {
        self.seats.iter().flatten().min().copied()
    }
}

impl<'a> Hall<'a> {
    fn new(sitters: &'a [Sitter<'a>], size: u32, groups: u32) -> Self {
        Self {
            sitters,
            size,
            groups,
            former: Vec::new(),
            new: Vec::new(),
            seated: vec![false; sitters.len()],
        }
    }

    /// Workers without a seat, in rank order.
    fn standing(&self, may_sit: impl Fn(&Sitter<'a>) -> bool) -> VecDeque<usize> {
        let stands = |at: &usize| !self.seated[*at] && may_sit(&self.sitters[*at]);
        (0..self.sitters.len()).filter(stands).collect()
    }

    /// The shard of a survivor of a group.
    fn shard_of(&self, at: usize) -> Option<usize> {
        let shard = self.sitters[at].shard?;
        (shard < self.size).then_some(shard as usize)
    }

    /// Survivors of the groups that have lost the fewest keep their seats. Adds the groups that are missing.
    fn seat_former_groups(&mut self) {
        let mut former: BTreeMap<u32, Group<'a>> = BTreeMap::new();
        for (at, sitter) in self.sitters.iter().enumerate() {
            let (Some(index), Some(shard)) = (sitter.group, self.shard_of(at)) else {
                continue;
            };
            let group = former.entry(index).or_insert_with(|| Group {
                index: Some(index),
                ..Group::empty(self.size)
            });
            // A worker that was moved in a round without a commit may hold the shard of another one of its group.
            group.seats[shard].get_or_insert(at);
        }
        self.former = former.into_values().collect();
        // The group of rank 0 is the first of those that have lost as many.
        self.former
            .sort_by_key(|group| (Reverse(group.taken()), group.first()));
        self.former.truncate(self.groups as usize);
        if planted(Mutant::SurvivorMoved) {
            self.former
                .retain(|group| group.taken() == self.size as usize);
        }
        for group in &mut self.former {
            let mut hosts: BTreeMap<&HostId, (usize, Reverse<usize>)> = BTreeMap::new();
            for at in group.seats.iter().flatten() {
                self.seated[*at] = true;
                let host = hosts.entry(self.sitters[*at].host);
                host.or_insert((0, Reverse(*at))).0 += 1;
            }
            group.home =
                (hosts.into_iter().max_by_key(|(_, weight)| *weight)).map(|(host, _)| host);
        }
        let missing = (self.groups as usize).saturating_sub(self.former.len());
        self.new = vec![Group::empty(self.size); missing];
    }

    /// Other survivors that hold a shard of which a seat is free.
    fn seat_holders(&mut self) {
        if planted(Mutant::SurvivorMoved) {
            return;
        }
        for at in self.standing(|sitter| sitter.shard.is_some()) {
            let Some(shard) = self.shard_of(at) else {
                continue;
            };
            let host = self.sitters[at].host;
            let groups = || self.former.iter().chain(&self.new).enumerate();
            let is_free = |(_, group): &(usize, &Group<'a>)| group.seats[shard].is_none();
            let at_home = groups().find(|free| is_free(free) && free.1.home == Some(host));
            if let Some((index, _)) = at_home.or_else(|| groups().find(is_free)) {
                self.sit(index, shard, at);
            }
        }
    }

    /// Survivors that lack the base go back to their groups. Each must fetch a shard in any case, and so the others of its group keep
    /// their mesh.
    fn seat_laggards(&mut self) {
        for at in self.standing(|sitter| sitter.shard.is_none() && sitter.group.is_some()) {
            let own = |group: &Group<'a>| group.index == self.sitters[at].group;
            let Some(index) = self.former.iter().position(own) else {
                continue;
            };
            if let Some(shard) = self.former[index].seats.iter().position(Option::is_none) {
                self.sit(index, shard, at);
            }
        }
    }

    /// Newcomers refill the groups of their hosts.
    fn seat_newcomers_of_the_host(&mut self) {
        let mut of_host: BTreeMap<&HostId, VecDeque<usize>> = BTreeMap::new();
        for at in self.standing(|sitter| sitter.shard.is_none()) {
            of_host
                .entry(self.sitters[at].host)
                .or_default()
                .push_back(at);
        }
        for index in 0..self.former.len() {
            let home = self.former[index].home;
            let Some(newcomers) = home.and_then(|home| of_host.get_mut(home)) else {
                continue;
            };
            for shard in 0..self.size as usize {
                if self.former[index].seats[shard].is_none()
                    && let Some(at) = newcomers.pop_front()
                {
                    self.sit(index, shard, at);
                }
            }
        }
    }

    /// New groups of newcomers of one host.
    fn seat_groups_on_one_host(&mut self) {
        let mut of_host: BTreeMap<&HostId, VecDeque<usize>> = BTreeMap::new();
        let mut order = Vec::new();
        for at in self.standing(|sitter| sitter.shard.is_none()) {
            let host = self.sitters[at].host;
            let newcomers = of_host.entry(host).or_default();
            if newcomers.is_empty() {
                order.push(host);
            }
            newcomers.push_back(at);
        }
        let count = self.former.len();
        let mut empty: VecDeque<usize> = (0..self.new.len())
            .filter(|index| self.new[*index].taken() == 0)
            .collect();
        for host in order {
            while of_host[host].len() >= self.size as usize
                && let Some(index) = empty.pop_front()
                && let Some(newcomers) = of_host.get_mut(host)
            {
                for (shard, at) in newcomers.drain(..self.size as usize).enumerate() {
                    self.sit(count + index, shard, at);
                }
            }
        }
    }

    /// Gives the free seats to workers that stand, in rank order.
    fn fill(&mut self, may_sit: impl Fn(&Sitter<'a>) -> bool) {
        if self.former.is_empty() && self.new.is_empty() {
            self.new = vec![Group::empty(self.size); self.groups as usize];
        }
        let mut standing = self.standing(may_sit);
        for index in 0..self.former.len() + self.new.len() {
            for shard in 0..self.size as usize {
                if self.group(index).seats[shard].is_none() {
                    let Some(at) = standing.pop_front() else {
                        return;
                    };
                    self.sit(index, shard, at);
                }
            }
        }
    }

    fn group(&mut self, index: usize) -> &mut Group<'a> {
        let former = self.former.len();
        match index.checked_sub(former) {
            None => &mut self.former[index],
            Some(index) => &mut self.new[index],
        }
    }

    fn sit(&mut self, group: usize, shard: usize, at: usize) {
        self.group(group).seats[shard] = Some(at);
        self.seated[at] = true;
    }

    /// Groups keep their numbers where the groups are as many. The others get those that are free, in the order of their first
    /// worker.
    fn seats(mut self) -> Vec<Option<Seat>> {
        let kept = |group: &Group<'_>| group.index.filter(|index| *index < self.groups);
        let taken: BTreeSet<u32> = self.former.iter().filter_map(kept).collect();
        let mut free = (0..self.groups).filter(|index| !taken.contains(index));
        let mut seats = vec![None; self.sitters.len()];
        self.new.sort_by_key(|group| group.first());
        for group in self.former.iter().chain(&self.new) {
            let Some(number) = kept(group).or_else(|| free.next()) else {
                continue;
            };
            for (at, shard) in group.seats.iter().zip(0..) {
                if let Some(at) = at {
                    seats[*at] = Some(Seat {
                        group: number,
                        shard,
                        of: self.size,
                    });
                }
            }
        }
        seats
    }
}

#[cfg(test)]
mod tests;
