//! How an agent ends: on a command of its driver, on a signal of its host, or because its driver is gone.
//!
//! | cause | first request | second request, or timeout |
//! |---|---|---|
//! | the driver | SIGTERM, and SIGKILL after the grace | SIGKILL |
//! | the host | a notice, if the job can continue without the host: workers leave within the drain timeout | SIGKILL |
//!
//! The agent exits when its last worker is gone. The kernel may keep a killed worker alive, for example in an
//! uninterruptible sleep on a dead file system. [`STUCK`] after the last SIGKILL the agent exits without such workers
//! and names them.

use std::time::Duration;

use elasticrun_protocol::{AgentReport, Notice, NoticeKind, control::StopReason};

use super::{Command, End, Machine, Memory, Signal, worker::Worker};
use crate::{
    Time,
    mutant::{Mutant, planted},
};

/// Time after SIGKILL after which the agent gives up waiting, if only killed processes are left.
const STUCK: Duration = Duration::from_secs(10);

impl Machine {
    /// First call: asks the driver to drain the workers and waits for the drain timeout. Second call, or if the wait is
    /// pointless: ends the workers.
    pub(super) fn stop_requested(
        &mut self,
        now: Time,
        memory: &mut dyn Memory,
        out: &mut Vec<Command>,
    ) {
        if std::mem::replace(&mut self.stopped, true) {
            self.end_by_itself(now, out);
            return self.kill_all(now, out);
        }
        let within = self.setup.drain_timeout;
        let can_wait = !self.ending && self.orphan_since.is_none() && !within.is_zero();
        if self.workers.is_empty() || !can_wait {
            return self.end_by_itself(now, out);
        }
        self.drains_until = Some(now + within);
        let notice = Notice {
            kind: NoticeKind::Signal,
            within: Some(within),
        };
        self.noticed(now, notice, memory, out);
    }

    pub(super) fn drain_deadline(&self) -> Option<Time> {
        self.drains_until.filter(|_| !self.ending)
    }

    pub(super) fn end_by_itself(&mut self, now: Time, out: &mut Vec<Command>) {
        if !self.ending {
            self.by_itself = true;
            if self.outbox.keeps {
                out.push(Command::AgentReport(AgentReport::Leaving));
            }
        }
        self.end_all(now, out);
    }

    pub(super) fn end_all(&mut self, now: Time, out: &mut Vec<Command>) {
        self.ending = true;
        // A process that was stopped at the end of the lease is killed without SIGCONT: the next group may have begun
        // (R11).
        if planted(Mutant::FrozenContinued) {
            self.thaw(out);
        }
        let frozen = std::mem::take(&mut self.frozen);
        for (process, worker) in &mut self.workers {
            let process = *process;
            if frozen && worker.ignores_lease() {
                if worker.kill(now) {
                    let signal = Signal::Kill;
                    out.push(Command::Signal { process, signal });
                }
            } else if worker.stop(now, StopReason::JobEnded, self.setup.grace) {
                let why = StopReason::JobEnded;
                out.push(Command::TellStop { process, why });
                let signal = Signal::Terminate;
                out.push(Command::Signal { process, signal });
            }
        }
        self.end_servers(now, out);
    }

    pub(super) fn kill_all(&mut self, now: Time, out: &mut Vec<Command>) {
        for (process, worker) in self.workers.iter_mut().chain(self.servers.iter_mut()) {
            if worker.kill(now) {
                let (process, signal) = (*process, Signal::Kill);
                out.push(Command::Signal { process, signal });
            }
        }
    }

    pub(super) fn end_when_alone(&mut self, out: &mut Vec<Command>) {
        if self.ending && self.workers.is_empty() && self.servers.are_gone() {
            self.exit(out);
        }
    }

    /// When the wait for killed processes ends; only if all that are left were killed.
    pub(super) fn stuck_deadline(&self) -> Option<Time> {
        let all = self.workers.values().chain(self.servers.values());
        let killed: Option<Vec<Time>> = all.map(Worker::killed).collect();
        let last = killed?.into_iter().max().filter(|_| self.ending)?;
        Some(last + STUCK)
    }

    pub(super) fn give_up_stuck(&mut self, now: Time, out: &mut Vec<Command>) {
        if self.stuck_deadline().is_some_and(|due| due <= now) {
            self.exit(out);
        }
    }

    fn exit(&mut self, out: &mut Vec<Command>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let why = match () {
            () if self.shut_down => End::ShutDown,
            () if self.stopped => End::Stopped,
            () => End::Orphaned,
        };
        let stuck = self
            .workers
            .keys()
            .chain(self.servers.keys())
            .copied()
            .collect();
        out.push(Command::Exit { why, stuck });
    }
}
