//! The machine of one node.

use std::time::Duration;

use elasticrun_protocol::Round;

use super::{
    NodeId, Settings, State,
    event::{Command, Event, Failure, Operation, Rejected},
    holder::Token,
    link::Link,
    liveness::Liveness,
    op::Op,
};
use crate::{Time, time::earliest};

/// A node of a rendezvous.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(super) node: NodeId,
    pub(super) settings: Settings,
    pub(super) now: Time,
    /// What [`Self::next_deadline`] was after the last step.
    due: Option<Time>,
    pub(super) link: Link,
    pub(super) liveness: Liveness,
    /// The join or exit in progress, with its deadline.
    pub(super) membership: Option<(Op, Time)>,
    /// The deadline of the close in progress.
    pub(super) closing: Option<Time>,
    /// The round whose workers the shell may run.
    pub(super) joined: Option<Joined>,
    /// The last round that was joined.
    pub(super) last_joined: Option<Round>,
    /// The number after those of all complete rounds that this node has seen: no number comes twice.
    pub(super) next_round: Round,
    /// The last call of the state, and when this node saw it first.
    pub(super) last_call: Option<((Round, u64), Time)>,
    /// The last heartbeat of this node that counts.
    pub(super) last_beat: Option<Beat>,
    /// A heartbeat that the holder has recorded beside a state that this node does not know yet.
    pub(super) unconfirmed: Option<Unconfirmed>,
    /// The holder does not keep the heartbeats of just the members, as it does unless it has lost them. The next write mends
    /// that. These nodes are no members.
    pub(super) mends: Option<Vec<NodeId>>,
}

/// A round that this node has joined.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    pub(super) round: Round,
    /// The time until which no other node removes this one.
    pub(super) lease: Time,
    /// The waiting nodes and those that have left, as last reported.
    pub(super) reported: (usize, usize),
}

/// A heartbeat that the holder had while this node was a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beat {
    pub(super) sent: Time,
}

/// A heartbeat that counts if the state with this token, or a later one, has this node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unconfirmed {
    pub(super) sent: Time,
    pub(super) token: Token,
}

impl Machine {
    /// A node that takes no part yet. The seed gives its delays.
    pub fn new(node: NodeId, settings: Settings, seed: u64) -> Self {
        Self {
            node,
            settings,
            now: Time::ZERO,
            due: None,
            link: Link::new(seed),
            liveness: Liveness::default(),
            membership: None,
            closing: None,
            joined: None,
            last_joined: None,
            next_round: Round(0),
            last_call: None,
            last_beat: None,
            unconfirmed: None,
            mends: None,
        }
    }

    /// The node.
    pub fn node(&self) -> &NodeId {
        &self.node
    }

    /// The newest state that this node knows.
    pub fn state(&self) -> Option<&State> {
        self.link.snapshot()?.state.as_ref()
    }

    /// The round that this node has joined and not left.
    pub fn round(&self) -> Option<Round> {
        self.joined.as_ref().map(|joined| joined.round)
    }

    /// Applies one event and appends what must be done.
    pub fn step(&mut self, now: Time, event: Event, out: &mut Vec<Command>) {
        self.wake(now);
        let rejected = match event {
            Event::JoinRequested => self.join_requested(),
            Event::ExitRequested => self.exit_requested(out),
            Event::CloseRequested => self.close_requested(),
            Event::StateRead { request, snapshot } => self.state_read(request, snapshot),
            Event::Written { request, token } => self.written(request, token, out),
            Event::Conflict { request, snapshot } => self.conflict(request, snapshot),
            Event::NotSilent { request, nodes } => self.not_silent(request, &nodes),
            Event::HeartbeatRecorded {
                request,
                recorded,
                token,
            } => self.heartbeat_recorded(request, &recorded, token),
            Event::Failed { request, error } => self.failed(request, error, out),
            Event::StateChanged(snapshot) => {
                self.accept(snapshot);
                Ok(())
            }
        };
        if let Err(why) = rejected {
            out.push(Command::Reject { why });
        }
        self.advance(out);
    }

    /// Applies the deadlines that have passed.
    pub fn tick(&mut self, now: Time, out: &mut Vec<Command>) {
        self.wake(now);
        self.advance(out);
    }

    /// When [`Self::tick`] is due.
    pub fn next_deadline(&self) -> Option<Time> {
        let lease = self.joined.as_ref().map(|joined| joined.lease);
        let limit = self
            .membership
            .and_then(|running| self.gives_up_at(running));
        let link = self.link.idle_at(self.now);
        let work = if !self.is_active() || link.is_some() {
            link.filter(|_| self.is_active())
        } else if !self.link.is_fresh() {
            Some(self.now)
        } else {
            earliest([
                self.beat_due_at(),
                self.last_call_over_at(),
                self.membership.map(|(_, deadline)| deadline),
            ])
        };
        earliest([lease, limit, self.closing, work])
    }

    fn advance(&mut self, out: &mut Vec<Command>) {
        self.link.expire(self.now, &self.settings);
        self.check_lease(out);
        self.give_up(out);
        self.execute(out);
        self.report_changes(out);
        self.due = self.next_deadline();
    }

    /// Takes the time. A machine that was called one keep-alive interval too late stood still: what it knows may be old, and
    /// it gets the time to ask before its lease counts as over.
    fn wake(&mut self, now: Time) {
        self.now = self.now.max(now);
        let late = self.due.map_or(Duration::ZERO, |due| self.now.since(due));
        if late > self.settings.keep_alive_interval {
            self.link.distrust();
            if let Some(joined) = &mut self.joined {
                joined.lease = joined.lease.max(self.now + self.settings.heartbeat_timeout);
            }
        }
    }

    /// Whether this node needs the holder.
    pub(super) fn is_active(&self) -> bool {
        self.membership.is_some() || self.closing.is_some() || self.joined.is_some()
    }
}

/// Requests of the shell.
impl Machine {
    fn join_requested(&mut self) -> Result<(), Rejected> {
        if self.membership.is_some() {
            return Err(Rejected::Busy);
        }
        let leaves = self.last_joined;
        self.begin(Op::Join { leaves });
        Ok(())
    }

    fn exit_requested(&mut self, out: &mut Vec<Command>) -> Result<(), Rejected> {
        match self.membership {
            Some((Op::Exit, _)) => return Err(Rejected::Busy),
            Some(_) => out.push(Command::RequestFailed {
                operation: Operation::Join,
                failure: Failure::Cancelled,
            }),
            None => {}
        }
        self.begin(Op::Exit);
        Ok(())
    }

    fn begin(&mut self, op: Op) {
        let timeout = match op {
            Op::Join { .. } => self.settings.join_timeout,
            _ => self.settings.close_timeout,
        };
        // A participant follows the state, and what it does first is to leave its round by a write.
        if self.joined.take().is_none() {
            self.liveness.clear();
            self.link.distrust();
        }
        self.membership = Some((op, self.now + timeout));
    }

    fn close_requested(&mut self) -> Result<(), Rejected> {
        if self.closing.is_some() {
            return Err(Rejected::Busy);
        }
        self.closing = Some(self.now + self.settings.close_timeout);
        self.link.distrust();
        Ok(())
    }
}
