//! Placement: the neighbours of a worker, also where several agents share a machine.
//!
//! Agents that are tasks of a cluster share machines. To the job each such agent is a host with one slot: it comes and
//! goes by itself, and has its own memory, connections and failures. To a *worker*, its neighbours are the workers of
//! its machine: two workers with the same local rank would use the same device. So the places of such workers are
//! counted by the machine that each agent named when it registered.
//!
//! # Invariants
//! - An agent has one seat on its machine for life, the first that was free. So has its worker (R2).
//! - Of several attempts of one task only the newest stays. An older one is refused when it connects, or retired when
//!   the newer one connects (R4: a stopped executor may resume beside its successor).
//! - Ranks of a machine need not be contiguous: a survivor keeps its order of arrival.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{
    HostId, LocalRank,
    control::{Place, Task},
};

use crate::assignment;

/// The seats of agents that share machines, and the attempts of their tasks.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    seats: BTreeMap<HostId, Seat>,
    /// The newest attempt of each task.
    newest: BTreeMap<u32, Attempt>,
}

/// The position of an agent.
#[derive(Clone, Debug)]
struct Seat {
    machine: String,
    local_rank: LocalRank,
}

#[derive(Clone, Debug)]
struct Attempt {
    number: u64,
    host: HostId,
}

/// The result of the registration of an agent as a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The agent takes part. The agent of an older attempt, if any, must be dismissed.
    Admitted {
        /// The host of the older attempt.
        retired: Option<HostId>,
    },
    /// A newer attempt has registered before.
    Outdated,
}

impl Placement {
    /// Whether a newer attempt of this task has registered.
    pub fn is_outdated(&self, task: &Task) -> bool {
        (self.newest.get(&task.slot)).is_some_and(|newest| newest.number > task.attempt)
    }

    /// Registers an agent as a task.
    pub fn admit(&mut self, task: &Task, host: &HostId) -> Admission {
        if self.is_outdated(task) {
            return Admission::Outdated;
        }
        let retired = self
            .newest
            .get(&task.slot)
            .map(|before| before.host.clone());
        let retired = retired.filter(|before| before != host && self.seats.contains_key(before));
        if let Some(retired) = &retired {
            self.leave(retired);
        }
        let newest = Attempt {
            number: task.attempt,
            host: host.clone(),
        };
        self.newest.insert(task.slot, newest);
        let local_rank = self.free_seat(&task.machine);
        self.seats.entry(host.clone()).or_insert_with(|| Seat {
            machine: task.machine.clone(),
            local_rank,
        });
        Admission::Admitted { retired }
    }

    /// Removes the agent of a host.
    pub fn leave(&mut self, host: &HostId) {
        self.seats.remove(host);
    }

    /// The machine of a host: agents that are tasks may share one.
    pub(crate) fn machine<'a>(&'a self, host: &'a HostId) -> &'a str {
        let seat = self.seats.get(host);
        seat.map_or(host.as_str(), |seat| &seat.machine)
    }

    /// The places of workers that are given in rank order, with the ranks of a host side by side.
    pub fn places(&self, ordered: &[(&HostId, LocalRank)]) -> Vec<Place> {
        let mut places = assignment::places(ordered);
        if !self.seats.is_empty() {
            let neighbours = self.neighbours(ordered.iter().map(|(host, _)| *host));
            for ((host, _), place) in ordered.iter().zip(&mut places) {
                self.describe(&neighbours, host, place);
            }
        }
        places
    }

    /// The place of a worker that is started outside of a round: all registered agents count as neighbours.
    pub fn expected(&self, host: &HostId, mut place: Place) -> Place {
        if self.seats.contains_key(host) {
            self.describe(&self.neighbours(self.seats.keys()), host, &mut place);
        }
        place
    }

    fn free_seat(&self, machine: &str) -> LocalRank {
        let seats = self.seats.values().filter(|seat| seat.machine == machine);
        let taken: BTreeSet<_> = seats.map(|seat| seat.local_rank.0).collect();
        LocalRank((0..).find(|rank| !taken.contains(rank)).unwrap_or(0))
    }

    fn neighbours<'a>(&'a self, hosts: impl Iterator<Item = &'a HostId>) -> Neighbours<'a> {
        let mut all = Neighbours::default();
        for (host, seat) in hosts.filter_map(|host| Some((host, self.seats.get(host)?))) {
            *all.local_sizes.entry(&seat.machine).or_default() += 1;
            let cross = all.cross_sizes.entry(seat.local_rank).or_default();
            all.cross_ranks.insert(host, *cross);
            *cross += 1;
        }
        all
    }

    fn describe(&self, neighbours: &Neighbours<'_>, host: &HostId, place: &mut Place) {
        let Some(seat) = self.seats.get(host) else {
            return;
        };
        let count = |counted: Option<&u32>| counted.copied().unwrap_or(1);
        place.local_rank = Some(seat.local_rank);
        place.local_size = count(neighbours.local_sizes.get(seat.machine.as_str()));
        place.cross_rank = neighbours.cross_ranks.get(host).copied().unwrap_or(0);
        place.cross_size = count(neighbours.cross_sizes.get(&seat.local_rank));
    }
}

