//! Which hosts keep copies of which shards of a commit, so that the loss of any K machines leaves each shard on another one.
//!
//! Machines are failure domains. Those with a member form a ring, in the order of their names. The shards of a machine are
//! copied to the machines that follow it in the ring. So each machine copies those of K others, and keeps about as much as
//! any other one. If a machine is lost or added, only the copies of its neighbours move. If the ring has too few machines,
//! others are appended.
//!
//! A machine that holds a shard anyway gets no copy of it: replicas of HSDP need none. Machines that go away count neither
//! as holders nor as keepers.
//!
//! Cost: O(shards x (K + holders) + machines).

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{HostId, Process, Shard};

use crate::mutant::{Mutant, planted};

/// A host that holds shards or may keep copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine<'a> {
    /// The host.
    pub(crate) host: &'a HostId,
    /// The machine that it is on.
    pub(crate) name: &'a str,
}

/// A shard that a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder<'a> {
    /// Where it is.
    pub(crate) at: Machine<'a>,
    /// The machine does not go away.
    pub(crate) stays: bool,
    /// The process that holds it.
    pub(crate) process: Process,
    /// The shard.
    pub(crate) shard: Shard,
}

/// What a host copies.
pub(crate) type Copies<'a> = BTreeMap<&'a HostId, Vec<Holder<'a>>>;

/// Who copies what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan<'a> {
    /// The shards that each host copies, each from the process that holds it.
    pub(crate) copies: Copies<'a>,
    /// The number of machines that are lacking.
    pub(crate) lacking: usize,
}

impl<'a> Plan<'a> {
    /// Plans copies of all shards so that each is on `replicas` machines beyond one. `members` and `others` are hosts that stay
    /// and can keep copies, with members of the round and without.
    pub(crate) fn new(
        holders: &[Holder<'a>],
        members: &[Machine<'a>],
        others: &[Machine<'a>],
        replicas: usize,
    ) -> Self {
        let ring = Ring::new(members, others, replicas + 1);
        let mut by_shard: BTreeMap<Shard, Vec<&Holder<'a>>> = BTreeMap::new();
        for holder in holders {
            by_shard.entry(holder.shard).or_default().push(holder);
        }
        let mut plan = Self::default();
        for holders in by_shard.values() {
            // One that stays, if there is one.
            let Some(source) = holders.iter().max_by_key(|holder| holder.stays) else {
                continue;
            };
            let staying = holders.iter().filter(|holder| holder.stays);
            let mut held: BTreeSet<_> = staying.map(|holder| holder.at.name).collect();
            if planted(Mutant::ReplicaOnSameMachine) {
                held.clear();
            }
            let mut missing = (replicas + 1).saturating_sub(held.len());
            if planted(Mutant::ReplicaOnSameMachine) {
                missing = missing.min(replicas);
            }
            for machine in ring.after(source.at.name) {
                if missing == 0 {
                    break;
                }
                if held.insert(machine) {
                    missing -= 1;
                    let count = |at: &&Machine<'a>| plan.copies.get(at.host).map_or(0, Vec::len);
                    let hosts = ring.hosts.get(machine).into_iter().flatten();
                    if let Some(at) = hosts.min_by_key(count) {
                        plan.copies.entry(at.host).or_default().push(**source);
                    }
                }
            }
            plan.lacking = plan.lacking.max(missing);
        }
        plan
    }
}

/// Machines that keep copies, in the order of their names.
struct Ring<'a> {
    names: Vec<&'a str>,
    hosts: BTreeMap<&'a str, Vec<Machine<'a>>>,
}

impl<'a> Ring<'a> {
    fn new(members: &[Machine<'a>], others: &[Machine<'a>], needed: usize) -> Self {
        let mut hosts: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for member in members {
            hosts.entry(member.name).or_default().push(*member);
        }
        for other in others {
            if hosts.len() < needed {
                hosts.entry(other.name).or_insert_with(|| vec![*other]);
            }
        }
        let names = hosts.keys().copied().collect();
        Self { names, hosts }
    }

    /// All machines, beginning behind this one.
    fn after(&self, name: &str) -> impl Iterator<Item = &'a str> {
        let at = self
            .names
            .partition_point(|other| match planted(Mutant::ReplicaOnSameMachine) {
                true => *other < name,
                false => *other <= name,
            });
        let (before, behind) = self.names.split_at(at);
        behind.iter().chain(before).copied()
    }
}

#[cfg(test)]
mod tests {
    use elasticrun_protocol::{Generation, LocalRank};
    use proptest::prelude::*;

    use super::*;

    fn process(slot: u32) -> Process {
        Process {
            local_rank: LocalRank(slot),
            generation: Generation(1),
        }
    }

    fn names(prefix: &str, count: usize) -> Vec<HostId> {
        (0..count)
            .map(|index| HostId::new(format!("{prefix}{index}")))
            .collect()
    }

