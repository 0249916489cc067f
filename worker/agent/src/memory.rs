//! The memory of the workers of this host, which outlives them. It implements the machine's access to that memory.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use elasticrun_core::{Time, agent};
use elasticrun_protocol::{Boundary, CommitId, CommitKey, Process, Round, control::BaseShards};
use elasticrun_shm::{
    commit::{self, Commit, CommitFds, CommitMemory, CommitReader, Info, PinnedCommit},
    page::{self, AgentPage, Phase},
    sched,
};

use crate::{clock::Clock, deferred_free::DeferredFree, local::SharedFd, spans};

/// Why a worker's memory cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The page failed.
    #[error(transparent)]
    Page(#[from] page::Error),
    /// The commit memory failed.
    #[error(transparent)]
    Commits(#[from] commit::Error),
}

/// The memory that one worker process shares with the agent.
#[derive(Debug)]
pub(crate) struct WorkerMemory {
    pub(crate) page: AgentPage,
    pub(crate) commits: Arc<CommitMemory>,
    reader: CommitReader,
}

impl WorkerMemory {
    /// The descriptors for the worker: its page, and as many buffers for commits as it can use.
    pub(crate) fn descriptors(&self, buffers: u8) -> io::Result<Vec<Arc<OwnedFd>>> {
        std::iter::once(self.page.as_fd())
            .chain(self.commits.fds(buffers.into()))
            .map(|fd| fd.try_clone_to_owned().map(Arc::new))
            .collect()
    }
}

/// How often a commit is looked up again that is overwritten before it can be pinned.
const MAX_LOOKS: usize = 100;

/// The commit memories of all processes, for readers on other threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommitRegistry(Arc<Mutex<BTreeMap<Process, Arc<CommitMemory>>>>);

impl CommitRegistry {
    /// The commit memory of a process, dead or alive.
    pub(crate) fn get(&self, process: Process) -> Option<Arc<CommitMemory>> {
        self.lock().get(&process).cloned()
    }

    /// The newest complete commit of a process at this instant.
    pub(crate) fn newest(&self, process: Process) -> Option<CommitId> {
        let reader = self.get(process)?.reader().ok()?;
        Some(reader.newest().ok()??.id)
    }

    /// Opens a commit of a process for a slow copy; none if it is not there (any more).
    pub(crate) fn copy(&self, process: Process, id: CommitId) -> Option<CommitCopy> {
        let memory = self.get(process)?;
        match memory.pin(id) {
            Ok(commit) => Some(CommitCopy::Pinned(commit)),
            Err(commit::Error::Unpinnable { .. }) => {
                let commit = memory.reader().and_then(|reader| reader.read(id));
                commit.ok().map(CommitCopy::Unpinned)
            }
            Err(_) => None,
        }
    }

    /// Opens a newer commit of a process than this one for a slow copy: the newest, or the one that is pinned for another
    /// copy.
    pub(crate) fn copy_newer(&self, process: Process, than: CommitId) -> Option<CommitCopy> {
        // The worker may commit on meanwhile, and another copy may end.
        (0..MAX_LOOKS).find_map(|_| {
            let newest = self.newest(process).filter(|newest| *newest > than)?;
            let pinned = self.get(process)?.pinned().filter(|pinned| *pinned > than);
            self.copy(process, pinned.unwrap_or(newest))
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Process, Arc<CommitMemory>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A commit that is being copied.
#[derive(Debug)]
pub(crate) enum CommitCopy {
    /// Its worker leaves it alone until it is copied.
    Pinned(PinnedCommit),
    /// Its worker cannot do so, or another commit is pinned.
    Unpinned(Commit),
}

impl CommitCopy {
    pub(crate) fn info(&self) -> Info {
        match self {
            Self::Pinned(commit) => commit.info(),
            Self::Unpinned(commit) => commit.info(),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Pinned(commit) => commit.bytes(),
            Self::Unpinned(commit) => commit.bytes(),
        }
    }

    /// Whether all bytes read until now are of this commit.
    pub(crate) fn is_intact(&self) -> bool {
        match self {
            Self::Pinned(commit) => commit.is_intact(),
            Self::Unpinned(commit) => commit.is_intact(),
        }
    }
}

/// A shard in the memory of a process.
#[derive(Debug)]
pub(crate) struct HeldShard {
    pub(crate) index: u32,
    pub(crate) process: Process,
    /// Two buffers of the process, one of which has the commit.
    pub(crate) fds: Vec<SharedFd>,
}

/// The memories of all processes. An unknown process reads as one that did nothing.
#[derive(Debug)]
pub(crate) struct Memories {
    by_process: BTreeMap<Process, WorkerMemory>,
    registry: CommitRegistry,
    deferred_free: DeferredFree,
    clock: Clock,
}

/// Commits of dead processes that an agent keeps between two connections to the driver of a run.
#[derive(Debug, Default)]
pub(crate) struct KeptCommits {
    pub(crate) registry: CommitRegistry,
    by_process: BTreeMap<Process, WorkerMemory>,
}

impl KeptCommits {
    /// Whether no commit is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_process.is_empty()
    }

    /// Drops all commits.
    pub(crate) fn clear(&mut self) {
        self.by_process.clear();
        self.registry.lock().clear();
    }

    /// The processes that made the commits.
    pub(crate) fn processes(&self) -> Vec<Process> {
        self.by_process.keys().copied().collect()
    }
}

impl Memories {
    pub(crate) fn new(kept: KeptCommits, deferred_free: DeferredFree, clock: Clock) -> Self {
        Self {
            by_process: kept.by_process,
            registry: kept.registry,
            deferred_free,
            clock,
        }
    }

    /// Keeps the memories that hold commits. Call it when all processes are dead.
    pub(crate) fn into_kept(mut self) -> KeptCommits {
        let all: Vec<_> = self.by_process.keys().copied().collect();
        for process in all {
            if agent::Memory::commits(&self, process).is_empty() {
                self.forget(process);
            }
        }
        KeptCommits {
            registry: self.registry,
            by_process: self.by_process,
        }
    }

    /// Creates the memory of a new process.
    pub(crate) fn create(&mut self, process: Process) -> Result<(), Error> {
        let commits = Arc::new(CommitMemory::create()?);
        let memory = WorkerMemory {
            page: AgentPage::create()?,
            reader: commits.reader()?,
            commits: Arc::clone(&commits),
        };
        self.by_process.insert(process, memory);
        self.registry.lock().insert(process, commits);
        Ok(())
    }

    pub(crate) fn get(&self, process: Process) -> Option<&WorkerMemory> {
        self.by_process.get(&process)
    }

    /// Read-only descriptors of a process's commits, this one among them, for another worker of this host.
    pub(crate) fn read_only(
        &self,
        process: Process,
        commit: CommitId,
    ) -> Option<Result<CommitFds, commit::Error>> {
        let memory = self.by_process.get(&process)?;
        Some(memory.commits.read_only_pair(commit))
    }

    /// The shards of a commit with this layout, each once, by index: read-only descriptors of the buffers of a process
    /// that holds it.
    pub(crate) fn shards(&self, commit: CommitId, layout: BaseShards) -> Vec<HeldShard> {
        let is_part = |key: &CommitKey| {
            let shard = key.shard;
            key.commit == commit && shard.layout == layout.layout && shard.of == layout.of
        };
        let mut holders = BTreeMap::new();
        for process in self.by_process.keys() {
            let commits = agent::Memory::commits(self, *process).into_iter();
            for key in commits.filter(is_part) {
                holders.entry(key.shard.index).or_insert(*process);
            }
        }
        let descriptors = holders.into_iter().filter_map(|(index, process)| {
            let fds = match self.read_only(process, commit)? {
                Ok(fds) => fds.into_iter().map(Arc::new).collect(),
                Err(error) => {
                    spans::worker(process)
                        .in_scope(|| tracing::error!(%error, "commits cannot be handed out"));
                    return None;
                }
            };
            Some(HeldShard {
                index,
                process,
                fds,
            })
        });
        descriptors.collect()
    }

    /// The commit memories, for readers on other threads.
    pub(crate) fn registry(&self) -> &CommitRegistry {
        &self.registry
    }

    /// Frees the memory of a process.
    pub(crate) fn forget(&mut self, process: Process) {
        self.registry.lock().remove(&process);
        self.deferred_free.push(self.by_process.remove(&process));
    }

    fn page(&self, process: Process) -> Option<&AgentPage> {
        self.by_process.get(&process).map(|memory| &memory.page)
    }
}

impl agent::Memory for Memories {
    fn hold(&mut self, process: Process, round: Round) -> Boundary {
        // The page refuses if a newer round was held in it. The machine holds no round that is over; if it did,
        // the count would be the answer.
        let held = |page: &AgentPage| page.hold(round).unwrap_or_else(|| page.count(round));
        self.page(process).map(held).unwrap_or_default()
    }

    fn leave_at(&mut self, process: Process, round: Round, at: Boundary) {
        if let Some(page) = self.page(process)
            && !page.set_leave_at(round, at)
        {
            spans::worker(process)
                .in_scope(|| tracing::debug!(%round, %at, "the round is not held any more"));
        }
    }

    fn withdraw(&mut self, process: Process, round: Round) {
        if let Some(page) = self.page(process) {
            page.withdraw(round);
        }
    }

    fn set_at_risk(&mut self, process: Process) {
        if let Some(page) = self.page(process) {
            page.set_at_risk();
        }
    }

    fn set_lease(&mut self, process: Process, until: Time) {
        if let Some(page) = self.page(process) {
            page.set_lease(self.clock.boottime(until));
        }
    }

    fn keep_commits(&mut self, process: Process, commits: [Option<CommitId>; 2]) {
        if let Some(memory) = self.by_process.get(&process) {
            memory.commits.keep(commits);
        }
    }

    fn commits(&self, process: Process) -> Vec<CommitKey> {
        let Some(memory) = self.by_process.get(&process) else {
            return Vec::new();
        };
        match memory.reader.commits() {
            Ok(infos) => infos.iter().map(Info::key).collect(),
            Err(error) => {
                spans::worker(process)
                    .in_scope(|| tracing::warn!(%error, "the commits of a worker cannot be read"));
                Vec::new()
            }
        }
    }

    fn beats(&self, process: Process) -> u64 {
        self.page(process).map_or(0, AgentPage::beats)
    }

    fn is_starved(&self, process: Process) -> bool {
        let thread = self.page(process).and_then(AgentPage::owner);
        thread.is_some_and(sched::is_runnable)
    }

    fn commit_count(&self, process: Process) -> u64 {
        self.page(process).map_or(0, AgentPage::commits)
    }

    fn exited_outside(&self, process: Process) -> bool {
        let phase = self.page(process).and_then(AgentPage::phase_at_exit);
        matches!(phase, Some(Phase::Waiting | Phase::Left))
    }
}
