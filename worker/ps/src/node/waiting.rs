//! What threads of the program wait for: the roster, barriers.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use super::{Control, Node, control::Death, lock};
use crate::{
    core::node::{Group, NodeId, Recipients, SCHEDULER},
    error::Error,
};

/// What has come from the scheduler.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) refused: Option<String>,
    pub(super) scheduler_lost: Option<Error>,
    /// Nodes that have said goodbye.
    pub(super) left: BTreeMap<NodeId, Goodbye>,
    barriers: BTreeMap<Group, BarrierState>,
}

/// What a node has said at its end.
#[derive(Debug)]
pub(super) struct Goodbye {
    /// Which process of its id.
    pub(super) incarnation: u16,
    /// A loss that it knew of.
    pub(super) loss: Option<Death>,
}

#[derive(Debug, Default)]
struct BarrierState {
    entered: u64,
    released: u64,
    /// The dead nodes of barriers that could not be complete.
    broken: BTreeMap<u64, Vec<NodeId>>,
}

impl Waiting {
    /// Notes what a node has said at its end, unless a later process of its id has said so.
    pub(super) fn said_goodbye(&mut self, node: NodeId, goodbye: Goodbye) {
        let last = self.left.get(&node).map(|last| last.incarnation);
        if last.is_none_or(|last| last <= goodbye.incarnation) {
            self.left.insert(node, goodbye);
        }
    }

    pub(super) fn released(&mut self, group: Group, number: u64, dead: Vec<NodeId>) {
        let barrier = self.barriers.entry(group).or_default();
        barrier.released = barrier.released.max(number);
        if !dead.is_empty() {
            barrier.broken.insert(number, dead);
        }
    }
}

impl Node {
    /// Waits until the roster has come.
    pub(super) fn wait_for_roster(&self) -> Result<(), Error> {
        let limit = self.options.start_timeout;
        let start = Instant::now();
        let mut waiting = lock(&self.waiting);
        loop {
            if self.roster.get().is_some() {
                return Ok(());
            }
            if let Some(reason) = &waiting.refused {
                return Err(Error::JoinRefused(reason.clone()));
            }
            if let Some(error) = &waiting.scheduler_lost {
                return Err(error.clone());
            }
            let Some(rest) = limit.checked_sub(start.elapsed()) else {
                return Err(Error::StartTimedOut { waited: limit });
            };
            let woken = self.changed.wait_timeout(waiting, rest);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until all nodes of a group are here, for so long. Without a limit, it ends when they are, or one is lost.
    pub(crate) fn barrier(
        self: &Arc<Self>,
        group: Group,
        limit: Option<Duration>,
    ) -> Result<(), Error> {
        if self.is_stopped() {
            return Err(Error::Finalized);
        }
        let number = {
            let mut waiting = lock(&self.waiting);
            if let Some(error) = &waiting.scheduler_lost {
                return Err(self.why_no_barrier(group, error));
            }
            let barrier = waiting.barriers.entry(group).or_default();
            barrier.entered = barrier.entered.max(barrier.released) + 1;
            barrier.entered
        };
        match self.id() {
            SCHEDULER => self.arrived(SCHEDULER, group),
            _ => self.send_control(&self.connection(SCHEDULER)?, &Control::Barrier { group })?,
        }
        let start = Instant::now();
        let mut waiting = lock(&self.waiting);
        loop {
            let barrier = waiting.barriers.entry(group).or_default();
            if barrier.released >= number {
                // A node that has come later counts from 1, and its first barrier may have any number.
                let mut broken = barrier.broken.range(number..=barrier.released);
                return match broken.next().map(|(_, dead)| dead) {
                    Some(dead) => Err(Error::BarrierBroken {
                        group,
                        dead: dead.clone(),
                    }),
                    None => Ok(()),
                };
            }
            if let Some(error) = &waiting.scheduler_lost {
                return Err(self.why_no_barrier(group, error));
            }
            let rest = match limit {
                // A loss is noticed by the heartbeats, and notified.
                None => Duration::MAX,
                Some(limit) => match limit.checked_sub(start.elapsed()) {
                    Some(rest) => rest,
                    None => {
                        return Err(Error::BarrierTimedOut {
                            group,
                            waited: limit,
                        });
                    }
                },
            };
            let woken = self.changed.wait_timeout(waiting, rest);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The scheduler may have ended because a node of the group is dead. That node is the reason then.
    fn why_no_barrier(&self, group: Group, lost: &Error) -> Error {
        let (servers, workers) = self.counts();
        let members = Recipients::Group(group).node_ids(servers, workers);
        let dead = self.dead_nodes().into_iter();
        let dead: Vec<_> = dead
            .filter(|node| *node != SCHEDULER && members.contains(node))
            .collect();
        match dead.is_empty() {
            true => lost.clone(),
            false => Error::BarrierBroken { group, dead },
        }
    }
}