/// Workers in rank order, counted by machine and by local rank.
#[derive(Debug, Default)]
struct Neighbours<'a> {
    local_sizes: BTreeMap<&'a str, u32>,
    cross_sizes: BTreeMap<LocalRank, u32>,
    cross_ranks: BTreeMap<&'a HostId, u32>,
}

#[cfg(test)]
mod tests {
    use elasticrun_protocol::Rank;

    use super::*;

    fn task(machine: &str, slot: u32, attempt: u64) -> Task {
        let machine = machine.to_owned();
        Task {
            machine,
            slot,
            attempt,
        }
    }

    fn admit(placement: &mut Placement, task: &Task) -> Admission {
        placement.admit(task, &task.host())
    }

    /// local_rank, local_size, cross_rank and cross_size of each member.
    fn told(placement: &Placement, tasks: &[Task]) -> Vec<(u32, u32, u32, u32)> {
        let hosts: Vec<_> = tasks.iter().map(Task::host).collect();
        let slots: Vec<_> = hosts.iter().map(|host| (host, LocalRank(0))).collect();
        let places = placement.places(&slots);
        assert!(
            (0..)
                .zip(&places)
                .all(|(rank, place)| place.rank == Rank(rank))
        );
        let told = |p: &Place| {
            (
                p.local_rank.unwrap().0,
                p.local_size,
                p.cross_rank,
                p.cross_size,
            )
        };
        places.iter().map(told).collect()
    }

    #[test]
    fn agents_of_one_machine_are_neighbours() {
        let tasks = [
            task("a", 0, 1),
            task("b", 1, 2),
            task("a", 2, 3),
            task("c", 3, 4),
        ];
        let mut placement = Placement::default();
        for task in &tasks {
            admit(&mut placement, task);
        }
        assert_eq!(
            told(&placement, &tasks),
            [(0, 2, 0, 3), (0, 1, 1, 3), (1, 2, 0, 1), (0, 1, 2, 3)]
        );
        // Only the members of a round count, and each keeps its seat on its machine.
        assert_eq!(told(&placement, &tasks[2..]), [(1, 1, 0, 1), (0, 1, 0, 1)]);
    }

    #[test]
    fn outside_of_a_round_all_agents_that_are_there_are_neighbours() {
        let tasks = [task("a", 0, 1), task("a", 1, 2), task("b", 2, 3)];
        let mut placement = Placement::default();
        for task in &tasks {
            admit(&mut placement, task);
        }
        let counted = assignment::places(&[(&tasks[1].host(), LocalRank(0))])[0];
        let place = placement.expected(&tasks[1].host(), counted);
        assert_eq!((place.rank, place.size), (counted.rank, counted.size));
        assert_eq!(
            (place.local_rank, place.local_size, place.cross_size),
            (Some(LocalRank(1)), 2, 1)
        );
    }

    #[test]
    fn a_seat_is_given_again_once_its_agent_is_gone() {
        let mut placement = Placement::default();
        let (one, two) = (task("a", 0, 1), task("a", 1, 2));
        admit(&mut placement, &one);
        admit(&mut placement, &two);
        placement.leave(&one.host());
        let again = task("a", 0, 3);
        admit(&mut placement, &again);
        assert_eq!(
            told(&placement, &[two, again]),
            [(1, 2, 0, 1), (0, 2, 0, 1)]
        );
    }

    #[test]
    fn a_newer_attempt_retires_the_older_and_an_older_is_refused() {
        let mut placement = Placement::default();
        let (old, new) = (task("a", 0, 5), task("b", 0, 9));
        let admitted = |retired: Option<HostId>| Admission::Admitted { retired };
        assert_eq!(admit(&mut placement, &old), admitted(None));
        assert_eq!(admit(&mut placement, &new), admitted(Some(old.host())));
        assert_eq!(admit(&mut placement, &old), Admission::Outdated);
        // An attempt that is gone leaves nothing to retire.
        placement.leave(&new.host());
        let newest = task("a", 0, 10);
        assert_eq!(admit(&mut placement, &newest), admitted(None));
        // The same attempt connects again after its connection was cut.
        assert_eq!(admit(&mut placement, &newest), admitted(None));
    }

    #[test]
    fn hosts_that_are_no_tasks_are_counted_as_ever() {
        let (plain, shared) = (HostId::new("x"), task("a", 0, 1));
        let ordered = [(&plain, LocalRank(0)), (&plain, LocalRank(1))];
        let mut placement = Placement::default();
        let before = placement.places(&ordered);
        admit(&mut placement, &shared);
        assert_eq!(placement.places(&ordered), before);
        assert_eq!(placement.expected(&plain, before[1]), before[1]);
    }
}
