//! What a node knows of the rendezvous, for the threads of its program.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use elasticrun_core::rendezvous::{NodeId, RoundOver};

/// What a node knows of the rendezvous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The server is within reach, or was at the last attempt.
    pub connected: bool,
    /// No further round forms.
    pub closed: bool,
    /// The nodes that wait for the participants of the round to join again.
    pub waiting: usize,
    /// The participants that have left the round of this node.
    pub left: usize,
    /// The other nodes in any list of the run.
    pub others: usize,
    /// Why this node is no participant of the round that it has joined last.
    pub over: Option<RoundOver>,
}

impl Observed {
    /// Whether this node should stop its workers and join again. Once the rendezvous is closed there is no other round, so the
    /// workers may end in peace.
    pub fn asks_to_join_again(&self) -> bool {
        !self.closed && (self.over.is_some() || self.waiting > 0 || self.left > 0)
    }
}

/// What the thread of a node shares with others.
#[derive(Debug, Default)]
pub(super) struct Shared {
    observed: Mutex<Observed>,
    changed: Condvar,
    /// The node with rank 0 in the round that was joined last.
    first: Mutex<Option<NodeId>>,
}

impl Shared {
    pub(super) fn observed(&self) -> Observed {
        *self.lock()
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Observed)) {
        let mut observed = self.lock();
        let before = *observed;
        change(&mut observed);
        if *observed != before {
            self.changed.notify_all();
        }
    }

    pub(super) fn wait_for_change(&self, known: &Observed, timeout: Duration) -> Observed {
        let same = |observed: &mut Observed| *observed == *known;
        let waited = (self.changed).wait_timeout_while(self.lock(), timeout, same);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(super) fn first(&self) -> Option<NodeId> {
        let first = self.first.lock();
        first.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_first(&self, first: Option<NodeId>) {
        *self.first.lock().unwrap_or_else(PoisonError::into_inner) = first;
    }

    fn lock(&self) -> MutexGuard<'_, Observed> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
