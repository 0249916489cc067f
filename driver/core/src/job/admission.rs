//! Admission of agents that connect: which take part, which replace another one, and which are refused.
//!
//! - Of several connections of one host the newest is that of its agent (R3, R4).
//! - Of several agents that register with one name the first takes part as long as it lives.
//! - Of several attempts of one task the newest takes part ([`Placement`](crate::placement::Placement)).
//! - An agent that was launched for a host that is no longer known is refused, unless it keeps commits.
//! - Heartbeats are answered, with the lease, as long as their connection is the current one of the host. An answer is
//!   no decision. Only the time of the heartbeat is recorded ([`super::contact`]).

use std::collections::BTreeSet;

use elasticrun_protocol::{AgentCommand, HostId};

use super::{Job, Out, reject};
use crate::{
    AgentConnected, Command, Decision, Rejected, Time,
    fleet::{Agent, AgentUp, Live},
    mutant::{Mutant, planted},
    placement::Admission,
};

/// Machines with the name of a host that are announced.
const NAMESAKES: usize = 16;

impl Job {
    pub(super) fn agent_connected(&mut self, now: Time, agent: AgentConnected, out: &mut Out) {
        if !self.is_newest(&agent, out) || self.is_namesake(&agent, out) {
            return;
        }
        let takes_back = self.takes_back(&agent);
        if let Some(adoption) = agent.adoption.as_ref().filter(|_| !takes_back) {
            return self.agent_returned(now, &agent, adoption, out);
        }
        let host = agent.host.clone();
        self.slots_found(now, &agent, out);
        if self.is_up(&host) || self.away.contains(&host) {
            // The launched agent may be the very one that has connected anew.
            self.close(&host, out);
            let why = "another agent of this host has connected".to_owned();
            self.host_lost(now, &host, why, out);
        }
        if let Some(task) = &agent.task
            && let Admission::Admitted {
                retired: Some(older),
            } = self.placement.admit(task, &host)
        {
            // An agent that does not read the command notices the end of its connection.
            self.send(&older, AgentCommand::Kill, out);
            let why = "a newer attempt of its task has come".to_owned();
            self.agent_lost(now, &older, why, out);
        }
        if self.results.outcome().is_some() {
            return self.welcome_to_the_end(&agent, out);
        }
        if agent.self_registered {
            self.host_came(&host, agent.slots, out);
        } else if (!self.hosts.contains(&host) || self.hosts.is_drained(&host))
            && !agent.keeps
            && !takes_back
        {
            // Its launch ended after the removal or drain of its host. If the host may be used again, its agent is
            // launched anew. An agent that returns with commits is asked for them before it is dismissed.
            self.lose_agent(&host);
            reject(out, &host, Rejected::UnknownHost);
            self.refuse(&agent, out);
            return out.push(Command::EndLaunch {
                host,
                unless_connected: false,
            });
        }
        self.admit(now, &agent, takes_back, out);
        self.came_back(&host, takes_back);
        self.probing.connected(&host, agent.probes);
        if let Some(adoption) = agent.adoption.as_ref().filter(|_| takes_back) {
            self.adopt(now, &agent, adoption, out);
            // A former driver has lost this agent, and has released its host.
            self.hosts.drains_again(&host);
        }
        self.store_reader_connected(&host, agent.durable);
        let has_kept = agent.keeps || agent.adoption.is_some();
        let is_able = self.keeps_replicas(&agent);
        self.replication.connected(&host, is_able, has_kept);
        self.servers.connected(&host);
        if agent.keeps {
            // The agent was only unreachable: the commits of its workers can be a base as before.
            self.fleet.set_memory(&host);
            self.memory_lost.remove(&host);
            self.hosts.drains_again(&host);
        }
        self.count_connected(&host);
        self.dirty_hosts.insert(host);
        self.going_back.changed = true;
    }

    /// Handles an agent that connects after the end of the job.
    pub(super) fn agent_connected_late(&mut self, agent: &AgentConnected, out: &mut Out) {
        if !self.is_newest(agent, out) || self.is_namesake(agent, out) {
            return;
        }
        if let Some(adoption) = &agent.adoption {
            self.agent_returned(self.now, agent, adoption, out);
            if self.is_up(&agent.host) {
                self.end_late_agent(&agent.host, out);
            }
            return;
        }
        self.close(&agent.host, out);
        // The end of a launch would be taken for that of the agent.
        self.away.remove(&agent.host);
        self.welcome_to_the_end(agent, out);
    }

    fn welcome_to_the_end(&mut self, agent: &AgentConnected, out: &mut Out) {
        self.admit(self.now, agent, false, out);
        self.end_late_agent(&agent.host, out);
    }

    /// Whether no newer connection of the host and no newer attempt of the task is known. Otherwise the agent is refused.
    fn is_newest(&self, agent: &AgentConnected, out: &mut Out) -> bool {
        let up = self.fleet.host(&agent.host).and_then(|state| state.up());
        let why = if up.is_some_and(|up| up.instance >= agent.instance) {
            Rejected::StaleConnection
        } else if (agent.task.as_ref()).is_some_and(|task| self.placement.is_outdated(task)) {
            Rejected::OlderAttempt
        } else {
            return true;
        };
        reject(out, &agent.host, why);
        self.refuse(agent, out);
        false
    }

