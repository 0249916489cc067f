//! Liveness of the driver as the agent sees it, and what the workers may do while the driver is absent.
//!
//! | driver | evidence | workers | final outcome |
//! |---|---|---|---|
//! | suspended | its machine acknowledges, but no heartbeat is answered | train to the end of their lease, then wait | wait as long as the suspension lasts |
//! | unreachable | nothing is acknowledged | as above | end after the keep timeout and the orphan timeout |
//! | cut off | the connection has ended, and dials fail | as above | as above |
//! | gone | the connection has ended, and dials are refused | train to the end of their lease | end after the orphan timeout |
//!
//! A broken connection alone does not tell a driver that is gone from a network that is down for a while: a middlebox may
//! close it, and so does a driver that hears nothing. So its workers are kept as long as those of a silent driver
//! ([`crate::lease`]). A machine that refuses a dial is reached, and runs no driver: then the orphan timeout suffices.
//! With a driver that takes no agent back, a broken connection is final.
//!
//! A worker that waits at a boundary is harmless, whatever the driver has started elsewhere. So R11 rests on the lease
//! alone: an acknowledgement can come from a proxy.

use std::time::Duration;

use elasticrun_protocol::{AgentReport, CommitId, Round, control::Start};

use super::{
    Command, Machine, Memory, Signal,
    worker::{Life, Worker},
};
use crate::{
    Time,
    mutant::{Mutant, planted},
};

/// Maximum number of unanswered heartbeats to a silent driver. They stay in its socket buffer until the driver reads
/// again; more would fill the buffer.
const MOST_UNANSWERED: usize = 32;

impl Machine {
    /// The end of the lease that the driver has granted to the workers.
    pub(super) fn lease_end(&self) -> Time {
        self.heard + self.lease
    }

    /// Extends the silence limits of the workers by the time in which the agent itself did not run. Workers that stood
    /// still with the agent had no time for a heartbeat.
    pub(super) fn excuse(&mut self, now: Time) {
        let late = now.since(self.next_beat);
        if late >= self.setup.heartbeat_interval {
            for worker in self.workers.values_mut() {
                worker.excuse(late);
            }
        }
    }

    /// The newest commit that all members of the round here have sealed, of a state that is divided among workers.
    fn sealed_by_members(&self, memory: &dyn Memory) -> Option<CommitId> {
        let round = self.started.as_ref()?.round;
        let newest = (self.members_of(round).into_iter())
            .map(|process| memory.commits(process).first().copied());
        let keys: Vec<_> = newest.collect::<Option<_>>()?;
        let is_divided = keys.iter().any(|key| !key.shard.is_whole());
        let sealed = keys.iter().map(|key| key.commit).min();
        sealed.filter(|_| is_divided)
    }

    pub(super) fn beat(&mut self, now: Time, memory: &dyn Memory, out: &mut Vec<Command>) {
        if self.orphan_since.is_some() && self.unanswered.len() >= MOST_UNANSWERED {
            return;
        }
        let commits = self.workers.keys().map(|p| memory.commit_count(*p)).sum();
        self.beats += 1;
        let (count, held) = (self.beats, self.held_in_memory(memory));
        let sealed = self.sealed_by_members(memory);
        let is_sealed = |round: &mut Round| sealed.is_some_and(|sealed| sealed.round == *round);
        if let Some(round) = self.passes.take_if(is_sealed) {
            out.push(Command::EndPassing { round });
        }
        self.unanswered.push_back((count, now));
        out.push(Command::AgentReport(AgentReport::Heartbeat {
            commits,
            count,
            held,
            sealed,
        }));
    }

    /// Handles the driver's answer to heartbeat `count`. The lease counts from when that heartbeat was sent, however
    /// late the answer arrives.
    pub(super) fn beat_answered(
        &mut self,
        now: Time,
        count: u64,
        lease: Option<Duration>,
        memory: &mut dyn Memory,
        out: &mut Vec<Command>,
    ) {
        let before = self.lease_end();
        self.lease = lease.unwrap_or(self.lease);
        while let Some((_, sent)) = self.unanswered.pop_front_if(|(sent, _)| *sent <= count) {
            self.heard = if planted(Mutant::LateBeat) { now } else { sent };
        }
        let until = self.lease_end();
        if until == before {
            return;
        }
        for (process, _) in self
            .workers
            .iter()
            .filter(|(_, worker)| worker.is_attached())
        {
            memory.set_lease(*process, until);
        }
        if now < until {
            self.thaw(out);
        }
        if now.since(self.heard) < self.setup.heartbeat_timeout && !self.closed {
            // The driver was only silent. Holds were withdrawn; all other state is unchanged.
            self.orphan_since = None;
        }
    }

    /// Marks the driver as lost and withdraws all holds: no further command can release a held worker.
    pub(super) fn driver_lost(&mut self, now: Time, memory: &mut dyn Memory) {
        if self.orphan_since.is_some() {
            return;
        }
        self.orphan_since = Some(now);
        for (process, worker) in &self.workers {
            if let Life::Training { round, .. } = worker.life {
                memory.withdraw(*process, round);
            }
        }
    }

    /// Whether the driver is gone: the connection has ended, and the machine at its address runs no driver of this job.
    pub fn driver_is_gone(&self) -> bool {
        self.closed && self.refused
    }

    /// When the workers are ended because the driver is absent.
    pub(super) fn orphan_deadline(&self) -> Option<Time> {
        let ends = !self.ending && !planted(Mutant::OrphansTrainOn);
        let since = self.orphan_since.filter(|_| ends)?;
        let keep = self.setup.keep_timeout;
        let is_gone = self.driver_is_gone() || self.closed && !self.outbox.keeps;
        let until = if is_gone || keep.is_zero() {
            since
        } else {
            since.max(self.reached) + keep
        };
        Some(until + self.setup.orphan_timeout)
    }

    /// Rejects a start that arrives after the end of the lease. The driver may have given up that round, which would
    /// then train beside another one (R11).
    pub(super) fn refuse(&mut self, start: &Start, out: &mut Vec<Command>) {
        for member in &start.members {
            out.push(Command::AgentReport(AgentReport::PeerLost {
                round: start.round,
                process: member.process,
                unreachable: Vec::new(),
            }));
        }
    }

    /// When processes that ignore the lease are stopped (SIGSTOP).
    pub(super) fn freeze_deadline(&self) -> Option<Time> {
        let concerned =
            !self.frozen && !self.ending && self.workers.values().any(Worker::ignores_lease);
        concerned.then(|| self.lease_end())
    }

    pub(super) fn freeze(&mut self, out: &mut Vec<Command>) {
        self.frozen = true;
        self.signal_unattached(Signal::Stop, out);
    }

    /// Continues the stopped processes (SIGCONT), to train or to end.
    pub(super) fn thaw(&mut self, out: &mut Vec<Command>) {
        if std::mem::take(&mut self.frozen) {
            self.signal_unattached(Signal::Continue, out);
        }
    }

    fn signal_unattached(&self, signal: Signal, out: &mut Vec<Command>) {
        let all = (self.workers.iter()).filter(|(_, w)| w.ignores_lease() && w.killed().is_none());
        out.extend(all.map(|(process, _)| Command::Signal {
            process: *process,
            signal,
        }));
    }
}
