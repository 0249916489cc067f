//! Deadlines of a node, all by its own clock.

use std::time::Duration;

use super::{
    event::{Command, Failure, RoundOver},
    link::FIRST_RETRY,
    machine::{Beat, Machine},
    op::{Op, ROLLBACK},
    state::Role,
};
use crate::Time;

/// The time that a participant has to end a last call before the next one in the order of arrival does, and how many of them
/// have such a time.
const BEFORE: Duration = Duration::from_millis(100);
const MOST_BEFORE: usize = 50;

impl Machine {
    /// Whether this node sends heartbeats once it has a role.
    pub(super) fn keeps_alive(&self) -> bool {
        self.joins() || self.membership.is_none() && self.joined.is_some()
    }

    /// Whether a join is in progress.
    pub(super) fn joins(&self) -> bool {
        matches!(self.membership, Some((Op::Join { .. }, _)))
    }

    /// When the next heartbeat is due: one interval after the answer to the last tick, or earlier if the answer was so slow that
    /// little would be left of the lease.
    pub(super) fn beat_due_at(&self) -> Option<Time> {
        self.role().filter(|_| self.keeps_alive())?;
        let lease = self.settings.lease();
        let of_lease = |Beat { sent }: Beat| sent + lease / 4 * 3;
        let tick = self.liveness.due_at(self.settings.keep_alive_interval);
        let due = |beat| tick.map(|tick| tick.min(of_lease(beat)));
        Some(self.last_beat.and_then(due).unwrap_or(self.now))
    }

    /// When the last call is over for a participant that waits for it. Nodes on the wait list, for which the participants
    /// have left the round before, get at least a lease: then they have come or count as dead.
    ///
    /// The oldest participant ends the last call. Others give those before them time to do so, or all of them would write
    /// the whole state at once.
    pub(super) fn last_call_over_at(&self) -> Option<Time> {
        let (_, first_seen) = self.last_call?;
        let enough = self.settings.min_nodes()..=self.settings.max_nodes;
        let waits_for_it = self.joins()
            && matches!(self.role()?, Role::Participant { .. })
            && enough.contains(&self.state()?.participants());
        let called = self.settings.last_call_timeout;
        let timeout = match self.state()?.waiting() {
            0 => called,
            _ => called.max(self.settings.lease()),
        };
        let state = self.state()?;
        let member = state.member(&self.node)?;
        let before = state
            .older(member.role, &self.node, member)
            .min(MOST_BEFORE);
        let turn = BEFORE.saturating_mul(u32::try_from(before).unwrap_or(u32::MAX));
        waits_for_it.then_some(first_seen + timeout + turn)
    }

    pub(super) fn gives_up_at(&self, (op, deadline): (Op, Time)) -> Option<Time> {
        match op {
            Op::Join { .. } => Some(deadline + ROLLBACK),
            _ => Some(deadline),
        }
    }

    /// How long a request may take. While workers run, the holder is asked more than once in what is left of the lease.
    pub(super) fn request_timeout(&self) -> Duration {
        let timeout = self.settings.heartbeat_timeout;
        match &self.joined {
            Some(joined) => timeout.min((joined.lease.since(self.now) / 2).max(FIRST_RETRY)),
            None => timeout,
        }
    }

    /// The longest delay after a lost race. While workers run, many attempts fit into what is left of the lease.
    pub(super) fn backoff(&self) -> Duration {
        let backoff = self.settings.cas_backoff_max;
        match &self.joined {
            Some(joined) => backoff.min(joined.lease.since(self.now) / 16),
            None => backoff,
        }
    }

    /// Stops the workers of a node that others may remove.
    pub(super) fn check_lease(&mut self, out: &mut Vec<Command>) {
        let now = self.now;
        if let Some(joined) = self.joined.take_if(|joined| now >= joined.lease) {
            out.push(Command::RoundOver {
                round: joined.round,
                reason: RoundOver::LeaseExpired,
            });
        }
    }

    /// Ends requests whose time is over, whatever the holder does.
    pub(super) fn give_up(&mut self, out: &mut Vec<Command>) {
        let failure = match self.link.is_fresh() {
            true => Failure::Timeout,
            false => Failure::Unreachable,
        };
        let over = self
            .membership
            .and_then(|running| self.gives_up_at(running));
        if over.is_some_and(|over| self.now >= over) {
            self.end_membership(Err(failure.clone()), out);
        }
        if self.closing.is_some_and(|deadline| self.now >= deadline) {
            self.end_close(Err(failure), out);
        }
    }
}
