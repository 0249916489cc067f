//! States for tests, made by the actions that make them in a rendezvous.

use elasticrun_core::rendezvous::{Action, Draft, NodeId, Settings, State};

pub(crate) fn node(name: &str) -> NodeId {
    NodeId::new(name).expect("a short name")
}

pub(crate) fn settings(min_nodes: usize, max_nodes: usize) -> Settings {
    Settings::new(min_nodes, max_nodes).expect("a range")
}

/// The state after a node has applied actions.
pub(crate) fn after(state: &State, settings: &Settings, name: &str, actions: &[Action]) -> State {
    let node = node(name);
    let mut draft = Draft::new(&node, settings, state);
    actions.iter().for_each(|action| draft.apply(*action));
    draft.into_changed().unwrap_or_else(|| state.clone())
}

/// A state and the settings of its nodes.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) settings: Settings,
    pub(crate) state: State,
}

impl Made {
    /// An empty state.
    pub(crate) fn new(min_nodes: usize, max_nodes: usize) -> Self {
        Self {
            settings: settings(min_nodes, max_nodes),
            state: State::default(),
        }
    }

    pub(crate) fn apply(mut self, name: &str, action: Action) -> Self {
        self.state = after(&self.state, &self.settings, name, &[action]);
        self
    }

    pub(crate) fn participants(self, names: &[&str]) -> Self {
        let join = |made: Self, name: &&str| made.apply(name, Action::AddToParticipants);
        names.iter().fold(self, join)
    }

    pub(crate) fn waiting(self, name: &str) -> Self {
        self.apply(name, Action::AddToWaitList)
    }

    pub(crate) fn redundant(self, name: &str) -> Self {
        self.apply(name, Action::AddToRedundancyList)
    }

    /// Completes the round as its last call would.
    pub(crate) fn complete(self) -> Self {
        self.apply("any", Action::MarkRendezvousComplete)
    }

    pub(crate) fn closed(self) -> Self {
        self.apply("any", Action::MarkRendezvousClosed)
    }
}
