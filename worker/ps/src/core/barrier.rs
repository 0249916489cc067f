//! Barriers: which nodes have arrived how often, for each group.

use std::collections::{BTreeMap, BTreeSet};

use super::node::{Group, NodeId};

/// The barriers of all groups. The scheduler keeps them.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    groups: BTreeMap<Group, Barrier>,
}

#[derive(Debug, Default)]
struct Barrier {
    /// How often each node has arrived.
    arrivals: BTreeMap<NodeId, u64>,
    /// How often all were released.
    released: u64,
    /// The dead nodes of barriers that could not be complete. Members that come later get the same answer.
    broken: BTreeMap<u64, Vec<NodeId>>,
}

/// What an arrival or a change of members leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    /// The group.
    pub group: Group,
    /// The number of the barrier, from 1 on.
    pub number: u64,
    /// The nodes that wait.
    pub waiting: Vec<NodeId>,
    /// The members that are dead. Their absence ends the barrier with an error.
    pub dead: Vec<NodeId>,
}

impl Barriers {
    /// A node has arrived at the next barrier of a group. `members` are all nodes of the group, `dead` those that are dead.
    pub(crate) fn arrive(
        &mut self,
        group: Group,
        node: NodeId,
        members: &[NodeId],
        dead: &BTreeSet<NodeId>,
    ) -> Option<Release> {
        let barrier = self.groups.entry(group).or_default();
        let arrivals = barrier.arrivals.entry(node).or_default();
        *arrivals += 1;
        if *arrivals <= barrier.released {
            let number = *arrivals;
            return Some(Release {
                group,
                number,
                waiting: vec![node],
                dead: barrier.broken.get(&number).cloned().unwrap_or_default(),
            });
        }
        barrier.release(group, members, dead)
    }

    /// A node joins a job that runs: it has met the others in all barriers that are over.
    pub(crate) fn admit(&mut self, node: NodeId) {
        for barrier in self.groups.values_mut() {
            barrier.arrivals.insert(node, barrier.released);
        }
    }

    /// Whether a group has met. All nodes do so at the start, unless their programs do not want it.
    pub(crate) fn has_met(&self, group: Group) -> bool {
        let barrier = self.groups.get(&group);
        barrier.is_some_and(|barrier| barrier.released > 0)
    }

    /// Some nodes have died: the barriers that wait for them end.
    pub(crate) fn died(
        &mut self,
        members: impl Fn(Group) -> Vec<NodeId>,
        dead: &BTreeSet<NodeId>,
    ) -> Vec<Release> {
        let groups = self.groups.iter_mut();
        groups
            .filter_map(|(&group, barrier)| barrier.release(group, &members(group), dead))
            .collect()
    }
}

impl Barrier {
    fn has_arrived(&self, node: NodeId) -> bool {
        self.arrivals
            .get(&node)
            .is_some_and(|&count| count > self.released)
    }

    fn release(
        &mut self,
        group: Group,
        members: &[NodeId],
        dead: &BTreeSet<NodeId>,
    ) -> Option<Release> {
        let members_waiting = members.iter().filter(|node| self.has_arrived(**node));
        let waiting: Vec<_> = members_waiting
            .copied()
            .filter(|node| !dead.contains(node))
            .collect();
        let late = members.iter().filter(|node| !self.has_arrived(**node));
        let (dead, alive): (Vec<_>, Vec<_>) = late.partition(|node| dead.contains(node));
        if waiting.is_empty() || (!alive.is_empty() && dead.is_empty()) {
            return None;
        }
        self.released += 1;
        if !dead.is_empty() {
            self.broken.insert(self.released, dead.clone());
        }
        Some(Release {
            group,
            number: self.released,
            waiting,
            dead,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::core::node::{ALL_NODES, WORKER_GROUP};

    #[test]
    fn a_group_is_released_when_its_last_member_arrives() {
        let mut barriers = Barriers::default();
        let members = ALL_NODES.node_ids(1, 1);
        let none = BTreeSet::new();
        for turn in 1..4 {
            for node in &members[..2] {
                assert_eq!(barriers.arrive(ALL_NODES, *node, &members, &none), None);
            }
            let release = barriers
                .arrive(ALL_NODES, members[2], &members, &none)
                .unwrap();
            assert_eq!(release.number, turn);
            assert_eq!(release.waiting, members);
        }
    }

    #[test]
    fn a_fast_node_is_not_released_by_the_barrier_before() {
        let mut barriers = Barriers::default();
        let members = WORKER_GROUP.node_ids(0, 2);
        let none = BTreeSet::new();
        let mut arrive =
            |rank| barriers.arrive(WORKER_GROUP, NodeId::worker(rank), &members, &none);
        assert_eq!(arrive(0), None);
        // Two customers of one process, or a caller that gave up and came again.
        assert_eq!(arrive(0), None);
        assert_eq!(arrive(1).map(|release| release.number), Some(1));
        assert_eq!(arrive(1).map(|release| release.number), Some(2));
    }

    #[test]
    fn a_newcomer_is_awaited_from_the_barrier_in_progress_on() {
        let mut barriers = Barriers::default();
        let all = ALL_NODES.node_ids(2, 1);
        let none = BTreeSet::new();
        let late = NodeId::server(1);
        let old: Vec<_> = all.iter().copied().filter(|node| *node != late).collect();
        for node in &old {
            barriers.arrive(ALL_NODES, *node, &old, &none);
        }
        assert!(barriers.has_met(ALL_NODES) && !barriers.has_met(WORKER_GROUP));
        barriers.arrive(ALL_NODES, old[0], &old, &none);
        barriers.admit(late);
        for node in &old[1..] {
            assert_eq!(barriers.arrive(ALL_NODES, *node, &all, &none), None);
        }
        let release = barriers.arrive(ALL_NODES, late, &all, &none);
        assert_eq!(release.map(|release| release.number), Some(2));
    }

    #[test]
    fn a_death_ends_the_barrier_that_waits_for_it() {
        let mut barriers = Barriers::default();
        let members = WORKER_GROUP.node_ids(0, 3);
        let mut dead = BTreeSet::new();
        assert_eq!(
            barriers.arrive(WORKER_GROUP, members[0], &members, &dead),
            None
        );
        dead.insert(members[2]);
        let releases = barriers.died(|_| members.clone(), &dead);
        assert_eq!(releases.len(), 1);
        assert_eq!(releases[0].dead, [members[2]]);
        assert_eq!(releases[0].waiting, [members[0]]);
        // A member that comes later gets the same answer, and the next barrier ends at the first arrival.
        let release = barriers
            .arrive(WORKER_GROUP, members[1], &members, &dead)
            .unwrap();
        assert_eq!((release.number, release.dead), (1, vec![members[2]]));
        let release = barriers
            .arrive(WORKER_GROUP, members[1], &members, &dead)
            .unwrap();
        assert_eq!((release.number, release.dead), (2, vec![members[2]]));
    }

    proptest! {
        #[test]
        fn nobody_passes_before_all_have_arrived(arrivals: Vec<u8>, workers in 1u32..5) {
            let mut barriers = Barriers::default();
            let members = WORKER_GROUP.node_ids(0, workers);
            let mut counts = vec![0u64; workers as usize];
            let mut released = 0;
            for arrival in arrivals {
                let rank = u32::from(arrival) % workers;
                counts[rank as usize] += 1;
                let node = NodeId::worker(rank);
                if barriers.arrive(WORKER_GROUP, node, &members, &BTreeSet::new()).is_some() {
                    released += 1;
                }
                prop_assert_eq!(released, *counts.iter().min().unwrap());
            }
        }
    }
}