    /// Whether an agent registers with the name of another one that lives. Then it is refused. The newest of two machines
    /// of one name would replace the other one, which would come back, without end.
    fn is_namesake(&mut self, agent: &AgentConnected, out: &mut Out) -> bool {
        let by_name = agent.self_registered && agent.task.is_none();
        let Some(up) = self.fleet.up_mut(&agent.host).filter(|_| by_name) else {
            return false;
        };
        let (Some(first), Some(second)) = (up.agent, agent.agent) else {
            return false;
        };
        if first == second {
            return false;
        }
        let (host, by) = (agent.host.clone(), up.address);
        if up.refused.len() < NAMESAKES && up.refused.insert(second) {
            out.push(Command::Announce(Decision::NameTaken {
                host: host.clone(),
                by,
                refused: agent.address,
            }));
        }
        let instance = agent.instance;
        out.push(Command::RefuseName { host, instance, by });
        true
    }

    pub(super) fn refuse(&self, agent: &AgentConnected, out: &mut Out) {
        let (host, instance) = (agent.host.clone(), agent.instance);
        out.push(Command::Refuse { host, instance });
    }

    fn admit(&mut self, now: Time, agent: &AgentConnected, adopted: bool, out: &mut Out) {
        let state = self.fleet.host_mut(&agent.host);
        if state.agent == Agent::Absent {
            state.since = now;
        }
        state.agent = Agent::Up(AgentUp {
            instance: agent.instance,
            address: agent.address,
            memory_port: agent.memory_port,
            free_port: agent.free_port,
            notice: None,
            said: Default::default(),
            agent: agent.agent,
            returns: agent.returns && agent.task.is_none(),
            applied: 0,
            recorded: None,
            heard: now,
            silent_since: now,
            servers: agent.servers,
            launch_ended: None,
            refused: BTreeSet::new(),
        });
        self.heard(now, &agent.host);
        let (host, instance) = (agent.host.clone(), agent.instance);
        out.push(Command::Admit {
            host,
            instance,
            adopted,
        });
        // Sent before the first heartbeat: the agent has the lease even if the driver stands still from now on.
        self.send_beat(&agent.host, 0, out);
    }

    /// Answers a heartbeat of an agent.
    pub(super) fn answer_beat(
        &mut self,
        now: Time,
        host: &HostId,
        instance: u64,
        count: u64,
        out: &mut Out,
    ) {
        let over = self
            .shutdown
            .as_ref()
            .is_some_and(|shutdown| shutdown.exited);
        if over || !self.is_current(host, instance) && !planted(Mutant::StaleConnection) {
            return;
        }
        self.heard(now, host);
        self.send_beat(host, count, out);
    }

    pub(super) fn send_beat(&self, host: &HostId, acked_count: u64, out: &mut Out) {
        let lease = Some(self.settings.lease);
        let up = self.fleet.host(host).and_then(|state| state.up());
        let applied = up.map_or(0, |up| up.applied);
        let command = AgentCommand::Heartbeat {
            acked_count,
            lease,
            applied,
            // The shell knows them.
            standbys: Vec::new(),
            job_code: None,
        };
        self.send(host, command, out);
    }

    /// Whether a report of the current agent of a host is not a repeat. It counts as applied from now on.
    pub(super) fn is_new(&mut self, host: &HostId, number: u64) -> bool {
        let Some(up) = self.fleet.host(host).and_then(|state| state.up()) else {
            return true;
        };
        let is_new = number > up.applied;
        if is_new {
            self.fleet.set_applied(host, number);
        }
        is_new
    }

    /// Removes the agent of a host, with all its processes.
    pub(super) fn lose_agent(&mut self, host: &HostId) -> Vec<Live> {
        self.away.remove(host);
        self.counted.forget();
        self.placement.leave(host);
        self.store_reader_lost(host);
        self.replication.lost(host);
        self.servers.lost(host);
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.agents.remove(host);
        }
        // The exits of its processes will not be reported.
        self.unexplained.retain(|(other, _), _| other != host);
        self.fleet.lose_agent(host)
    }

    /// Adds a host that registered itself.
    fn host_came(&mut self, host: &HostId, slots: u32, out: &mut Out) {
        let known = self.hosts.contains(host);
        self.hosts.came(host, slots);
        let withheld = self.hosts.slots(host) == 0;
        if known || withheld || self.capacity_dirty {
            self.capacity_dirty = true;
        } else {
            self.capacity.add(host, slots, &self.blacklist);
            self.note_capacity(out);
        }
    }

    pub(super) fn is_up(&self, host: &HostId) -> bool {
        self.fleet
            .host(host)
            .is_some_and(|state| state.up().is_some())
    }
}
