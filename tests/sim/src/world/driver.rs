//! The driver's shell: connections by host, heartbeats, launches, and the job itself.

use std::{net::IpAddr, time::Duration};

use elasticrun_core::{
    AgentConnected, Command, Event as JobEvent, Job, Note, Time, results::Outcome,
};
use elasticrun_protocol::{DriverEpoch, FromAgent, HostId, Order, Report, ToAgent, control::Setup};

use super::{
    Ev, World,
    link::{Down, Lane, Link, Up},
};
use crate::{invariants, scenario::Scenario};

/// A job as text, but for the time at which it looked at itself last.
fn state_of(job: &Job) -> String {
    let text = format!("{job:?}");
    match text.split_once(", settled: ") {
        Some((before, after)) => format!(
            "{before}{}",
            after.split_once(',').map_or("", |(_, rest)| rest)
        ),
        None => text,
    }
}

/// The only driver of a run.
pub(crate) const EPOCH: DriverEpoch = DriverEpoch(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) job: Job,
    /// The connection of each host.
    pub(super) current: Vec<Option<usize>>,
    instances: u64,
    tick_at: Option<Time>,
    /// Ticks since the clock moved last.
    ticks: u32,
    pub(crate) ended: Option<(Time, Outcome)>,
    pub(super) exited: bool,
    /// What the event that is being applied may not do.
    pub(crate) inert: Option<&'static str>,
}

impl Driver {
    pub(super) fn new(plan: &Scenario, seed: u64) -> Self {
        Self {
            job: Job::new(plan.settings.clone(), "run", EPOCH, seed),
            current: vec![None; plan.hosts.len()],
            instances: 0,
            tick_at: None,
            ticks: 0,
            ended: None,
            exited: false,
            inert: None,
        }
    }
}

impl World {
    pub(super) fn job_event(&mut self, event: JobEvent) {
        if self.driver.exited {
            return;
        }
        self.note(format_args!("driver < {event:?}"));
        self.reference.event(&event);
        let mut out = Vec::new();
        self.driver.job.step(self.now, event, &mut out);
        self.obey(out);
    }

    pub(super) fn job_tick(&mut self) {
        if self.driver.exited || self.driver.tick_at != Some(self.now) {
            return;
        }
        self.driver.tick_at = None;
        let mut out = Vec::new();
        self.driver.job.tick(self.now, &mut out);
        if !out.is_empty() {
            self.note(format_args!("driver ticks"));
        }
        self.obey(out);
        self.driver.ticks += 1;
        if self.driver.ticks > 20 {
            self.violate(
                "R9",
                "the job wants to be called again and again at one moment".into(),
            );
        }
    }

    pub(super) fn schedule_job_tick(&mut self) {
        let Some(due) = self.driver.job.next_deadline() else {
            self.driver.tick_at = None;
            return;
        };
        let due = due.max(self.now);
        if due > self.now {
            self.driver.ticks = 0;
        }
        if self.driver.tick_at != Some(due) {
            self.driver.tick_at = Some(due);
            self.at(due, Ev::JobTick);
        }
    }

    /// Does what the job commands.
    fn obey(&mut self, commands: Vec<Command>) {
        invariants::on_commands(self, &commands);
        for command in commands {
            if !matches!(
                &command,
                Command::Send {
                    order: Order::Beat { .. },
                    ..
                }
            ) {
                self.note(format_args!("driver > {command:?}"));
            }
            match command {
                Command::Launch { host } => self.launch(&host),
                Command::Send { host, order } => self.send_order(&host, order),
                Command::Disconnect { host } => self.disconnect(&host),
                Command::Reject { .. } => {}
                Command::Note(note) => self.ambush(&note),
                Command::End(outcome) => {
                    self.driver.ended.get_or_insert((self.now, outcome));
                    self.after(Duration::from_secs(10), Ev::DriverExit);
                    self.exit_when_alone();
                }
            }
        }
        self.schedule_job_tick();
    }

