//! Parameter servers of this host, which run beside the workers.
//!
//! The driver says which servers run here ([`AgentCommand::Servers`]), and the agent starts and ends what differs from that. A server is in no
//! round: it has no page, no lease and no heartbeat. It is not stopped when the lease is over, since it starts nothing by itself, and its
//! end changes no round.
//!
//! # Invariants
//! - A server runs at most once: its process is not started again, however often a command names it (R4).
//! - An agent that ends, ends its servers, and exits after their ends.

use std::collections::{BTreeMap, BTreeSet};

#[cfg(doc)]
use elasticrun_protocol::AgentCommand;
use elasticrun_protocol::{
    AgentReport, Process,
    control::{Exit, StopReason},
};

use super::{Command, Machine, Signal, worker::Worker};
use crate::{Time, time::earliest};

/// The servers of an agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Servers {
    /// The number of the newest command.
    number: u64,
    /// Those that are started and not reaped.
    live: BTreeMap<Process, Worker>,
    /// All that were ever started.
    started: BTreeSet<Process>,
}

impl Servers {
    /// Those that are started and not reaped.
    pub(super) fn running(&self) -> Vec<Process> {
        self.live.keys().copied().collect()
    }

    pub(super) fn are_gone(&self) -> bool {
        self.live.is_empty()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Process> {
        self.live.keys()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Worker> {
        self.live.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Process, &mut Worker)> {
        self.live.iter_mut()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        earliest(self.live.values().map(Worker::deadline))
    }
}

impl Machine {
    /// Runs these servers and no others.
    pub(super) fn run_servers(
        &mut self,
        now: Time,
        number: u64,
        run: &[Process],
        out: &mut Vec<Command>,
    ) {
        if number <= self.servers.number || self.ending {
            return;
        }
        self.servers.number = number;
        for process in run {
            if process.is_server() && self.servers.started.insert(*process) {
                self.servers.live.insert(*process, Worker::starting());
                out.push(Command::StartServer { process: *process });
            }
        }
        let unwanted = |process: &Process| !run.contains(process);
        let ended: Vec<_> = (self.servers.live.keys().copied())
            .filter(unwanted)
            .collect();
        for process in ended {
            self.end_server(now, process, StopReason::Removed, out);
        }
    }

    fn end_server(&mut self, now: Time, process: Process, why: StopReason, out: &mut Vec<Command>) {
        // A server that leaves while the job goes on hands over what it holds.
        let grace = match why {
            StopReason::Removed => self.setup.grace.max(self.setup.drain_timeout),
            _ => self.setup.grace,
        };
        if let Some(server) = self.servers.live.get_mut(&process)
            && server.stop(now, why, grace)
        {
            let signal = Signal::Terminate;
            out.push(Command::Signal { process, signal });
        }
    }

    /// Asks all servers to end.
    pub(super) fn end_servers(&mut self, now: Time, out: &mut Vec<Command>) {
        for process in self.servers.running() {
            self.end_server(now, process, StopReason::JobEnded, out);
        }
    }

    /// Kills servers that did not end within the grace.
    pub(super) fn signal_servers(&mut self, now: Time, out: &mut Vec<Command>) {
        for (process, server) in &mut self.servers.live {
            if let Some(signal) = server.due_signal(now, self.setup.grace) {
                let process = *process;
                out.push(Command::Signal { process, signal });
            }
        }
    }

    pub(super) fn server_exited(
        &mut self,
        process: Process,
        exit: Exit,
        tail: Vec<String>,
        out: &mut Vec<Command>,
    ) {
        let Some(server) = self.servers.live.remove(&process) else {
            return;
        };
        if !self.by_itself {
            out.push(Command::AgentReport(AgentReport::ServerExited {
                process,
                exit,
                tail,
                stopped: server.was_told(),
            }));
        }
    }
}
