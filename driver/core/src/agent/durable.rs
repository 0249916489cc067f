//! Write-behind: which commits this agent writes to the durable store, and when.
//!
//! A replicated state is whole in each copy, so one agent writes: that of rank 0, whose process is the source. A write
//! begins one interval after the previous one has ended, or when the host is told that it will go away, if the source has a
//! newer commit. The shell writes the newest commit that the source has then. At most one write is pending, and training never waits for it.
//!
//! Not promised: that a commit is written before its host is lost, or that a commit in the store stays valid. The driver
//! knows which commits are void. Void ones count among those that the shell keeps.

use std::time::Duration;

use elasticrun_protocol::{AgentReport, CommitId, Process, Rank, control::Start};

use super::{Command, Machine, Memory};
use crate::Time;

/// The shortest time after which a write that has not ended is reported as slow.
const MIN_PATIENCE: Duration = Duration::from_secs(60);

/// The write-behind of an agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Durable {
    /// The process whose commits are written, and the number of members of its round.
    source: Option<(Process, u32)>,
    /// When the next write is due, unless one is pending.
    due: Option<Time>,
    /// When the pending write is reported as slow. `Time::NEVER` after that.
    pending: Option<Time>,
    /// The newest commit that this agent has written.
    written: Option<CommitId>,
    /// A failure was reported and no write has succeeded since.
    failing: bool,
}

impl Machine {
    /// Follows rank 0 to the host of this agent, or away from it.
    pub(super) fn follow_rank_0(&mut self, now: Time, start: &Start) {
        let Some(setup) = &self.setup.durable else {
            return;
        };
        let rank_0 = (start.members.iter()).find(|member| member.place.rank == Rank(0));
        self.durable.source = rank_0.map(|member| (member.process, start.size));
        match rank_0 {
            Some(_) => _ = self.durable.due.get_or_insert(now + setup.interval),
            None => self.durable.due = None,
        }
    }

    /// When [`Machine::write_behind`] is due.
    pub(super) fn durable_deadline(&self) -> Option<Time> {
        let durable = &self.durable;
        let due = durable.pending.or(durable.due);
        due.filter(|due| !self.ending && *due < Time::NEVER)
    }

    /// Begins the write that is due, or reports a slow one.
    pub(super) fn write_behind(&mut self, now: Time, memory: &dyn Memory, out: &mut Vec<Command>) {
        if self.durable_deadline().is_none_or(|due| due > now) {
            return;
        }
        let Some(interval) = self.setup.durable.as_ref().map(|setup| setup.interval) else {
            return;
        };
        let patience = interval.max(MIN_PATIENCE);
        if self.durable.pending.is_some() {
            self.durable.pending = Some(Time::NEVER);
            let why = format!(
                "a write has not ended after {} s: the store is slow or does not answer",
                patience.as_secs()
            );
            return self.report_failure(why, out);
        }
        self.durable.due = Some(now + interval);
        let Some((process, size)) = self.durable.source else {
            return;
        };
        let newest = memory.newest(process);
        if newest > self.durable.written {
            self.durable.pending = Some(now + patience);
            out.push(Command::WriteDurable { process, size });
        }
    }

    /// Handles the end of a write.
    pub(super) fn durable_written(
        &mut self,
        now: Time,
        commit: CommitId,
        (bytes, took): (u64, Duration),
        out: &mut Vec<Command>,
    ) {
        self.end_write(now);
        self.durable.written = self.durable.written.max(Some(commit));
        self.durable.failing = false;
        let written = AgentReport::DurableWritten {
            commit,
            bytes,
            took,
        };
        self.report_durable(written, out);
    }

    /// Handles a commit without bytes: the process keeps its state itself, so there is nothing to write.
    pub(super) fn durable_empty(&mut self, now: Time) {
        self.end_write(now);
    }

    /// Handles a write that has failed. The commit before it is still complete in the store.
    pub(super) fn durable_failed(&mut self, now: Time, why: String, out: &mut Vec<Command>) {
        self.end_write(now);
        self.report_failure(why, out);
    }

    fn end_write(&mut self, now: Time) {
        self.durable.pending = None;
        let interval = self.setup.durable.as_ref().map(|setup| setup.interval);
        if let (Some(due), Some(interval)) = (&mut self.durable.due, interval) {
            *due = now + interval;
        }
    }

    /// Reports why no commit can be written, once until a write succeeds.
    pub(super) fn report_failure(&mut self, why: String, out: &mut Vec<Command>) {
        if !std::mem::replace(&mut self.durable.failing, true) {
            self.report_durable(AgentReport::DurableFailed { why }, out);
        }
    }

    /// Reports something about the store, unless the driver is of a release without one.
    pub(super) fn report_durable(&self, report: AgentReport, out: &mut Vec<Command>) {
        if self.setup.durable.is_some() {
            out.push(Command::AgentReport(report));
        }
    }

    /// A later driver has not heard of a failure that lasts.
    pub(super) fn durable_told_anew(&mut self) {
        self.durable.failing = false;
    }

    /// Begins the next write at once: the host may go away soon.
    pub(super) fn hasten_write(&mut self, now: Time) {
        if let Some(due) = &mut self.durable.due {
            *due = now.min(*due);
        }
    }
}
