//! How agent processes begin and end, and the lock of a host, which their workers keep.

use std::time::Duration;

use elasticrun_core::agent::Event as AgentEvent;
use elasticrun_protocol::{HostId, Process};

use super::{Ev, World, host::AgentSim, link::Up};

impl World {
    /// A launched agent begins, or waits for the lock of its host.
    pub(super) fn launch_done(&mut self, host: usize, token: u64) {
        let state = &mut self.hosts[host];
        if state.launch != token || self.driver.exited {
            return;
        }
        if !state.alive || state.cut_down > 0 || state.cut_up > 0 {
            if state.launched_by != self.driver.epoch {
                return;
            }
            let (host, why) = (state.id.clone(), "no way there".to_owned());
            let wait = self.rng.millis(10, 3_000);
            let event = elasticrun_core::Event::LaunchFailed { host, why };
            return self.after(wait, Ev::Job(event));
        }
        if state.is_locked() {
            state.launch_waits = true;
        } else {
            self.begin_agent(host);
        }
    }

    /// A host that registers itself starts its agent.
    pub(super) fn register_itself(&mut self, host: usize) {
        let over = self.driver.ended.is_some();
        if over || !self.hosts[host].alive {
            return;
        }
        if self.hosts[host].is_locked() {
            self.hosts[host].launch_waits = true;
        } else {
            self.begin_agent(host);
        }
    }

    fn begin_agent(&mut self, host: usize) {
        self.hosts[host].agents += 1;
        self.hosts[host].launch_waits = false;
        let number = self.hosts[host].agents;
        self.note(format_args!("h{host} agent {number} begins"));
        self.hosts[host].awake = self.now;
        let link = self.dial(host, number);
        self.hosts[host].agent = Some(AgentSim {
            number,
            link,
            registered: self.now,
            machine: None,
            tick_at: None,
            flushing: false,
            redials: false,
            answered: false,
            launch: self.hosts[host].launch,
            launched_by: self.hosts[host].launched_by,
            told: false,
        });
        if !self.driver.lives() {
            self.agent_ends(host);
        }
    }

    /// The launcher notices that the process of an agent has ended, unless the launch was given up.
    pub(super) fn launch_ended(&mut self, host: usize, token: u64) {
        let state = &self.hosts[host];
        if state.launch == token && self.driver.lives() {
            let (host, why) = (state.id.clone(), "its agent has ended".to_owned());
            self.job_event(elasticrun_core::Event::LaunchFailed { host, why });
        }
    }

    /// A process of a host has ended: a waiting agent may get the lock.
    fn unlock(&mut self, host: usize) {
        if self.hosts[host].launch_waits && !self.hosts[host].is_locked() && self.hosts[host].alive
        {
            self.begin_agent(host);
        }
    }

    /// The machine of an agent has ended. If only its driver is lost, the process joins again: because it keeps
    /// commits, or because the host registers itself.
    pub(super) fn agent_exits(&mut self, host: usize) {
        let state = &mut self.hosts[host];
        let Some(agent) = state.agent.as_ref().filter(|agent| !agent.told) else {
            return self.agent_ends(host);
        };
        let old = agent.link;
        (state.memories.of).retain(|_, shared| !shared.complete().is_empty());
        // An agent that a driver has started tries once.
        let reached = state.cut_up == 0 && state.cut_down == 0 && !state.memories.of.is_empty();
        let again = reached || self.plan.settings.self_registration;
        if !again || !self.driver.lives() || self.driver.ended.is_some() {
            return self.agent_ends(host);
        }
        if std::mem::replace(&mut self.links[old].agent_open, false) {
            self.push_up(old, Up::Closed);
        }
        self.hosts[host].answered = None;
        self.begin_agent(host);
    }