    fn machines(hosts: &[HostId], each: usize) -> Vec<Machine<'_>> {
        let machine = |index: usize| hosts[index / each * each].as_str();
        let hosts = hosts.iter().enumerate();
        hosts
            .map(|(index, host)| Machine {
                host,
                name: machine(index),
            })
            .collect()
    }

    /// Two shards on each host, each shard on this number of hosts in all.
    fn holders<'a>(members: &[Machine<'a>], stays: &[bool], replicas: usize) -> Vec<Holder<'a>> {
        let of = (members.len() * 2 / replicas) as u32;
        let all = members.iter().enumerate();
        all.flat_map(|(host, at)| {
            (0..2).map(move |slot| {
                let index = (host as u32 * 2 + slot) % of;
                let shard = Shard {
                    layout: 7,
                    index,
                    of,
                };
                Holder {
                    at: *at,
                    stays: stays[host],
                    process: process(slot),
                    shard,
                }
            })
        })
        .collect()
    }

    #[test]
    fn each_host_copies_the_shards_of_the_host_before_it() {
        let hosts = names("h", 3);
        let members = machines(&hosts, 1);
        let plan = Plan::new(&holders(&members, &[true; 3], 1), &members, &[], 1);
        let copied = |host: usize| {
            let copies = &plan.copies[&hosts[host]];
            copies
                .iter()
                .map(|copy| copy.shard.index)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (copied(0), copied(1), copied(2)),
            (vec![4, 5], vec![0, 1], vec![2, 3])
        );
        assert_eq!(plan.lacking, 0);
    }

    #[test]
    fn replicas_of_the_state_on_other_machines_need_no_copies() {
        let hosts = names("h", 4);
        let members = machines(&hosts, 1);
        let plan = Plan::new(&holders(&members, &[true; 4], 2), &members, &[], 1);
        assert_eq!(plan, Plan::default());
    }

    #[test]
    fn hosts_of_one_machine_keep_no_copies_for_each_other() {
        let hosts = names("h", 2);
        let members = machines(&hosts, 2);
        let holders = holders(&members, &[true; 2], 1);
        let plan = Plan::new(&holders, &members, &[], 1);
        assert_eq!((plan.copies.len(), plan.lacking), (0, 1));
        let spares = names("s", 2);
        let plan = Plan::new(&holders, &members, &machines(&spares, 1), 1);
        assert_eq!((plan.copies[&spares[0]].len(), plan.lacking), (4, 0));
        assert!(!plan.copies.contains_key(&spares[1]));
    }

    proptest! {
        #[test]
        fn the_loss_of_any_k_machines_leaves_each_shard(
            hosts in 1usize..7, each in 1usize..3, spares in 0usize..3, replicas in 0usize..4,
            leaving in prop::collection::vec(any::<bool>(), 8), copies in 1usize..3,
        ) {
            let (hosts, spares) = (names("h", hosts * copies), names("s", spares));
            let (members, spares) = (machines(&hosts, each), machines(&spares, 1));
            // All hosts of a machine leave.
            let stays: Vec<_> = (0..hosts.len()).map(|at| !leaving[at / each * each % 8]).collect();
            let holders = holders(&members, &stays, copies);
            let staying = members.iter().zip(&stays).filter(|(_, stays)| **stays);
            let keepers: Vec<_> = staying.map(|(member, _)| *member).collect();
            let plan = Plan::new(&holders, &keepers, &spares, replicas);
            let all: BTreeSet<_> = keepers.iter().chain(&spares).map(|at| at.name).collect();
            let (mut most, name_of) = (0, |host: &HostId| {
                let mut all = keepers.iter().chain(&spares);
                all.find(|at| at.host == host).unwrap().name
            });
            for index in 0..holders[0].shard.of {
                let here = |holder: &&Holder<'_>| holder.shard.index == index;
                let held = holders.iter().filter(here).filter(|it| it.stays).map(|it| it.at.name);
                let held: BTreeSet<_> = held.collect();
                let copied = plan.copies.iter().filter(|(_, all)| all.iter().any(|it| here(&it)));
                let copied: Vec<_> = copied.map(|(host, _)| name_of(host)).collect();
                let together: BTreeSet<_> = held.iter().copied().chain(copied.iter().copied()).collect();
                prop_assert_eq!(together.len(), held.len() + copied.len(), "no machine has two copies");
                prop_assert_eq!(together.len(), (replicas + 1).min(all.len()).max(held.len()));
                most = most.max((replicas + 1).saturating_sub(together.len()));
            }
            prop_assert_eq!(plan.lacking, most);
        }

        #[test]
        fn hosts_keep_equally_much(hosts in 2usize..9, replicas in 1usize..4) {
            let replicas = replicas.min(hosts - 1);
            let hosts = names("h", hosts);
            let members = machines(&hosts, 1);
            let plan = Plan::new(&holders(&members, &vec![true; hosts.len()], 1), &members, &[], replicas);
            prop_assert!(plan.copies.values().all(|copies| copies.len() == 2 * replicas));
            prop_assert_eq!(plan.copies.len(), hosts.len());
        }
    }
}
