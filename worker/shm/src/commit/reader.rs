//! Reading the commits of a worker, running or dead.

use std::{os::fd::OwnedFd, sync::Arc};

use elasticrun_protocol::CommitId;

use super::{
    CommitFds, Error,
    layout::{BODY, Header, Info, MAX_BUFFERS},
    states::{States, find, newest, read_states},
};
use crate::memfd::{self, Mapping, PAGE};

/// Reads the commit memory of a worker process: a dead one, a live one, or this one.
///
/// No call blocks or writes. Read-only descriptors suffice.
#[derive(Debug)]
pub struct CommitReader {
    fds: CommitFds,
    /// One for each descriptor.
    headers: Vec<Arc<Mapping>>,
}

impl CommitReader {
    /// Maps the headers and checks that they are valid.
    pub fn open(fds: CommitFds) -> Result<Self, Error> {
        if !(2..=MAX_BUFFERS).contains(&fds.len()) {
            return Err(Error::Buffers { count: fds.len() });
        }
        let map = |fd| {
            let mapping = Mapping::read_only(fd, PAGE)?;
            Header::in_mapping(&mapping).validate()?;
            Ok::<_, Error>(Arc::new(mapping))
        };
        let headers = fds.iter().map(map).collect::<Result<_, _>>()?;
        Ok(Self { fds, headers })
    }

    pub(super) fn read_states(&self) -> Result<States, Error> {
        let headers = self.headers.iter().map(|header| Header::in_mapping(header));
        read_states(headers.zip(&self.fds))
    }

    /// The complete commits at this instant, newest first: at most one for each buffer.
    ///
    /// If one header is damaged, its commit is left out with a warning. It is an error if no other commit is left.
    pub fn commits(&self) -> Result<Vec<Info>, Error> {
        let mut infos: Vec<Info> = self
            .read_states()?
            .iter()
            .filter_map(|seen| seen.info)
            .collect();
        infos.sort_by_key(|info| std::cmp::Reverse(info.id));
        Ok(infos)
    }

    /// The newest complete commit at this instant.
    pub fn newest(&self) -> Result<Option<Info>, Error> {
        Ok(newest(&self.read_states()?).map(|(_, info)| info))
    }

    /// Opens one of [`CommitReader::commits`]. Fails with [`Error::Gone`] if it does not exist (any more).
    pub fn read(&self, id: CommitId) -> Result<Commit, Error> {
        let seen = self.read_states()?;
        let (buffer, seal, info) = find(&seen, id).ok_or(Error::Gone { id })?;
        self.map(buffer, seal, info)
    }

    /// As [`CommitReader::read`], for a caller that reads parts of the commit. Pages are mapped when they are read.
    pub fn read_in_parts(&self, id: CommitId) -> Result<Commit, Error> {
        let seen = self.read_states()?;
        let (buffer, seal, info) = find(&seen, id).ok_or(Error::Gone { id })?;
        self.map_with(buffer, seal, info, Mapping::read_only_in_parts)
    }

    pub(super) fn map(&self, buffer: usize, seal: u64, info: Info) -> Result<Commit, Error> {
        self.map_with(buffer, seal, info, Mapping::read_only)
    }

    fn map_with(
        &self,
        buffer: usize,
        seal: u64,
        info: Info,
        map: impl FnOnce(&OwnedFd, usize) -> Result<Mapping, memfd::Error>,
    ) -> Result<Commit, Error> {
        let id = info.id;
        let len = usize::try_from(info.len).map_err(|_| Error::Gone { id })?;
        Ok(Commit {
            info,
            seal,
            header: Arc::clone(&self.headers[buffer]),
            body: map(&self.fds[buffer], BODY + len)?,
        })
    }
}

/// One complete commit, mapped to read.
///
/// Its bytes do not change while the writer is dead, or makes no second commit after this one was the newest (for
/// example while it waits at `run()`). Else call [`Commit::is_intact`] after reading, and use the bytes only if it
/// returns true.
#[derive(Debug)]
pub struct Commit {
    info: Info,
    seal: u64,
    header: Arc<Mapping>,
    body: Mapping,
}

impl Commit {
    /// The header.
    pub fn info(&self) -> Info {
        self.info
    }

    /// The body.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped from the start to the end of the body, for as long as `self`. Another process can
        // write it only as the type's documentation says, and any bytes are valid.
        unsafe { std::slice::from_raw_parts(self.body.as_ptr().add(BODY), self.body.len() - BODY) }
    }

    /// Whether all bytes read from the body until now are of this commit.
    pub fn is_intact(&self) -> bool {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        Header::in_mapping(&self.header).seal() == self.seal
    }
}