    /// The agent process of a host is gone, for any reason; its workers follow it.
    pub(super) fn agent_ends(&mut self, host: usize) {
        let Some(agent) = self.hosts[host].agent.take() else {
            return;
        };
        self.note(format_args!("h{host} agent {} ends", agent.number));
        let launched = !self.plan.settings.self_registration;
        let launched = launched && agent.launched_by == self.driver.epoch && !self.driver.dead;
        if self.plan.returns && self.hosts[host].alive && launched {
            let wait = self.lateness_rng.micros(100, 50_000);
            let token = agent.launch;
            self.after(wait, Ev::LaunchEnded { host, token });
        }
        self.leave_last_will(host, &agent);
        self.hosts[host].memories = Default::default();
        self.hosts[host].answered = None;
        if std::mem::replace(&mut self.links[agent.link].agent_open, false) {
            self.push_up(agent.link, Up::Closed);
        }
        // They end with their agent.
        self.hosts[host].servers.clear();
        let workers: Vec<_> = self.hosts[host].workers.keys().copied().collect();
        for process in workers {
            if let Some(worker) = self.worker(host, process) {
                worker.orphan = true;
            }
            let wait = self.rng.micros(100, 30_000);
            self.after(
                wait,
                Ev::Kill {
                    host,
                    process,
                    term: false,
                },
            );
        }
        if self.plan.settings.self_registration {
            let wait = self.rng.millis(50, 3_000);
            self.after(wait, Ev::Register(host));
        }
        self.unlock(host);
    }

    /// The reaper process reports the death of a registered agent, most of the time.
    fn leave_last_will(&mut self, host: usize, agent: &AgentSim) {
        let registered = self.plan.wills && agent.machine.is_some();
        if registered && self.hosts[host].alive && self.lateness_rng.percent(80) {
            let (wait, agent) = (self.lateness_rng.micros(100, 50_000), agent.number);
            self.after(wait, Ev::AgentDied { host, agent });
        }
    }

    /// The last will of an agent reaches the driver, once its workers are gone and unless its connection is broken.
    pub(super) fn agent_died(&mut self, index: usize, agent: u64) {
        let host = &self.hosts[index];
        if host.workers.values().any(|worker| worker.agent == agent) {
            return self.after(
                Duration::from_millis(10),
                Ev::AgentDied { host: index, agent },
            );
        }
        if host.alive && host.cut_up == 0 && self.driver.lives() {
            let (host, why) = (host.id.clone(), "its agent died".to_owned());
            self.job_event(elasticrun_core::Event::AgentDied { host, agent, why });
        }
    }

    /// A dead process is reaped: its agent gets the exit, and its slot is free.
    pub(super) fn reap(&mut self, host: usize, process: Process) {
        let Some(worker) = self.hosts[host].workers.remove(&process) else {
            return;
        };
        self.note(format_args!(
            "h{host} {process:?} is gone: {:?}",
            worker.end
        ));
        if let Some(exit) = worker.end
            && self.hosts[host].is_agent(worker.agent)
        {
            let agent = worker.agent;
            let event = AgentEvent::Exited {
                process,
                exit,
                tail: Vec::new(),
            };
            self.machine_event(host, agent, event);
        }
        self.unlock(host);
    }

    /// Checks whether anything of the ended job is left.
    pub(super) fn check_swept(&mut self) {
        let left = |host: &super::Host| host.agent.is_some() || !host.workers.is_empty();
        if !self.hosts.iter().any(left) {
            self.swept = true;
            return;
        }
        let ended = self.driver.ended.as_ref().map_or(self.now, |(at, _)| *at);
        let bound = Duration::from_secs(40)
            + self.plan.heartbeat_timeout * 2
            + self.plan.orphan_timeout
            + self.plan.grace * 4;
        if self.now.since(ended) > bound {
            let names: Vec<&HostId> = self
                .hosts
                .iter()
                .filter(|h| left(h))
                .map(|h| &h.id)
                .collect();
            return self.violate("R9", format!("something is left behind on {names:?}"));
        }
        self.after(Duration::from_millis(500), Ev::Swept);
    }
}
