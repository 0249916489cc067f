//! The agent's way back to a driver, with the workers that it has kept: the same driver after the connection broke, or
//! the next driver of the run.
//!
//! ```text
//!   DriverLost             adoption()                 DriverBack               the first answered heartbeat
//!   ---------> workers keep ---------> registration ------------> obeys again ------------> lease renewed
//! ```
//! - A driver of an older epoch than the one obeyed last is not obeyed (R3).
//! - The lease is not renewed by the return itself. What the driver decides about the workers arrives before its first
//!   answer to a heartbeat. So no worker of a round that is over passes a boundary meanwhile (R11).

use elasticrun_protocol::{
    AgentReport, DriverEpoch, FromAgent,
    control::{AdoptedPhase, AdoptedRound, AdoptedWorker, Adoption, Kept, Setup, Start},
};

use super::{Command, Machine, Memory, worker::Life};
use crate::{
    Time,
    mutant::{Mutant, planted},
};

impl Machine {
    /// Sets whether the driver acknowledges reports, and takes the agent back with its workers after the connection
    /// broke.
    pub fn set_adoptable(&mut self, adoptable: bool) {
        self.outbox.keeps = adoptable;
    }

    /// Whether the agent keeps its workers without a connection, to return with them.
    pub fn may_return(&self) -> bool {
        self.outbox.keeps && !self.ending
    }

    /// Gives a report its number, and keeps it until the driver has acknowledged it. Call it for each
    /// [`Command::AgentReport`] in order, also without a connection.
    pub fn number(&mut self, report: AgentReport) -> FromAgent {
        self.outbox.number(self.epoch, report)
    }

    /// What the agent has kept, for its next registration.
    pub fn adoption(&self, memory: &dyn Memory) -> Adoption {
        let workers: Vec<_> = (self.workers.iter())
            .map(|(process, worker)| worker.adopted(*process, memory))
            .collect();
        let reports: Vec<_> = self.outbox.unacknowledged(self.epoch).collect();
        // A driver that does not know the round yet must know whose ends these are.
        let has_ended = |process| {
            let is_end = |report: &AgentReport| match report {
                AgentReport::WorkerLost { process: ended, .. }
                | AgentReport::Exited { process: ended, .. } => *ended == process,
                _ => false,
            };
            reports.iter().any(|report| is_end(&report.report))
        };
        let concerns = |round: &&AdoptedRound| {
            let phase = AdoptedPhase::Training { round: round.round };
            let in_round = |phase_of| phase_of == phase || phase_of == AdoptedPhase::Finished;
            workers.iter().any(|worker| in_round(worker.phase))
                || (round.members.iter()).any(|member| has_ended(member.process))
        };
        let holders = self.workers.keys().chain(&self.kept);
        let kept = holders.map(|process| Kept::new(*process, &memory.commits(*process)));
        let dropped = planted(Mutant::UnacknowledgedDropped);
        Adoption {
            run_id: self.setup.run_id.clone(),
            epoch: self.epoch,
            acknowledged: self.outbox.acknowledged(),
            starts: (self.starts.iter())
                .map(|(slot, generation)| elasticrun_protocol::Process {
                    local_rank: *slot,
                    generation: *generation,
                })
                .collect(),
            seen: self.seen,
            released: self.released,
            round: self.started.as_ref().filter(concerns).cloned(),
            kept: kept.filter(|kept| !kept.commits.is_empty()).collect(),
            cut: self.cuts.complete(),
            servers: self.servers.running(),
            reports: match dropped {
                true => Vec::new(),
                false => reports,
            },
            workers,
        }
    }

    /// Goes on with a driver that has adopted the workers. Does nothing if the driver is an older one.
    pub(super) fn driver_back(
        &mut self,
        now: Time,
        epoch: DriverEpoch,
        setup: Setup,
        memory: &dyn Memory,
        out: &mut Vec<Command>,
    ) {
        if !self.obeys(&setup.run_id, epoch) || self.ending {
            return;
        }
        if !setup.adopted || setup.run_id != self.setup.run_id {
            return self.end_by_itself(now, out);
        }
        if epoch > self.epoch {
            self.durable_told_anew();
        }
        self.epoch = epoch;
        self.setup = setup;
        (self.closed, self.refused) = (false, false);
        self.orphan_since = None;
        (self.reached, self.connected) = (now, now);
        self.has_returned = true;
        self.unanswered.clear();
        // Before any other report: the driver may start a round as soon as it has them, and the lease may be over.
        self.next_beat = now + self.setup.heartbeat_interval;
        self.beat(now, memory, out);
        if !planted(Mutant::UnacknowledgedDropped) {
            // The registration may have been sent before the last of them.
            let reports = self.outbox.unacknowledged(epoch);
            out.extend(reports.map(Command::Repeat));
        }
    }

    /// Whether the agent obeys this driver. It obeys none of its run that is older than the last one. A driver of another
    /// run may only send the agent away.
    pub fn obeys(&self, run_id: &str, epoch: DriverEpoch) -> bool {
        epoch >= self.epoch || run_id != self.setup.run_id || planted(Mutant::OldEpochAdopted)
    }

    /// Records a round that starts here.
    pub(super) fn note_started(&mut self, start: &Start) {
        self.started = Some(AdoptedRound {
            epoch: start.epoch,
            round: start.round,
            size: start.size,
            base: start.base,
            members: start.members.clone(),
        });
    }
}

impl super::worker::Worker {
    fn adopted(&self, process: elasticrun_protocol::Process, memory: &dyn Memory) -> AdoptedWorker {
        let held = self.held(process, memory);
        AdoptedWorker {
            process,
            phase: match self.life {
                Life::Starting => AdoptedPhase::Starting,
                Life::Joined => AdoptedPhase::Joined,
                Life::Training { round, .. } => AdoptedPhase::Training { round },
                Life::Returning { round, .. } => AdoptedPhase::Returning { round },
                Life::Finished => AdoptedPhase::Finished,
                Life::Dying => AdoptedPhase::Dying,
            },
            attached: self.is_attached(),
            left: self.waiting(process).left,
            data_port: held.data_port,
            commit: held.commit,
            empty: held.empty,
            stopping: self.is_stopping(),
        }
    }
}
