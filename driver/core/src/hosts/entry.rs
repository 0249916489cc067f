//! Hosts in the journal.

use std::collections::BTreeSet;

use elasticrun_protocol::HostId;

use super::{Draining, HostRecord, HostSet, HostState, Known, MARGIN};
use crate::{
    Time,
    journal::{DrainEntry, HostEntry},
};

impl HostRecord {
    /// A host as the lists of an earlier driver had it last. A list may take back that it drains, unless a notice has announced
    /// that.
    pub(crate) fn restore(entry: &HostEntry) -> Self {
        let ready = Self::ready(entry.host.clone(), entry.slots);
        match entry.drain {
            Some(drain) if !drain.noticed => Self {
                state: HostState::Draining,
                // The time after which the workers have as much time left as the record says.
                within: Some(drain.left + drain.left.min(MARGIN)),
                ..ready
            },
            _ => ready,
        }
    }
}

impl HostSet {
    /// Takes the hosts whose record has changed.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<HostId> {
        self.changed.take()
    }

    /// The record of a host. `None` if it is not known.
    pub(crate) fn entry(&self, now: Time, id: &HostId) -> Option<HostEntry> {
        let known = self.known.get(id)?;
        Some(HostEntry {
            host: id.clone(),
            slots: known.slots,
            self_registered: known.self_registered,
            listed: known.listed,
            arrival: known.arrival,
            drain: self.draining.get(id).map(|draining| DrainEntry {
                left: draining.due.since(now),
                noticed: draining.noticed,
                drained: draining.drained,
                at: None,
            }),
        })
    }

    /// Adds a host of an earlier driver.
    pub(crate) fn restore(&mut self, now: Time, entry: HostEntry) {
        let known = Known {
            slots: entry.slots,
            self_registered: entry.self_registered,
            listed: entry.listed,
            left_out: false,
            arrival: entry.arrival,
        };
        self.arrivals = self.arrivals.max(entry.arrival + 1);
        if let Some(drain) = entry.drain {
            let draining = Draining {
                due: now + drain.left,
                noticed: drain.noticed,
                drained: drain.drained,
            };
            self.draining.insert(entry.host.clone(), draining);
        }
        self.known.insert(entry.host, known);
    }
}
