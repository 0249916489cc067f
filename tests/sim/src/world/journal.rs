//! The journal of the run: its records, which of them are durable, and which reports the driver may acknowledge.
//!
//! Records are written behind. The newest writes are not durable, and a driver that dies may lose them. What is left is an
//! earlier state of all records together.

use std::collections::{BTreeMap, VecDeque};

use elasticrun_core::{
    Time,
    journal::{Applied, Change, Record, Saved},
};
use elasticrun_protocol::HostId;

use crate::invariants::later_driver::Known;

/// One write of the driver.
#[derive(Debug)]
struct Write {
    changes: Vec<Change>,
    /// The events among its effects, and those of earlier writes.
    known: Known,
}

/// The records of the run.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Number of the newest writes that are not durable. None if the run has no journal.
    lag: Option<usize>,
    durable: BTreeMap<String, Record>,
    /// The events that the durable records know.
    known: Known,
    /// Writes that are not durable, oldest first.
    waiting: VecDeque<Write>,
    /// Durable reports of each host since its driver began.
    reports: BTreeMap<HostId, Applied>,
}

fn millis(now: Time) -> u64 {
    now.since_start().as_millis() as u64
}

impl Journal {
    pub(super) fn new(lag: Option<usize>) -> Self {
        Self {
            lag,
            ..Self::default()
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.lag.is_some()
    }

    /// Writes records. `known` are the events among their effects.
    pub(super) fn write(&mut self, now: Time, mut changes: Vec<Change>, known: Known) {
        if changes.is_empty() {
            return;
        }
        for record in changes.iter_mut().filter_map(|c| c.record.as_mut()) {
            record.stamp(millis(now));
        }
        self.waiting.push_back(Write { changes, known });
        while self.waiting.len() > self.lag.unwrap_or(0) {
            self.sync();
        }
    }

    /// The oldest write that waits becomes durable.
    fn sync(&mut self) {
        let Some(write) = self.waiting.pop_front() else {
            return;
        };
        self.known = write.known;
        for Change { key, record } in write.changes {
            if let Some(Record::Slots(slots)) = &record
                && let Some(applied) = slots.applied
            {
                self.reports.insert(slots.host.clone(), applied);
            }
            match record {
                Some(record) => self.durable.insert(key, record),
                None => self.durable.remove(&key),
            };
        }
    }

    /// The number of the newest report of a host's current agent that may be acknowledged, of those up to `applied`.
    pub(super) fn acknowledged(&self, host: &HostId, applied: u64) -> u64 {
        if !self.is_on() {
            return applied;
        }
        let changes = self.waiting.iter().rev().flat_map(|write| &write.changes);
        let newest = changes.into_iter().find_map(|change| match &change.record {
            Some(Record::Slots(slots)) if slots.host == *host => slots.applied,
            _ => None,
        });
        let Some(durable) = self.reports.get(host) else {
            return 0;
        };
        // The numbers of a later agent begin again.
        match newest.is_none_or(|newest| newest.agent == durable.agent) {
            true => durable.number.min(applied),
            false => 0,
        }
    }

    /// The driver dies and loses its last writes. Gives how many those are.
    pub(super) fn lose(&mut self, lost: usize) -> usize {
        let lost = lost.min(self.waiting.len());
        self.waiting.truncate(self.waiting.len() - lost);
        while !self.waiting.is_empty() {
            self.sync();
        }
        lost
    }

    /// The records that a later driver begins with, and the events that they know.
    pub(super) fn read(&mut self, now: Time) -> (Saved, Known) {
        self.reports.clear();
        let records = self.durable.values().cloned().map(|mut record| {
            record.age(millis(now));
            record
        });
        (records.collect(), self.known)
    }
}
