//! Hosts: what discovery lists, with what their agents found there.
//!
//! Slots of a host, the most trustworthy first: given by a person, a tag or label, the source's count of accelerators,
//! those that the host shows, `--slots-per-host`. A count that the source inferred is corrected by the host itself if
//! that shows fewer; of any number that a source tells and the host does not show, a person hears once.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_core::hosts::{HostRecord, HostState};
use elasticrun_plugin_sdk::{Host, HostState as Listed, SlotsFrom};
use elasticrun_protocol::HostId;

use crate::config::SlotsPerHost;

/// See the module.
#[derive(Debug)]
pub(crate) struct Hosts {
    slots: SlotsPerHost,
    /// The last list.
    listed: Vec<Host>,
    /// Where each host is in it.
    places: BTreeMap<HostId, usize>,
    /// What agents found.
    found: BTreeMap<HostId, Found>,
    /// Hosts that a person has heard of, or will by what is still untold.
    doubted: BTreeSet<HostId>,
    untold: Vec<String>,
}

/// What an agent found on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    /// Slots that it offers.
    slots: u32,
    /// Those of them that the host shows; none if it shows nothing that could be counted.
    counted: Option<u32>,
}

impl Hosts {
    /// No host is known yet.
    pub(crate) fn new(slots: SlotsPerHost) -> Self {
        Self {
            slots,
            listed: Vec::new(),
            places: BTreeMap::new(),
            found: BTreeMap::new(),
            doubted: BTreeSet::new(),
            untold: Vec::new(),
        }
    }

    /// A list has come.
    pub(crate) fn listed(&mut self, list: Vec<Host>) -> Vec<HostRecord> {
        self.places = (list.iter().map(|host| HostId::new(&host.id)))
            .zip(0..)
            .collect();
        self.listed = list;
        for place in 0..self.listed.len() {
            self.doubt(place);
        }
        self.records()
    }

    /// An agent has found slots. Gives the list anew if that changes it.
    pub(crate) fn probed(
        &mut self,
        host: &HostId,
        slots: u32,
        counted: Option<u32>,
    ) -> Option<Vec<HostRecord>> {
        let place = self.places.get(host).copied();
        let record = |hosts: &Self| place.map(|place| hosts.record(&hosts.listed[place]));
        let before = record(self);
        self.found.insert(host.clone(), Found { slots, counted });
        if let Some(place) = place {
            self.doubt(place);
        }
        (before != record(self)).then(|| self.records())
    }

    /// Lines for a person, each once: which hosts show fewer slots than their source tells of.
    pub(crate) fn take_doubts(&mut self) -> Vec<String> {
        std::mem::take(&mut self.untold)
    }

    fn doubt(&mut self, place: usize) {
        let host = &self.listed[place];
        let Some((told, counted)) = self.shortfall(host) else {
            return;
        };
        if !self.doubted.insert(HostId::new(&host.id)) {
            return;
        }
        let (from, used) = match host.slots_from {
            Some(SlotsFrom::Accelerators) => (" (its accelerators)", counted),
            Some(SlotsFrom::Label) => (" (its tag or label)", told),
            _ => ("", told),
        };
        self.untold.push(format!(
            "host {} has {told} slots{from} says its source, and shows {counted}: {used} are used",
            host.id
        ));
    }

    /// The slots that a source tells of and those that the host shows, if they are fewer. What a person gave is not
    /// doubted.
    fn shortfall(&self, host: &Host) -> Option<(u32, u32)> {
        let told = host.slots?;
        let counted = self.found.get(&HostId::new(&host.id))?.counted?;
        let given = host.slots_from == Some(SlotsFrom::Explicit);
        (counted < told && !given).then_some((told, counted))
    }

    fn records(&self) -> Vec<HostRecord> {
        self.listed.iter().map(|host| self.record(host)).collect()
    }

    fn record(&self, host: &Host) -> HostRecord {
        let id = HostId::new(&host.id);
        let untold = match self.slots {
            SlotsPerHost::Fixed(slots) => slots,
            SlotsPerHost::Auto => self.found.get(&id).map_or(1, |found| found.slots),
        };
        let state = match host.state {
            Listed::Ready => HostState::Ready,
            Listed::Pending => HostState::Pending,
            Listed::Draining => HostState::Draining,
            Listed::Gone => HostState::Gone,
        };
        let inferred = host.slots_from == Some(SlotsFrom::Accelerators);
        let told = match self.shortfall(host) {
            Some((_, counted)) if inferred => Some(counted),
            _ => host.slots,
        };
        HostRecord {
            id,
            slots: told.unwrap_or(untold),
            state,
            within: host.deadline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(slots: Option<u32>, from: Option<SlotsFrom>) -> Host {
        Host {
            slots,
            slots_from: from,
            ..Host::new("a")
        }
    }

    /// Slots that are used, and what is said, if the source tells this and the host shows that.
    fn used(host: Host, counted: Option<u32>) -> (u32, Vec<String>) {
        let mut hosts = Hosts::new(SlotsPerHost::Auto);
        let list = hosts.listed(vec![host]);
        let changed = hosts.probed(&"a".into(), counted.unwrap_or(1), counted);
        let said = hosts.take_doubts();
        assert_eq!(hosts.take_doubts(), [""; 0], "once");
        (changed.unwrap_or(list)[0].slots, said)
    }

    #[test]
    fn what_a_host_shows_corrects_what_was_inferred_and_doubts_what_was_told() {
        let accelerators = || host(Some(8), Some(SlotsFrom::Accelerators));
        assert_eq!(
            used(accelerators(), Some(4)),
            (4, vec!["host a has 8 slots (its accelerators) says its source, and shows 4: 4 are used".into()])
        );
        assert_eq!(
            used(host(Some(8), Some(SlotsFrom::Label)), Some(4)),
            (8, vec!["host a has 8 slots (its tag or label) says its source, and shows 4: 8 are used".into()])
        );
        assert_eq!(
            used(host(Some(8), None), Some(4)),
            (
                8,
                vec!["host a has 8 slots says its source, and shows 4: 8 are used".into()]
            )
        );
        for (told, counted, slots) in [
            (accelerators(), Some(8), 8),
            (accelerators(), Some(16), 8),
            // Nothing that could be counted, or nothing that was told.
            (accelerators(), None, 8),
            (host(None, None), Some(2), 2),
            (host(None, None), None, 1),
            // A person knows best.
            (host(Some(8), Some(SlotsFrom::Explicit)), Some(4), 8),
        ] {
            assert_eq!(used(told.clone(), counted), (slots, vec![]), "{told:?}");
        }
    }

    #[test]
    fn a_list_that_comes_after_the_agent_is_corrected_as_well() {
        let mut hosts = Hosts::new(SlotsPerHost::Auto);
        assert_eq!(hosts.probed(&"a".into(), 4, Some(4)), None);
        let list = hosts.listed(vec![host(Some(8), Some(SlotsFrom::Accelerators))]);
        assert_eq!(list[0].slots, 4);
        assert_eq!(hosts.take_doubts().len(), 1);
    }
}
