//! How an agent returns to the driver after its connection has ended, as the shipped shell does it.

use std::time::Duration;

use elasticrun_core::agent::{Event as AgentEvent, Machine};
use elasticrun_protocol::{DriverEpoch, ToAgent, control::Setup};

use super::{Ev, World, link::Up};

/// How long an agent waits for the answer to its registration.
const ANSWER: Duration = Duration::from_secs(5);

impl World {
    /// The connection of an agent has ended at the agent's end.
    pub(super) fn connection_ended(&mut self, host: usize, agent: u64) {
        self.machine_event(host, agent, AgentEvent::DriverLost);
        self.redial_later(host);
    }

    /// Ends the agent's end of its connection. With `heard`, the driver learns of it at once, whatever is cut.
    pub(super) fn break_link(&mut self, host: usize, heard: bool) {
        let Some(agent) = &self.hosts[host].agent else {
            return;
        };
        let (link, number) = (agent.link, agent.number);
        if !std::mem::replace(&mut self.links[link].agent_open, false) {
            return;
        }
        self.push_up(link, Up::Closed);
        if heard && let Some(instance) = self.links[link].instance {
            let id = self.hosts[host].id.clone();
            self.lost(link, id, instance, "the connection broke");
        }
        match self.has_machine(host) {
            true => self.connection_ended(host, number),
            false => self.agent_ends(host),
        }
    }

    fn machine(&self, host: usize) -> Option<&Machine> {
        self.hosts[host].agent.as_ref()?.machine.as_ref()
    }

    pub(super) fn redial_later(&mut self, host: usize) {
        if !self.machine(host).is_some_and(Machine::may_return) {
            return;
        }
        let wait = self.lateness_rng.millis(50, 1_000);
        if let Some(agent) = &mut self.hosts[host].agent
            && !std::mem::replace(&mut agent.redials, true)
        {
            let agent = agent.number;
            self.after(wait, Ev::Redial { host, agent });
        }
    }

    /// A silent driver may be reached by another connection.
    pub(super) fn redial_if_silent(&mut self, host: usize) {
        let misses = self.machine(host).is_some_and(Machine::misses_driver);
        if misses && self.plan.returns {
            self.redial_later(host);
        }
    }

    /// An agent dials for its driver.
    pub(super) fn redial(&mut self, host: usize, number: u64) {
        if !self.hosts[host].is_agent(number) {
            return;
        }
        let Some(agent) = &mut self.hosts[host].agent else {
            return;
        };
        agent.redials = false;
        let (old, answered, registered) = (agent.link, agent.answered, agent.registered);
        let Some(machine) = agent.machine.as_ref().filter(|m| m.may_return()) else {
            return;
        };
        let open = self.links[old].agent_open;
        let waits = !answered && self.now.since(registered) < ANSWER;
        if open && (answered && !machine.misses_driver() || waits) {
            return if waits {
                self.redial_later(host)
            };
        }
        let state = &self.hosts[host];
        let reached = state.alive && state.cut_up == 0 && state.cut_down == 0;
        if !self.driver.lives() || !reached || self.driver_stalls().is_some() {
            let refused = !self.driver.lives() && reached;
            if !open {
                let event = AgentEvent::DialFailed { refused };
                self.machine_event(host, number, event);
            }
            return self.redial_later(host);
        }
        if open {
            self.links[old].agent_open = false;
            self.push_up(old, Up::Closed);
            self.machine_event(host, number, AgentEvent::DriverLost);
        }
        if self.lateness_rng.percent(3) {
            self.older_driver_answers(host, number);
        }
        self.register_again(host, number);
        self.redial_later(host);
    }

    fn register_again(&mut self, host: usize, number: u64) {
        let state = &self.hosts[host];
        let Some(machine) = self.machine(host).filter(|machine| machine.may_return()) else {
            return;
        };
        let adoption = Box::new(machine.adoption(&state.memories));
        let link = self.connect(host, number, false, Some(adoption));
        let now = self.now;
        if let Some(agent) = &mut self.hosts[host].agent {
            (agent.link, agent.answered, agent.registered) = (link, false, now);
        }
    }

    /// A driver that was replaced long ago answers a dial. The agent must not obey it.
    fn older_driver_answers(&mut self, host: usize, number: u64) {
        let before = self.machine(host).map(Machine::epoch);
        let Some(epoch) = before else { return };
        let setup = Box::new(Setup {
            adopted: true,
            ..self.setup()
        });
        let older = DriverEpoch(epoch.0.saturating_sub(1));
        let event = AgentEvent::DriverBack {
            epoch: older,
            setup,
        };
        self.machine_event(host, number, event);
        if self.machine(host).map(Machine::epoch) != before {
            self.violate("R3", format!("h{host} obeys the older driver {older}"));
        }
    }

    /// The driver answers the registration of an agent with workers.
    pub(super) fn answered(
        &mut self,
        host: usize,
        number: u64,
        link: usize,
        message: ToAgent,
        setup: Setup,
    ) {
        let obeys = self
            .machine(host)
            .is_some_and(|m| m.obeys(&setup.run_id, message.epoch));
        if !obeys {
            self.links[link].agent_open = false;
            self.push_up(link, Up::Closed);
            return self.redial_later(host);
        }
        if let Some(agent) = &mut self.hosts[host].agent {
            agent.answered = setup.adopted;
        }
        let epoch = message.epoch;
        let setup = Box::new(setup);
        self.machine_event(host, number, AgentEvent::DriverBack { epoch, setup });
    }
}
