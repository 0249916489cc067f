//! Creating commit memory, on the agent's side.

use std::os::fd::{AsFd, BorrowedFd};

use super::{CommitFds, CommitReader, Error, layout::Header};
use crate::memfd::{self, Mapping, PAGE};

/// The commit memory of one worker process, owned by its agent. It is freed with the last descriptor.
#[derive(Debug)]
pub struct CommitMemory {
    fds: CommitFds,
}

impl CommitMemory {
    /// Creates empty memory: two pages before the first commit.
    pub fn create() -> Result<Self, Error> {
        let make = |name| {
            let fd = memfd::create(name, PAGE as u64)?;
            Header::in_mapping(&Mapping::new(&fd, PAGE)?).format();
            Ok::<_, Error>(fd)
        };
        Ok(Self {
            fds: [make("elasticrun-commit-a")?, make("elasticrun-commit-b")?],
        })
    }

    /// The descriptors for the worker, which writes.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        self.fds.each_ref().map(AsFd::as_fd)
    }

    /// Read-only descriptors for another process that restores from this memory.
    pub fn read_only(&self) -> Result<CommitFds, Error> {
        let open = |fd| {
            memfd::read_only(fd).map_err(|source| memfd::Error::Map {
                len: PAGE as u64,
                source,
            })
        };
        Ok([open(&self.fds[0])?, open(&self.fds[1])?])
    }

    /// Opens a reader in this process.
    pub fn reader(&self) -> Result<CommitReader, Error> {
        CommitReader::open(self.read_only()?)
    }
}
