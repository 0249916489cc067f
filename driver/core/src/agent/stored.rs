//! Commits that come back from the durable store.
//!
//! The driver asks for a search, and then for a load. A loaded commit is kept like that of a dead process, so the rest of
//! a recovery is as after any loss of workers. The process never lived: it has a slot that no host offers. A load that the
//! driver has given up leaves nothing behind.

use elasticrun_protocol::{
    AgentReport, CommitId, Generation, LocalRank, Process,
    control::{ResumeFrom, StoredCommit},
};

use super::{Command, Machine};

/// The slot of processes that never lived.
pub(super) const NO_SLOT: LocalRank = LocalRank(u32::MAX);

impl Machine {
    /// Begins a search of the store.
    pub(super) fn find_stored(
        &mut self,
        number: u64,
        from: Option<ResumeFrom>,
        out: &mut Vec<Command>,
    ) {
        if number > self.stored {
            self.stored = number;
            out.push(Command::FindDurable { number, from });
        }
    }

    /// Begins the load of a commit, under the id that it has in this run.
    pub(super) fn load_stored(
        &mut self,
        number: u64,
        stored: StoredCommit,
        id: CommitId,
        out: &mut Vec<Command>,
    ) {
        if number > self.stored {
            self.stored = number;
            let process = self.unborn();
            out.push(Command::LoadDurable {
                number,
                process,
                stored,
                id,
            });
        }
    }

    /// A new process that never lives, for the memory of a commit from elsewhere.
    pub(super) fn unborn(&mut self) -> Process {
        let kept = (self.kept.iter()).filter(|process| process.local_rank == NO_SLOT);
        let last = kept.map(|process| process.generation).max();
        // An earlier load may still go on, and commits of an earlier connection are kept.
        self.loads = Generation(self.loads.max(last.unwrap_or_default()).0 + 1);
        Process {
            local_rank: NO_SLOT,
            generation: self.loads,
        }
    }

    /// Reports what a search has found. The driver has given up an older one.
    pub(super) fn stored_found(
        &mut self,
        number: u64,
        commits: Vec<StoredCommit>,
        refused: Vec<String>,
        out: &mut Vec<Command>,
    ) {
        if number == self.stored {
            let found = AgentReport::DurableFound {
                number,
                commits,
                refused,
            };
            self.report_durable(found, out);
        }
    }

    /// Keeps a loaded commit, and reports it.
    pub(super) fn stored_loaded(
        &mut self,
        number: u64,
        process: Process,
        refused: Option<String>,
        out: &mut Vec<Command>,
    ) {
        let is_awaited = number == self.stored;
        match is_awaited && refused.is_none() {
            true => _ = self.kept.insert(process),
            false => out.push(Command::Forget { process }),
        }
        if is_awaited {
            self.report_durable(AgentReport::DurableLoaded { number, refused }, out);
        }
    }
}
