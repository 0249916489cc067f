//! Members in the journal.

use std::collections::BTreeSet;

use elasticrun_protocol::{HostId, Process, Round};

use super::{Member, Registry};
use crate::journal::{MemberEntry, MembersEntry};

impl Registry {
    /// Takes the hosts whose record has changed.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<HostId> {
        self.changed.take()
    }

    /// The record of the members on a host. `None` if it has none.
    pub(crate) fn entry(&self, host: &HostId) -> Option<MembersEntry> {
        let members = self.members.get(host)?;
        let member = |(slot, member): (&_, &Member)| MemberEntry {
            process: Process {
                local_rank: *slot,
                generation: member.generation,
            },
            rank: member.rank,
            state: member.state,
        };
        Some(MembersEntry {
            host: host.clone(),
            round: self.round?,
            size: self.size,
            members: members.iter().map(member).collect(),
        })
    }

    /// Continues with the members of a round that an earlier driver started.
    pub(crate) fn restore(&mut self, round: Round, ending: bool, entries: Vec<MembersEntry>) {
        self.round = Some(round);
        self.ending = ending;
        for entry in entries.into_iter().filter(|entry| entry.round == round) {
            self.expect(entry.size);
            let members = self.members.entry(entry.host).or_default();
            for MemberEntry {
                process,
                rank,
                state,
            } in entry.members
            {
                let member = Member {
                    generation: process.generation,
                    rank,
                    state,
                };
                if members.insert(process.local_rank, member).is_none() {
                    self.counts[state as usize] += 1;
                }
            }
        }
    }
}
