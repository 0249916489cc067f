//! Agents that probe which hosts their host reaches.

use std::time::Duration;

use elasticrun_core::agent::Event as AgentEvent;
use elasticrun_protocol::{HostId, control::ProbeHost};

use super::{Ev, World};

impl World {
    /// Whether the agent of a host supports probes. Some are of an older release.
    pub(crate) fn knows_probes(host: usize) -> bool {
        host % 5 != 4
    }

    pub(super) fn probe(
        &mut self,
        host: usize,
        number: u64,
        hosts: Vec<ProbeHost>,
        within: Duration,
    ) {
        let Some(agent) = self.hosts[host].agent.as_ref().map(|agent| agent.number) else {
            return;
        };
        let all: Vec<_> = hosts.into_iter().map(|probed| probed.host).collect();
        let unreachable = self.without_way(host, all);
        // Two round trips, or the whole time for an answer.
        let wait = match unreachable.is_empty() {
            true => self.plan.delay * 4,
            false => within,
        };
        self.after(
            wait,
            Ev::Dialled {
                host,
                agent,
                number,
                unreachable,
            },
        );
    }

    /// Reports the hosts that did not answer and are still out of reach. TCP sends again, so a host that is
    /// reached by now counts.
    pub(super) fn dialled(
        &mut self,
        host: usize,
        agent: u64,
        number: u64,
        unreachable: Vec<HostId>,
    ) {
        if !self.healed && self.plan.repeats > 0 && self.lateness_rng.percent(3) {
            // The agent is stuck in a system call.
            return self.note(format_args!("h{host} does not say whom it reaches"));
        }
        let unreachable = self.without_way(host, unreachable);
        let event = AgentEvent::Probed {
            number,
            unreachable,
        };
        self.machine_event(host, agent, event);
    }

    /// Those of these hosts that no data reaches, or whose agents do not answer.
    fn without_way(&self, host: usize, mut hosts: Vec<HostId>) -> Vec<HostId> {
        hosts.retain(|other| {
            let other = self.host_index(other).map(|index| &self.hosts[index]);
            let there = other.is_some_and(|other| {
                other.alive && other.agent.is_some() && other.stalled <= self.now
            });
            !there || self.hosts[host].cut_data > 0 || other.is_some_and(|h| h.cut_data > 0)
        });
        hosts
    }
}
