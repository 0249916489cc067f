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

mod plan;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet};

use snapshots::Loading;

use super::{
    balance::{Loads, RangeLoad},
    map::{App, ChainMap, ChainRange},
    message::{Order, Report},
    snapshot::{Origin, SavedRange, Saving},
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
    /// A server takes part.
    Accept(NodeId),
    /// A server cannot take part.
    Refuse {
        node: NodeId,
        reason: String,
    },
    /// All values are saved.
    Saved {
        number: u64,
        ranges: Vec<SavedRange>,
    },
    NotSaved {
        number: u64,
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
    /// What the servers begin with.
    origin: Option<Origin>,
    loading: Option<Loading>,
    saving: Option<Saving>,
    /// Servers that cannot begin with it, and are about to end.
    refused: BTreeSet<NodeId>,
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
            origin: None,
            loading: None,
            saving: None,
            refused: BTreeSet::new(),
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
        if let Some(reason) = self.refuses_origin(&apps) {
            self.refused.insert(node);
            return vec![Action::Refuse { node, reason }];
        }
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
        if self.map.is_some() || self.origin.is_none() {
            actions.push(Action::Accept(node));
        }
        self.begin(&mut actions);
        self.plan(&mut actions);
        actions
    }

    /// Publishes the first map, once all servers are ready.
    fn begin(&mut self, actions: &mut Vec<Action>) {
        let ready = self.servers.len() as u32 >= self.expected;
        if self.map.is_none() && self.loading.is_none() && ready && !self.servers.is_empty() {
            let servers: Vec<_> = self.servers.keys().copied().collect();
            let mut map = ChainMap::equal(&servers, RANGES, self.copies);
            map.apps.clone_from(&self.apps);
            if !self.order_loading(&map, actions) {
                self.publish_first(map, actions);
            }
        }
    }

    fn publish_first(&mut self, map: ChainMap, actions: &mut Vec<Action>) {
        actions.push(Action::Publish(map.clone()));
        self.map = Some(map);
    }

    /// A server is dead, or has ended without a drain.
    pub(crate) fn died(&mut self, node: NodeId) -> Vec<Action> {
        let mut actions = Vec::new();
        if node.role() != Some(Role::Server) {
            return actions;
        }
        let known = self.servers.remove(&node).is_some();
        if self.map.is_none() {
            // Another one takes the place of a server that was refused.
            if !self.refused.remove(&node) {
                self.expected = self.expected.saturating_sub(1).max(1);
            }
            self.loading = None;
            self.begin(&mut actions);
            return actions;
        }
        if !known || self.ended {
            return actions;
        }
        let Some(map) = &mut self.map else {
            return actions;
        };
        let version = map.version + 1;
        let staying = self.servers.values().filter(|leaves| !**leaves).count();
        let want = self.copies.min(staying.max(1));
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
                } else if range.chain.len() <= want {
                    // Its copy is needed now.
                    self.changes.remove(&range.first);
                    self.evicted.remove(&range.first);
                    resumed.push((leaving, range.first));
                }
            }
        }
        self.evicted.retain(|first, evicted| {
            let surplus = map
                .range_at(*first)
                .is_some_and(|range| range.chain.len() > want);
            *evicted != node && (surplus || self.changes.contains_key(first))
        });
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
        self.saves_no_more(node, &mut actions);
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
            Report::Failed { .. } => self.died(node),
            Report::Saved { ticket, ref ranges } => self.has_saved(node, ticket, Ok(ranges)),
            Report::NotSaved { ticket, ref reason } => self.has_saved(node, ticket, Err(reason)),
            Report::Loaded { ticket } => self.has_loaded(node, ticket, Ok(())),
            Report::NotLoaded { ticket, ref reason } => self.has_loaded(node, ticket, Err(reason)),
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
