//! Answers of the holder.

use super::{
    BeatNumber, NodeId, Recorded,
    event::{Command, Failure, HolderError, Rejected},
    holder::{RequestId, Snapshot, Token},
    link::{Ask, InFlight},
    machine::{Beat, Machine, Unconfirmed},
    mutant::{Mutant, planted},
    op::Op,
    state::{Phase, Role},
};
use crate::Time;

impl Machine {
    pub(super) fn state_read(
        &mut self,
        request: RequestId,
        snapshot: Snapshot,
    ) -> Result<(), Rejected> {
        self.answered(request)?;
        self.link.reached();
        self.accept(snapshot);
        self.extend_redundant();
        Ok(())
    }

    pub(super) fn written(
        &mut self,
        request: RequestId,
        token: Token,
        out: &mut Vec<Command>,
    ) -> Result<(), Rejected> {
        let flight = self.answered(request)?;
        let Ask::Write(write) = flight.asks else {
            return Err(Rejected::StaleAnswer);
        };
        self.link.reached();
        if write.beats {
            self.beat_confirmed(flight.sent);
            self.liveness.begin(self.now, BeatNumber(token.0));
        }
        if !write.removed.is_empty() {
            let nodes = write.removed;
            out.push(Command::NodesRemoved { nodes });
        }
        self.accept(Snapshot {
            token,
            state: Some(write.state),
        });
        self.extend_redundant();
        Ok(())
    }

    pub(super) fn conflict(
        &mut self,
        request: RequestId,
        snapshot: Snapshot,
    ) -> Result<(), Rejected> {
        let flight = self.answered(request)?;
        let is_behind = match flight.asks {
            Ask::Write(write) => snapshot.token <= write.expected,
            Ask::Read | Ask::Heartbeat => true,
        };
        if is_behind {
            // The holder went back behind what it has given, or refuses for another reason.
            self.link.failed(self.now, &self.settings);
            return Ok(());
        }
        self.link.reached();
        self.link.lost_race(self.now, self.backoff());
        self.accept(snapshot);
        self.extend_redundant();
        Ok(())
    }

    /// Nodes that a write was to remove have beaten meanwhile. The next write leaves them where they are.
    pub(super) fn not_silent(
        &mut self,
        request: RequestId,
        nodes: &[NodeId],
    ) -> Result<(), Rejected> {
        let flight = self.answered(request)?;
        let Ask::Write(write) = flight.asks else {
            return Err(Rejected::StaleAnswer);
        };
        self.link.reached();
        match nodes.is_empty() {
            true => self.liveness.forgive(&write.removed),
            false => self.liveness.forgive(nodes),
        }
        Ok(())
    }

    /// The holder has recorded a heartbeat. It counts once this node knows that it is still a member: others may have removed
    /// it, and the report may be lost.
    pub(super) fn heartbeat_recorded(
        &mut self,
        request: RequestId,
        recorded: &Recorded,
        token: Token,
    ) -> Result<(), Rejected> {
        let flight = self.answered(request)?;
        let Ask::Heartbeat = flight.asks else {
            return Err(Rejected::StaleAnswer);
        };
        let sent = flight.sent;
        let interval = self.settings.keep_alive_interval;
        self.liveness.tick(self.now, sent, interval, recorded);
        if self.link.knows(token) || planted(Mutant::HeartbeatUnread) {
            self.link.reached();
        } else {
            self.link.is_behind();
            self.unconfirmed = Some(Unconfirmed { sent, token });
            return Ok(());
        }
        if self.role().is_some() {
            self.beat_confirmed(sent);
        }
        self.compare_members(recorded, token);
        self.extend_redundant();
        Ok(())
    }

    /// Compares the members of the state with the nodes whose heartbeats the holder had under the same token.
    fn compare_members(&mut self, recorded: &Recorded, token: Token) {
        let snapshot = self.link.snapshot().filter(|known| known.token == token);
        let Some(state) = snapshot.and_then(|known| known.state.as_ref()) else {
            return;
        };
        if state.members().count() == recorded.nodes || planted(Mutant::LostHeartbeatsIgnored) {
            return;
        }
        let silent = recorded.silent.iter();
        let strangers = silent.filter(|node| state.member(node).is_none());
        self.mends = Some(strangers.cloned().collect());
    }

    pub(super) fn failed(
        &mut self,
        request: RequestId,
        error: HolderError,
        out: &mut Vec<Command>,
    ) -> Result<(), Rejected> {
        self.answered(request)?;
        self.link.failed(self.now, &self.settings);
        if let HolderError::Corrupt(error) = error {
            self.fail_all(&Failure::Corrupt(error), out);
        }
        Ok(())
    }

    fn answered(&mut self, request: RequestId) -> Result<InFlight, Rejected> {
        self.link.answered(request).ok_or(Rejected::StaleAnswer)
    }

    /// The holder had a heartbeat of this node, sent at that time, while this node was a member.
    fn beat_confirmed(&mut self, sent: Time) {
        let earlier = self.last_beat.map_or(sent, |beat| beat.sent);
        self.last_beat = Some(Beat {
            sent: sent.max(earlier),
        });
        let sent = match planted(Mutant::LeaseFromAnswer) {
            true => self.now,
            false => sent,
        };
        if let Some(joined) = &mut self.joined {
            joined.lease = joined.lease.max(sent + self.settings.lease());
        }
    }

    pub(super) fn accept(&mut self, snapshot: Snapshot) {
        if !self.link.accept(snapshot) {
            return;
        }
        let Some(state) = self.link.snapshot().and_then(|known| known.state.as_ref()) else {
            return;
        };
        if state.is_complete() {
            self.next_round = self.next_round.max(state.round().next());
        }
        self.liveness.observe(state);
        self.mends = None;
        let last_call = match state.phase() {
            Phase::Forming { last_call } => last_call.map(|number| (state.round(), number)),
            Phase::Complete { .. } => None,
        };
        // A state without this node may follow one that the holder has lost, whose last calls had the same numbers.
        (self.last_call).take_if(|_| state.member(&self.node).is_none());
        let known = self.last_call.map(|(known, _)| known);
        if last_call != known {
            self.last_call = last_call.map(|last_call| (last_call, self.now));
        }
        // Another node may have made this one redundant, shortly before the deadline of its join.
        self.extend_redundant();
        let known = |beat: &mut Unconfirmed| self.link.knows(beat.token);
        if let Some(beat) = self.unconfirmed.take_if(known)
            && self.role().is_some()
        {
            self.beat_confirmed(beat.sent);
        }
    }

    /// A redundant node waits as long as it reaches the holder.
    fn extend_redundant(&mut self) {
        let role = self.role();
        if let Some((Op::Join { .. }, deadline)) = &mut self.membership
            && role == Some(Role::Redundant)
        {
            *deadline = self.now + self.settings.join_timeout;
        }
    }

    pub(super) fn role(&self) -> Option<Role> {
        let member = self.state()?.member(&self.node)?;
        Some(member.role)
    }
}
