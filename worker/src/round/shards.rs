//! The shards of a base that is divided among workers: copies in the memory of this host.
//!
//! The agent hands out read-only descriptors of the buffers of processes that hold a shard, dead and living. Members read
//! from there at the same time. The bytes stay as they are until all members have sealed commit 0 of the round, since no
//! process seals a second commit before. [`DividedBase::check`] tells if that did not hold.

use std::{
    collections::BTreeMap,
    os::{fd::OwnedFd, unix::net::UnixStream},
};

use elasticrun_protocol::{
    CommitId, FromWorker, Process, ToWorker, control::BaseShards, local::DESCRIPTORS_OF_SHARD,
};
use elasticrun_shm::commit::{Commit, CommitFds, CommitReader};

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

    /// The bytes of a shard.
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

/// Opens the base of a round.
pub(crate) fn open_divided(
    agent: &AgentConnection,
    started: &StartedRound,
    id: CommitId,
) -> Result<DividedBase, Error> {
    let shards = started.start.base_shards.ok_or(Error::NotDivided { id })?;
    let copies = match &agent.transport {
        Transport::Agent { socket, .. } => {
            let lost = |error: std::io::Error| Error::AgentLost {
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
    };
    for (index, fds) in copies {
        let commit = CommitReader::open(fds)?.read(id)?;
        let held = commit.info().shard;
        if (held.layout, held.of, held.index) == (shards.layout, shards.of, index) {
            base.copies.insert(index, commit);
        }
    }
    Ok(base)
}

/// Asks the agent for the shards that this host holds.
fn ask(
    stream: &UnixStream,
    process: Process,
    commit: CommitId,
    shards: BaseShards,
) -> std::io::Result<Vec<(u32, CommitFds)>> {
    let request = FromWorker::AskShards {
        local_rank: process.local_rank,
        generation: process.generation,
        commit,
        shards,
    };
    let mut answers = Answers::of(stream, &request)?;
    let mut held = Vec::new();
    loop {
        let (indices, more) = match answers.next()? {
            ToWorker::Shards { shards, more } => (shards, more),
            ToWorker::Refused { why } => return Err(std::io::Error::other(why)),
            _ => return Err(std::io::Error::other("it answered something else")),
        };
        for index in indices {
            let fds: Vec<OwnedFd> = answers.take_fds(DESCRIPTORS_OF_SHARD)?;
            held.push((index, fds));
        }
        if !more {
            return Ok(held);
        }
    }
}
