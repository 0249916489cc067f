//! The agent's shell: one process per host that runs the shipped machine and carries out its commands.

use std::{rc::Rc, time::Duration};

use elasticrun_core::agent::{Command, Event as AgentEvent, Machine, Signal};
use elasticrun_protocol::{
    AgentCommand, AgentReport, FromAgent, Process, ToAgent,
    control::{Cut, Exit, Spawn, Start},
};

use super::{
    Ev, World,
    joining::Tell,
    link::{Down, Up},
};
use crate::invariants;

impl World {
    /// A command arrives, unless the path is cut.
    pub(super) fn down(&mut self, link: usize) {
        let host = self.links[link].host;
        if self.hosts[host].cut_down > 0 {
            return;
        }
        let Some(message) = self.links[link].down.pop(self.now) else {
            return;
        };
        let agent = self.links[link].agent;
        if !self.hosts[host].is_agent(agent) || !self.links[link].agent_open {
            return;
        }
        match message {
            Down::Closed => {
                self.links[link].agent_open = false;
                match self.has_machine(host) {
                    true => self.connection_ended(host, agent),
                    false => self.agent_ends(host),
                }
            }
            Down::AgentCommand(message) => self.deliver_command(host, agent, link, message),
        }
    }

    fn deliver_command(&mut self, host: usize, agent: u64, link: usize, message: ToAgent) {
        if let AgentCommand::Setup(setup) = &message.command
            && !self.has_machine(host)
        {
            let port = self.fresh_port(host);
            let mut machine = Machine::new(self.now, message.epoch, (**setup).clone(), port);
            machine.keep(self.hosts[host].memories.of.keys().copied());
            machine.set_adoptable(self.plan.returns);
            if let Some(agent) = &mut self.hosts[host].agent {
                machine.registered(agent.registered);
                agent.answered = true;
                agent.machine = Some(machine);
            }
            return self.schedule_agent_tick(host);
        }
        if let AgentCommand::Setup(setup) = &message.command {
            let setup = (**setup).clone();
            return self.answered(host, agent, link, message, setup);
        }
        if !matches!(message.command, AgentCommand::Heartbeat { .. }) && self.repeats() {
            let wait = self.rng.micros(0, 2_000_000);
            self.after(wait, Ev::RepeatDown(link, message.clone()));
        }
        if let AgentCommand::Replicate { planned, .. } | AgentCommand::Cut(Cut { planned, .. }) =
            &message.command
        {
            self.hosts[host].planned = *planned;
        }
        if let (AgentCommand::Shutdown, Some(agent)) =
            (&message.command, &mut self.hosts[host].agent)
        {
            agent.told = true;
        }
        self.machine_event(host, agent, AgentEvent::FromDriver(message));
    }

    pub(super) fn repeat_down(&mut self, link: usize, message: ToAgent) {
        let (host, agent) = (self.links[link].host, self.links[link].agent);
        if !self.hosts[host].is_agent(agent) || !self.has_machine(host) {
            return;
        }
        let what = format!("{message:?}");
        let commands = self.step_machine(host, AgentEvent::FromDriver(message));
        self.note(format_args!("h{host} hears again {what}: {commands:?}"));
        invariants::r3::order_repeated(self, host, &what, &commands);
        self.do_all(host, commands);
    }

    pub(super) fn has_machine(&self, host: usize) -> bool {
        self.hosts[host]
            .agent
            .as_ref()
            .is_some_and(|agent| agent.machine.is_some())
    }

    pub(super) fn machine_event(&mut self, host: usize, agent: u64, event: AgentEvent) {
        if !self.hosts[host].is_agent(agent) || !self.has_machine(host) {
            return;
        }
        let beat = |command: &AgentCommand| matches!(command, AgentCommand::Heartbeat { .. });
        if !matches!(&event, AgentEvent::FromDriver(message) if beat(&message.command)) {
            self.note(format_args!("h{host} < {event:?}"));
        }
        let commands = self.step_machine(host, event);
        self.do_all(host, commands);
        self.schedule_flush(host);
    }

