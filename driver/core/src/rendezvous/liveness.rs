//! Which nodes are dead, as judged by one node without the clock of another one.

use std::{collections::BTreeMap, time::Duration};

use super::{
    NodeId, State,
    mutant::{Mutant, planted},
};
use crate::Time;

/// What a node has seen of the heartbeats of others.
///
/// A heartbeat is a number that grows. Silence is counted in heartbeats of the observer: each successful one, at least one
/// keep-alive interval after the answer to the one before, is a tick. So an observer that stood still, or that did not
/// reach the holder, has seen no silence meanwhile.
#[derive(Clone, Debug, Default)]
pub(super) struct Liveness {
    seen: BTreeMap<NodeId, Seen>,
    last_tick: Option<Time>,
}

#[derive(Clone, Debug)]
struct Seen {
    arrival: u64,
    heartbeat: u64,
    /// Ticks without a change after the tick that found the heartbeat.
    missed: Option<u32>,
}

impl Liveness {
    /// Forgets everything: the observer joins anew.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Looks at a state.
    pub(super) fn observe(&mut self, state: &State) {
        self.seen.retain(|node, _| state.member(node).is_some());
        for (node, member) in state.members() {
            let current = (member.arrival, member.heartbeat);
            match self.seen.get(node) {
                Some(seen) if (seen.arrival, seen.heartbeat) == current => {}
                _ => {
                    let seen = Seen {
                        arrival: member.arrival,
                        heartbeat: member.heartbeat,
                        missed: None,
                    };
                    self.seen.insert(node.clone(), seen);
                }
            }
        }
    }

    /// A heartbeat of the observer, sent at `sent`, was written at `now` over the state that was last observed.
    pub(super) fn tick(&mut self, now: Time, sent: Time, interval: Duration) {
        let early = |last: Time| sent.since(last) < interval;
        if self.last_tick.is_some_and(early) && !planted(Mutant::ImpatientObserver) {
            return;
        }
        let first = u32::from(planted(Mutant::FirstTickMissed));
        self.last_tick = Some(now);
        for seen in self.seen.values_mut() {
            seen.missed = Some(seen.missed.map_or(first, |missed| missed + 1));
        }
    }

    /// The nodes other than `observer` that missed `limit` ticks.
    ///
    /// If all other nodes, two or more, have missed them, the observer is as suspect as they are: they get as many again.
    pub(super) fn dead(&self, observer: &NodeId, limit: u32) -> Vec<NodeId> {
        let limit = if planted(Mutant::OneMiss) { 1 } else { limit };
        let missed = |limit: u32| {
            let others = self.seen.iter().filter(|(node, _)| *node != observer);
            let dead = others.filter(|(_, seen)| seen.missed >= Some(limit));
            dead.map(|(node, _)| node.clone()).collect::<Vec<_>>()
        };
        let dead = missed(limit);
        let others = self.seen.keys().filter(|node| *node != observer).count();
        if dead.len() == others && others >= 2 {
            missed(limit.saturating_mul(2))
        } else {
            dead
        }
    }
}
