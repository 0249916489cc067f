//! Hosts: what discovery lists, with the slots that their agents found where no source tells them.

use std::collections::BTreeMap;

use elasticrun_core::hosts::{HostRecord, HostState};
use elasticrun_plugin_sdk::{Host, HostState as Listed};
use elasticrun_protocol::HostId;

use crate::config::SlotsPerHost;

/// See the module.
#[derive(Debug)]
pub(crate) struct Hosts {
    slots: SlotsPerHost,
    /// The last list.
    listed: Vec<Host>,
    /// Slots that agents found.
    found: BTreeMap<HostId, u32>,
}

impl Hosts {
    /// No host is known yet.
    pub(crate) fn new(slots: SlotsPerHost) -> Self {
        Self {
            slots,
            listed: Vec::new(),
            found: BTreeMap::new(),
        }
    }

    /// A list has come.
    pub(crate) fn listed(&mut self, list: Vec<Host>) -> Vec<HostRecord> {
        self.listed = list;
        self.records()
    }

    /// An agent has found slots. Gives the list anew if that changes it.
    pub(crate) fn probed(&mut self, host: &HostId, slots: u32) -> Option<Vec<HostRecord>> {
        let before = self.found.insert(host.clone(), slots);
        let untold = |listed: &&Host| listed.id == host.as_str() && listed.slots.is_none();
        let matters = self.slots == SlotsPerHost::Auto && self.listed.iter().any(|h| untold(&h));
        (matters && before.unwrap_or(1) != slots).then(|| self.records())
    }

    fn records(&self) -> Vec<HostRecord> {
        self.listed.iter().map(|host| self.record(host)).collect()
    }

    fn record(&self, host: &Host) -> HostRecord {
        let id = HostId::new(&host.id);
        let untold = match self.slots {
            SlotsPerHost::Fixed(slots) => slots,
            SlotsPerHost::Auto => self.found.get(&id).copied().unwrap_or(1),
        };
        let state = match host.state {
            Listed::Ready => HostState::Ready,
            Listed::Pending => HostState::Pending,
            Listed::Draining => HostState::Draining,
            Listed::Gone => HostState::Gone,
        };
        HostRecord {
            id,
            slots: host.slots.unwrap_or(untold),
            state,
            within: host.deadline,
        }
    }
}
