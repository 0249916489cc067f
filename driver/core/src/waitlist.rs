//! WaitList: workers at the entry of `run()` that are in no round.
//!
//! The start of a process is separate from joining a round: only workers on this list may be planned, so no member
//! idles during the imports of another one. A spare is a worker that waits here while the job has `max_np` members.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_protocol::{HostId, Process};

use crate::time::Time;

/// The workers that wait.
#[derive(Clone, Debug, Default)]
pub struct WaitList {
    waiting: BTreeMap<HostId, BTreeSet<Process>>,
    len: usize,
    /// When the first worker came after the list was empty.
    first: Time,
}

impl WaitList {
    /// Adds a worker.
    pub fn join(&mut self, now: Time, host: &HostId, process: Process) {
        if self.is_empty() {
            self.first = now;
        }
        let waiting = self.waiting.entry(host.clone()).or_default();
        self.len += usize::from(waiting.insert(process));
    }

    /// Removes a worker. Cheap if the worker is not on the list.
    pub fn leave(&mut self, host: &HostId, process: Process) {
        self.leave_all(host, [process]);
    }

    /// Removes workers of one host.
    pub(crate) fn leave_all(
        &mut self,
        host: &HostId,
        processes: impl IntoIterator<Item = Process>,
    ) {
        let Some(waiting) = self.waiting.get_mut(host) else {
            return;
        };
        let before = waiting.len();
        for process in processes {
            waiting.remove(&process);
        }
        self.len -= before - waiting.len();
        if waiting.is_empty() {
            self.waiting.remove(host);
        }
    }

    /// The waiting workers by host.
    pub fn iter(&self) -> impl Iterator<Item = (&HostId, Process)> {
        let hosts = self.waiting.iter();
        hosts.flat_map(|(host, waiting)| waiting.iter().map(move |process| (host, *process)))
    }

    /// The number of waiting workers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no worker waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// When the waiting workers may be planned. That is at once if `pending` is 0, else one last call after the first
    /// of them came. `pending` is the number of further workers that can come.
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