    fn step_machine(&mut self, host: usize, event: AgentEvent) -> Vec<Command> {
        let (now, mut out) = (self.now, Vec::new());
        let state = &mut self.hosts[host];
        state.memories.now = now;
        if let Some(machine) = state
            .agent
            .as_mut()
            .and_then(|agent| agent.machine.as_mut())
        {
            machine.step(now, event, &mut state.memories, &mut out);
        }
        out
    }

    fn schedule_flush(&mut self, host: usize) {
        let wait = self.rng.micros(0, 300);
        if let Some(agent) = &mut self.hosts[host].agent
            && !std::mem::replace(&mut agent.flushing, true)
        {
            let agent = agent.number;
            self.after(wait, Ev::Flush { host, agent });
        }
    }

    pub(super) fn flush(&mut self, host: usize, number: u64) {
        let mut out = Vec::new();
        if let Some(agent) = self.hosts[host]
            .agent
            .as_mut()
            .filter(|a| a.number == number)
        {
            agent.flushing = false;
            if let Some(machine) = &mut agent.machine {
                machine.flush(&mut out);
            }
        }
        self.do_all(host, out);
    }

    pub(super) fn agent_tick(&mut self, host: usize, number: u64) {
        let now = self.now;
        let mut out = Vec::new();
        let state = &mut self.hosts[host];
        state.memories.now = now;
        let Some(agent) = state
            .agent
            .as_mut()
            .filter(|a| a.number == number && a.tick_at.is_some_and(|at| at <= now))
        else {
            return;
        };
        agent.tick_at = None;
        if let Some(machine) = &mut agent.machine {
            machine.tick(now, &mut state.memories, &mut out);
            if machine.next_deadline().is_some_and(|due| due <= now) {
                let what = "an agent wants to be called again and again at one moment".into();
                return self.violate("R9", what);
            }
        }
        self.do_all(host, out);
        self.redial_if_silent(host);
    }

    fn schedule_agent_tick(&mut self, host: usize) {
        let now = self.now;
        let Some(agent) = &mut self.hosts[host].agent else {
            return;
        };
        let Some(due) = agent.machine.as_ref().and_then(Machine::next_deadline) else {
            return;
        };
        let due = due.max(now);
        if agent.tick_at != Some(due) {
            agent.tick_at = Some(due);
            let agent = agent.number;
            self.at(due, Ev::AgentTick { host, agent });
        }
    }

    fn do_all(&mut self, host: usize, commands: Vec<Command>) {
        for process in self.hosts[host].memories.rung() {
            let wait = self.rng.micros(5, 500);
            self.after(wait, Ev::Wake { host, process });
        }
        for command in commands {
            if !matches!(command, Command::AgentReport(AgentReport::Heartbeat { .. })) {
                self.note(format_args!("h{host} > {command:?}"));
            }
            self.do_one(host, command);
        }
        self.schedule_agent_tick(host);
    }

