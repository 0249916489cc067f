//! Which connections beside the control connections are those of hosts that are away.
//!
//! A host that is gone closes no connection, and a stopped agent does not either. Its connections for output and for its last will
//! have bytes at most for a moment, and then hold descriptors. So the connections that a host had at the end of its control
//! connection are marked. A host that returns opens new ones.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use elasticrun_protocol::HostId;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The open connections, by host. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct SideConnections(Arc<Mutex<BTreeMap<HostId, Vec<Mark>>>>);

#[derive(Debug)]
struct Mark {
    /// The number of its connection.
    instance: u64,
    away: CancellationToken,
}

impl SideConnections {
    /// Adds a connection, until the result is dropped.
    pub(super) fn open(&self, host: HostId, instance: u64) -> Open {
        let away = CancellationToken::new();
        let mark = Mark {
            instance,
            away: away.clone(),
        };
        self.hosts().entry(host.clone()).or_default().push(mark);
        Open {
            all: self.clone(),
            host,
            instance,
            away,
        }
    }

    /// Marks the connections that a host has now, since its control connection has ended.
    pub(super) fn host_is_away(&self, host: &HostId) {
        let marks = self.hosts().remove(host);
        for mark in marks.into_iter().flatten() {
            mark.away.cancel();
        }
    }

    fn hosts(&self) -> MutexGuard<'_, BTreeMap<HostId, Vec<Mark>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Open {
    all: SideConnections,
    /// The host of the agent.
    pub(super) host: HostId,
    instance: u64,
    /// Cancelled when the host is away.
    away: CancellationToken,
}

impl Open {
    /// Waits until the host is away, and then for `linger`, or until `ends`.
    pub(super) async fn given_up(&self, linger: Duration, ends: &CancellationToken) {
        self.away.cancelled().await;
        tokio::select! {
            () = sleep(linger) => {}
            () = ends.cancelled() => {}
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut hosts = self.all.hosts();
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
    fn only_connections_of_before_are_those_of_a_host_that_is_away() {
        let all = SideConnections::default();
        let (one, other) = (all.open("a".into(), 1), all.open("b".into(), 2));
        let closed = all.open("a".into(), 3);
        drop(closed);
        all.host_is_away(&"a".into());
        let next = all.open("a".into(), 4);
        let away = [&one, &other, &next].map(|open| open.away.is_cancelled());
        assert_eq!(away, [true, false, false]);
        drop((one, other));
        assert_eq!(all.hosts().len(), 1, "what is closed is forgotten");
    }
}
