//! Parameter servers: processes that run until they are told to end, or die.

use std::time::Duration;

use elasticrun_core::agent::Event as AgentEvent;
use elasticrun_protocol::{Process, control::Exit};

use super::{Ev, World};
use crate::invariants;

impl World {
    pub(super) fn start_server(&mut self, host: usize, process: Process) {
        let Some(agent) = self.hosts[host].agent.as_ref().map(|agent| agent.number) else {
            return;
        };
        self.note(format_args!("h{host} starts {process}"));
        invariants::r20::started(self, host, agent, process);
        self.hosts[host].started_servers.insert((agent, process));
        self.hosts[host].servers.insert(process, agent);
    }

    /// A signal reaches a server. Some do not end by SIGTERM.
    pub(super) fn server_signalled(&mut self, host: usize, process: Process, term: bool) {
        if term && self.lateness_rng.percent(20) {
            return;
        }
        self.server_dies(host, process, Exit::Signal(if term { 15 } else { 9 }));
    }

    pub(super) fn kill_server(&mut self) {
        let servers = (self.hosts.iter().enumerate())
            .flat_map(|(host, state)| state.servers.keys().map(move |process| (host, *process)));
        let servers: Vec<_> = servers.collect();
        if let Some((host, process)) = self.lateness_rng.pick(&servers) {
            self.server_dies(host, process, Exit::Signal(9));
        }
    }

    fn server_dies(&mut self, host: usize, process: Process, exit: Exit) {
        let Some(agent) = self.hosts[host].servers.remove(&process) else {
            return;
        };
        self.note(format_args!("h{host} {process} ends"));
        let event = AgentEvent::Exited {
            process,
            exit,
            tail: Vec::new(),
        };
        let wait = Duration::from_micros(self.lateness_rng.range(100, 20_000));
        self.after(wait, Ev::Machine { host, agent, event });
    }
}
