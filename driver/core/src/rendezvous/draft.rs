//! Actions, and what they change in the state.

use std::borrow::Cow;

use elasticrun_protocol::{Rank, Round};

use super::{
    NodeId, Settings,
    mutant::{Mutant, planted},
    state::{Member, Phase, Role, State},
};

/// What an operation does next. The names are those of PyTorch; [`Self::Release`] and [`Self::ErrorFull`] are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends a heartbeat. The state stays as it is.
    KeepAlive,
    /// Joins the round that forms.
    AddToParticipants,
    /// Waits for the next round.
    AddToWaitList,
    /// Waits until a participant leaves.
    AddToRedundancyList,
    /// Leaves the round.
    RemoveFromParticipants,
    /// Leaves the wait list.
    RemoveFromWaitList,
    /// Leaves the redundancy list.
    RemoveFromRedundancyList,
    /// Completes the round and assigns ranks.
    MarkRendezvousComplete,
    /// Closes the rendezvous for good.
    MarkRendezvousClosed,
    /// Waits for a change of the state or for a deadline.
    Sync,
    /// Fails: the rendezvous is closed.
    ErrorClosed,
    /// Fails: the deadline is over.
    ErrorTimeout,
    /// Fails: the state has no room for another node.
    ErrorFull,
    /// Ends without a failure: the rendezvous closed, and this redundant node was not needed.
    Release,
    /// Is done.
    Finish,
}

impl Action {
    /// Whether the action changes the state.
    pub fn changes_state(self) -> bool {
        !matches!(
            self,
            Self::KeepAlive
                | Self::Sync
                | Self::ErrorClosed
                | Self::ErrorTimeout
                | Self::ErrorFull
                | Self::Release
                | Self::Finish
        )
    }
}

/// Changes of one node to a state that the holder does not have yet. Several actions make one compare-and-set.
#[derive(Clone, Debug)]
pub struct Draft<'a> {
    node: &'a NodeId,
    settings: &'a Settings,
    state: Cow<'a, State>,
    /// What this node was when it left a list, to join another one with the same age.
    former: Option<Member>,
}

impl<'a> Draft<'a> {
    /// A draft without changes.
    pub fn new(node: &'a NodeId, settings: &'a Settings, state: &'a State) -> Self {
        Self {
            node,
            settings,
            state: Cow::Borrowed(state),
            former: None,
        }
    }

    /// The state with the changes so far.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The changed state; `None` without changes.
    pub fn into_changed(self) -> Option<State> {
        match self.state {
            Cow::Borrowed(_) => None,
            Cow::Owned(state) => Some(state),
        }
    }

    /// Applies an action. Actions that change nothing are ignored.
    pub fn apply(&mut self, action: Action) {
        match action {
            Action::AddToParticipants => self.add_to_participants(),
            Action::AddToWaitList => self.put(Role::Waiting),
            Action::AddToRedundancyList => self.put(Role::Redundant),
            Action::RemoveFromParticipants
            | Action::RemoveFromWaitList
            | Action::RemoveFromRedundancyList => {
                self.former = self.remove(self.node);
            }
            Action::MarkRendezvousComplete => self.mark_complete(),
            Action::MarkRendezvousClosed => self.state.to_mut().closed = true,
            Action::KeepAlive
            | Action::Sync
            | Action::ErrorClosed
            | Action::ErrorTimeout
            | Action::ErrorFull
            | Action::Release
            | Action::Finish => {}
        }
    }

    /// Removes a node from all lists. The last participant of a complete round opens the next round.
    pub fn remove(&mut self, node: &NodeId) -> Option<Member> {
        self.state.member(node)?;
        let state = self.state.to_mut();
        let left = state.members.remove(node)?;
        if matches!(left.role, Role::Participant { .. }) {
            let participants = state.participants();
            match &mut state.phase {
                Phase::Complete { .. } if participants == 0 || planted(Mutant::NextRoundEarly) => {
                    state.phase = Phase::default();
                    state.round = state.round.next();
                }
                Phase::Forming { last_call }
                    if participants < self.settings.min_nodes()
                        && !planted(Mutant::OldLastCall) =>
                {
                    *last_call = None;
                }
                Phase::Complete { .. } | Phase::Forming { .. } => {}
            }
        }
        Some(left)
    }

    /// Gives the round that forms a number that is not below `round`: the holder has lost a state with later rounds.
    pub fn raise_round(&mut self, round: Round) {
        if !self.state.is_complete() && self.state.round() < round {
            self.state.to_mut().round = round;
        }
    }

    fn add_to_participants(&mut self) {
        self.put(Role::Participant { rank: None });
        let state = self.state.to_mut();
        let participants = state.participants();
        if participants >= self.settings.max_nodes {
            return self.mark_complete();
        }
        if let Phase::Forming { last_call } = &mut state.phase
            && last_call.is_none()
            && participants >= self.settings.min_nodes()
        {
            state.last_calls += 1;
            *last_call = Some(state.last_calls);
        }
    }

    /// Gives this node a role. Its place in the order of arrival is the one that it had, or the last one.
    fn put(&mut self, role: Role) {
        let former = self.former.take();
        let former = former.filter(|_| !planted(Mutant::AgeForgotten));
        let state = self.state.to_mut();
        if let Some(member) = state.members.get_mut(self.node) {
            member.role = role;
        } else {
            let member = former.unwrap_or(Member {
                role,
                arrival: state.arrivals,
            });
            let member = Member { role, ..member };
            state.arrivals = state.arrivals.max(member.arrival + 1);
            state.members.insert(self.node.clone(), member);
        }
    }

    /// Ranks are the order of arrival. Nodes that wait become redundant if the round is full: a wait list is a request to
    /// the participants to leave, and none of these nodes could join if they did.
    fn mark_complete(&mut self) {
        let max_nodes = self.settings.max_nodes;
        let state = self.state.to_mut();
        let participants = state.by_arrival();
        for (rank, node) in (0..).map(Rank).zip(&participants) {
            if let Some(member) = state.members.get_mut(node) {
                member.role = Role::Participant { rank: Some(rank) };
            }
        }
        if participants.len() >= max_nodes && !planted(Mutant::WaitersAskForever) {
            let waiting = state.members.values_mut();
            waiting
                .filter(|member| member.role == Role::Waiting)
                .for_each(|member| member.role = Role::Redundant);
        }
        let world_size = u32::try_from(participants.len()).unwrap_or(u32::MAX);
        state.phase = Phase::Complete { world_size };
    }
}
