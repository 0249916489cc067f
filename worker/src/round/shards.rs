//! The shards of a base that is divided among workers: copies in the memory of this host, and of other hosts.
//!
//! Copies of this host are read in place. The agent hands out read-only descriptors of the buffers of processes that hold a shard, dead and living. Members read
//! from there at the same time. The bytes stay as they are until all members have sealed commit 0 of the round, since no
//! process seals a second commit before. [`DividedBase::check`] tells if that did not hold.

use std::{collections::BTreeMap, io, os::unix::net::UnixStream};

use elasticrun_collectives::Group;
use elasticrun_protocol::{
    CommitId, CommitKey, FromWorker, Process, Shard, ToWorker,
    control::{BaseShards, Via},
    local::DESCRIPTORS_OF_SHARD,
};
use elasticrun_shm::commit::{Commit, CommitFds, CommitReader};

use super::{
    fetch::{Parts, fetch_passed, fetch_ranges},
    holders::{Holders, ShardCopy},
    relays::Skipped,
};
use crate::{
    Error,
    agent::{AgentConnection, Answers, StartedRound, Transport},
};

/// A commit that is divided among workers, from which a round begins. Its bytes are mapped, not copied.
#[derive(Debug)]
pub struct DividedBase {
    id: CommitId,
    shards: BaseShards,
    copies: BTreeMap<u32, Commit>,
    /// The number of this host.
    host: u32,
    /// Who holds what. Without copies if all members are on this host.
    holders: Holders,
    /// Agents that could not pass anything on.
    skipped: Skipped,
}

/// Where parts of a shard of another host come from.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// The copy, by index in [`DividedBase::holders`].
    pub holder: u32,
    /// The hosts that pass the parts on, by number, each with the number of requests that its agent gets. The first one is
    /// asked. Empty: the host of the copy is asked.
    pub relays: &'a [(u32, u32)],
}

impl DividedBase {
    /// The commit.
    pub fn id(&self) -> CommitId {
        self.id
    }

    /// The hash of the layout of the commit.
    pub fn layout(&self) -> u64 {
        self.shards.layout
    }

    /// The number of shards of the commit.
    pub fn shards(&self) -> u32 {
        self.shards.of
    }

    /// The shards that can be read here, and their bytes.
    pub fn copies(&self) -> impl Iterator<Item = (u32, &[u8])> {
        (self.copies.iter()).map(|(index, commit)| (*index, commit.bytes()))
    }

    /// The number of this host.
    pub fn host(&self) -> u32 {
        self.host
    }

    /// All copies of shards that all members know of alike, by host. Empty if all members are on one host and no other one
    /// has a shard.
    pub fn holders(&self) -> &[ShardCopy] {
        &self.holders.copies
    }

    /// The host of each rank. None if this is not known of all, so that members cannot make the same plan.
    pub fn host_of_rank(&self) -> Option<&[u32]> {
        self.holders.host_of_rank.as_deref()
    }

    /// The shards that other hosts hold and this one does not, each with the copies, by index in [`Self::holders`].
    pub fn remote(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut remote: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (index, copy) in (0..).zip(&self.holders.copies) {
            if copy.host != self.host && !self.copies.contains_key(&copy.shard) {
                remote.entry(copy.shard).or_default().push(index);
            }
        }
        remote
    }

    pub(crate) fn key(&self, index: u32) -> CommitKey {
        let BaseShards { layout, of } = self.shards;
        CommitKey {
            commit: self.id,
            shard: Shard { layout, index, of },
        }
    }

    /// The bytes of a shard of this host.
    ///
    /// # Errors
    /// [`Error::ShardMissing`].
    pub fn bytes(&self, shard: u32) -> Result<&[u8], Error> {
        let copy = self.copies.get(&shard);
        copy.map(Commit::bytes)
            .ok_or(Error::ShardMissing { id: self.id, shard })
    }

