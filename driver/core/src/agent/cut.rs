//! Cuts: the commit of a divided state of which this host keeps shards, its own and those of other hosts.
//!
//! The driver names the cut that is complete (`keep`) and the one that is copied next (`next`), see [`Cut`]. Workers keep
//! their shards of both in their memory. Shards of other hosts are copied one after the other, and each is kept like the
//! memory of a dead process. So the rest of a recovery is as after any loss of workers.
//!
//! # Invariants
//! - Shards of `keep`, of `next` and of the base of the round stay, those of dead workers too. Copies of other commits are
//!   given up by a command of the driver only, and not between the answer to a plan and the next command. So the copies of
//!   a complete cut stay until those of the next one are complete.
//! - A copy counts once all its bytes are here, and their digest is that of the source.
//! - What a command asks for is reported once for each command, also if it was reported before: the report may be lost.

use std::time::Duration;

use elasticrun_protocol::{
    AgentReport, CommitId, CommitKey, Process,
    control::{Cut, CutShard, ShardCopy},
};

use super::{Command, Copied, Machine, Memory, event::Wanted, stored::NO_SLOT};
use crate::{
    Time,
    mutant::{Mutant, planted},
};

/// The number of failures in a row after which a cut is reported as one that cannot be copied.
const MAX_FAILURES: u32 = 3;

/// The part of the interval of heartbeats after which an agent looks again whether its members hold a cut.
const LOOKS: u32 = 10;

/// The cuts of an agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Cuts {
    cut: Cut,
    /// When to look whether the members hold the next cut. None once that is reported.
    look: Option<Time>,
    /// The copies that are asked for are reported as complete, or as failed.
    is_told: bool,
    pending: Option<Pending>,
    /// When the next copy may begin.
    due: Time,
    /// Failures since the last copy.
    failures: u32,
    /// Bytes of the copies of this cut, and when the first began.
    bytes: u64,
    begun: Option<Time>,
}

/// A copy that goes on.
#[derive(Clone, Debug)]
struct Pending {
    /// The process that never lived and gets the shard.
    process: Process,
    copy: ShardCopy,
}

impl Cuts {
    /// The newest cut whose copies are complete.
    pub(super) fn complete(&self) -> Option<CommitId> {
        self.cut.keep
    }

    /// The commits that workers keep beside their newest ones.
    pub(super) fn named(&self) -> [Option<CommitId>; 2] {
        [self.cut.keep, self.cut.next]
    }

    /// Whether shards of a commit stay.
    pub(super) fn needs(&self, commit: CommitId) -> bool {
        let Cut {
            base, keep, next, ..
        } = self.cut;
        let keep = keep.filter(|_| !planted(Mutant::CutDroppedEarly));
        [base, keep, next].contains(&Some(commit))
    }

    fn key(&self, copy: &ShardCopy) -> Option<CommitKey> {
        let shard = copy.shard;
        self.cut.next.map(|commit| CommitKey { commit, shard })
    }
}

impl Machine {
    /// Whether a dead process has a shard that stays.
    pub(super) fn has_cut(&self, process: Process, memory: &dyn Memory) -> bool {
        let commits = memory.commits(process);
        commits.iter().any(|key| self.cuts.needs(key.commit))
    }

    /// Handles what the driver says of cuts.
    pub(super) fn on_cut(
        &mut self,
        now: Time,
        cut: Cut,
        memory: &mut dyn Memory,
        out: &mut Vec<Command>,
    ) {
        if cut.number <= self.cuts.cut.number {
            return;
        }
        let is_other = cut.next != self.cuts.cut.next;
        let goes_on = |pending: &Pending| !is_other && cut.copies.contains(&pending.copy);
        if let Some(Pending { process, .. }) =
            self.cuts.pending.take_if(|pending| !goes_on(pending))
        {
            out.push(Command::Forget { process });
        }
        if is_other {
            (self.cuts.bytes, self.cuts.begun) = (0, None);
        }
        self.cuts.look = cut.next.map(|_| now);
        self.cuts.is_told = cut.copies.is_empty();
        self.cuts.cut = cut;
        (self.cuts.due, self.cuts.failures) = (now, 0);
        for process in self.workers.keys() {
            memory.keep_commits(*process, self.cuts.named());
        }
        self.drop_copies(memory, out);
        self.follow_cut(now, memory, out);
    }

    /// Frees the copies that no command needs any more.
    fn drop_copies(&mut self, memory: &dyn Memory, out: &mut Vec<Command>) {
        if self.cuts.cut.planned < self.seen && !planted(Mutant::ReplicaInPlan) {
            return;
        }
        let pending = self.cuts.pending.as_ref().map(|pending| pending.process);
        let is_dropped = |process: &Process| {
            let is_copy = process.local_rank == NO_SLOT && Some(*process) != pending;
            is_copy && !self.has_cut(*process, memory)
        };
        let dropped: Vec<_> = self.kept.iter().copied().filter(is_dropped).collect();
        for process in dropped {
            self.kept.remove(&process);
            out.push(Command::Forget { process });
        }
    }