    fn send_order(&mut self, host: &HostId, order: Order) {
        let link = self
            .host_index(host)
            .and_then(|index| self.driver.current[index]);
        if let Some(link) = link.filter(|link| self.links[*link].driver_open) {
            self.push_down(
                link,
                Down::Order(ToAgent {
                    epoch: EPOCH,
                    order,
                }),
            );
        }
    }

    fn disconnect(&mut self, host: &HostId) {
        let Some(index) = self.host_index(host) else {
            return;
        };
        self.hosts[index].launch += 1;
        self.hosts[index].launch_waits = false;
        if let Some(link) = self.driver.current[index].take() {
            self.close_driver_end(link);
        }
    }

    fn close_driver_end(&mut self, link: usize) {
        if std::mem::replace(&mut self.links[link].driver_open, false) {
            self.push_down(link, Down::Closed);
        }
    }

    /// Once the job has ended the driver waits for its agents, though not for ever.
    fn exit_when_alone(&mut self) {
        if self.driver.ended.is_some() && self.driver.current.iter().all(Option::is_none) {
            self.after(Duration::ZERO, Ev::DriverExit);
        }
    }

    pub(super) fn driver_exit(&mut self) {
        if std::mem::replace(&mut self.driver.exited, true) {
            return;
        }
        self.note(format_args!("driver exits"));
        for link in 0..self.links.len() {
            self.close_driver_end(link);
        }
        self.after(Duration::from_millis(200), Ev::Swept);
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

    /// How long one message takes; now and then the network holds its breath.
    fn delay(&mut self) -> Duration {
        let most = self.plan.delay.as_micros() as u64;
        let quiet = self.plan.calm || self.plan.gentle;
        if !quiet && !self.healed && self.dice.percent(1) {
            return self.dice.millis(10, 800);
        }
        self.dice.micros(most / 4, most)
    }

    /// A new connection of an agent.
    pub(super) fn dial(&mut self, host: usize, agent: u64) -> usize {
        let link = self.links.len();
        self.links.push(Link {
            host,
            agent,
            instance: None,
            up: Lane::default(),
            down: Lane::default(),
            driver_open: true,
            agent_open: true,
            heard: self.now,
        });
        self.push_up(link, Up::Register);
        link
    }

    /// A message of an agent arrives, unless the way is cut.
    pub(super) fn up(&mut self, link: usize) {
        if self.hosts[self.links[link].host].cut_up > 0 {
            return;
        }
        let Some(message) = self.links[link].up.pop(self.now) else {
            return;
        };
        if self.driver.exited {
            return;
        }
        self.links[link].heard = self.now;
        let (host, instance) = (self.links[link].host, self.links[link].instance);
        let id = self.hosts[host].id.clone();
        match (message, instance) {
            (Up::Register, _) => self.agent_registers(link),
            (Up::Report(report), Some(instance)) => self.reported(link, id, instance, report),
            (Up::Closed, Some(instance)) => {
                self.lost(link, id, instance, "it closed its connection")
            }
            (Up::Closed, None) => self.links[link].driver_open = false,
            (Up::Report(_), None) => unreachable!("an agent registers first"),
        }
    }

    fn reported(&mut self, link: usize, host: HostId, instance: u64, report: FromAgent) {
        let open = self.links[link].driver_open;
        if let Report::Beat { count, .. } = report.report
            && open
        {
            let order = Order::Beat { heard: count };
            return self.push_down(
                link,
                Down::Order(ToAgent {
                    epoch: EPOCH,
                    order,
                }),
            );
        }
        // What was read before a connection was closed may still be in the shell's hands: half of it is.
        if !open && self.dice.percent(50) {
            return;
        }
        if self.repeats() {
            let wait = self.dice.micros(0, 2_000_000);
            self.after(wait, Ev::RepeatUp(link, report.clone()));
        }
        let event = JobEvent::Reported {
            host,
            instance,
            report: report.report,
        };
        if open {
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
            report: report.report,
        };
        self.inert_event(event, "it repeats what was said");
    }

    /// Applies an event that must change nothing (R3).
    fn inert_event(&mut self, event: JobEvent, why: &'static str) {
        if self.driver.exited || self.driver.ended.is_some() {
            return;
        }
        // What is due is due anyway; only then can the event be looked at alone.
        let mut out = Vec::new();
        self.driver.job.tick(self.now, &mut out);
        self.obey(out);
        let before = state_of(&self.driver.job);
        self.driver.inert = Some(why);
        let what = format!("{event:?}");
        self.job_event(event);
        self.driver.inert = None;
        let after = state_of(&self.driver.job);
        invariants::r3::unchanged(self, &before, &after, &what, why);
    }

    pub(super) fn repeats(&mut self) -> bool {
        !self.healed && self.plan.repeats > 0 && self.dice.percent(self.plan.repeats)
    }

    /// The end of a connection is seen, or its silence.
    fn lost(&mut self, link: usize, host: HostId, instance: u64, why: &str) {
        let index = self.links[link].host;
        let known = std::mem::replace(&mut self.links[link].driver_open, false);
        if !known && self.dice.percent(50) {
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
        self.exit_when_alone();
    }

    fn agent_registers(&mut self, link: usize) {
        let index = self.links[link].host;
        let host = self.hosts[index].id.clone();
        if let Some(old) = self.driver.current[index].take() {
            self.close_driver_end(old);
            let instance = self.links[old].instance.unwrap_or(0);
            let why = "another agent of this host has connected".to_owned();
            self.job_event(JobEvent::AgentLost {
                host: host.clone(),
                instance,
                why,
            });
        }
        self.driver.instances += 1;
        let instance = self.driver.instances;
        self.links[link].instance = Some(instance);
        self.driver.current[index] = Some(link);
        let setup = Order::Setup(Box::new(self.setup()));
        self.send_order(&host, setup);
        self.after(self.plan.heartbeat_interval, Ev::Heart(link));
        self.job_event(JobEvent::AgentConnected(AgentConnected {
            host,
            instance,
            address: IpAddr::from([10, 0, 0, index as u8]),
            memory_port: 1,
            free_port: 2,
            slots: self.hosts[index].slots,
            itself: self.plan.settings.self_registration,
        }));
    }

    fn setup(&self) -> Setup {
        Setup {
            run_id: "run".into(),
            command: Vec::new(),
            env: Default::default(),
            directory: None,
            heartbeat_interval: self.plan.heartbeat_interval,
            heartbeat_timeout: self.plan.heartbeat_timeout,
            orphan_timeout: self.plan.orphan_timeout,
            abort_timeout: self.plan.settings.abort_timeout,
            grace: self.plan.grace,
        }
    }

    /// The look whether an agent beats.
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
        if self.now.since(heard) >= self.plan.heartbeat_timeout {
            let id = self.hosts[host].id.clone();
            self.close_driver_end(link);
            self.links[link].driver_open = true;
            return self.lost(link, id, instance.unwrap_or(0), "it fell silent");
        }
        self.after(self.plan.heartbeat_interval, Ev::Heart(link));
    }

    fn launch(&mut self, host: &HostId) {
        let Some(index) = self.host_index(host) else {
            return;
        };
        self.hosts[index].launch += 1;
        let token = self.hosts[index].launch;
        let wait = self.dice.millis(5, 100);
        if self.pending.take_hang_launch() {
            return;
        }
        if self.pending.take_fail_launch() || !self.hosts[index].alive {
            let (host, why) = (host.clone(), "no way there".to_owned());
            return self.after(wait, Ev::Job(JobEvent::LaunchFailed { host, why }));
        }
        self.after(wait, Ev::Launch { host: index, token });
    }

    /// Strikes while something is going on, since that is when it hurts.
    fn ambush(&mut self, note: &Note) {
        let busy = matches!(
            note,
            Note::RoundPlanned { .. }
                | Note::RoundStarted { .. }
                | Note::Interrupting { .. }
                | Note::RoundAborted { .. }
                | Note::Finishing
        );
        if !busy || self.healed || self.plan.ambushes == 0 || !self.dice.percent(40) {
            return;
        }
        self.plan.ambushes -= 1;
        let fault = crate::fault::Fault::draw(&mut self.dice);
        let wait = self.dice.micros(0, 60_000);
        self.after(wait, Ev::Fault(fault));
    }
}