    /// Whether all bytes that were read until now are of this commit.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn check(&self) -> Result<(), Error> {
        match self.copies.values().all(Commit::is_intact) {
            true => Ok(()),
            false => Err(Error::Damaged {
                id: self.id,
                from: "a process of this host",
            }),
        }
    }
}

/// Opens the base of a round. All members call it.
pub(crate) fn open_divided(
    agent: &AgentConnection,
    started: &StartedRound,
    group: &mut Group,
    id: CommitId,
) -> Result<DividedBase, Error> {
    let start = &started.start;
    let shards = start.base_shards.ok_or(Error::NotDivided { id })?;
    let local = match &agent.transport {
        Transport::Agent { socket, .. } => {
            let lost = |error: io::Error| Error::AgentLost {
                why: format!("{}: {error}", socket.display()),
            };
            let stream = UnixStream::connect(socket).map_err(lost)?;
            let asked = ask(&stream, started.member.process, id, shards);
            asked.map_err(lost)?
        }
        Transport::Standalone => Vec::new(),
    };
    let holders = match start.host_count > 1 || !start.holders.is_empty() {
        true => {
            let held = local.iter().map(|copy| (copy.shard, copy.process));
            Holders::exchange(agent, started, group, held.collect())?
        }
        false => Holders::default(),
    };
    let mut base = DividedBase {
        id,
        shards,
        copies: BTreeMap::new(),
        host: start.host_index,
        holders,
        skipped: Skipped::default(),
    };
    for LocalCopy { shard, fds, .. } in local {
        let commit = CommitReader::open(fds)?.read_in_parts(id)?;
        if commit.info().key() == base.key(shard) {
            base.copies.insert(shard, commit);
        }
    }
    Ok(base)
}

/// Fetches parts of a shard that another host holds.
pub(crate) fn fetch_shard(
    agent: &mut AgentConnection,
    started: &StartedRound,
    base: &DividedBase,
    route: Route<'_>,
    ranges: &[(u64, u64)],
) -> Result<Vec<u8>, Error> {
    let missing = Error::ShardMissing {
        id: base.id,
        shard: route.holder,
    };
    let copy = (base.holders.copies).get(route.holder as usize);
    let copy = copy.ok_or(missing)?;
    let parts = Parts {
        process: copy.process,
        holder: copy.agent,
        key: base.key(copy.shard),
        ranges,
    };
    let relays = route.relays.iter().filter_map(|&(host, requests)| {
        let agent = *base.holders.agents.get(&host)?;
        Some(Via { agent, requests })
    });
    let relays: Vec<_> = relays.collect();
    match fetch_passed(agent, started, parts, &relays, &base.skipped)? {
        Some(bytes) => Ok(bytes),
        None => fetch_ranges(agent, started, parts),
    }
}

/// A shard in the memory of a process of this host.
struct LocalCopy {
    shard: u32,
    process: Process,
    fds: CommitFds,
}

/// Asks the agent for the shards that this host holds.
fn ask(
    stream: &UnixStream,
    process: Process,
    commit: CommitId,
    shards: BaseShards,
) -> io::Result<Vec<LocalCopy>> {
    let request = FromWorker::AskShards {
        local_rank: process.local_rank,
        generation: process.generation,
        commit,
        shards,
    };
    let mut answers = Answers::of(stream, &request)?;
    let mut held = Vec::new();
    loop {
        let (shards, processes, more) = match answers.next()? {
            ToWorker::Shards {
                shards,
                processes,
                more,
            } => (shards, processes, more),
            ToWorker::Refused { why } => return Err(io::Error::other(why)),
            _ => return Err(io::Error::other("it answered something else")),
        };
        for (shard, process) in shards.into_iter().zip(processes) {
            let fds = answers.take_fds(DESCRIPTORS_OF_SHARD)?;
            held.push(LocalCopy {
                shard,
                process,
                fds,
            });
        }
        if !more {
            return Ok(held);
        }
    }
}
