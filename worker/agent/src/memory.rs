//! The memory of the workers of this host, which outlives them: the port of the agent's machine to it.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use elasticrun_core::{Time, agent};
use elasticrun_protocol::{Boundary, CommitId, Process, Round};
use elasticrun_shm::{
    commit::{self, CommitFds, CommitMemory, CommitReader},
    page::{self, AgentPage},
};

use crate::{clock::Clock, discard::Discard};

/// Why a worker's memory cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Its page.
    #[error(transparent)]
    Page(#[from] page::Error),
    /// Its commits.
    #[error(transparent)]
    Commits(#[from] commit::Error),
}

/// What one worker process shares with the agent.
#[derive(Debug)]
pub(crate) struct WorkerMemory {
    pub(crate) page: AgentPage,
    pub(crate) commits: Arc<CommitMemory>,
    reader: CommitReader,
}

impl WorkerMemory {
    /// What the worker gets: its page and its two commit memories.
    pub(crate) fn descriptors(&self) -> io::Result<Vec<Arc<OwnedFd>>> {
        let [a, b] = self.commits.fds();
        [self.page.as_fd(), a, b]
            .into_iter()
            .map(|fd| fd.try_clone_to_owned().map(Arc::new))
            .collect()
    }
}

/// The commit memories of all processes, for who reads them on other threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shelf(Arc<Mutex<BTreeMap<Process, Arc<CommitMemory>>>>);

impl Shelf {
    /// The commit memory of a process, dead or alive.
    pub(crate) fn get(&self, process: Process) -> Option<Arc<CommitMemory>> {
        self.lock().get(&process).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Process, Arc<CommitMemory>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module. Answers for a process that it does not know as for one that did nothing.
#[derive(Debug)]
pub(crate) struct Memories {
    of: BTreeMap<Process, WorkerMemory>,
    shelf: Shelf,
    discard: Discard,
    clock: Clock,
}

/// What an agent keeps of one session with a driver for the next one of the same run: commits of processes that are dead.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) shelf: Shelf,
    of: BTreeMap<Process, WorkerMemory>,
}

impl Kept {
    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Drops all.
    pub(crate) fn clear(&mut self) {
        self.of.clear();
        self.shelf.lock().clear();
    }

    /// Whose commits they are.
    pub(crate) fn processes(&self) -> Vec<Process> {
        self.of.keys().copied().collect()
    }
}

impl Memories {
    pub(crate) fn new(kept: Kept, discard: Discard, clock: Clock) -> Self {
        Self {
            of: kept.of,
            shelf: kept.shelf,
            discard,
            clock,
        }
    }

    /// All processes are dead: what they have committed stays.
    pub(crate) fn into_kept(mut self) -> Kept {
        let all: Vec<_> = self.of.keys().copied().collect();
        for process in all {
            if agent::Memory::commits(&self, process).is_empty() {
                self.forget(process);
            }
        }
        Kept {
            shelf: self.shelf,
            of: self.of,
        }
    }

    /// Makes the memory of a new process.
    pub(crate) fn create(&mut self, process: Process) -> Result<(), Error> {
        let commits = Arc::new(CommitMemory::create()?);
        let memory = WorkerMemory {
            page: AgentPage::create()?,
            reader: commits.reader()?,
            commits: Arc::clone(&commits),
        };
        self.of.insert(process, memory);
        self.shelf.lock().insert(process, commits);
        Ok(())
    }

    pub(crate) fn get(&self, process: Process) -> Option<&WorkerMemory> {
        self.of.get(&process)
    }

    /// Descriptors through which another worker of this host may read what a process committed.
    pub(crate) fn read_only(&self, process: Process) -> Option<Result<CommitFds, commit::Error>> {
        Some(self.of.get(&process)?.commits.read_only())
    }

    /// Gives it back to the system.
    pub(crate) fn forget(&mut self, process: Process) {
        self.shelf.lock().remove(&process);
        self.discard.later(self.of.remove(&process));
    }

    fn page(&self, process: Process) -> Option<&AgentPage> {
        self.of.get(&process).map(|memory| &memory.page)
    }
}

impl agent::Memory for Memories {
    fn hold(&mut self, process: Process, round: Round) -> Boundary {
        // A newer round was held in this page: the machine asks for none that is over, but if it did, the
        // count would be the answer.
        let held = |page: &AgentPage| page.hold(round).unwrap_or_else(|| page.count(round));
        self.page(process).map(held).unwrap_or_default()
    }

    fn leave_at(&mut self, process: Process, round: Round, at: Boundary) {
        if let Some(page) = self.page(process)
            && !page.set_leave_at(round, at)
        {
            tracing::debug!(%process, %round, %at, "the round is not held any more");
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

    fn commits(&self, process: Process) -> Vec<CommitId> {
        let Some(memory) = self.of.get(&process) else {
            return Vec::new();
        };
        match memory.reader.commits() {
            Ok(infos) => infos.into_iter().map(|info| info.id).collect(),
            Err(error) => {
                tracing::warn!(%process, %error, "the commits of a worker cannot be read");
                Vec::new()
            }
        }
    }

    fn beats(&self, process: Process) -> u64 {
        self.page(process).map_or(0, AgentPage::beats)
    }

    fn commit_count(&self, process: Process) -> u64 {
        self.page(process).map_or(0, AgentPage::commits)
    }
}
