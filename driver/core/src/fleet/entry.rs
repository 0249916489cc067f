//! Slots in the journal.

use std::collections::BTreeSet;

use elasticrun_protocol::{HostId, LocalRank};

use super::{Agent, Fleet, Host, Life, Slot};
use crate::journal::SlotsEntry;

impl Fleet {
    /// Takes the hosts whose record has changed.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<HostId> {
        self.changed.take()
    }

    /// The record of a host that has or had an agent. `memory_lost` says whether its agent was lost with commits.
    pub(crate) fn entry(&self, id: &HostId, memory_lost: bool) -> Option<SlotsEntry> {
        let host = self.host(id)?;
        let done = (host.slots.iter().zip(0..)).filter(|(slot, _)| slot.done);
        let stops = |slot: &Slot| match slot.live {
            Some(live) => live.life == Life::Stopping,
            None => slot.stopping,
        };
        let stopping = (host.slots.iter().zip(0..)).filter(|(slot, _)| stops(slot));
        let stopping = stopping.map(|(_, slot)| LocalRank(slot));
        let away = host.away().into_iter().flat_map(|away| &away.live);
        let away = away.filter(|live| live.life == Life::Stopping);
        let stopping = stopping.chain(away.map(|live| live.process.local_rank));
        Some(SlotsEntry {
            host: id.clone(),
            starts: host.slots.iter().map(|slot| slot.starts).collect(),
            done: done.map(|(_, slot)| LocalRank(slot)).collect(),
            stopping: stopping.collect(),
            memory: host.has_memory || memory_lost,
            lost: memory_lost,
            agent: host.agent != Agent::Absent,
            applied: host.applied(),
        })
    }

    /// Adds a host of an earlier driver, whose agent is not connected.
    pub(crate) fn restore(&mut self, entry: &SlotsEntry) {
        let slot = |(starts, index): (&u32, u32)| Slot {
            starts: *starts,
            live: None,
            done: entry.done.contains(&LocalRank(index)),
            stopping: entry.stopping.contains(&LocalRank(index)),
        };
        let slots: Vec<_> = entry.starts.iter().zip(0..).map(slot).collect();
        self.starts += entry.starts.iter().copied().map(u64::from).sum::<u64>();
        self.done += slots.iter().filter(|slot| slot.done).count() as u64;
        let host = Host {
            slots,
            applied: entry.applied,
            ..Host::default()
        };
        self.gone.insert(entry.host.clone(), host);
    }
}
