//! Machines that several agents share, as tasks of a cluster do.
//!
//! To the core each of these agents is a host with one slot: it comes and goes by itself, keeps its own memory and has
//! its own connections, and its failure is nobody else's. What a *worker* is told of its neighbours is another matter:
//! a local_rank that two workers of one machine share would send both to one device. So the places in orders are
//! rewritten on their way out, by the machine that each agent named when it registered. Nothing else changes, and the
//! core knows nothing of it.
//!
//! # Invariants
//! - An agent has one place on its machine for life, the first that was free, and so has its worker (R2).
//! - Of several attempts of one task the newest alone stays: an older one is sent away when it comes, or retired when
//!   the newer comes (R4: a stopped executor wakes up beside its successor).
//! - Ranks of a machine need not stand side by side: a survivor keeps its order of arrival.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_core::Command;
use elasticrun_protocol::{
    HostId, LocalRank, Order,
    control::{Place, Task},
};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Machines {
    seats: BTreeMap<HostId, Seat>,
    slots: BTreeMap<u32, Attempt>,
}

/// Where an agent is.
#[derive(Debug)]
struct Seat {
    machine: String,
    place: LocalRank,
}

/// The newest attempt of a task.
#[derive(Debug)]
struct Attempt {
    number: u64,
    host: HostId,
}

/// What becomes of an agent that registers as a task.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It takes part; the agent of an older attempt does no more, if one is there.
    Welcome {
        /// The host that it was.
        retired: Option<HostId>,
    },
    /// A newer attempt was here.
    Outdated,
}

impl Machines {
    /// An agent registers as a task.
    pub(crate) fn admit(&mut self, task: &Task, host: &HostId) -> Admission {
        let before = self.slots.get(&task.slot);
        if before.is_some_and(|before| before.number > task.attempt) {
            return Admission::Outdated;
        }
        let retired = before.map(|before| before.host.clone());
        let retired = retired.filter(|before| before != host && self.seats.contains_key(before));
        if let Some(retired) = &retired {
            self.leave(retired);
        }
        let newest = Attempt {
            number: task.attempt,
            host: host.clone(),
        };
        self.slots.insert(task.slot, newest);
        let place = self.free_place(&task.machine);
        self.seats.entry(host.clone()).or_insert_with(|| Seat {
            machine: task.machine.clone(),
            place,
        });
        Admission::Welcome { retired }
    }

    /// The agent of a host is gone.
    pub(crate) fn leave(&mut self, host: &HostId) {
        self.seats.remove(host);
    }

    fn free_place(&self, machine: &str) -> LocalRank {
        let seats = self.seats.values().filter(|seat| seat.machine == machine);
        let taken: BTreeSet<_> = seats.map(|seat| seat.place.0).collect();
        LocalRank((0..).find(|place| !taken.contains(place)).unwrap_or(0))
    }

    /// Rewrites the places in orders by machine. All orders that start one round, or one group, come in one batch.
    pub(crate) fn view(&self, commands: &mut [Command]) {
        if self.seats.is_empty() {
            return;
        }
        let members: Vec<HostId> = commands.iter().flat_map(members_of).collect();
        let round = self.neighbours(members.iter());
        let expected = self.neighbours(self.seats.keys());
        let started: Vec<HostId> = commands.iter().flat_map(group_member).collect();
        let group = self.neighbours(started.iter());
        for command in commands {
            let Command::Send { host, order } = command else {
                continue;
            };
            let Some(seat) = self.seats.get(host) else {
                continue;
            };
            match order {
                Order::Spawn(spawn) if spawn.restarts.is_some() => {
                    group.describe(host, seat, &mut spawn.place);
                }
                Order::Spawn(spawn) => expected.describe(host, seat, &mut spawn.place),
                Order::Start(start) => {
                    for member in &mut start.members {
                        round.describe(host, seat, &mut member.place);
                    }
                }
                _ => {}
            }
        }
    }

    fn neighbours<'a>(&'a self, hosts: impl Iterator<Item = &'a HostId>) -> Neighbours<'a> {
        let mut all = Neighbours::default();
        for (host, seat) in hosts.filter_map(|host| Some((host, self.seats.get(host)?))) {
            *all.local_sizes.entry(&seat.machine).or_default() += 1;
            let cross = all.cross_sizes.entry(seat.place).or_default();
            all.cross_ranks.insert(host, *cross);
            *cross += 1;
        }
        all
    }
}

/// Workers of a round in the order of their ranks, counted by machine and by place.
#[derive(Debug, Default)]
struct Neighbours<'a> {
    local_sizes: BTreeMap<&'a str, u32>,
    cross_sizes: BTreeMap<LocalRank, u32>,
    cross_ranks: BTreeMap<&'a HostId, u32>,
}

impl Neighbours<'_> {
    fn describe(&self, host: &HostId, seat: &Seat, place: &mut Place) {
        let count = |counted: Option<&u32>| counted.copied().unwrap_or(1);
        place.local_rank = Some(seat.place);
        place.local_size = count(self.local_sizes.get(seat.machine.as_str()));
        place.cross_rank = self.cross_ranks.get(host).copied().unwrap_or(0);
        place.cross_size = count(self.cross_sizes.get(&seat.place));
    }
}

/// Whose order starts a round, in the order of ranks.
fn members_of(command: &Command) -> Option<HostId> {
    match command {
        Command::Send {
            host,
            order: Order::Start(_),
        } => Some(host.clone()),
        _ => None,
    }
}

