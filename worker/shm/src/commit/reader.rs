//! Reading what a worker committed, whether it lives or not.

use std::sync::Arc;

use elasticrun_protocol::CommitId;

use super::{
    CommitFds, Error,
    layout::{BODY, Header, Info, Seen, look, newest},
};
use crate::memfd::{Mapping, PAGE};

/// Reads the commit memory of a worker process: of a dead one, of a live one, or of this one.
///
/// No call blocks or changes anything; a descriptor without the right to write is enough.
#[derive(Debug)]
pub struct CommitReader {
    fds: CommitFds,
    headers: [Arc<Mapping>; 2],
}

impl CommitReader {
    /// Maps the headers and checks that they are some.
    pub fn open(fds: CommitFds) -> Result<Self, Error> {
        let map = |fd| {
            let mapping = Mapping::read_only(fd, PAGE)?;
            Header::of(&mapping).recognise()?;
            Ok::<_, Error>(Arc::new(mapping))
        };
        let headers = [map(&fds[0])?, map(&fds[1])?];
        Ok(Self { fds, headers })
    }

    fn look(&self) -> Result<[Seen; 2], Error> {
        let [a, b] = &self.headers;
        look([Header::of(a), Header::of(b)], self.fds.each_ref())
    }

    /// The complete commits at this instant, newest first: none, one or two.
    ///
    /// A damaged header is left out with a warning if the other buffer is sound, and an error if not.
    pub fn commits(&self) -> Result<Vec<Info>, Error> {
        let mut infos: Vec<Info> = self.look()?.iter().filter_map(|seen| seen.info).collect();
        infos.sort_by_key(|info| std::cmp::Reverse(info.id));
        Ok(infos)
    }

    /// The newest complete commit at this instant.
    pub fn newest(&self) -> Result<Option<Info>, Error> {
        Ok(newest(&self.look()?).map(|(_, info)| info))
    }

    /// Opens the bytes of one of [`CommitReader::commits`]; [`Error::Gone`] if it is not there (any more).
    pub fn read(&self, id: CommitId) -> Result<Commit, Error> {
        let seen = self.look()?;
        let found = seen.iter().enumerate().find_map(|(buffer, seen)| {
            let info = seen.info.filter(|info| info.id == id)?;
            Some((buffer, seen.seal, info))
        });
        let (buffer, seal, info) = found.ok_or(Error::Gone { id })?;
        let len = usize::try_from(info.len).map_err(|_| Error::Gone { id })?;
        Ok(Commit {
            info,
            seal,
            header: Arc::clone(&self.headers[buffer]),
            body: Mapping::read_only(&self.fds[buffer], BODY + len)?,
        })
    }
}

/// One complete commit, mapped to read.
///
/// Its bytes stay as they are while the writer is dead, or makes no second commit after this one was the
/// newest (it waits at `run()`, say). Else look at [`Commit::is_intact`] after reading, and believe nothing
/// of what was read before it said yes.
#[derive(Debug)]
pub struct Commit {
    info: Info,
    seal: u64,
    header: Arc<Mapping>,
    body: Mapping,
}

impl Commit {
    /// What its header says.
    pub fn info(&self) -> Info {
        self.info
    }

    /// The body.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped from the start to the end of the body, for as long as `self`. Another process can
        // write it only as the type's documentation says, and any bytes are valid.
        unsafe { std::slice::from_raw_parts(self.body.as_ptr().add(BODY), self.body.len() - BODY) }
    }

    /// Whether all that was read from the body until now is this commit's.
    pub fn is_intact(&self) -> bool {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        Header::of(&self.header).seal() == self.seal
    }
}
