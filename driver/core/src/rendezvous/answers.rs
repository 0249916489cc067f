//! Answers of the holder.

use super::{
    event::{Command, Failure, HolderError, Rejected},
    holder::{RequestId, Snapshot, Token},
    link::InFlight,
    machine::{Beat, Machine},
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
        let Some(write) = flight.writes else {
            return Err(Rejected::StaleAnswer);
        };
        self.link.reached();
        if write.beats {
            self.beat_confirmed(flight.sent);
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
        if flight
            .writes
            .is_some_and(|write| snapshot.token <= write.expected)
        {
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

    /// A heartbeat was written over the state that is known: the write would have lost otherwise.
    fn beat_confirmed(&mut self, sent: Time) {
        self.last_beat = Some(Beat {
            sent,
            confirmed: self.now,
        });
        let interval = self.settings.keep_alive_interval;
        self.liveness.tick(self.now, sent, interval);
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
        let last_call = match state.phase() {
            Phase::Forming { last_call } => last_call.map(|number| (state.round(), number)),
            Phase::Complete { .. } => None,
        };
        let known = self.last_call.map(|(known, _)| known);
        if last_call != known {
            self.last_call = last_call.map(|last_call| (last_call, self.now));
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
