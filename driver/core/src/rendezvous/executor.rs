//! The executor: removes dead nodes, runs the operations on the newest state, and writes what they change.
//!
//! ```text
//! read -> remove the dead -> operations, until each of them waits or ends -> changed?        yes: compare-and-set, then again
//!                                                                        -> heartbeat due?  yes: heartbeat, then again
//!                                                                            no:  results
//! ```
//! Results count only if nothing is left to write: then the holder has the state that they are about. A lost
//! compare-and-set brings the newer state, and the operations run again on that one.

use super::{
    HeartbeatChanges, NodeId, Silence,
    draft::{Action, Draft},
    event::{Command, Failure, Membership},
    link::{Ask, Write},
    machine::Machine,
    mutant::{Mutant, planted},
    op::{Context, Op},
    state::{Phase, Role, State},
};
use crate::Time;

/// The most nodes that one write removes as dead: a holder compares the heartbeats of each in one step. etcd takes 128 conditions,
/// of which each node needs two, and they leave that many steps fewer for the write.
const MAX_REMOVED: usize = 40;

/// What the operations want after they have made their changes.
struct Wanted {
    membership: Action,
    close: Action,
    heartbeat: bool,
}

impl Machine {
    /// One pass, if the holder can be asked and something is to be done.
    pub(super) fn execute(&mut self, out: &mut Vec<Command>) {
        if !self.is_active() || !self.link.is_idle(self.now) {
            return;
        }
        let timeout = self.request_timeout();
        let Some(snapshot) = self.link.snapshot().filter(|_| self.link.is_fresh()) else {
            let request = self.link.begin(self.now, timeout, Ask::Read);
            return out.push(Command::Read { request });
        };
        let expected = snapshot.token;
        let empty = State::default();
        let state = snapshot.state.as_ref().unwrap_or(&empty);
        let mut draft = Draft::new(&self.node, &self.settings, state);
        if self.joins() && !planted(Mutant::RoundsBeginAnew) {
            draft.raise_round(self.next_round);
        }
        let limit = self.settings.keep_alive_max_attempt;
        let dead = self.liveness.dead(&self.node, state, limit);
        let removed = dead.into_iter();
        let removed: Vec<_> = removed
            .filter(|_| !planted(Mutant::DeadStay))
            .filter(|node| draft.remove(node).is_some())
            .take(MAX_REMOVED)
            .collect();
        let wanted = self.run_ops(&mut draft);
        let early = planted(Mutant::UnwrittenResult) && wanted.membership == Action::Finish;
        let mended = || self.mends.as_ref().map(|_| state.clone());
        let changed = draft.into_changed().filter(|_| !early).or_else(mended);
        if let Some(after) = changed {
            let heartbeats = self.heartbeat_changes(state, &after, &removed);
            let write = Write {
                expected,
                state: after.clone(),
                beats: heartbeats.beats.contains(&self.node),
                removed,
            };
            let request = self.link.begin(self.now, timeout, Ask::Write(write));
            out.push(Command::CompareAndSet {
                request,
                expected,
                state: after,
                heartbeats,
            });
        } else if wanted.heartbeat {
            let request = self.link.begin(self.now, timeout, Ask::Heartbeat);
            out.push(Command::Heartbeat {
                request,
                node: self.node.clone(),
                since: self.liveness.since(),
            });
        } else {
            self.conclude(wanted, out);
        }
    }

    /// The holder keeps the heartbeats of just the members, from the write that adds a node to the one that removes it.
    fn heartbeat_changes(
        &self,
        before: &State,
        after: &State,
        removed: &[NodeId],
    ) -> HeartbeatChanges {
        let mut changes = HeartbeatChanges {
            forgets: removed.to_vec(),
            ..HeartbeatChanges::default()
        };
        if !removed.is_empty() && !planted(Mutant::RemovalUnchecked) {
            changes.unless_beaten = Some(Silence {
                nodes: removed.to_vec(),
                since: self.liveness.since(),
            });
        }
        let (was, is) = (before.member(&self.node), after.member(&self.node));
        if was.is_some() && is.is_none() {
            changes.forgets.push(self.node.clone());
        }
        if let Some(strangers) = &self.mends {
            changes.beats = after.members().map(|(node, _)| node.clone()).collect();
            changes.forgets.extend(strangers.iter().cloned());
        } else if is.is_some() && !(was.is_none() && planted(Mutant::JoinWithoutHeartbeat)) {
            changes.beats.push(self.node.clone());
        }
        changes
    }

    fn run_ops(&self, draft: &mut Draft<'_>) -> Wanted {
        let close = self
            .closing
            .map(|deadline| self.run(Op::Close, deadline, draft));
        let membership = self
            .membership
            .map(|(op, deadline)| self.run(op, deadline, draft));
        // A join that fails needs no heartbeat, one that succeeds needs a lease.
        let goes_on = matches!(membership, None | Some(Action::Sync | Action::Finish));
        let mut heartbeat = membership == Some(Action::KeepAlive);
        if goes_on && self.keeps_alive() {
            // The request itself has a timeout, so the deadline of the heartbeat is never over here.
            let deadline = self.now + self.settings.heartbeat_timeout;
            heartbeat = self.run(Op::KeepAlive, deadline, draft) == Action::KeepAlive;
        }
        Wanted {
            membership: membership.unwrap_or(Action::Sync),
            close: close.unwrap_or(Action::Sync),
            heartbeat,
        }
    }

    /// Runs one operation until it waits or ends, and gives that last action.
    fn run(&self, op: Op, deadline: Time, draft: &mut Draft<'_>) -> Action {
        let is_over = |at: Option<Time>| at.is_some_and(|at| self.now >= at);
        let heartbeat_due = is_over(self.beat_due_at());
        let last_call_over = is_over(self.last_call_over_at());
        loop {
            let ctx = Context {
                node: &self.node,
                state: draft.state(),
                settings: &self.settings,
                now: self.now,
                heartbeat_due,
                last_call_over,
            };
            let action = op.decide(&ctx, deadline);
            if !action.changes_state() {
                return action;
            }
            draft.apply(action);
        }
    }

    /// Ends the operations that are done: the holder has the state that they have seen.
    fn conclude(&mut self, wanted: Wanted, out: &mut Vec<Command>) {
        match wanted.close {
            Action::Finish => self.end_close(Ok(()), out),
            Action::ErrorTimeout => self.end_close(Err(Failure::Timeout), out),
            _ => {}
        }
        let result = match wanted.membership {
            Action::Finish => Ok(self.finish()),
            Action::Release => Ok(Command::Released),
            Action::ErrorClosed => Err(Failure::Closed),
            Action::ErrorTimeout => Err(Failure::Timeout),
            Action::ErrorFull => Err(Failure::Full),
            _ => return,
        };
        self.end_membership(result, out);
    }

    /// The result of a join or exit that is done.
    fn finish(&mut self) -> Command {
        let membership = self.state().and_then(|state| self.membership_in(state));
        match (self.membership, membership) {
            (Some((Op::Join { .. }, _)), Some(membership)) => {
                self.joined(membership.round);
                Command::Joined(membership)
            }
            _ => Command::Exited,
        }
    }

    fn membership_in(&self, state: &State) -> Option<Membership> {
        let role = state.member(&self.node)?.role;
        let (Phase::Complete { world_size }, Role::Participant { rank: Some(rank) }) =
            (state.phase(), role)
        else {
            return None;
        };
        let world_size = match planted(Mutant::WorldSizeOfNow) {
            true => state.participants() as u32,
            false => world_size,
        };
        Some(Membership {
            round: state.round(),
            rank,
            world_size,
        })
    }
}