    /// When [`Self::follow_cut`] is due.
    pub(super) fn cut_deadline(&self) -> Option<Time> {
        let copies = self.cuts.pending.is_none() && !self.cuts.is_told && !self.ending;
        let copies = copies.then_some(self.cuts.due);
        let look = self.cuts.look.filter(|_| !self.ending);
        crate::time::earliest([copies, look])
    }

    /// Reports that the members hold the next cut, and begins the copy that is due.
    pub(super) fn follow_cut(&mut self, now: Time, memory: &dyn Memory, out: &mut Vec<Command>) {
        if self.cut_deadline().is_none_or(|due| due > now) {
            return;
        }
        if self.cuts.look.is_some_and(|look| look <= now) {
            self.cuts.look = Some(now + self.setup.heartbeat_interval / LOOKS);
            self.look_for_cut(memory, out);
        }
        let may_begin = self.cuts.pending.is_none() && !self.cuts.is_told && self.cuts.due <= now;
        if may_begin {
            self.copy_next(now, memory, out);
        }
    }

    fn look_for_cut(&mut self, memory: &dyn Memory, out: &mut Vec<Command>) {
        let Some(commit) = self.cuts.cut.next else {
            return;
        };
        let members = self.members_of(commit.round);
        let has_passed = |process: &Process| memory.newest(*process) >= Some(commit);
        if members.is_empty() || !members.iter().all(has_passed) {
            return;
        }
        let held = members.into_iter().filter_map(|process| {
            let keys = memory.commits(process);
            let key = keys.iter().find(|key| key.commit == commit)?;
            let shard = key.shard;
            Some(CutShard { process, shard })
        });
        let held = held.collect();
        self.cuts.look = None;
        out.push(Command::AgentReport(AgentReport::CutHeld { commit, held }));
    }

    /// Begins the copy of the first shard that is asked for and not here, or reports that there is none.
    fn copy_next(&mut self, now: Time, memory: &dyn Memory, out: &mut Vec<Command>) {
        let here: Vec<_> = (self.kept.iter())
            .filter(|process| process.local_rank == NO_SLOT)
            .flat_map(|process| memory.commits(*process))
            .collect();
        let is_missing = |copy: &&ShardCopy| {
            let mixed = |key: CommitKey| here.iter().any(|other| other.shard == key.shard);
            let is_here = |key: CommitKey| match planted(Mutant::CutsMixed) {
                true => mixed(key),
                false => here.contains(&key),
            };
            self.cuts.key(copy).is_some_and(|key| !is_here(key))
        };
        let missing = self.cuts.cut.copies.iter().find(is_missing).cloned();
        let begun = *self.cuts.begun.get_or_insert(now);
        let Some(copy) = missing else {
            self.cuts.is_told = true;
            if let Some(commit) = self.cuts.cut.next {
                out.push(Command::AgentReport(AgentReport::Replicated {
                    commit,
                    bytes: self.cuts.bytes,
                    took: now.since(begun),
                }));
            }
            return;
        };
        let Some(key) = self.cuts.key(&copy) else {
            return;
        };
        let (process, keeper) = (self.unborn(), copy.keeper.clone());
        self.cuts.pending = Some(Pending { process, copy });
        let wanted = match planted(Mutant::CutsMixed) {
            // The shell makes this mistake.
            true => Wanted::Newer(None),
            false => Wanted::Shard(key),
        };
        out.push(Command::Replicate {
            process,
            keeper,
            wanted,
            limit: None,
        });
    }

    /// Handles the end of a copy of a shard. Returns whether it was one.
    pub(super) fn shard_copied(
        &mut self,
        now: Time,
        process: Process,
        copied: &Copied,
        memory: &dyn Memory,
        out: &mut Vec<Command>,
    ) -> bool {
        let is_this = |pending: &mut Pending| pending.process == process;
        if self.cuts.pending.take_if(is_this).is_none() {
            return false;
        }
        match copied {
            Copied::Whole { bytes, .. } => {
                self.kept.insert(process);
                self.cuts.bytes += bytes;
                self.cuts.failures = 0;
                self.copy_next(now, memory, out);
            }
            Copied::NothingNewer => {
                out.push(Command::Forget { process });
                self.cut_failed("the shard is not there any more".into(), out);
            }
            Copied::Failed { why } => {
                out.push(Command::Forget { process });
                self.cuts.failures += 1;
                let interval = (self.setup.replication).map_or(Duration::ZERO, |it| it.interval);
                self.cuts.due = now + interval;
                if self.cuts.failures == MAX_FAILURES {
                    self.cut_failed(why.clone(), out);
                }
            }
        }
        true
    }

    /// Gives up the copies of this command. The driver names another cut.
    fn cut_failed(&mut self, why: String, out: &mut Vec<Command>) {
        self.cuts.is_told = true;
        let commit = self.cuts.cut.next;
        let failed = AgentReport::ReplicaFailed { why, commit };
        out.push(Command::AgentReport(failed));
    }
}
