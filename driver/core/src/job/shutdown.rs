//! After the end of a job its agents end what they run, then get the kill command, and are finally given up; the driver
//! exits.
//!
//! ```text
//!        twice the grace and SLACK, or a second signal        KILL_SLACK
//! asked ---------------------------------------------> killed ----------> all given up
//!    \______________________________________________________\_________________\___> Exit: no agent is connected
//! ```
//! - If only agents that are away are left, they have [`AWAY`] from the end of the job to return, however long the grace is.
//! - An agent that connects after the end receives the last command that the others received.
//! - [`Command::Exit`] comes once, and no command follows it.

use std::{collections::BTreeSet, time::Duration};

use elasticrun_protocol::{AgentCommand, AgentReport, HostId};

use super::{Job, Out, takeover::TakeOver};
use crate::{
    Command, Event, Time,
    mutant::{Mutant, planted},
};

/// The time that agents may take beyond two times the grace: for their workers, and for what those have started.
const SLACK: Duration = Duration::from_secs(2);

/// The time that agents may take after the kill command.
const KILL_SLACK: Duration = Duration::from_secs(1);

/// The time that agents have to return if they are away and no other one is left. Without the driver they end their workers
/// by themselves.
const AWAY: Duration = Duration::from_secs(12);

/// The shutdown of the agents of a job that has ended.
#[derive(Clone, Debug)]
pub(super) struct Shutdown {
    /// Hosts whose agents are connected, or may return.
    pub(super) agents: BTreeSet<HostId>,
    /// When the current command must be done.
    due: Time,
    /// When agents that are away are given up, if no other one is left.
    away_due: Time,
    /// The kill command was sent.
    killed: bool,
    pub(super) exited: bool,
}

impl Job {
    /// Asks all agents to end.
    pub(super) fn begin_shutdown(&mut self, out: &mut Out) {
        // An agent that is away is told when it returns.
        let connected = (self.fleet.hosts()).filter(|(_, state)| state.last_up().is_some());
        // So is one that served a former driver and is not back yet. Nothing else would end its workers for a long time.
        let absent = self.takeover.iter().flat_map(TakeOver::absent);
        self.shutdown = Some(Shutdown {
            agents: (connected.map(|(host, _)| host))
                .chain(absent)
                .cloned()
                .collect(),
            due: self.now + self.settings.grace * 2 + SLACK,
            away_due: self.now + AWAY,
            killed: false,
            exited: false,
        });
        self.send_to_all(AgentCommand::Shutdown, out);
    }

    /// Handles an event after the end of the job. Relevant are the exit of the first failure, the departure of draining
    /// hosts, requests, and the end of the last agent.
    pub(super) fn after_end(&mut self, now: Time, event: Event, out: &mut Out) {
        self.now = now;
        if self
            .shutdown
            .as_ref()
            .is_some_and(|shutdown| shutdown.exited)
        {
            return;
        }
        match event {
            Event::AgentConnected(agent) => self.agent_connected_late(&agent, out),
            Event::Reported {
                host,
                report:
                    AgentReport::Exited {
                        process,
                        exit,
                        tail,
                        ..
                    },
                ..
            } => {
                self.exit_known(&host, process, &exit, &tail, out);
            }
            Event::AgentLost { host, instance, .. } if self.is_current(&host, instance) => {
                self.agent_lost_late(&host, out);
            }
            Event::LaunchFailed { host, .. } if self.away.contains(&host) => {
                self.agent_lost_late(&host, out);
            }
            Event::AgentDied { host, agent, .. }
                if self.away.contains(&host) && self.is_agent(&host, agent) =>
            {
                self.agent_lost_late(&host, out);
            }
            Event::Requested { id, request } => self.requested_late(id, &request, out),
            Event::StopRequested { .. } => self.kill(now, out),
            _ => {}
        }
        self.exit_when_alone(out);
    }

    /// When the time of the agents ends.
    pub(super) fn next_shutdown_deadline(&self) -> Option<Time> {
        let shutdown = self.shutdown.as_ref()?;
        let due = match self.only_away_are_left() {
            true => shutdown.due.min(shutdown.away_due),
            false => shutdown.due,
        };
        (!shutdown.exited).then_some(due)
    }

    /// Whether no command reaches any of the agents that have not ended.
    fn only_away_are_left(&self) -> bool {
        let is_up = |host| {
            self.fleet
                .host(host)
                .is_some_and(|state| state.up().is_some())
        };
        !(self.shutdown.iter().flat_map(|shutdown| &shutdown.agents)).any(is_up)
    }

    /// Applies the deadline of the shutdown.
    pub(super) fn tick_shutdown(&mut self, now: Time, out: &mut Out) {
        self.now = now;
        match &self.shutdown {
            Some(shutdown) if shutdown.killed || now < shutdown.due => self.give_up_agents(out),
            _ => self.kill(now, out),
        }
        self.exit_when_alone(out);
    }

    /// Sends an agent that has connected after the end the last command that the others received.
    pub(super) fn end_late_agent(&mut self, host: &HostId, out: &mut Out) {
        let Some(shutdown) = &mut self.shutdown else {
            return;
        };
        shutdown.agents.insert(host.clone());
        let command = match shutdown.killed {
            true => AgentCommand::Kill,
            false => AgentCommand::Shutdown,
        };
        self.send(host, command, out);
    }

    fn agent_lost_late(&mut self, host: &HostId, out: &mut Out) {
        self.disconnect(host, out);
        self.lose_agent(host);
        self.finish_drains_after_end(out);
    }

    /// Sends the kill command, once: the user has asked a second time, or the time is over.
    fn kill(&mut self, now: Time, out: &mut Out) {
        let Some(shutdown) = self.shutdown.as_mut().filter(|shutdown| !shutdown.killed) else {
            return;
        };
        shutdown.killed = true;
        shutdown.due = now + KILL_SLACK;
        if !planted(Mutant::NeverKilled) {
            self.send_to_all(AgentCommand::Kill, out);
        }
    }

    fn give_up_agents(&mut self, out: &mut Out) {
        if planted(Mutant::ShutdownWaits) {
            return;
        }
        let agents = self
            .shutdown
            .as_ref()
            .map(|shutdown| shutdown.agents.clone());
        for host in agents.into_iter().flatten() {
            self.agent_lost_late(&host, out);
        }
    }

    /// Lets the driver exit if no agent is connected.
    pub(super) fn exit_when_alone(&mut self, out: &mut Out) {
        let early = planted(Mutant::ExitsEarly);
        if let Some(shutdown) = &mut self.shutdown
            && (shutdown.agents.is_empty() || early)
            && !std::mem::replace(&mut shutdown.exited, true)
        {
            out.push(Command::Exit);
        }
    }

    fn send_to_all(&self, command: AgentCommand, out: &mut Out) {
        for host in self.shutdown.iter().flat_map(|shutdown| &shutdown.agents) {
            self.send(host, command.clone(), out);
        }
    }
}
