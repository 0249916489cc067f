//! Whether the driver is there, and what its workers may do while it is not.
//!
//! | the driver is | seen by | workers | and at last |
//! |---|---|---|---|
//! | suspended | its machine acknowledges, and it answers no beat | train to the end of their lease, then wait | wait as long as that lasts |
//! | out of reach | nothing is acknowledged | the same | end after the orphan timeout and the keep timeout |
//! | gone | its connection has ended | train on | end after the orphan timeout |
//!
//! A worker that waits at a boundary does no harm, whatever the driver may have begun elsewhere, so R11 rests on the lease
//! alone: that the machine acknowledges may be the word of a proxy.

use std::time::Duration;

use elasticrun_protocol::{AgentReport, control::Start};

use super::{
    Command, Machine, Memory, Signal,
    worker::{Life, Worker},
};
use crate::{
    Time,
    mutant::{Mutant, planted},
};

/// Beats that a silent driver is sent. They lie in its socket until it reads again; more of them would fill that.
const MOST_UNANSWERED: usize = 32;

impl Machine {
    /// Until when workers may train, as far as the driver has said.
    pub(super) fn lease_end(&self) -> Time {
        self.heard + self.lease
    }

    /// It stood still itself for so long: workers that did so too have had no time to beat.
    pub(super) fn excuse(&mut self, now: Time) {
        let late = now.since(self.next_beat);
        if late >= self.setup.heartbeat_interval {
            for worker in self.workers.values_mut() {
                worker.excuse(late);
            }
        }
    }

    pub(super) fn beat(&mut self, now: Time, memory: &dyn Memory, out: &mut Vec<Command>) {
        if self.orphan_since.is_some() && self.unanswered.len() >= MOST_UNANSWERED {
            return;
        }
        let commits = self.workers.keys().map(|p| memory.commit_count(*p)).sum();
        self.beats += 1;
        let count = self.beats;
        self.unanswered.push_back((count, now));
        out.push(Command::AgentReport(AgentReport::Heartbeat {
            commits,
            count,
        }));
    }

    /// The driver has heard a beat. What it says now, however late it comes, holds from when that was sent.
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
            // It was silent and is not gone: holds were taken back, all else is as it was.
            self.orphan_since = None;
        }
    }

    /// Nobody tells a held worker how far to run any more.
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

    /// When workers are ended, since the driver is not there.
    pub(super) fn orphan_deadline(&self) -> Option<Time> {
        let ends = !self.ending && !planted(Mutant::OrphansTrainOn);
        let since = self.orphan_since.filter(|_| ends)?;
        let keep = self.setup.keep_timeout;
        let until = if self.closed || keep.is_zero() {
            since
        } else {
            since.max(self.reached) + keep
        };
        Some(until + self.setup.orphan_timeout)
    }

    /// A start that comes when the lease is over may be one that the driver has long given up: the round would train beside
    /// another one (R11).
    pub(super) fn refuse(&mut self, start: &Start, out: &mut Vec<Command>) {
        for member in &start.members {
            out.push(Command::AgentReport(AgentReport::PeerLost {
                round: start.round,
                process: member.process,
                unreachable: Vec::new(),
            }));
        }
    }

    /// When processes that look at no lease are stopped.
    pub(super) fn freeze_deadline(&self) -> Option<Time> {
        let concerned =
            !self.frozen && !self.ending && self.workers.values().any(Worker::ignores_lease);
        concerned.then(|| self.lease_end())
    }

    pub(super) fn freeze(&mut self, out: &mut Vec<Command>) {
        self.frozen = true;
        self.signal_unattached(Signal::Stop, out);
    }

    /// They go on, to train or to end.
    pub(super) fn thaw(&mut self, out: &mut Vec<Command>) {
        if std::mem::take(&mut self.frozen) {
            self.signal_unattached(Signal::Continue, out);
        }
    }

    fn signal_unattached(&self, signal: Signal, out: &mut Vec<Command>) {
        let all = self.workers.iter().filter(|(_, w)| w.ignores_lease());
        out.extend(all.map(|(process, _)| Command::Signal {
            process: *process,
            signal,
        }));
    }
}
