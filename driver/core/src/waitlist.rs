//! WaitList: workers at the entry of `run()` that are in no round.
//!
//! Starting a process and joining a round are two things: only who waits here may be planned, so nobody
//! idles through somebody's imports. A spare is a worker that waits here while the job is at `max_np`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_protocol::{HostId, Process};

use crate::time::Time;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct WaitList {
    waiting: BTreeMap<HostId, BTreeSet<Process>>,
    len: usize,
    /// When the first came since nobody waited.
    first: Time,
}

impl WaitList {
    /// A worker waits.
    pub fn join(&mut self, now: Time, host: &HostId, process: Process) {
        if self.is_empty() {
            self.first = now;
        }
        let waiting = self.waiting.entry(host.clone()).or_default();
        self.len += usize::from(waiting.insert(process));
    }

    /// A worker waits no more. Cheap to call for one that did not.
    pub fn leave(&mut self, host: &HostId, process: Process) {
        if let Some(waiting) = self.waiting.get_mut(host)
            && waiting.remove(&process)
        {
            self.len -= 1;
            if waiting.is_empty() {
                self.waiting.remove(host);
            }
        }
    }

    /// Who waits, by host.
    pub fn iter(&self) -> impl Iterator<Item = (&HostId, Process)> {
        let hosts = self.waiting.iter();
        hosts.flat_map(|(host, waiting)| waiting.iter().map(move |process| (host, *process)))
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// When a growth by those who wait may be proposed at the latest, if `pending` more are starting:
    /// at once if nobody is, else one last call after the first came.
    pub fn ripe_at(&self, pending: usize, last_call: Duration) -> Option<Time> {
        (!self.is_empty()).then(|| {
            if pending == 0 {
                self.first
            } else {
                self.first + last_call
            }
        })
    }
}
