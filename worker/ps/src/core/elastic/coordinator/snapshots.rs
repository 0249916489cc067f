//! Snapshots: servers save what they serve, and at the start of a job they load what an earlier one has saved.

use std::collections::BTreeSet;

use super::{Action, App, ChainMap, ChainRange, Coordinator, NodeId, Order};
use crate::core::{
    elastic::snapshot::{Origin, Outcome, SavedRange, Saving},
    ranges::KeyRange,
};

/// The first map, while its servers load a snapshot.
#[derive(Debug)]
pub(super) struct Loading {
    ticket: u64,
    map: ChainMap,
    waiting: BTreeSet<NodeId>,
}

impl Coordinator {
    /// The servers begin with a snapshot. Called before the first of them is ready.
    pub(crate) fn begin_with(&mut self, origin: Origin) {
        self.origin = Some(origin);
    }

    /// Saves all values in a snapshot of this number, unless one is being taken.
    pub(crate) fn save(&mut self, number: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.saving.is_none() {
            self.numbers += 1;
            let servers = self.tails();
            self.saving = Some(Saving::begin(number, self.numbers, servers));
            let all = KeyRange {
                first: 0,
                last: u64::MAX,
            };
            self.order_saving(&[all], &mut actions);
        }
        actions
    }

    /// Gives up the snapshot that is being taken.
    pub(crate) fn give_up_saving(&mut self, reason: &str) -> Vec<Action> {
        let mut actions = Vec::new();
        self.follow_saving(Outcome::Failed(reason.to_owned()), &mut actions);
        actions
    }

    /// Whether servers load a snapshot.
    pub(crate) fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    /// Whether a snapshot is being taken.
    #[cfg(test)]
    pub(crate) fn is_saving(&self) -> bool {
        self.saving.is_some()
    }

    fn tails(&self) -> BTreeSet<NodeId> {
        self.ranges().iter().filter_map(ChainRange::tail).collect()
    }

    /// The servers that serve these keys.
    fn tails_of(&self, keys: &[KeyRange]) -> BTreeSet<NodeId> {
        let overlaps = |range: &&ChainRange| {
            let mut keys = keys.iter();
            keys.any(|keys| keys.first <= range.last && range.first <= keys.last)
        };
        let ranges = self.ranges().iter().filter(overlaps);
        ranges.filter_map(ChainRange::tail).collect()
    }

    /// Tells the servers of these keys to save what they serve of them.
    fn order_saving(&mut self, keys: &[KeyRange], actions: &mut Vec<Action>) {
        let Some(saving) = &self.saving else { return };
        let (number, ticket) = (saving.number, saving.ticket);
        let lost = self.ranges().iter().find(|range| range.chain.is_empty());
        let reason = match (lost, self.map.is_none() || self.ended) {
            (_, true) => Some("no server serves".to_owned()),
            (Some(lost), _) => {
                let keys = lost.keys();
                Some(format!(
                    "the values of keys {} to {} are lost",
                    keys.first, keys.last
                ))
            }
            (None, false) => None,
        };
        if let Some(reason) = reason {
            self.saving = None;
            return actions.push(Action::NotSaved { number, reason });
        }
        for to in self.tails_of(keys) {
            let order = Order::Save {
                number,
                ticket,
                keys: keys.iter().map(|keys| (keys.first, keys.last)).collect(),
            };
            actions.push(Action::Order { to, order });
        }
    }

    /// A server has saved what it serves, or could not.
    pub(super) fn has_saved(
        &mut self,
        node: NodeId,
        ticket: u64,
        saved: Result<&[SavedRange], &str>,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        let saving = self.saving.as_mut();
        if let Some(saving) = saving.filter(|saving| saving.ticket == ticket) {
            let outcome = match saved {
                Ok(ranges) => saving.saved(node, ranges),
                Err(reason) => Outcome::Failed(format!("{node}: {reason}")),
            };
            self.follow_saving(outcome, &mut actions);
        }
        actions
    }

    /// A server saves nothing any more.
    pub(super) fn saves_no_more(&mut self, node: NodeId, actions: &mut Vec<Action>) {
        if let Some(saving) = &mut self.saving {
            let outcome = saving.gone(node);
            self.follow_saving(outcome, actions);
        }
    }

    fn follow_saving(&mut self, outcome: Outcome, actions: &mut Vec<Action>) {
        match outcome {
            Outcome::Waits => {}
            Outcome::Lacks(keys) => {
                self.numbers += 1;
                let (ticket, servers) = (self.numbers, self.tails_of(&keys));
                if let Some(saving) = &mut self.saving {
                    saving.go_on(ticket, servers);
                }
                self.order_saving(&keys, actions);
            }
            Outcome::Complete(ranges) => {
                if let Some(Saving { number, .. }) = self.saving.take() {
                    actions.push(Action::Saved { number, ranges });
                }
            }
            Outcome::Failed(reason) => {
                if let Some(Saving { number, .. }) = self.saving.take() {
                    actions.push(Action::NotSaved { number, reason });
                }
            }
        }
    }

    /// Why a server with these apps cannot begin with the snapshot.
    pub(super) fn refuses_origin(&self, apps: &[App]) -> Option<String> {
        let origin = self.origin.as_ref()?;
        (!origin.fits(apps)).then(|| {
            format!(
                "it has the elastic apps {}, and snapshot {} has {}",
                super::names(apps),
                origin.number,
                super::names(&origin.apps)
            )
        })
    }

    /// Tells the servers of the first map to load their values. `false` if there are none to load.
    pub(super) fn order_loading(&mut self, map: &ChainMap, actions: &mut Vec<Action>) -> bool {
        let Some(number) = self.origin.as_ref().map(|origin| origin.number) else {
            return false;
        };
        self.numbers += 1;
        let ticket = self.numbers;
        let waiting: BTreeSet<_> = (map.ranges.iter())
            .flat_map(|range| range.chain.iter().copied())
            .collect();
        for &to in &waiting {
            let own = map.ranges.iter().filter(|range| range.chain.contains(&to));
            let order = Order::Load {
                number,
                ticket,
                ranges: own.map(|range| (range.first, range.last)).collect(),
            };
            actions.push(Action::Order { to, order });
        }
        self.loading = Some(Loading {
            ticket,
            map: map.clone(),
            waiting,
        });
        true
    }

    /// A server has loaded its values, or could not.
    pub(super) fn has_loaded(
        &mut self,
        node: NodeId,
        ticket: u64,
        loaded: Result<(), &str>,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        let loading = self.loading.as_mut();
        let Some(loading) = loading.filter(|loading| loading.ticket == ticket) else {
            return actions;
        };
        if let Err(reason) = loaded {
            self.loading = None;
            for node in std::mem::take(&mut self.servers).into_keys() {
                self.refused.insert(node);
                let reason = reason.to_owned();
                actions.push(Action::Refuse { node, reason });
            }
            return actions;
        }
        loading.waiting.remove(&node);
        if loading.waiting.is_empty()
            && let Some(Loading { map, .. }) = self.loading.take()
        {
            actions.extend(self.servers.keys().map(|node| Action::Accept(*node)));
            self.publish_first(map, &mut actions);
            self.plan(&mut actions);
        }
        actions
    }
}
