//! Which changes are wanted, and which may begin.

use std::collections::{BTreeMap, BTreeSet};

use super::{Action, ChainRange, Change, Coordinator, MAX_JOINS, NodeId, Order};

impl Coordinator {
    /// Begins all changes that are wanted and may begin.
    pub(super) fn plan(&mut self, actions: &mut Vec<Action>) {
        if self.ended || self.map.is_none() {
            return;
        }
        if self.servers.values().all(|leaves| *leaves) {
            for (&node, leaves) in &mut self.servers {
                *leaves = false;
                let reason = "all other servers are dead: its values would be lost".to_owned();
                actions.push(Action::DrainRefused { node, reason });
            }
        }
        let staying = self.servers.values().filter(|leaves| !**leaves).count();
        let want = self.copies.min(staying.max(1));
        if staying < self.copies && !self.warned {
            actions.push(Action::Note(format!(
                "there are {staying} servers for {} copies of each range: a death may lose values",
                self.copies
            )));
        }
        self.warned = staying < self.copies;
        let firsts: Vec<u64> = self.ranges().iter().map(|range| range.first).collect();
        for first in firsts {
            self.plan_range(first, want, actions);
        }
        self.move_one(actions);
        let holding: BTreeSet<NodeId> = (self.ranges().iter())
            .flat_map(|range| range.chain.iter().copied())
            .chain(self.changes.values().filter_map(|change| match change {
                Change::Joining { learner, .. } => Some(*learner),
                Change::Stopping { .. } => None,
            }))
            .collect();
        let leaving = self.servers.iter().filter(|(_, leaves)| **leaves);
        let done: Vec<_> = leaving
            .map(|(&node, _)| node)
            .filter(|node| !holding.contains(node))
            .collect();
        for node in done {
            self.servers.remove(&node);
            self.loads.forget(node);
            self.saves_no_more(node, actions);
            actions.push(Action::Drained(node));
        }
    }

    pub(super) fn ranges(&self) -> &[ChainRange] {
        self.map.as_ref().map_or(&[], |map| &map.ranges)
    }

    pub(super) fn leaves(&self, node: NodeId) -> bool {
        self.servers.get(&node).copied().unwrap_or(true)
    }

    pub(super) fn joins(&self) -> usize {
        let changes = self.changes.values();
        changes
            .filter(|change| matches!(change, Change::Joining { .. }))
            .count()
    }

    pub(super) fn plan_range(&mut self, first: u64, want: usize, actions: &mut Vec<Action>) {
        let Some(range) = self.map.as_ref().and_then(|map| map.range_at(first)) else {
            return;
        };
        if self.changes.contains_key(&first) || range.chain.is_empty() {
            return;
        }
        let range = range.clone();
        let leaving = range.chain.iter().copied().find(|node| self.leaves(*node));
        let healthy = range
            .chain
            .iter()
            .filter(|node| !self.leaves(**node))
            .count();
        if healthy < want {
            if let Some(learner) = self.lightest(|node| !range.chain.contains(&node)) {
                self.join(&range, learner, actions);
            }
            return;
        }
        let evicted = self.evicted.get(&first).copied();
        let surplus = range.chain.len() > want;
        let out = leaving.or(evicted.filter(|node| surplus && range.chain.contains(node)));
        // More copies than wanted: there were fewer servers, or a move ended in another way.
        let out = out.or_else(|| range.tail().filter(|_| surplus));
        if let Some(node) = out.filter(|_| range.chain.len() > 1) {
            self.numbers += 1;
            let ticket = self.numbers;
            self.changes
                .insert(first, Change::Stopping { node, ticket });
            let order = Order::Stop { first, ticket };
            actions.push(Action::Order { to: node, order });
        }
    }

    pub(super) fn join(&mut self, range: &ChainRange, learner: NodeId, actions: &mut Vec<Action>) {
        let Some(to) = range.tail().filter(|_| self.joins() < MAX_JOINS) else {
            return;
        };
        self.numbers += 1;
        let (first, join) = (range.first, self.numbers);
        self.changes
            .insert(first, Change::Joining { learner, join });
        let order = Order::Attach {
            first,
            learner,
            join,
        };
        actions.push(Action::Order { to, order });
    }

    /// The weight of each server that stays, with all changes done.
    pub(super) fn weights(&self) -> BTreeMap<NodeId, u64> {
        let staying = self.servers.iter().filter(|(_, leaves)| !**leaves);
        let mut weights: BTreeMap<NodeId, u64> = staying.map(|(&node, _)| (node, 0)).collect();
        for range in self.ranges() {
            let weight = self.loads.weight(range.first);
            for node in self.members_to_be(range) {
                if let Some(sum) = weights.get_mut(&node) {
                    *sum += weight;
                }
            }
        }
        weights
    }

    /// The chain of a range with all its changes done.
    pub(super) fn members_to_be(&self, range: &ChainRange) -> Vec<NodeId> {
        let mut members = range.chain.clone();
        match self.changes.get(&range.first) {
            Some(Change::Joining { learner, .. }) => members.push(*learner),
            Some(Change::Stopping { node, .. }) => members.retain(|member| member != node),
            None => {}
        }
        let evicted = self.evicted.get(&range.first);
        members.retain(|member| Some(member) != evicted);
        members
    }

    pub(super) fn lightest(&self, may: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let weights = self.weights().into_iter().filter(|(node, _)| may(*node));
        weights
            .min_by_key(|(_, weight)| *weight)
            .map(|(node, _)| node)
    }

    /// Moves ranges from the server with the most to that with the least, as long as it makes them more equal.
    pub(super) fn move_one(&mut self, actions: &mut Vec<Action>) {
        while self.joins() < MAX_JOINS {
            let weights = self.weights();
            let light = weights.iter().min_by_key(|(_, weight)| **weight);
            let heavy = weights.iter().max_by_key(|(_, weight)| **weight);
            let (Some((&light, &least)), Some((&heavy, &most))) = (light, heavy) else {
                return;
            };
            let movable = self.ranges().iter().filter(|range| {
                range.chain.contains(&heavy)
                    && !range.chain.contains(&light)
                    && !self.changes.contains_key(&range.first)
                    && !self.evicted.contains_key(&range.first)
                    && !range.chain.iter().any(|node| self.leaves(*node))
            });
            // Not worth it unless the difference is half as large again as what moves: so nothing moves to and fro.
            let worth =
                movable.filter(|range| (most - least) * 2 > self.loads.weight(range.first) * 3);
            let Some(range) = worth
                .max_by_key(|range| self.loads.weight(range.first))
                .cloned()
            else {
                return;
            };
            self.evicted.insert(range.first, heavy);
            self.join(&range, light, actions);
        }
    }
}
