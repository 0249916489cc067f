//! What happens to the nodes of the simulation.

use std::collections::VecDeque;

use super::world::{Channel, Packet, World, all_keys};
use crate::core::{
    elastic::balance::RangeLoad,
    node::{NodeId, SCHEDULER},
};

impl World {
    /// Something goes wrong, or changes.
    pub(super) fn fault(&mut self) -> Result<(), String> {
        let living: Vec<NodeId> = (self.servers.keys().copied())
            .filter(|node| !self.gone.contains(node))
            .collect();
        match self.dice.below(10) {
            0 | 1 if living.len() < 6 => self.add_server(),
            2 | 3 => {
                let Some(node) = self.dice.pick(&living) else {
                    return Ok(());
                };
                if self.draining.insert(node) {
                    self.left = true;
                    self.send(node, SCHEDULER, Packet::Drain);
                }
            }
            4..=6 => self.lose_server(&living),
            7 | 8 => self.break_link(&living),
            _ => self.split(),
        }
        Ok(())
    }

    /// A server dies, or is cut off and declared dead, if each of its ranges has another copy.
    pub(super) fn lose_server(&mut self, living: &[NodeId]) {
        let Some(map) = self.coordinator.map() else {
            return;
        };
        let mut others = self.gone.clone();
        let Some(node) = self.dice.pick(living) else {
            return;
        };
        others.insert(node);
        // As many as there are replicas may die before the first of them is replaced.
        if self.unnoticed.len() + 1 >= self.copies {
            return;
        }
        let survives = |range: &crate::core::elastic::map::ChainRange| {
            range.chain.iter().any(|member| !others.contains(member))
        };
        // The deaths that the coordinator has not noticed count together.
        if !map.ranges.iter().all(survives) {
            return;
        }
        self.gone.insert(node);
        self.unnoticed.insert(node);
        let killed = self.dice.chance(50);
        self.log(|| format!("{node} is lost, killed: {killed}"));
        if killed {
            self.servers.remove(&node);
            let channels: Vec<Channel> = self.channels.keys().copied().collect();
            for channel in channels.into_iter().filter(|channel| channel.0 == node) {
                self.cut(channel);
            }
        } else if let Some(engine) = self.servers.get_mut(&node) {
            // It serves nothing when its time is over, which is before it is declared dead.
            engine.fence();
        }
        // Behind all that it has sent to the scheduler.
        self.send(node, SCHEDULER, Packet::Gone);
    }

    /// The last packets of a channel are lost.
    pub(super) fn cut(&mut self, channel: Channel) {
        if let Some(queue) = self.channels.get_mut(&channel) {
            let kept = self.dice.below(queue.len() + 1);
            queue.truncate(kept);
        }
    }

    /// The connection of two nodes breaks: the last packets are lost, until each end has noticed it.
    pub(super) fn break_link(&mut self, living: &[NodeId]) {
        let workers: Vec<_> = self.workers.iter().map(|worker| worker.id).collect();
        let all: Vec<_> = living.iter().copied().chain(workers).collect();
        let (Some(a), Some(b)) = (self.dice.pick(living), self.dice.pick(&all)) else {
            return;
        };
        if a == b || self.down.contains(&(a, b)) || self.down.contains(&(b, a)) {
            return;
        }
        self.log(|| format!("the connection of {a} and {b} breaks"));
        for (from, to) in [(a, b), (b, a)] {
            let link = self.links.get(&(from, to)).copied().unwrap_or(0);
            self.cut((from, to, link));
            // Each end notices the new connection at any time, before it gets anything over it, and sends nothing until then.
            let channel = (from, to, link + 1);
            self.channels
                .insert(channel, VecDeque::from([Packet::Reset]));
            self.links.insert((from, to), link + 1);
        }
        self.down.extend([(a, b), (b, a)]);
    }

    /// All servers report that one range is used most.
    pub(super) fn split(&mut self) {
        let Some(map) = self.coordinator.map().filter(|map| map.ranges.len() < 100) else {
            return;
        };
        let key = self.dice.pick(&all_keys()).unwrap_or(0);
        let first = map.range_of(key).first;
        let load = RangeLoad {
            first,
            keys: 1 << 30,
            middle: Some(key),
        };
        let servers: Vec<NodeId> = (0..self.ranks).map(NodeId::server).collect();
        for node in servers {
            let actions = self.coordinator.load(node, &[load]);
            self.act(actions);
        }
    }
}
