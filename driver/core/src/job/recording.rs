//! The records of a job for its journal ([`crate::journal`]).

use elasticrun_protocol::{HostId, control::StoredCommit};

use super::Job;
use crate::{
    blacklist::Domain,
    journal::{Change, Progress, Record},
    relapses::Relapses,
};

/// The records that are compared with their last value. The machines count changes of all others.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded {
    pub(super) progress: Progress,
    pub(super) relapses: Relapses,
    pub(super) former: Option<StoredCommit>,
}

impl Job {
    /// The records that have changed since the last call. Their number is that of the changes.
    pub fn journal(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        self.record_hosts(&mut changes);
        self.record_failures(&mut changes);
        if let Some(bases) = self.lineage.take_changed() {
            changes.push(change("bases", Record::Bases(bases)));
        }
        if self.stored.former != self.recorded.former {
            self.recorded.former = self.stored.former.clone();
            let record = self.stored.former.clone().map(Record::Former);
            changes.push(change("former", record));
        }
        let progress = self.progress();
        if progress != self.recorded.progress {
            self.recorded.progress = progress;
            changes.push(change("progress", Record::Progress(progress)));
        }
        changes
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            epoch: self.epoch,
            planned: self.rounds.last().max(self.groups.newest()),
            round: self.registry.round(),
            started: self.budgets.started(),
            unrecorded: self.budgets.unrecorded(),
            restarts: self.budgets.restarts(),
            sdk_seen: self.sdk_seen,
            rounds_lead: !self.groups.leads(),
            ending: self.registry.is_ending(),
            unseen: self.registry.suspects_another(),
        }
    }

    fn record_hosts(&mut self, changes: &mut Vec<Change>) {
        let now = self.now;
        for host in self.hosts.take_changed() {
            let record = self.hosts.entry(now, &host).map(Record::Host);
            changes.push(change(of_host("host", &host), record));
        }
        for host in self.fleet.take_changed() {
            let lost = self.memory_lost.contains(&host);
            let record = self.fleet.entry(&host, lost).map(Record::Slots);
            changes.push(change(of_host("slots", &host), record));
        }
        for host in self.registry.take_changed() {
            let record = self.registry.entry(&host).map(Record::Members);
            changes.push(change(of_host("members", &host), record));
        }
    }

    fn record_failures(&mut self, changes: &mut Vec<Change>) {
        let now = self.now;
        for domain in self.blacklist.take_changed() {
            let record = self.blacklist.entry(now, &domain).map(Record::Domain);
            let key = match &domain {
                Domain::Host(host) => of_host("domain", host),
                // The name of a host may have slashes, so the slot comes first.
                Domain::Slot(host, slot) => format!("slot/{slot}/{host}"),
            };
            changes.push(change(key, record));
        }
        if self.relapses != self.recorded.relapses {
            self.recorded.relapses = self.relapses.clone();
            changes.push(change("relapses", Record::Relapses(self.relapses.clone())));
        }
        if let Some(failures) = self.results.take_changed() {
            changes.push(change("failures", Record::Failures(Box::new(failures))));
        }
    }
}

fn of_host(kind: &str, host: &HostId) -> String {
    format!("{kind}/{host}")
}

fn change(key: impl Into<String>, record: impl Into<Option<Record>>) -> Change {
    Change {
        key: key.into(),
        record: record.into(),
    }
}
