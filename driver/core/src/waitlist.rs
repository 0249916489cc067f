//! WaitList: workers at the entry of `run()` that are in no round.
//!
//! Starting a process and joining a round are two things: only who waits here may be planned, so nobody
//! idles through somebody's imports. A spare is a worker that waits here while the job is at `max_np`.

use std::{collections::BTreeSet, time::Duration};

use elasticrun_protocol::{HostId, Process};

use crate::time::Time;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct WaitList {
    waiting: BTreeSet<(HostId, Process)>,
    /// When the first came since nobody waited.
    first: Time,
}

impl WaitList {
    /// A worker waits.
    pub fn join(&mut self, now: Time, host: &HostId, process: Process) {
        if self.waiting.is_empty() {
            self.first = now;
        }
        self.waiting.insert((host.clone(), process));
    }

    /// A worker waits no more. Cheap to call for one that did not.
    pub fn leave(&mut self, host: &HostId, process: Process) {
        if !self.waiting.is_empty() {
            self.waiting.remove(&(host.clone(), process));
        }
    }

    /// Who waits, by host.
    pub fn iter(&self) -> impl Iterator<Item = &(HostId, Process)> {
        self.waiting.iter()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
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
