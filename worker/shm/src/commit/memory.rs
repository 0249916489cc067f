//! The agent's part: making the memory.

use std::os::fd::{AsFd, BorrowedFd};

use super::{CommitFds, CommitReader, Error, layout::Header};
use crate::memfd::{self, Mapping, PAGE};

/// The commit memory of one worker process, as its agent keeps it. It is gone with the last descriptor.
#[derive(Debug)]
pub struct CommitMemory {
    fds: CommitFds,
}

impl CommitMemory {
    /// Makes empty memory; it takes no room worth naming before the first commit.
    pub fn create() -> Result<Self, Error> {
        let make = |name| {
            let fd = memfd::create(name, PAGE as u64)?;
            Header::of(&Mapping::new(&fd, PAGE)?).format();
            Ok::<_, Error>(fd)
        };
        Ok(Self {
            fds: [make("elasticrun-commit-a")?, make("elasticrun-commit-b")?],
        })
    }

    /// What the worker that writes gets.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        self.fds.each_ref().map(AsFd::as_fd)
    }

    /// What another process gets that restores from this memory: it can read and not write.
    pub fn read_only(&self) -> Result<CommitFds, Error> {
        let open = |fd| {
            memfd::read_only(fd).map_err(|source| memfd::Error::Map {
                len: PAGE as u64,
                source,
            })
        };
        Ok([open(&self.fds[0])?, open(&self.fds[1])?])
    }

    /// Reads in this process.
    pub fn reader(&self) -> Result<CommitReader, Error> {
        CommitReader::open(self.read_only()?)
    }
}
