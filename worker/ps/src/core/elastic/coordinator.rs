//! Decides which servers have which ranges. The scheduler runs it.
//!
//! # Theory of operation
//! Each change of a chain is one of three: a dead server is taken out at once; a server joins as the new tail after it has got a
//! copy; a server leaves after it has stopped to serve. Repair, drain, balance and growth are made of these. A range has one
//! change at a time, and at most [`MAX_JOINS`] copies run at once.
//!
//! # Invariants
//! - PS5 Each version of the map gives each range one chain.
//! - A chain loses a server on purpose only if another one is left, and a new server is in a map only if it has the whole range.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    balance::{Loads, RangeLoad},
    map::{App, ChainMap, ChainRange},
    message::{Order, Report},
};
use crate::core::node::{NodeId, Role};

/// Ranges for each server at the start.
const RANGES: usize = 8;
/// Copies that run at once.
const MAX_JOINS: usize = 4;

/// What the scheduler has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send the map to all nodes.
    Publish(ChainMap),
    Order {
        to: NodeId,
        order: Order,
    },
    /// The server has nothing any more, and may end.
    Drained(NodeId),
    DrainRefused {
        node: NodeId,
        reason: String,
    },
    /// A server cannot take part.
    Refuse {
        node: NodeId,
        reason: String,
    },
    Note(String),
}

/// The change of a range that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Joining { learner: NodeId, join: u64 },
    Stopping { node: NodeId, ticket: u64 },
}

/// The coordinator of an elastic job.
#[derive(Debug)]
pub(crate) struct Coordinator {
    /// Servers that the first map waits for.
    expected: u32,
    copies: usize,
    apps: Vec<App>,
    /// Servers that are ready, and whether they are told to leave.
    servers: BTreeMap<NodeId, bool>,
    map: Option<ChainMap>,
    changes: BTreeMap<u64, Change>,
    /// Servers that leave a chain once another one has joined it.
    evicted: BTreeMap<u64, NodeId>,
    numbers: u64,
    loads: Loads,
    warned: bool,
    ended: bool,
}

impl Coordinator {
    /// A job that begins with so many servers, and keeps `replicas` further copies of each range.
    pub(crate) fn new(expected: u32, replicas: u32) -> Self {
        Self {
            expected,
            copies: replicas as usize + 1,
            apps: Vec::new(),
            servers: BTreeMap::new(),
            map: None,
            changes: BTreeMap::new(),
            evicted: BTreeMap::new(),
            numbers: 0,
            loads: Loads::default(),
            warned: false,
            ended: false,
        }
    }

    /// The map, once there is one.
    pub(crate) fn map(&self) -> Option<&ChainMap> {
        self.map.as_ref()
    }

    /// The job ends: nothing is repaired any more.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// A server is ready to take part, with these apps.
    pub(crate) fn ready(&mut self, node: NodeId, apps: &[App]) -> Vec<Action> {
        let mut apps = apps.to_vec();
        apps.sort_unstable();
        if self.apps.is_empty() {
            self.apps.clone_from(&apps);
        }
        if apps != self.apps {
            let reason = format!(
                "it has the elastic apps {}, and the other servers have {}",
                names(&apps),
                names(&self.apps)
            );
            return vec![Action::Refuse { node, reason }];
        }
        self.servers.insert(node, false);
        let mut actions = Vec::new();
        if self.map.is_none() && self.servers.len() as u32 >= self.expected {
            let servers: Vec<_> = self.servers.keys().copied().collect();
            let mut map = ChainMap::equal(&servers, RANGES, self.copies);
            map.apps.clone_from(&self.apps);
            actions.push(Action::Publish(map.clone()));
            self.map = Some(map);
        }
        self.plan(&mut actions);
        actions
    }

    /// A server is dead, or has ended without a drain.
    pub(crate) fn died(&mut self, node: NodeId) -> Vec<Action> {
        let mut actions = Vec::new();
        if node.role() != Some(Role::Server) {
            return actions;
        }
        let known = self.servers.remove(&node).is_some();
        if self.map.is_none() {
            self.expected = self.expected.saturating_sub(1).max(1);
        }
        if !known || self.ended {
            return actions;
        }
        let Some(map) = &mut self.map else {
            return actions;
        };
        let version = map.version + 1;
        let mut resumed = Vec::new();
        let mut lost = Vec::new();
        let mut touched = false;
        for range in &mut map.ranges {
            let change = self.changes.get(&range.first).copied();
            if let Some(Change::Joining { learner, .. }) = change
                && (learner == node || range.tail() == Some(node))
            {
                self.changes.remove(&range.first);
                self.evicted.remove(&range.first);
            }
            if !range.chain.contains(&node) {
                continue;
            }
            range.chain.retain(|member| *member != node);
            range.changed = version;
            touched = true;
            if range.chain.is_empty() {
                lost.push(range.keys());
            }
            if let Some(Change::Stopping { node: leaving, .. }) = change {
                if leaving == node {
                    self.changes.remove(&range.first);
                } else if range.chain == [leaving] {
                    // It has the only copy now.
                    self.changes.remove(&range.first);
                    resumed.push((leaving, range.first));
                }
            }
        }
        self.evicted.retain(|_, evicted| *evicted != node);
        for keys in lost {
            actions.push(Action::Note(format!(
                "the values of keys {} to {} are lost: all their servers are dead",
                keys.first, keys.last
            )));
        }
        // Before the map: requests that it has refused wait for the next version.
        for (to, first) in resumed {
            let order = Order::Resume { first };
            actions.push(Action::Order { to, order });
        }
        if touched {
            map.version = version;
            actions.push(Action::Publish(map.clone()));
        }
        self.plan(&mut actions);
        actions
    }

