//! Operations: pure functions of the state and a deadline that give the next action.

use std::time::Duration;

use elasticrun_protocol::Round;

use super::{
    NodeId, Settings,
    draft::Action,
    mutant::{Mutant, planted},
    state::{Role, State},
};
use crate::Time;

/// The time after the deadline of a join in which the node still tries to leave the lists.
pub(super) const ROLLBACK: Duration = Duration::from_secs(5);

/// An operation of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Becomes a participant of a complete round.
    Join {
        /// The round in which this node has been, if any. It is left first: its workers are stopped.
        leaves: Option<Round>,
    },
    /// Leaves all lists.
    Exit,
    /// Closes the rendezvous.
    Close,
    /// Sends a heartbeat if one is due.
    KeepAlive,
}

/// What an operation decides by.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The node.
    pub node: &'a NodeId,
    /// The state.
    pub state: &'a State,
    /// The settings of the node.
    pub settings: &'a Settings,
    /// The time of the node's clock.
    pub now: Time,
    /// Whether the last heartbeat of the node is one keep-alive interval old by the node's clock.
    pub heartbeat_due: bool,
    /// Whether the last call of the state is over by the node's clock.
    pub last_call_over: bool,
}

/// Where the time is relative to a deadline.
#[derive(Clone, Copy)]
enum Left {
    InTime,
    Rollback,
    Over,
}

use Action::*;
use Left::*;

impl Op {
    /// The next action.
    pub fn decide(self, ctx: &Context<'_>, deadline: Time) -> Action {
        let left = Left::at(ctx.now, deadline);
        match self {
            Self::Join { leaves } => join(ctx, leaves, left),
            Self::Exit => exit(ctx, left),
            Self::Close => close(ctx, left),
            Self::KeepAlive => keep_alive(ctx, left),
        }
    }
}

/// Where a join finds the round.
#[derive(Clone, Copy)]
enum Found {
    Closed,
    Forming,
    /// Complete, with fewer participants than `max_nodes`.
    Open,
    /// Complete, with `max_nodes` participants.
    Full,
}

/// What a join finds about its node.
#[derive(Clone, Copy)]
enum This {
    Participant,
    /// A participant of the complete round that it leaves.
    Leaver,
    Waiting,
    Redundant,
    Absent,
}

use Found::*;
use This::*;

#[rustfmt::skip]
fn join(ctx: &Context<'_>, leaves: Option<Round>, left: Left) -> Action {
    match (ctx.found(), ctx.this(leaves), left) {
        // round          node          time        -> action
        (Closed,          Redundant,    _         ) => Release,
        (Closed,          _,            _         ) => ErrorClosed,

        // A redundant node has no deadline.
        (_,               Redundant,    _         ) if ctx.takes_over() => RemoveFromRedundancyList,
        (_,               Redundant,    _         ) => ctx.wait(),

        (Open | Full,     Leaver,       _         ) => RemoveFromParticipants,
        (Open | Full,     Participant,  _         ) => Finish,

        (_,               Participant,  Rollback  ) => RemoveFromParticipants,
        (_,               Waiting,      Rollback  ) => RemoveFromWaitList,
        (_,               _, Rollback | Over      ) => ErrorTimeout,

        (_,               Absent,       InTime    ) if ctx.state.is_full() => ErrorFull,
        (Open,            Absent,       InTime    ) => AddToWaitList,
        (Open,            Waiting,      InTime    ) => ctx.wait(),
        (Full,            Waiting,      InTime    ) if planted(Mutant::WaitersAskForever) => ctx.wait(),
        (Full,  Absent | Waiting,       InTime    ) => AddToRedundancyList,

        (Forming,         Participant,  InTime    ) if ctx.completes() => MarkRendezvousComplete,
        (Forming,         Participant,  InTime    ) => ctx.wait(),
        (Forming,  Absent | Waiting,    InTime    ) if ctx.has_place() => AddToParticipants,
        (Forming,         Absent,       InTime    ) => AddToWaitList,
        (Forming,         _,            InTime    ) => ctx.wait(),
    }
}

#[rustfmt::skip]
fn exit(ctx: &Context<'_>, left: Left) -> Action {
    match (ctx.this(None), left) {
        // node                  time                -> action
        (Absent,                 _                 ) => Finish,
        (_,                      Rollback | Over   ) => ErrorTimeout,
        (Participant | Leaver,   InTime            ) => RemoveFromParticipants,
        (Waiting,                InTime            ) => RemoveFromWaitList,
        (Redundant,              InTime            ) => RemoveFromRedundancyList,
    }
}

#[rustfmt::skip]
fn close(ctx: &Context<'_>, left: Left) -> Action {
    match (ctx.state.is_closed(), left) {
        // closed   time                -> action
        (true,      _                 ) => Finish,
        (false,     InTime            ) => MarkRendezvousClosed,
        (false,     Rollback | Over   ) => ErrorTimeout,
    }
}

#[rustfmt::skip]
fn keep_alive(ctx: &Context<'_>, left: Left) -> Action {
    match (ctx.beat_due(), left) {
        // due      time                -> action
        (false,     _                 ) => Finish,
        (true,      InTime            ) => KeepAlive,
        (true,      Rollback | Over   ) => ErrorTimeout,
    }
}

impl Left {
    fn at(now: Time, deadline: Time) -> Self {
        if now < deadline {
            InTime
        } else if now < deadline + ROLLBACK {
            Rollback
        } else {
            Over
        }
    }
}

impl Context<'_> {
    fn found(&self) -> Found {
        if self.state.is_closed() {
            Closed
        } else if !self.state.is_complete() {
            Forming
        } else if self.state.participants() < self.settings.max_nodes {
            Open
        } else {
            Full
        }
    }

    fn this(&self, leaves: Option<Round>) -> This {
        match self.state.member(self.node).map(|member| member.role) {
            Some(Role::Participant { .. })
                if self.state.is_complete()
                    && leaves == Some(self.state.round())
                    && !planted(Mutant::SameRoundAgain) =>
            {
                Leaver
            }
            Some(Role::Participant { .. }) => Participant,
            Some(Role::Waiting) => Waiting,
            Some(Role::Redundant) => Redundant,
            None => Absent,
        }
    }

    fn beat_due(&self) -> bool {
        self.heartbeat_due && self.state.member(self.node).is_some()
    }

    fn wait(&self) -> Action {
        if self.beat_due() { KeepAlive } else { Sync }
    }

    /// Whether the last call is over and the round has enough participants.
    fn completes(&self) -> bool {
        let enough = self.settings.min_nodes()..=self.settings.max_nodes;
        self.last_call_over && enough.contains(&self.state.participants())
    }

    /// Whether the round that forms has a place for this node. Nodes that wait and are older come first.
    fn has_place(&self) -> bool {
        let state = self.state;
        let ahead = match state.member(self.node) {
            Some(member) => state.older(Role::Waiting, self.node, member),
            None => state.waiting(),
        };
        state.participants() + ahead < self.settings.max_nodes
    }

    /// Whether there is a place that neither a participant, a waiting node nor an older redundant node takes.
    fn takes_over(&self) -> bool {
        let state = self.state;
        let older = state
            .member(self.node)
            .map_or(0, |member| state.older(Role::Redundant, self.node, member));
        state.participants() + state.waiting() + older < self.settings.max_nodes
            && !planted(Mutant::NoTakeover)
    }
}
