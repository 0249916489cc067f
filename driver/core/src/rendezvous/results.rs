//! Ends of requests, and what the shell learns while its node is a participant.

use elasticrun_protocol::Round;

use super::{
    State,
    event::{Command, Failure, Operation, RoundOver},
    machine::{Joined, Machine},
    mutant::{Mutant, planted},
    op::Op,
    state::Role,
};
use crate::Time;

impl Machine {
    pub(super) fn end_membership(
        &mut self,
        result: Result<Command, Failure>,
        out: &mut Vec<Command>,
    ) {
        let Some((op, _)) = self.membership.take() else {
            return;
        };
        let operation = match op {
            Op::Join { .. } => Operation::Join,
            _ => Operation::Exit,
        };
        out.push(result.unwrap_or_else(|failure| Command::RequestFailed { operation, failure }));
    }

    pub(super) fn end_close(&mut self, result: Result<(), Failure>, out: &mut Vec<Command>) {
        self.closing = None;
        out.push(match result {
            Ok(()) => Command::Closed,
            Err(failure) => Command::RequestFailed {
                operation: Operation::Close,
                failure,
            },
        });
    }

    pub(super) fn fail_all(&mut self, failure: &Failure, out: &mut Vec<Command>) {
        self.end_membership(Err(failure.clone()), out);
        if self.closing.is_some() {
            self.end_close(Err(failure.clone()), out);
        }
    }

    pub(super) fn joined(&mut self, round: Round) {
        // The join did not end while a heartbeat was due, so a part of this lease is left.
        let sent = self.last_beat.map_or(self.now, |beat| beat.sent);
        let lease = match planted(Mutant::NoLease) {
            true => Time::NEVER,
            false => sent + self.settings.lease(),
        };
        self.last_joined = Some(round);
        self.joined = Some(Joined {
            round,
            lease,
            reported: (0, 0),
        });
    }

    /// Reports a change of the membership of the joined round, level-triggered: each new state with a reason to join again.
    pub(super) fn report_changes(&mut self, out: &mut Vec<Command>) {
        let Some(joined) = &mut self.joined else {
            return;
        };
        let round = joined.round;
        let state = self.link.snapshot().and_then(|known| known.state.as_ref());
        let participates = |state: &&State| {
            let role = state.member(&self.node).map(|member| member.role);
            state.round() == round && matches!(role, Some(Role::Participant { .. }))
        };
        let Some(state) = state.filter(participates) else {
            self.joined = None;
            let reason = RoundOver::Removed;
            out.push(Command::RoundOver { round, reason });
            return;
        };
        let left = state.left() * usize::from(!planted(Mutant::LossUnreported));
        let change @ (waiting, left) = (state.waiting(), left);
        if change != joined.reported && change != (0, 0) {
            out.push(Command::MembershipChanged {
                round,
                waiting,
                left,
            });
        }
        joined.reported = change;
    }
}
