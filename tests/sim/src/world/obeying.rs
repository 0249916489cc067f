//! The driver's shell: how it carries out the commands of the job.

use std::time::Duration;

use elasticrun_core::{Command, Event as JobEvent};
use elasticrun_protocol::{AgentCommand, HostId, ToAgent, control::Setup};

use super::{Ev, World, link::Down};
use crate::invariants;

impl World {
    /// Carries out the commands of the job.
    pub(super) fn obey(&mut self, commands: Vec<Command>) {
        invariants::on_commands(self, &commands);
        self.record();
        for command in commands {
            if !matches!(
                &command,
                Command::Send {
                    command: AgentCommand::Heartbeat { .. },
                    ..
                }
            ) {
                self.note(format_args!("driver > {command:?}"));
            }
            match command {
                Command::Launch { host } => self.launch(&host),
                Command::Send { host, command } => self.send_command(&host, command),
                Command::Admit {
                    host,
                    instance,
                    adopted,
                } => self.admit(&host, instance, adopted),
                Command::SendBack { instance, .. } => self.send_back(instance),
                Command::Refuse { instance, .. } | Command::RefuseName { instance, .. } => {
                    self.refuse(instance);
                }
                Command::Disconnect { host, instance } => self.disconnect(&host, instance),
                Command::EndLaunch { host, .. } => self.end_launch(&host),
                Command::OpenRound { .. }
                | Command::TellSources { .. }
                | Command::Answer { .. }
                | Command::Reject { .. } => {}
                Command::Announce(note) => self.ambush(&note),
                Command::End(outcome) => {
                    self.driver.ended.get_or_insert((self.now, outcome));
                    self.ask_again();
                }
                Command::Exit => self.after(Duration::ZERO, Ev::DriverExit),
            }
        }
        self.schedule_job_tick();
    }

    /// Writes the records that have changed. The shell does so when the job is settled.
    fn record(&mut self) {
        if self.journal.is_on() && self.driver.job.is_settled() {
            let changes = self.driver.job.journal();
            let known = invariants::later_driver::known(self);
            self.journal.write(self.now, changes, known);
        }
    }

    pub(super) fn send_command(&mut self, host: &HostId, mut command: AgentCommand) {
        if let AgentCommand::Heartbeat { applied, .. } = &mut command {
            *applied = self.journal.acknowledged(host, *applied);
        }
        let link = self
            .host_index(host)
            .and_then(|index| self.driver.current[index]);
        if let Some(link) = link.filter(|link| self.links[*link].driver_open) {
            self.push_down(
                link,
                Down::AgentCommand(ToAgent {
                    epoch: self.driver.epoch,
                    command,
                }),
            );
        }
    }

    /// The connection with this number, which has arrived and is not admitted yet.
    fn arrived(&mut self, instance: u64) -> Option<usize> {
        let arrived = self.driver.arrived.take()?;
        (self.links[arrived].instance == Some(instance)).then_some(arrived)
    }

    fn admit(&mut self, host: &HostId, instance: u64, adopted: bool) {
        let (Some(index), Some(link)) = (self.host_index(host), self.arrived(instance)) else {
            return self.violate(
                "R3",
                format!("{host} is admitted with connection {instance}"),
            );
        };
        if self.driver.current[index].replace(link).is_some() {
            self.violate("R3", format!("two connections of {host} are admitted"));
        }
        let setup = Setup {
            adopted,
            ..self.setup()
        };
        let setup = AgentCommand::Setup(Box::new(setup));
        self.send_command(host, setup);
        self.after(self.plan.heartbeat_interval, Ev::Heart(link));
    }

    fn refuse(&mut self, instance: u64) {
        if let Some(link) = self.arrived(instance) {
            let (epoch, command) = (self.driver.epoch, AgentCommand::Kill);
            self.push_down(link, Down::AgentCommand(ToAgent { epoch, command }));
            self.close_driver_end(link);
        }
    }

    /// Lets an agent that has kept workers begin anew.
    fn send_back(&mut self, instance: u64) {
        if let Some(link) = self.arrived(instance) {
            let epoch = self.driver.epoch;
            let command = AgentCommand::Setup(Box::new(self.setup()));
            self.push_down(link, Down::AgentCommand(ToAgent { epoch, command }));
            self.close_driver_end(link);
        }
    }

    fn end_launch(&mut self, host: &HostId) {
        if let Some(index) = self.host_index(host) {
            self.hosts[index].launch += 1;
            self.hosts[index].launch_waits = false;
        }
    }

    fn disconnect(&mut self, host: &HostId, instance: u64) {
        let Some(index) = self.host_index(host) else {
            return;
        };
        // A newer connection than the job knows of stays.
        let known = |link: &mut usize| self.links[*link].instance == Some(instance);
        if let Some(link) = self.driver.current[index].take_if(known) {
            self.close_driver_end(link);
        }
    }

    /// Sometimes the user requests the stop again while the job ends.
    fn ask_again(&mut self) {
        if self.lateness_rng.percent(10) {
            let wait = self.lateness_rng.millis(0, 5_000);
            self.after(wait, Ev::Job(JobEvent::StopRequested { signal: 2 }));
        }
    }

    fn launch(&mut self, host: &HostId) {
        let Some(index) = self.host_index(host) else {
            return;
        };
        self.hosts[index].launch += 1;
        self.hosts[index].launched_by = self.driver.epoch;
        let token = self.hosts[index].launch;
        let wait = self.rng.millis(5, 100);
        if self.pending.take_hang_launch() || self.hosts[index].no_way {
            return;
        }
        if self.pending.take_fail_launch() || !self.hosts[index].alive {
            let (host, why) = (host.clone(), "no way there".to_owned());
            return self.after(wait, Ev::Job(JobEvent::LaunchFailed { host, why }));
        }
        self.after(wait, Ev::Launch { host: index, token });
    }
}
