//! The shards of a base that is divided among workers: copies in the memory of this host, and of other hosts.
//!
//! Each host tells the others which shards it holds, in one exchange of the round's group. Shards that only hosts without a
//! member hold are part of the start.
//!
//! Copies of this host are read in place. The agent hands out read-only descriptors of the buffers of processes that hold a shard, dead and living. Members read
//! from there at the same time. The bytes stay as they are until all members have sealed commit 0 of the round, since no
//! process seals a second commit before. [`DividedBase::check`] tells if that did not hold.

use std::{collections::BTreeMap, io, net::SocketAddr, os::unix::net::UnixStream};

use elasticrun_collectives::Group;
use elasticrun_protocol::{
    CommitId, CommitKey, FromWorker, Process, Shard, ToWorker,
    control::BaseShards,
    frame::{self, FrameBuffer},
    local::DESCRIPTORS_OF_SHARD,
};
use elasticrun_shm::commit::{Commit, CommitFds, CommitReader};
use serde::{Deserialize, Serialize};

use super::{fetch::fetch_ranges, record_error};
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
    /// Shards of which this host has no copy: the processes of other hosts that hold one, and the addresses of their agents.
    remote: BTreeMap<u32, Vec<(Process, SocketAddr)>>,
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

    /// The shards that other hosts hold and this one does not, each with the addresses of their agents.
    pub fn remote(&self) -> impl Iterator<Item = (u32, impl Iterator<Item = SocketAddr>)> {
        (self.remote.iter()).map(|(index, holders)| (*index, holders.iter().map(|holder| holder.1)))
    }

    fn key(&self, index: u32) -> CommitKey {
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

/// What the members of a host tell those of others.
#[derive(Default, Serialize, Deserialize)]
struct HostShards {
    /// The address of its agent.
    address: Option<SocketAddr>,
    /// The shards that it holds.
    held: Vec<(u32, Process)>,
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
    let mut base = DividedBase {
        id,
        shards,
        copies: BTreeMap::new(),
        remote: BTreeMap::new(),
    };
    if start.host_count > 1 {
        let held = local.iter().map(|copy| (copy.shard, copy.process));
        base.remote = exchange(agent, started, group, held.collect())?;
    }
    for holder in &start.holders {
        let keeper = (holder.keeper.process, holder.keeper.address);
        base.remote.entry(holder.shard).or_default().push(keeper);
    }
    for LocalCopy { shard, fds, .. } in local {
        let commit = CommitReader::open(fds)?.read_in_parts(id)?;
        if commit.info().key() == base.key(shard) {
            base.copies.insert(shard, commit);
            base.remote.remove(&shard);
        }
    }
    Ok(base)
}

/// Tells all members which shards this host holds. Returns what other hosts with a member hold.
fn exchange(
    agent: &AgentConnection,
    started: &StartedRound,
    group: &mut Group,
    held: Vec<(u32, Process)>,
) -> Result<BTreeMap<u32, Vec<(Process, SocketAddr)>>, Error> {
    let start = &started.start;
    let own = match started.local_index {
        0 => HostShards {
            address: start.memory,
            held,
        },
        // One member speaks for its host.
        _ => HostShards::default(),
    };
    let unreadable = |error: frame::Error| Error::Protocol {
        why: error.to_string(),
    };
    let bytes = frame::to_frame(&own).map_err(unreadable)?;
    let all = group.allgatherv(&bytes);
    let all = all.map_err(|error| record_error(&agent.inbox, error))?;
    let mut remote: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for bytes in all {
        let mut frames = FrameBuffer::default();
        frames.extend(&bytes);
        let host = frames.next_message::<HostShards>().map_err(unreadable)?;
        let Some(HostShards {
            address: Some(address),
            held,
        }) = host
        else {
            continue;
        };
        if Some(address) != start.memory {
            for (shard, process) in held {
                remote.entry(shard).or_default().push((process, address));
            }
        }
    }
    Ok(remote)
}

/// Fetches parts of a shard that another host holds.
pub(crate) fn fetch_shard(
    agent: &mut AgentConnection,
    started: &StartedRound,
    base: &DividedBase,
    shard: u32,
    ranges: &[(u64, u64)],
) -> Result<Vec<u8>, Error> {
    let missing = Error::ShardMissing { id: base.id, shard };
    let holders = base
        .remote
        .get(&shard)
        .filter(|holders| !holders.is_empty());
    let holders = holders.ok_or(missing)?;
    // Members of the round read from different holders, if there are several.
    let own = started.member.place.rank.0 as usize % holders.len();
    fetch_ranges(agent, started, holders[own], base.key(shard), ranges)
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
