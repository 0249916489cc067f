//! Which nodes are dead, as judged by one node without the clock of another one.

use std::{collections::BTreeMap, time::Duration};

use super::{
    BeatNumber, NodeId, Recorded, State,
    mutant::{Mutant, planted},
};
use crate::Time;

/// What a node has learnt of the heartbeats of others.
///
/// Silence is counted in heartbeats of the observer. A heartbeat that the holder has recorded at least one keep-alive interval
/// after the answer to the last tick is a tick. A node has missed a tick if the holder had no heartbeat of it since the tick
/// before. So an observer that stood still, or that did not reach the holder, has seen no silence meanwhile.
#[derive(Clone, Debug, Default)]
pub(super) struct Liveness {
    /// The ticks in a row that nodes have missed. Others have missed none.
    missed: BTreeMap<NodeId, u32>,
    last: Option<Tick>,
}

#[derive(Clone, Copy, Debug)]
struct Tick {
    number: BeatNumber,
    answered: Time,
}

impl Liveness {
    /// Forgets everything: the observer joins anew.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Forgets the nodes that are not in a state.
    pub(super) fn observe(&mut self, state: &State) {
        self.missed.retain(|node, _| state.member(node).is_some());
    }

    /// When the next tick is due; `None` before the first one.
    pub(super) fn due_at(&self, interval: Duration) -> Option<Time> {
        Some(self.last?.answered + interval)
    }

    /// The number of the last tick, or the one before all others.
    pub(super) fn since(&self) -> BeatNumber {
        self.last.map_or(BeatNumber(0), |last| last.number)
    }

    /// The write of the observer that brought it into the state is its first tick.
    pub(super) fn begin(&mut self, answered: Time, number: BeatNumber) {
        self.last.get_or_insert(Tick { number, answered });
    }

    /// The holder has recorded a heartbeat of the observer, which was sent at `sent`. It compared those of others with
    /// [`Self::since`].
    pub(super) fn tick(&mut self, answered: Time, sent: Time, interval: Duration, beat: &Recorded) {
        let number = beat.number;
        let Some(last) = self.last else {
            return self.begin(answered, number);
        };
        if sent.since(last.answered) < interval && !planted(Mutant::ImpatientObserver) {
            return;
        }
        self.last = Some(Tick { number, answered });
        let before = std::mem::take(&mut self.missed);
        let missed = |node: &NodeId| before.get(node).map_or(1, |missed| missed + 1);
        let silent = beat.silent.iter();
        self.missed = silent.map(|node| (node.clone(), missed(node))).collect();
    }

    /// The holder has later heartbeats of these nodes.
    pub(super) fn forgive(&mut self, nodes: &[NodeId]) {
        nodes.iter().for_each(|node| _ = self.missed.remove(node));
    }

    /// The members other than `observer` that missed `limit` ticks.
    ///
    /// If all other nodes, two or more, have missed them, the observer is as suspect as they are: they get as many again.
    pub(super) fn dead(&self, observer: &NodeId, state: &State, limit: u32) -> Vec<NodeId> {
        let limit = if planted(Mutant::OneMiss) { 1 } else { limit };
        let first = u32::from(planted(Mutant::FirstTickMissed));
        let missed = |limit: u32| {
            let missed = self.missed.iter().filter(|(node, _)| *node != observer);
            let dead = missed
                .filter(|(node, missed)| first + **missed >= limit && state.member(node).is_some());
            dead.map(|(node, _)| node.clone()).collect::<Vec<_>>()
        };
        let dead = missed(limit);
        let others = state.members().filter(|(node, _)| *node != observer);
        let others = if dead.is_empty() { 0 } else { others.count() };
        if dead.len() == others && others >= 2 {
            missed(limit.saturating_mul(2))
        } else {
            dead
        }
    }
}
