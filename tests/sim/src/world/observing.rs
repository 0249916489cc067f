//! What the reference and the invariants observe of an event, before the job receives it.

use elasticrun_core::{AgentConnected, Event as JobEvent, fleet::AgentUp};
use elasticrun_protocol::{AgentReport, HostId};

use super::{World, dying::TakeOver};
use crate::{invariants, reference::Reference};

impl World {
    /// What the job may know: a deadline that had passed when an event came takes effect before the event.
    pub(crate) fn references(&self) -> impl Iterator<Item = &Reference> {
        let references = [Some(&self.reference), self.before_event.as_ref()];
        references.into_iter().flatten()
    }

    /// An event reaches the driver.
    pub(super) fn observe(&mut self, event: &JobEvent) {
        let now = self.driver_now();
        let late = self
            .driver
            .job
            .next_deadline()
            .is_some_and(|due| due <= now);
        self.before_event = late.then(|| self.reference.clone());
        if matches!(event, JobEvent::AgentConnected(agent) if self.is_namesake(agent)) {
            return;
        }
        let away = self.reference.away();
        let takes_over = match event {
            JobEvent::AgentConnected(agent) => self.takes_over(agent),
            _ => false,
        };
        self.reference.event(now, event, takes_over);
        if let JobEvent::AgentConnected(agent) = event
            && let Some(adoption) = agent.adoption.as_ref().filter(|_| takes_over)
        {
            invariants::later_driver::comes_back(self, &agent.host, adoption);
            for worker in &adoption.workers {
                self.blame.process_came(now, &agent.host, worker.process);
            }
            for report in &adoption.reports {
                if let AgentReport::Exited { process, .. } = report.report {
                    self.blame.process_came(now, &agent.host, process);
                }
            }
        }
        // Of what comes with the last deadline after the end, the job takes nothing. So it does of an agent that returns when
        // the time of its draining host is over.
        let is_lost = |host: &HostId| {
            let due = self.reference.drain_due(host);
            away.contains(host) && due.is_some_and(|due| due <= now)
        };
        let returns_late = matches!(event, JobEvent::AgentConnected(agent) if is_lost(&agent.host));
        let too_late = late && (invariants::exit::gives_up(self) || returns_late);
        let repeated = too_late || self.is_repeated(event);
        if !repeated {
            invariants::ends::event(self, event);
            invariants::exit::event(self, event);
            invariants::worker_ended::event(self, event);
            invariants::newcomers::event(self, event);
            if self.plan.groups.is_some() {
                invariants::groups::event(self, event);
            }
        }
        for report in self.kept_reports(event).into_iter().filter(|_| !too_late) {
            invariants::heard(self, &report);
        }
        if let JobEvent::AgentConnected(agent) = event
            && !away.contains(&agent.host)
            && (agent.adoption.is_none() || self.takes_over(agent))
        {
            self.blame.agent_came(self.driver_now(), &agent.host);
        }
        self.peer_was_lost(event);
        let broken = |report: &AgentReport| matches!(report, AgentReport::PeerLost { .. });
        self.driver.broken &= !self.driver.job.is_settled();
        self.driver.broken |= matches!(event, JobEvent::Reported { report, .. } if broken(report));
        if let JobEvent::Reported {
            host,
            instance,
            report: AgentReport::Noticed { notice },
            ..
        } = event
            && let Some(up) = self
                .driver
                .job
                .fleet()
                .host(host)
                .and_then(|host| host.up())
            && up.instance == *instance
            && !repeated
        {
            self.reference
                .agent_noticed(self.driver_now(), host, *notice);
        }
    }

    /// A worker reports that it lost a peer.
    pub(crate) fn peer_was_lost(&mut self, event: &JobEvent) {
        if let JobEvent::Reported {
            report: AgentReport::PeerLost { round, .. },
            ..
        } = event
        {
            self.round_broke(*round);
        }
    }

    /// Whether the job has applied this report before, so that it rejects the event.
    fn is_repeated(&self, event: &JobEvent) -> bool {
        let JobEvent::Reported { host, number, .. } = event else {
            return false;
        };
        let up = self
            .driver
            .job
            .fleet()
            .host(host)
            .and_then(|host| host.up());
        self.driver.ended.is_none() && up.is_some_and(|up| *number <= up.applied)
    }

    /// The reports that an agent has kept and that the job applies as the agent returns.
    fn kept_reports(&self, event: &JobEvent) -> Vec<JobEvent> {
        let JobEvent::AgentConnected(agent) = event else {
            return Vec::new();
        };
        // The reports of another one are not applied: it is sent back.
        let applied = self.known_as(agent).map(|up| up.applied);
        let Some(adoption) = &agent.adoption else {
            return Vec::new();
        };
        let applied = match self.takes_over(agent) {
            true => (self.driver.takeover.as_ref())
                .map(|takeover| takeover.applied_before(agent).max(adoption.acknowledged)),
            false => applied,
        };
        let Some(applied) = applied else {
            return Vec::new();
        };
        let new = adoption
            .reports
            .iter()
            .filter(|report| report.number > applied);
        let event = new.map(|report| JobEvent::Reported {
            host: agent.host.clone(),
            instance: agent.instance,
            epoch: report.epoch,
            number: report.number,
            report: report.report.clone(),
        });
        event.collect()
    }

    /// Whether an agent of the former driver comes back before the job ends.
    pub(super) fn takes_over(&self, agent: &AgentConnected) -> bool {
        let known = self.driver.job.fleet().host(&agent.host);
        let is_up = known.is_some_and(|state| state.up().is_some());
        // The agent may not know yet that this driver has taken it back.
        let is_back = self.known_as(agent).is_some();
        let older =
            (agent.adoption.as_ref()).is_some_and(|adoption| adoption.epoch < self.driver.epoch);
        let in_time = |takeover: &TakeOver| self.driver_now() < takeover.until;
        let goes_on = self.driver.ended.is_none();
        goes_on && older && !is_up && !is_back && self.driver.takeover.as_ref().is_some_and(in_time)
    }

    /// Whether another agent of the same name is connected. Then the job refuses this one.
    fn is_namesake(&self, agent: &AgentConnected) -> bool {
        let known = self.driver.job.fleet().host(&agent.host);
        let up = known.and_then(|state| state.up()).and_then(|up| up.agent);
        let other = up.zip(agent.agent).is_some_and(|(up, new)| up != new);
        agent.self_registered && other
    }

    /// The agent of its host as the job knows it, if it is the one that connects.
    fn known_as(&self, agent: &AgentConnected) -> Option<&AgentUp> {
        let known = self.driver.job.fleet().host(&agent.host)?.last_up()?;
        (known.returns && known.agent == agent.agent).then_some(known)
    }
}
