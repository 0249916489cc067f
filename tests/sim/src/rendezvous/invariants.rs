//! The invariants D1 to D7 and D9 of the rendezvous, as seen from outside. The world checks D8 at its end.

use std::{collections::BTreeMap, time::Duration};

use elasticrun_core::{
    Time,
    rendezvous::{Command, Membership, NodeId, Role, State},
};
use elasticrun_protocol::{Rank, Round};

use super::{node::Node, world::World};

/// What the invariants need to know of the past.
#[derive(Debug, Default)]
pub(super) struct Invariants {
    /// The number of nodes of each round, and the nodes that have joined it, by rank.
    rounds: BTreeMap<Round, (u32, BTreeMap<Rank, NodeId>)>,
    /// The rounds before the state was lost.
    pub(super) earlier_rounds: usize,
    /// The last round of each node.
    last_round: BTreeMap<NodeId, Round>,
    /// When the holder got each heartbeat.
    heartbeats: BTreeMap<NodeId, Time>,
    /// Whether the holder has lost the heartbeats of members since a write has named all of them.
    pub(super) heartbeats_lost: bool,
    /// Since when the round that forms has enough participants.
    enough_since: Option<Time>,
    /// When the holder lost the state.
    lost: Option<Time>,
}

impl Invariants {
    /// Numbers of rounds may come again, for nodes that know no earlier one.
    pub(super) fn state_lost(&mut self, now: Time) {
        self.earlier_rounds += std::mem::take(&mut self.rounds).len();
        self.lost = Some(now);
        self.heartbeats_lost = false;
    }

    /// The number of rounds.
    pub(super) fn rounds(&self) -> usize {
        self.earlier_rounds + self.rounds.len()
    }
}

fn participates(role: Role) -> bool {
    matches!(role, Role::Participant { .. })
}

impl World {
    /// A node has joined a round: D1, D2, D5, D7.
    pub(super) fn joined(&mut self, index: usize, joined: Membership) {
        let id = self.nodes[index].id().clone();
        let known = &mut self.invariants;
        let entry = known.rounds.entry(joined.round);
        let (world_size, ranks) = entry.or_insert((joined.world_size, BTreeMap::new()));
        let agrees = *world_size == joined.world_size && joined.rank < Rank(*world_size);
        let other = ranks
            .insert(joined.rank, id.clone())
            .filter(|other| *other != id);
        let last = known.last_round.insert(id.clone(), joined.round);
        if !agrees || other.is_some() {
            self.violate(
                "D2",
                format!("{id} has joined as {joined:?}, beside {other:?}"),
            );
        }
        if last >= Some(joined.round) {
            self.violate(
                "D5",
                format!("{id} has joined {:?} after {last:?}", joined.round),
            );
        }
        self.check_one_round(joined.round);
    }

    /// D7: no workers of another round run.
    fn check_one_round(&mut self, round: Round) {
        let beside = self.nodes.iter().find(|node| {
            let trains = node
                .training
                .is_some_and(|training| training.round != round);
            trains && self.may_not_train_beside(node)
        });
        if let Some(beside) = beside {
            let what = format!(
                "{} trains in {:?} beside {round:?}",
                beside.id(),
                beside.training
            );
            self.violate("D7", what);
        }
    }

    /// Whether D7 is promised for a node: not while it stands still, and neither with clocks that step nor after a loss of
    /// the state.
    fn may_not_train_beside(&self, node: &Node) -> bool {
        let lease = self.scenario.settings.lease();
        let recently = |lost| self.now.since(lost) <= lease * 2;
        let excused = node.stopped || self.now < node.excused_until;
        !excused && !self.scenario.clocks_step && !self.invariants.lost.is_some_and(recently)
    }

    /// A node has replaced the state: D1, D3, D4, D6.
    pub(super) fn wrote(&mut self, writer: &NodeId, before: &State) {
        let after = self.state();
        if State::decode(&after.encode()).as_ref() != Ok(&after) {
            self.violate("D1", format!("{after:?} is no state"));
        }
        if before.is_closed() && !after.is_closed() {
            self.violate("D8", "a closed rendezvous is open again".to_owned());
        }
        if after.is_complete() && (!before.is_complete() || after.round() != before.round()) {
            self.check_completed(&after);
        }
        let enough = !after.is_complete() && after.participants() >= self.scenario.min_nodes;
        let since = self.invariants.enough_since.filter(|_| enough);
        self.invariants.enough_since = since.or(enough.then_some(self.now));
        self.check_others(writer, before, &after);
        self.check_removed(writer, before, &after);
    }