    fn do_one(&mut self, host: usize, command: Command) {
        match command {
            Command::AgentReport(report) => {
                let agent = self.hosts[host].agent.as_mut();
                if let Some(machine) = agent.and_then(|agent| agent.machine.as_mut()) {
                    let report = machine.number(report);
                    self.report(host, report);
                }
            }
            Command::Repeat(report) => self.report(host, report),
            Command::Spawn(spawn) => self.spawn(host, spawn),
            Command::StartServer { process } => self.start_server(host, process),
            Command::Signal {
                process,
                signal: signal @ (Signal::Stop | Signal::Continue),
            } => {
                // Workers that attach are not stopped: before `run()` they are harmless.
                if self
                    .plan
                    .groups
                    .as_ref()
                    .is_some_and(|groups| !groups.attach)
                {
                    self.freeze(host, process, signal == Signal::Stop);
                }
            }
            Command::Signal { process, signal } => {
                let wait = self.rng.micros(5, 2_000);
                let term = signal == Signal::Terminate;
                if term {
                    invariants::removal::terminated(self, host, process);
                }
                self.after(
                    wait,
                    Ev::Kill {
                        host,
                        process,
                        term,
                    },
                );
            }
            Command::Start(start) => self.tell_start(host, *start),
            Command::Abort { round, members } => {
                for process in members {
                    let now = self.now;
                    if let Some(worker) = self.worker(host, process) {
                        worker.set_aborted(round, now);
                    }
                    if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
                        shared.abort(round);
                    }
                    let wait = self.rng.micros(5, 2_000);
                    self.after(wait, Ev::Wake { host, process });
                    self.tell(host, process, Tell::Abort(round));
                }
            }
            Command::TellStop { process, why } => {
                invariants::removal::told(self, host, process, why);
                self.tell(host, process, Tell::Stop(why));
            }
            Command::Forget { process } => {
                invariants::r12::may_forget(self, host, process);
                invariants::last_commit::forgets(self, host, process);
                if !self.hosts[host].workers.contains_key(&process) {
                    self.hosts[host].memories.of.remove(&process);
                }
            }
            // Bytes have no size here.
            Command::EndPassing { .. } => {}
            Command::Probe {
                number,
                hosts,
                within,
            } => self.probe(host, number, hosts, within),
            Command::WriteDurable { process, .. } => self.write_durable(host, process),
            Command::FindDurable { number, .. } => self.find_durable(host, number),
            Command::LoadDurable {
                number,
                process,
                id,
                ..
            } => self.load_durable(host, number, process, id),
            Command::Replicate {
                process,
                keeper,
                wanted,
                ..
            } => self.replicate(host, process, &keeper, wanted),
            Command::Exit { stuck, .. } => {
                if stuck.is_empty() {
                    invariants::r20::agent_exits(self, host);
                }
                self.agent_exits(host);
            }
        }
    }

    fn report(&mut self, host: usize, report: FromAgent) {
        if let AgentReport::Ready { round, .. } = &report.report {
            let answer = Some((*round, self.hosts[host].keys()));
            self.hosts[host].told.clone_from(&answer);
            self.hosts[host].answered = answer;
        }
        if matches!(
            report.report,
            AgentReport::FreePort { .. } | AgentReport::Ready { .. }
        ) {
            let port = self.fresh_port(host);
            let agent = self.hosts[host].agent.as_mut();
            if let Some(machine) = agent.and_then(|agent| agent.machine.as_mut()) {
                machine.set_free_port(port);
            }
        }
        if let AgentReport::WorkerLost {
            process,
            silent: true,
        } = &report.report
        {
            // The agent has given the process up, though the signal is still on its way.
            self.given_up(host, *process);
        }
        let answered = self.hosts[host].agent.as_ref().filter(|a| a.answered);
        let link = answered.map(|agent| agent.link);
        if let Some(link) = link.filter(|link| self.links[*link].agent_open) {
            self.push_up(link, Up::AgentReport(report));
        }
    }

    fn tell_start(&mut self, host: usize, start: Start) {
        let start = Rc::new(start);
        for member in &start.members {
            let tell = Tell::Start(start.clone(), *member);
            self.tell(host, member.process, tell);
        }
    }

    fn spawn(&mut self, host: usize, spawn: Spawn) {
        let process = spawn.process;
        invariants::r4::spawned(self, host, process);
        self.forget_namesake(host, process);
        if self.pending.take_refuse_start() {
            let exit = Exit::NotStarted("no such file".into());
            return self.exited(host, process, exit, Duration::from_millis(1));
        }
        self.begin_worker(host, process);
    }

    /// Reports to the agent that a process is reaped.
    fn exited(&mut self, host: usize, process: Process, exit: Exit, wait: Duration) {
        let Some(agent) = self.hosts[host].agent.as_ref().map(|agent| agent.number) else {
            return;
        };
        let ended = AgentEvent::Ended {
            process,
            exit: exit.clone(),
        };
        let exited = AgentEvent::Exited {
            process,
            exit,
            tail: Vec::new(),
        };
        for event in [ended, exited] {
            self.after(wait, Ev::Machine { host, agent, event });
        }
    }
}