/// Whose order starts a member of a group, in the order of ranks.
fn group_member(command: &Command) -> Option<HostId> {
    match command {
        Command::Send {
            host,
            order: Order::Spawn(spawn),
        } => spawn.restarts.map(|_| host.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use elasticrun_protocol::{
        DriverEpoch, Generation, Process, Rank, Round,
        control::{Member, Restarts, Spawn, Start},
    };

    use super::*;

    fn task(machine: &str, slot: u32, attempt: u64) -> Task {
        let machine = machine.to_owned();
        Task {
            machine,
            slot,
            attempt,
        }
    }

    fn admit(machines: &mut Machines, task: &Task) -> Admission {
        machines.admit(task, &task.host())
    }

    fn start(host: HostId, rank: u32, size: u32) -> Command {
        let process = Process {
            local_rank: LocalRank(0),
            generation: Generation(1),
        };
        let place = Place {
            rank: Rank(rank),
            size,
            local_size: 1,
            cross_rank: rank,
            cross_size: size,
            local_rank: None,
        };
        let order = Order::Start(Box::new(Start {
            epoch: DriverEpoch(1),
            round: Round(1),
            base: None,
            keeper: None,
            size,
            members: vec![Member { process, place }],
            host_index: rank,
            host_count: size,
            peers: BTreeMap::new(),
            coordinator: "10.0.0.1:1".parse().unwrap(),
            prefix: String::new(),
        }));
        Command::Send { host, order }
    }

    /// local_rank, local_size, cross_rank and cross_size of each member.
    fn told(machines: &Machines, tasks: &[Task]) -> Vec<(u32, u32, u32, u32)> {
        let ranked = (0..).zip(tasks);
        let mut commands: Vec<_> = ranked
            .map(|(rank, task)| start(task.host(), rank, tasks.len() as u32))
            .collect();
        machines.view(&mut commands);
        let place = |command: &Command| match command {
            Command::Send {
                order: Order::Start(start),
                ..
            } => start.members[0].place,
            other => panic!("{other:?}"),
        };
        (commands.iter().map(place))
            .map(|p| {
                let local_rank = p.local_rank.unwrap().0;
                (local_rank, p.local_size, p.cross_rank, p.cross_size)
            })
            .collect()
    }

    #[test]
    fn agents_of_one_machine_are_neighbours() {
        let tasks = [
            task("a", 0, 1),
            task("b", 1, 2),
            task("a", 2, 3),
            task("c", 3, 4),
        ];
        let mut machines = Machines::default();
        for task in &tasks {
            admit(&mut machines, task);
        }
        assert_eq!(
            told(&machines, &tasks),
            [(0, 2, 0, 3), (0, 1, 1, 3), (1, 2, 0, 1), (0, 1, 2, 3)]
        );
        // Of a round with fewer only its members count, and each keeps its place on its machine.
        assert_eq!(told(&machines, &tasks[2..]), [(1, 1, 0, 1), (0, 1, 0, 1)]);
    }

    #[test]
    fn of_a_group_only_its_members_are_neighbours() {
        let tasks = [task("a", 0, 1), task("a", 1, 2), task("a", 2, 3)];
        let mut machines = Machines::default();
        for task in &tasks {
            admit(&mut machines, task);
        }
        let spawn = |rank: u32, host: HostId| {
            let Command::Send {
                order: Order::Start(start),
                ..
            } = start(host.clone(), rank, 2)
            else {
                panic!("a start");
            };
            let spawn = Spawn {
                process: start.members[0].process,
                place: start.members[0].place,
                coordinator: start.coordinator,
                restarts: Some(Restarts {
                    used: 0,
                    allowed: 3,
                }),
            };
            let order = Order::Spawn(spawn);
            Command::Send { host, order }
        };
        let mut commands = vec![spawn(0, tasks[0].host()), spawn(1, tasks[1].host())];
        machines.view(&mut commands);
        let sizes: Vec<_> = (commands.iter())
            .map(|command| match command {
                Command::Send {
                    order: Order::Spawn(spawn),
                    ..
                } => (spawn.place.local_rank.map(|l| l.0), spawn.place.local_size),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(sizes, [(Some(0), 2), (Some(1), 2)]);
    }

    #[test]
    fn a_place_is_given_again_once_its_agent_is_gone() {
        let mut machines = Machines::default();
        let (one, two) = (task("a", 0, 1), task("a", 1, 2));
        admit(&mut machines, &one);
        admit(&mut machines, &two);
        machines.leave(&one.host());
        let again = task("a", 0, 3);
        admit(&mut machines, &again);
        assert_eq!(told(&machines, &[two, again]), [(1, 2, 0, 1), (0, 2, 0, 1)]);
    }

    #[test]
    fn a_newer_attempt_retires_the_older_and_an_older_is_sent_away() {
        let mut machines = Machines::default();
        let (old, new) = (task("a", 0, 5), task("b", 0, 9));
        assert_eq!(
            admit(&mut machines, &old),
            Admission::Welcome { retired: None }
        );
        let retired = Some(old.host());
        assert_eq!(admit(&mut machines, &new), Admission::Welcome { retired });
        assert_eq!(admit(&mut machines, &old), Admission::Outdated);
        // One that is gone is nobody to retire.
        machines.leave(&new.host());
        let newest = task("a", 0, 10);
        assert_eq!(
            admit(&mut machines, &newest),
            Admission::Welcome { retired: None }
        );
        // Its connection was cut and it comes again: the same attempt.
        assert_eq!(
            admit(&mut machines, &newest),
            Admission::Welcome { retired: None }
        );
    }

    #[test]
    fn orders_to_hosts_that_are_no_tasks_are_left_alone() {
        let plain = start(HostId::new("x"), 0, 1);
        let mut commands = vec![plain.clone()];
        let mut machines = Machines::default();
        machines.view(&mut commands);
        admit(&mut machines, &task("a", 0, 1));
        machines.view(&mut commands);
        assert_eq!(commands, [plain]);
    }
}
