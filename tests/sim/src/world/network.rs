//! The driver's end of its connections: their messages, delays and ends.

use std::{net::IpAddr, time::Duration};

use elasticrun_core::{AgentConnected, Event as JobEvent};
use elasticrun_protocol::{
    AgentReport, FromAgent, HostId,
    control::{Adoption, Durable, Replication, Setup},
};

use super::{
    Ev, World,
    link::{Down, InFlight, Link, Up},
};

impl World {
    pub(super) fn close_driver_end(&mut self, link: usize) {
        if std::mem::replace(&mut self.links[link].driver_open, false) {
            self.push_down(link, Down::Closed);
        }
    }

    pub(super) fn push_down(&mut self, link: usize, message: Down) {
        let at = self.now + self.delay();
        let at = self.links[link].down.push(at, message);
        self.at(at, Ev::Down(link));
    }

    pub(super) fn push_up(&mut self, link: usize, message: Up) {
        let at = self.now + self.delay();
        let at = self.links[link].up.push(at, message);
        self.at(at, Ev::Up(link));
    }

    /// The delay of one message. Now and then the network pauses.
    fn delay(&mut self) -> Duration {
        let most = self.plan.delay.as_micros() as u64;
        let quiet = self.plan.calm || self.plan.gentle;
        if !quiet && !self.healed && self.rng.percent(1) {
            return self.rng.millis(10, 800);
        }
        self.rng.micros(most / 4, most)
    }

    /// A new connection of an agent, which may keep commits of an earlier one.
    pub(super) fn dial(&mut self, host: usize, agent: u64) -> usize {
        let keeps = !self.hosts[host].memories.of.is_empty();
        self.connect(host, agent, keeps, None)
    }

    pub(super) fn connect(
        &mut self,
        host: usize,
        agent: u64,
        keeps: bool,
        adoption: Option<Box<Adoption>>,
    ) -> usize {
        let link = self.links.len();
        self.links.push(Link {
            host,
            driver: self.driver.epoch,
            agent,
            instance: None,
            up: InFlight::default(),
            down: InFlight::default(),
            driver_open: true,
            agent_open: true,
            heard: self.driver_now(),
        });
        self.push_up(link, Up::Register { keeps, adoption });
        link
    }

    /// A message of an agent arrives, unless the path is cut.
    pub(super) fn up(&mut self, link: usize) {
        if self.hosts[self.links[link].host].cut_up > 0 {
            return;
        }
        let Some(message) = self.links[link].up.pop(self.now) else {
            return;
        };
        if !self.driver.lives() || self.links[link].driver != self.driver.epoch {
            return;
        }
        self.links[link].heard = self.driver_now();
        let (host, instance) = (self.links[link].host, self.links[link].instance);
        let id = self.hosts[host].id.clone();
        match (message, instance) {
            (Up::Register { keeps, adoption }, _) => self.agent_registers(link, keeps, adoption),
            (Up::AgentReport(report), Some(instance)) => self.reported(link, id, instance, report),
            (Up::Closed, Some(instance)) => {
                self.lost(link, id, instance, "it closed its connection")
            }
            (Up::Closed, None) => self.links[link].driver_open = false,
            (Up::AgentReport(_), None) => unreachable!("an agent registers first"),
        }
    }

    fn reported(&mut self, link: usize, host: HostId, instance: u64, report: FromAgent) {
        let open = self.links[link].driver_open;
        let beats = matches!(report.report, AgentReport::Heartbeat { .. });
        // The shell may still hold messages that it read before the connection closed; half of them arrive.
        if !open && self.rng.percent(50) {
            return;
        }
        if !beats && self.repeats() {
            let wait = self.rng.micros(0, 2_000_000);
            self.after(wait, Ev::RepeatUp(link, report.clone()));
        }
        let event = JobEvent::Reported {
            host,
            instance,
            epoch: report.epoch,
            number: report.number,
            report: report.report,
        };
        if beats {
            self.job_beat(event);
        } else if open {
            self.job_event(event);
        } else {
            self.inert_event(event, "it came over a connection that is closed");
        }
    }