    /// The write that adds a node is its first heartbeat, also that of a dead process.
    pub(super) fn note_members(&mut self, before: &State) {
        let now = self.now;
        let state = self.state();
        let added = state
            .members()
            .filter(|(id, _)| before.member(id).is_none());
        let added = added.map(|(id, _)| (id.clone(), now));
        self.invariants.heartbeats.extend(added);
    }

    /// A heartbeat reaches the holder. Those of dead processes, and of nodes that are no members, do as well.
    pub(super) fn note_heartbeat(&mut self, command: &Command) {
        if let Command::Heartbeat { node, .. } = command {
            self.invariants.heartbeats.insert(node.clone(), self.now);
        }
    }

    /// D9: after a write, the holder keeps the heartbeats of just the members, unless it has lost some.
    pub(super) fn check_kept(&mut self) {
        let members = self.state().members().count();
        let kept = self.holder.heartbeats();
        if kept == members {
            self.invariants.heartbeats_lost = false;
        } else if kept > members || !self.invariants.heartbeats_lost {
            self.violate(
                "D9",
                format!("heartbeats of {kept} nodes for {members} members"),
            );
        }
    }

    fn check_completed(&mut self, after: &State) {
        let mut ranked: Vec<_> = after
            .members()
            .filter_map(|(_, member)| match member.role {
                Role::Participant { rank } => Some((rank, member.arrival)),
                _ => None,
            })
            .collect();
        ranked.sort_unstable();
        let n = ranked.len();
        let since = self.invariants.enough_since;
        let called = since.map_or(Duration::ZERO, |since| self.now.since(since));
        let early = n < self.scenario.max_nodes && called < self.scenario.last_call;
        if early && !self.scenario.clocks_step {
            self.violate("D1", format!("completed after a last call of {called:?}"));
        }
        let ranks = (0..n as u32).map(|rank| Some(Rank(rank)));
        if !(self.scenario.min_nodes..=self.scenario.max_nodes).contains(&n)
            || !ranks.eq(ranked.iter().map(|(rank, _)| *rank))
        {
            self.violate("D1", format!("completed with {ranked:?}"));
        }
        if !ranked.is_sorted_by_key(|(_, arrival)| *arrival) {
            self.violate("D4", format!("ranks and arrivals {ranked:?}"));
        }
    }

    /// A write adds its own node only, a round forms without participants of the one before, and nodes keep their age.
    fn check_others(&mut self, writer: &NodeId, before: &State, after: &State) {
        for (id, member) in after.members() {
            let former = before.member(id);
            if former.is_some_and(|former| former.arrival != member.arrival) {
                self.violate("D4", format!("{writer} changed the age of {id}"));
            }
            let was_in = former.is_some_and(|former| participates(former.role));
            if participates(member.role) && !was_in && id != writer {
                self.violate("D3", format!("{writer} added {id}"));
            }
            let stays = was_in && before.is_complete() && !after.is_complete();
            if stays && id != writer {
                self.violate("D3", format!("{writer} formed a round over {id}"));
            }
        }
    }

    /// D6: a removed node was silent for a lease.
    fn check_removed(&mut self, writer: &NodeId, before: &State, after: &State) {
        let lease = self.scenario.settings.lease();
        for (id, _) in before
            .members()
            .filter(|(id, _)| after.member(id).is_none())
        {
            let last = self.invariants.heartbeats.remove(id);
            let silence = last.map_or(Duration::MAX, |at| self.now.since(at));
            if id != writer && silence < lease && !self.scenario.clocks_step {
                self.violate("D6", format!("{writer} removed {id} after {silence:?}"));
            }
            let removed = self
                .nodes
                .iter()
                .find(|node| node.id() == id && id != writer);
            let trains = |node: &&Node| node.training.is_some() && self.may_not_train_beside(node);
            if removed.filter(trains).is_some() {
                self.violate("D7", format!("{writer} removed {id}, which trains"));
            }
        }
    }
}
