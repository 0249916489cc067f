//! Creating commit memory, on the agent's side.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use elasticrun_protocol::CommitId;

use super::{
    Commit, CommitFds, CommitReader, Error,
    layout::{Header, Info, MAX_BUFFERS, MAX_KEPT, PINNABLE},
    states::find,
};
use crate::memfd::{self, Mapping, PAGE};

/// How often a pin is tried again that collides with a commit.
const MAX_PINS: usize = 100;

/// The commit memory of one worker process, owned by its agent. It is freed with the last descriptor.
#[derive(Debug)]
pub struct CommitMemory {
    fds: CommitFds,
    headers: Vec<Arc<Mapping>>,
    /// The worker has at least three buffers, so that it can leave a pinned one alone.
    has_third: AtomicBool,
    pinned: Arc<Mutex<Pinned>>,
}

/// The pinned buffer. There is at most one, so that a free one is left.
#[derive(Debug, Default)]
struct Pinned {
    id: Option<CommitId>,
    pins: usize,
}

impl CommitMemory {
    /// Creates empty memory: four pages before the first commit.
    pub fn create() -> Result<Self, Error> {
        let mut memory = Self {
            fds: Vec::new(),
            headers: Vec::new(),
            has_third: AtomicBool::new(false),
            pinned: Arc::default(),
        };
        for name in [
            "elasticrun-commit-a",
            "elasticrun-commit-b",
            "elasticrun-commit-c",
            "elasticrun-commit-d",
        ] {
            let fd = memfd::create(name, PAGE as u64)?;
            let mapping = Mapping::new(&fd, PAGE)?;
            Header::in_mapping(&mapping).format();
            memory.headers.push(Arc::new(mapping));
            memory.fds.push(fd);
        }
        Ok(memory)
    }

    /// The descriptors for the worker, which writes: at most as many as it can use, and at least two.
    pub fn fds(&self, buffers: usize) -> Vec<BorrowedFd<'_>> {
        let count = buffers.clamp(2, MAX_BUFFERS);
        self.has_third.store(count >= PINNABLE, Ordering::Relaxed);
        self.fds[..count].iter().map(AsFd::as_fd).collect()
    }

    /// Read-only descriptors for another process that restores from this memory.
    pub fn read_only(&self) -> Result<CommitFds, Error> {
        self.fds.iter().map(read_only).collect()
    }

    /// Two read-only descriptors for a process that knows no third one. One of them has this commit, if it is here.
    pub fn read_only_pair(&self, id: CommitId) -> Result<CommitFds, Error> {
        let seen = self.reader()?.read_states()?;
        let first = find(&seen, id).map_or(0, |(buffer, ..)| buffer);
        let second = usize::from(first == 0);
        [first, second]
            .iter()
            .map(|buffer| read_only(&self.fds[*buffer]))
            .collect()
    }

    /// Opens a reader in this process.
    pub fn reader(&self) -> Result<CommitReader, Error> {
        CommitReader::open(self.read_only()?)
    }

    /// Sets the commits that the worker leaves alone from now on, once it has sealed them, as far as its memory suffices. With
    /// four buffers it does for two such commits. Commits that stay are kept at any instant.
    pub fn keep(&self, commits: [Option<CommitId>; MAX_KEPT]) {
        Header::in_mapping(&self.headers[0]).keep(commits);
    }

    /// The commit that is pinned.
    pub fn pinned(&self) -> Option<CommitId> {
        let pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        pinned.id
    }

    /// Pins a commit: its bytes stay as they are until the result is dropped, however often the worker commits. The
    /// worker writes to its other buffers meanwhile, so it uses memory for three states.
    ///
    /// # Errors
    /// [`Error::Gone`] if the commit is not here (any more). [`Error::Unpinnable`] while another commit is pinned, and
    /// for a worker with two buffers.
    pub fn pin(&self, id: CommitId) -> Result<PinnedCommit, Error> {
        let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        let is_other = pinned.id.is_some_and(|other| other != id);
        if is_other || !self.has_third.load(Ordering::Relaxed) {
            return Err(Error::Unpinnable { id });
        }
        let reader = self.reader()?;
        for _ in 0..MAX_PINS {
            let (buffer, seal, info) =
                find(&reader.read_states()?, id).ok_or(Error::Gone { id })?;
            let header = Arc::clone(&self.headers[buffer]);
            // A buffer that is opened between this and the pin has another seal.
            let overruns = Header::in_mapping(&header).overruns();
            if !Header::in_mapping(&header).pin(seal) {
                continue;
            }
            pinned.id = Some(id);
            pinned.pins += 1;
            let pin = Pin {
                header,
                overruns,
                pinned: Arc::clone(&self.pinned),
            };
            drop(pinned);
            let commit = reader.map(buffer, seal, info)?;
            return Ok(PinnedCommit { commit, pin });
        }
        Err(Error::Busy)
    }
}