    pub(super) fn repeat_up(&mut self, link: usize, report: FromAgent) {
        let (host, instance) = (self.links[link].host, self.links[link].instance);
        let event = JobEvent::Reported {
            host: self.hosts[host].id.clone(),
            instance: instance.unwrap_or(0),
            epoch: report.epoch,
            number: report.number,
            report: report.report,
        };
        self.inert_event(event, "it repeats what was said");
    }

    pub(super) fn repeats(&mut self) -> bool {
        !self.healed && self.plan.repeats > 0 && self.rng.percent(self.plan.repeats)
    }

    /// The driver notices the end of a connection, or its silence.
    pub(super) fn lost(&mut self, link: usize, host: HostId, instance: u64, why: &str) {
        let index = self.links[link].host;
        let known = std::mem::replace(&mut self.links[link].driver_open, false);
        if !known && self.rng.percent(50) {
            return;
        }
        if self.driver.current[index] == Some(link) {
            self.driver.current[index] = None;
        }
        let why = why.to_owned();
        self.job_event(JobEvent::AgentLost {
            host,
            instance,
            why,
        });
    }

    fn agent_registers(&mut self, link: usize, keeps: bool, adoption: Option<Box<Adoption>>) {
        let index = self.links[link].host;
        let host = self.hosts[index].id.clone();
        self.driver.instances += 1;
        let instance = self.driver.instances;
        self.links[link].instance = Some(instance);
        self.driver.arrived = Some(link);
        let free_port = self.fresh_port(index);
        self.job_event(JobEvent::AgentConnected(AgentConnected {
            host,
            instance,
            address: IpAddr::from([10, 0, 0, index as u8]),
            memory_port: 1,
            free_port,
            slots: self.hosts[index].slots,
            detected_slots: self.plan.listings[index]
                .slots
                .counted(self.hosts[index].slots),
            self_registered: self.plan.settings.self_registration,
            keeps,
            probes: Self::knows_probes(index),
            durable: true,
            replicas: true,
            cuts: true,
            servers: true,
            task: None,
            agent: self.agents_have_numbers().then_some(self.links[link].agent),
            returns: self.plan.returns,
            adoption,
        }));
    }

    /// Whether agents say which process they are. Those that return or leave a last will do.
    fn agents_have_numbers(&self) -> bool {
        let itself = self.plan.settings.self_registration;
        self.journal.is_on() || self.plan.wills || self.plan.returns && !itself
    }

    pub(super) fn setup(&self) -> Setup {
        Setup {
            run_id: "run".into(),
            command: Vec::new(),
            env: Default::default(),
            directory: None,
            heartbeat_interval: self.plan.heartbeat_interval,
            heartbeat_timeout: self.plan.heartbeat_timeout,
            orphan_timeout: self.plan.orphan_timeout,
            keep_timeout: self.plan.lease().keep(),
            abort_timeout: self.plan.settings.abort_timeout,
            grace: self.plan.grace,
            drain_timeout: self.plan.drain_timeout,
            notice_file: None,
            signal_notice: None,
            instance: 1,
            groups: self.plan.settings.elastic,
            encrypt_data: false,
            commit_memory: None,
            adopted: false,
            preload: None,
            parameter_servers: None,
            durable: self.plan.durable.map(|interval| Durable {
                place: "/store".into(),
                interval,
            }),
            replication: self.plan.replicas.map(|interval| Replication {
                interval,
                bandwidth: None,
            }),
        }
    }

    /// Checks whether an agent is silent.
    pub(super) fn heart(&mut self, link: usize) {
        let Link {
            host,
            heard,
            driver_open,
            instance,
            ..
        } = self.links[link];
        if !driver_open {
            return;
        }
        if self.driver_now().since(heard) >= self.plan.lease().silence() {
            let id = self.hosts[host].id.clone();
            self.close_driver_end(link);
            self.links[link].driver_open = true;
            return self.lost(link, id, instance.unwrap_or(0), "it fell silent");
        }
        self.after(self.plan.heartbeat_interval, Ev::Heart(link));
    }
}
