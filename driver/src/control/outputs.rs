//! Which connections for output are those of silent hosts.
//!
//! A host that is gone closes no connection, and a stopped agent does not either. Its connection for output has bytes at
//! most for a moment, and then holds a descriptor. So the connections that a host had when it fell silent are marked. A
//! host that returns opens new ones.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use elasticrun_protocol::HostId;
use tokio_util::sync::CancellationToken;

/// The open connections for output. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    open: Arc<Mutex<BTreeMap<HostId, Vec<Mark>>>>,
    taken: Taken,
}

/// The number of the newest piece of each sender that was taken.
#[derive(Clone, Debug, Default)]
struct Taken(Arc<Mutex<BTreeMap<(HostId, u64), u64>>>);

#[derive(Debug)]
struct Mark {
    /// The number of its connection.
    instance: u64,
    silent: CancellationToken,
}

impl Outputs {
    /// Adds a connection, until the result is dropped.
    pub(super) fn open(&self, host: HostId, instance: u64) -> Open {
        let silent = CancellationToken::new();
        let mark = Mark {
            instance,
            silent: silent.clone(),
        };
        self.hosts().entry(host.clone()).or_default().push(mark);
        Open {
            outputs: self.clone(),
            host,
            instance,
            silent,
        }
    }

    /// Marks the connections that a host has now: it is silent.
    pub(super) fn fell_silent(&self, host: &HostId) {
        let marks = self.hosts().remove(host);
        for mark in marks.into_iter().flatten() {
            mark.silent.cancel();
        }
    }

    /// The number of the newest piece of a sender that was taken, over all its connections.
    pub(super) fn taken(&self, host: &HostId, sender: u64) -> u64 {
        let key = (host.clone(), sender);
        self.taken.lock().get(&key).copied().unwrap_or(0)
    }

    /// Takes a piece of a sender, unless it was taken before, perhaps over another connection.
    pub(super) fn take(&self, host: &HostId, sender: u64, number: u64) -> bool {
        let mut all = self.taken.lock();
        let last = all.entry((host.clone(), sender)).or_default();
        let is_new = number > *last;
        *last = number.max(*last);
        is_new
    }

    fn hosts(&self) -> MutexGuard<'_, BTreeMap<HostId, Vec<Mark>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(HostId, u64), u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open connection for output.
#[derive(Debug)]
pub(super) struct Open {
    outputs: Outputs,
    /// The host of the workers.
    pub(super) host: HostId,
    instance: u64,
    /// Cancelled when the host falls silent.
    pub(super) silent: CancellationToken,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut hosts = self.outputs.hosts();
        if let Some(marks) = hosts.get_mut(&self.host) {
            marks.retain(|mark| mark.instance != self.instance);
            if marks.is_empty() {
                hosts.remove(&self.host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_that_comes_over_two_connections_is_taken_once() {
        let outputs = Outputs::default();
        let (a, b) = ("a".into(), "b".into());
        let took = [1, 2, 2, 1, 3].map(|number| outputs.take(&a, 7, number));
        assert_eq!(took, [true, true, false, false, true]);
        assert!(
            outputs.take(&a, 8, 1) && outputs.take(&b, 7, 1),
            "others count anew"
        );
        assert_eq!((outputs.taken(&a, 7), outputs.taken(&b, 9)), (3, 0));
    }

    #[test]
    fn only_connections_of_before_are_those_of_a_silent_host() {
        let outputs = Outputs::default();
        let (one, other) = (outputs.open("a".into(), 1), outputs.open("b".into(), 2));
        let closed = outputs.open("a".into(), 3);
        drop(closed);
        outputs.fell_silent(&"a".into());
        let next = outputs.open("a".into(), 4);
        let silent = [&one, &other, &next].map(|open| open.silent.is_cancelled());
        assert_eq!(silent, [true, false, false]);
        drop((one, other));
        assert_eq!(outputs.hosts().len(), 1, "what is closed is forgotten");
    }
}