    /// A server wants to leave.
    pub(crate) fn drain(&mut self, node: NodeId) -> Vec<Action> {
        let others = self
            .servers
            .iter()
            .filter(|(id, leaves)| **id != node && !**leaves);
        if others.count() == 0 {
            let reason = "it is the last server: its values would be lost".to_owned();
            return vec![Action::DrainRefused { node, reason }];
        }
        let mut actions = Vec::new();
        match self.servers.get_mut(&node) {
            Some(leaves) => *leaves = true,
            // It never took part, or was told already.
            None => actions.push(Action::Drained(node)),
        }
        self.plan(&mut actions);
        actions
    }

    /// A server reports.
    pub(crate) fn report(&mut self, node: NodeId, report: &Report) -> Vec<Action> {
        match *report {
            Report::Failed { .. } => return self.died(node),
            Report::InSync { first, join } => {
                let Some(Change::Joining { learner, join: own }) =
                    self.changes.get(&first).copied()
                else {
                    return Vec::new();
                };
                if own != join {
                    return Vec::new();
                }
                self.changes.remove(&first);
                self.change(first, |chain| chain.push(learner))
            }
            Report::Stopped { first, ticket } => {
                let Some(Change::Stopping { node, ticket: own }) =
                    self.changes.get(&first).copied()
                else {
                    return Vec::new();
                };
                if own != ticket {
                    return Vec::new();
                }
                self.changes.remove(&first);
                self.evicted.remove(&first);
                self.change(first, |chain| chain.retain(|member| *member != node))
            }
        }
    }

    /// How the ranges of a server were used since its last report.
    pub(crate) fn load(&mut self, node: NodeId, loads: &[RangeLoad]) -> Vec<Action> {
        self.loads.report(node, loads);
        let mut actions = Vec::new();
        let complete = self.servers.keys().all(|node| self.loads.has(*node));
        let Some(map) = self.map.as_mut().filter(|_| complete && !self.ended) else {
            return actions;
        };
        let split = self.loads.end_of_turn(map, self.servers.len());
        // A range that changes is not split.
        if let Some((first, middle)) = split.filter(|(first, _)| !self.changes.contains_key(first))
        {
            let index = map.ranges.partition_point(|range| range.last < first);
            map.version += 1;
            let lower = &mut map.ranges[index];
            let upper = ChainRange {
                first: middle,
                changed: map.version,
                ..lower.clone()
            };
            lower.last = middle - 1;
            lower.changed = map.version;
            map.ranges.insert(index + 1, upper);
            if let Some(evicted) = self.evicted.get(&first).copied() {
                self.evicted.insert(middle, evicted);
            }
            actions.push(Action::Note(format!(
                "range {first} is split at {middle}: it is the most used one"
            )));
            actions.push(Action::Publish(map.clone()));
        }
        self.plan(&mut actions);
        actions
    }

    /// Changes a chain, in a new version.
    fn change(&mut self, first: u64, change: impl FnOnce(&mut Vec<NodeId>)) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(map) = &mut self.map
            && let Some(range) = map.ranges.iter_mut().find(|range| range.first == first)
        {
            map.version += 1;
            change(&mut range.chain);
            range.changed = map.version;
            actions.push(Action::Publish(map.clone()));
        }
        self.plan(&mut actions);
        actions
    }

    /// Begins all changes that are wanted and may begin.
    fn plan(&mut self, actions: &mut Vec<Action>) {
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
            actions.push(Action::Drained(node));
        }
    }

    fn ranges(&self) -> &[ChainRange] {
        self.map.as_ref().map_or(&[], |map| &map.ranges)
    }

    fn leaves(&self, node: NodeId) -> bool {
        self.servers.get(&node).copied().unwrap_or(true)
    }

    fn joins(&self) -> usize {
        let changes = self.changes.values();
        changes
            .filter(|change| matches!(change, Change::Joining { .. }))
            .count()
    }

    fn plan_range(&mut self, first: u64, want: usize, actions: &mut Vec<Action>) {
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

    fn join(&mut self, range: &ChainRange, learner: NodeId, actions: &mut Vec<Action>) {
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
    fn weights(&self) -> BTreeMap<NodeId, u64> {
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
    fn members_to_be(&self, range: &ChainRange) -> Vec<NodeId> {
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

    fn lightest(&self, may: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let weights = self.weights().into_iter().filter(|(node, _)| may(*node));
        weights
            .min_by_key(|(_, weight)| *weight)
            .map(|(node, _)| node)
    }

    /// Moves ranges from the server with the most to that with the least, as long as it makes them more equal.
    fn move_one(&mut self, actions: &mut Vec<Action>) {
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

fn names(apps: &[App]) -> String {
    let name = |app: &App| {
        let dtype = elasticrun_collectives::DType::name(app.dtype);
        match &app.rule[..] {
            "" => format!("{} of {dtype}", app.app),
            rule => format!("{} of {dtype} with {rule}", app.app),
        }
    };
    apps.iter().map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
