//! Reports of the sources, merged host by host for the reference. The job merges them list by list.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_hosts::{Host, HostState, SlotsFrom, Snapshot};
use elasticrun_protocol::HostId;

/// The last report of one source about a host.
#[derive(Clone, Debug)]
struct Reported {
    host: Host,
    /// Answers in a row without the host.
    without: u32,
}

/// A host, merged over all sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) state: HostState,
    pub(crate) slots: u32,
    pub(crate) within: Option<Duration>,
}

/// The reports of all sources, and the slots that agents report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed {
    pub(crate) slots_per_host: Option<u32>,
    /// Reports of each source, in its order.
    reported: Vec<Vec<Reported>>,
    /// Whether each source has answered or failed.
    heard: Vec<bool>,
    /// Sources that have answered this driver.
    answered: BTreeSet<usize>,
    /// Slots that agents offer and detect.
    found: BTreeMap<HostId, (u32, Option<u32>)>,
    /// Whether an answer came when a host was listed or all sources had reported.
    pub(crate) any: bool,
}

impl Listed {
    pub(crate) fn of(count: usize, slots_per_host: Option<u32>) -> Self {
        Self {
            slots_per_host,
            reported: vec![Vec::new(); count],
            heard: vec![false; count],
            ..Self::default()
        }
    }

    /// A later driver begins with these hosts: their slots, and whether a list has said that they go away.
    pub(crate) fn resumed(&mut self, hosts: &[(HostId, u32, bool)]) {
        let count = self.reported.len();
        *self = Self::of(count, self.slots_per_host);
        if hosts.is_empty() {
            return;
        }
        let reported = |(id, slots, goes): &(HostId, u32, bool)| Reported {
            host: Host {
                slots: Some(*slots),
                state: match goes {
                    true => HostState::Draining,
                    false => HostState::Ready,
                },
                // The time that is left is known to the host itself.
                deadline: goes.then_some(Duration::MAX / 2),
                ..Host::new(id.as_str())
            },
            without: 0,
        };
        self.reported = vec![hosts.iter().map(reported).collect(); count];
        (self.heard, self.any) = (vec![true; count], true);
    }

    /// Gives whether that was the first report of the source.
    pub(crate) fn failed(&mut self, source: usize) -> bool {
        !std::mem::replace(&mut self.heard[source], true)
    }

    pub(crate) fn answered(&mut self, source: usize, snapshot: &Snapshot) {
        self.heard[source] = true;
        self.answered.insert(source);
        let old = std::mem::take(&mut self.reported[source]);
        let named = |id: &str| snapshot.hosts.iter().any(|host| host.id == id);
        let mut new: Vec<Reported> = Vec::new();
        for host in &snapshot.hosts {
            let (host, without) = (host.clone(), 0);
            new.push(Reported { host, without });
        }
        for mut entry in old.into_iter().filter(|entry| !named(&entry.host.id)) {
            entry.without += u32::from(snapshot.complete);
            if entry.without < 2 {
                new.push(entry);
            }
        }
        self.reported[source] = new;
        self.any |=
            self.reported.iter().any(|list| !list.is_empty()) || self.heard.iter().all(|h| *h);
    }

    /// Records the slots that an agent reports. Returns whether they change those of a listed host.
    pub(crate) fn found(&mut self, host: &HostId, slots: u32, counted: Option<u32>) -> bool {
        let slots_of = |listed: &Self| {
            let verdicts = listed.verdicts().into_iter();
            let mut of_host = verdicts.filter(|(id, _)| id == host);
            of_host.next().map(|(_, verdict)| verdict.slots)
        };
        let before = slots_of(self);
        self.found.insert(host.clone(), (slots, counted));
        before != slots_of(self)
    }

    /// Whether each source has answered this driver.
    pub(crate) fn have_all_answered(&self) -> bool {
        self.answered.len() == self.reported.len()
    }

    /// All hosts, in the order of the sources.
    pub(crate) fn verdicts(&self) -> Vec<(HostId, Verdict)> {
        let mut verdicts: Vec<(HostId, Verdict)> = Vec::new();
        for entry in self.reported.iter().flatten() {
            let id = HostId::new(&entry.host.id);
            if verdicts.iter().all(|(other, _)| *other != id) {
                let verdict = self.verdict(&entry.host.id);
                verdicts.push((id, verdict));
            }
        }
        verdicts
    }

    fn verdict(&self, id: &str) -> Verdict {
        let all = self.reported.iter().flatten().map(|entry| &entry.host);
        let all: Vec<_> = all.filter(|host| host.id == id).collect();
        // The state that is nearest to going away.
        let order = [
            HostState::Gone,
            HostState::Draining,
            HostState::Pending,
            HostState::Ready,
        ];
        let has = |state: &HostState| all.iter().any(|host| host.state == *state);
        let state = order.into_iter().find(has).unwrap_or_default();
        let origins = [
            Some(SlotsFrom::Explicit),
            Some(SlotsFrom::Label),
            Some(SlotsFrom::Accelerators),
            // As the records of an earlier driver have it.
            None,
        ];
        let told = (origins.iter()).find_map(|from| {
            all.iter()
                .find(|host| host.slots.is_some() && host.slots_from == *from)
        });
        let found = self.found.get(&HostId::new(id));
        let slots = match (told, found) {
            (Some(host), Some((_, Some(counted))))
                if host.slots_from == Some(SlotsFrom::Accelerators) =>
            {
                host.slots.unwrap_or(0).min(*counted)
            }
            (Some(host), _) => host.slots.unwrap_or(0),
            (None, found) => match (self.slots_per_host, found) {
                (Some(slots), _) => slots,
                (None, Some((slots, _))) => *slots,
                (None, None) => 1,
            },
        };
        let within = all.iter().filter_map(|host| host.deadline).min();
        Verdict {
            state,
            slots,
            within,
        }
    }
}