fn read_only(fd: &OwnedFd) -> Result<OwnedFd, Error> {
    memfd::read_only(fd).map_err(|source| {
        let len = PAGE as u64;
        memfd::Error::Map { len, source }.into()
    })
}

/// A commit whose bytes do not change, also if it becomes void. The worker overwrites it only if three commits exceed its
/// limit, or if the memory is damaged. [`PinnedCommit::is_intact`] tells.
#[derive(Debug)]
pub struct PinnedCommit {
    commit: Commit,
    pin: Pin,
}

impl PinnedCommit {
    /// The header.
    pub fn info(&self) -> Info {
        self.commit.info()
    }

    /// The body.
    pub fn bytes(&self) -> &[u8] {
        self.commit.bytes()
    }

    /// Whether all bytes read until now are of this commit.
    pub fn is_intact(&self) -> bool {
        Header::in_mapping(&self.pin.header).overruns() == self.pin.overruns
    }
}

#[derive(Debug)]
struct Pin {
    header: Arc<Mapping>,
    /// The count of the buffer before the pin.
    overruns: u64,
    pinned: Arc<Mutex<Pinned>>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        Header::in_mapping(&self.header).unpin();
        pinned.pins -= 1;
        if pinned.pins == 0 {
            pinned.id = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use elasticrun_protocol::{DriverEpoch, Round};

    use super::*;
    use crate::commit::CommitWriter;

    fn id(count: u64) -> CommitId {
        CommitId {
            epoch: DriverEpoch(1),
            round: Round(1),
            count,
        }
    }

    fn writer(memory: &CommitMemory, buffers: usize) -> CommitWriter {
        let fds = memory.fds(buffers).into_iter();
        CommitWriter::open(fds.map(|fd| fd.try_clone_to_owned().unwrap()).collect()).unwrap()
    }

    fn held(memory: &CommitMemory) -> Vec<u64> {
        let commits = memory.reader().unwrap().commits().unwrap();
        commits.iter().map(|info| info.id.count).collect()
    }

    #[test]
    fn kept_commits_stay_beside_the_newest_one() {
        let memory = CommitMemory::create().unwrap();
        let mut writer = writer(&memory, 4);
        memory.keep([None, Some(id(3))]);
        (1..=6).for_each(|count| commit(&mut writer, count));
        assert_eq!(held(&memory), [6, 5, 3]);
        // The next one is named before it is sealed, and the last one stays.
        memory.keep([Some(id(3)), Some(id(8))]);
        (7..=20).for_each(|count| commit(&mut writer, count));
        assert_eq!(held(&memory)[..3], [20, 19, 8]);
        assert_eq!(held(&memory)[3..], [3]);
        memory.keep([Some(id(8)), Some(id(22))]);
        (21..=30).for_each(|count| commit(&mut writer, count));
        assert_eq!(held(&memory), [30, 29, 22, 8]);
        memory.keep([None, None]);
        (31..=40).for_each(|count| commit(&mut writer, count));
        assert_eq!(held(&memory)[..2], [40, 39]);
    }

    #[test]
    fn kept_commits_give_way_to_a_limit() {
        let memory = CommitMemory::create().unwrap();
        let mut writer = writer(&memory, 4);
        let len = 3 << 20;
        let mut commit = |count| {
            let mut write = writer.begin(id(count), 0).unwrap();
            write.append(len).unwrap().fill(count as u8);
            write.seal(None);
            writer.set_limit(Some(2 * (len as u64 + (1 << 20))));
        };
        memory.keep([None, Some(id(2))]);
        (1..=6).for_each(&mut commit);
        assert_eq!(held(&memory), [6, 5]);
    }

    fn commit(writer: &mut CommitWriter, count: u64) {
        let mut write = writer.begin(id(count), 0).unwrap();
        write.append(8).unwrap().fill(count as u8);
        write.seal(None);
    }

    #[test]
    fn a_reader_notices_that_its_pinned_commit_is_overwritten() {
        let memory = CommitMemory::create().unwrap();
        let fds = memory.fds(3).into_iter();
        let mut writer =
            CommitWriter::open(fds.map(|fd| fd.try_clone_to_owned().unwrap()).collect()).unwrap();
        commit(&mut writer, 1);
        let pinned = memory.pin(id(1)).unwrap();
        commit(&mut writer, 2);
        // A rename and a discard leave the bytes as they are, and other buffers are free.
        writer.rename_newest(id(3)).unwrap();
        writer.discard_newer(id(0));
        commit(&mut writer, 4);
        commit(&mut writer, 5);
        assert!(pinned.is_intact());
        assert_eq!(pinned.bytes(), [1; 8]);
        // All buffers are pinned at once, which no agent does.
        for header in &memory.headers {
            let header = Header::in_mapping(header);
            header.pin(header.seal());
        }
        commit(&mut writer, 6);
        assert!(!pinned.is_intact());
    }
}
