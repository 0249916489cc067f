//! The main loop of the driver: the whole outside world is folded into events, [`Job::step`] decides,
//! the commands are executed. Nothing else decides anything.
//!
//! The loop never waits for a peer, a disk or a terminal: agents have a task each ([`crate::control`]),
//! launches too ([`crate::launch`]), and what workers print goes to a thread ([`crate::console`]).

use std::time::Duration;

use elasticrun_core::{Command, Event, Job, Note, Time, results::Outcome};
use elasticrun_protocol::{Order, Report, control::Setup};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use crate::{
    agents::{Agents, Older},
    clock::Clock,
    control,
    discovery::Sources,
    hosts::Hosts,
    launch::{self, Launcher},
    operator,
    report::Reporter,
    signals::Signals,
    store,
};

/// Inputs that are folded before the commands of all of them are executed.
const BATCH: usize = 256;

/// How long agents may take to end their workers and themselves, beyond two times the grace.
const SHUTDOWN_SLACK: Duration = Duration::from_secs(2);

/// How long agents may take to kill their workers when the user has asked twice.
const KILL_SLACK: Duration = Duration::from_secs(1);

/// Where everything comes from.
#[derive(Debug)]
pub struct Inputs {
    /// Agents.
    pub control: mpsc::Receiver<control::Input>,
    /// Launches that ended.
    pub launches: mpsc::Receiver<launch::Ended>,
    /// Discovery.
    pub discovery: mpsc::Receiver<crate::discovery::Update>,
    /// What people ask of the job.
    pub operator: mpsc::Receiver<operator::Asked>,
    /// The user.
    pub signals: Signals,
}

/// The driver of one job.
#[derive(Debug)]
pub struct Driver {
    pub(crate) job: Job,
    pub(crate) setup: Setup,
    pub(crate) hosts: Hosts,
    pub(crate) launcher: Launcher,
    pub(crate) reporter: Reporter,
    pub(crate) agents: Agents,
    pub(crate) sources: Sources,
    pub(crate) store: store::Handle,
    pub(crate) clock: Clock,
    /// How long workers may train after a beat of their agent.
    pub(crate) lease: Duration,
    pub(crate) ending: Option<Ending>,
}

/// The job has ended and its agents end.
#[derive(Debug)]
pub(crate) struct Ending {
    outcome: Outcome,
    deadline: Instant,
    killed: bool,
}

impl Driver {
    /// Runs the job to its end. Gives its outcome once all agents are gone, or have had their time.
    pub async fn run(&mut self, mut inputs: Inputs) -> Outcome {
        let mut beat = interval(self.setup.heartbeat_interval);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ticks = self.clock.ticks();
        let never = Instant::now();
        loop {
            let due = self.job.next_deadline();
            let due = due.and_then(|due| self.clock.instant(due));
            let ends = self.ending.as_ref().map(|ending| ending.deadline);
            tokio::select! {
                Some(input) = inputs.control.recv() => {
                    self.agent(input);
                    self.agents_at_hand(&mut inputs.control);
                }
                Some(update) = inputs.discovery.recv() => self.discovered(update),
                Some(ended) = inputs.launches.recv() => self.launch_ended(ended),
                Some(asked) = inputs.operator.recv() => {
                    if let Some(event) = asked.decide(&self.job) {
                        self.step(event);
                    }
                }
                signal = inputs.signals.next() => self.signalled(signal),
                _ = beat.tick() => self.beat(),
                _ = ticks.tick() => self.watch_clock(),
                () = sleep_until(due.unwrap_or(never)), if due.is_some() => {
                    // What has come by now has come in time.
                    self.agents_at_hand(&mut inputs.control);
                    self.tick();
                }
                () = sleep_until(ends.unwrap_or(never)), if ends.is_some() => {
                    if self.shutdown_overdue() {
                        self.give_agents_up();
                        return self.outcome();
                    }
                }
            }
            if self.ending.is_some() && self.agents.is_empty() && self.launcher.is_idle() {
                return self.outcome();
            }
        }
    }

    fn outcome(&self) -> Outcome {
        let ending = self.ending.as_ref();
        ending.map_or(Outcome::NoStateLeft, |ending| ending.outcome.clone())
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    /// Says that the driver stood still, if it did.
    fn watch_clock(&mut self) {
        if let Some(stall) = self.clock.take_stall() {
            self.reporter.warn(&format!(
                "the driver stood still for {:.1} s (suspended, or its machine was too busy); no host is blamed for that time",
                stall.as_secs_f64()
            ));
        }
    }

    /// Applies what agents have said, up to a batch.
    fn agents_at_hand(&mut self, control: &mut mpsc::Receiver<control::Input>) {
        for _ in 0..BATCH {
            let Ok(input) = control.try_recv() else { break };
            self.agent(input);
        }
    }

    fn step(&mut self, event: Event) {
        tracing::trace!(?event);
        let mut commands = Vec::new();
        self.job.step(self.now(), event, &mut commands);
        self.execute(commands);
    }

    fn tick(&mut self) {
        let mut commands = Vec::new();
        self.job.tick(self.now(), &mut commands);
        self.execute(commands);
    }

    fn agent(&mut self, input: control::Input) {
        match input {
            control::Input::Connected {
                agent,
                software,
                counted,
                task,
                writer,
            } => {
                let host = agent.host.clone();
                if software != env!("CARGO_PKG_VERSION") {
                    let own = env!("CARGO_PKG_VERSION");
                    self.reporter.warn(&format!(
                        "host {host} runs elasticrun {software}, this is {own}"
                    ));
                }
                if let Some(instance) = self.agents.remove(&host) {
                    let why = "another agent of this host has connected".to_owned();
                    self.step(Event::AgentLost {
                        host: host.clone(),
                        instance,
                        why,
                    });
                }
                match task.and_then(|task| self.agents.admit(&task, &host)) {
                    None => {}
                    Some(Older::Comes) => {
                        tracing::info!(%host, "a newer attempt of this task is here");
                        return self.agents.send_away(&writer);
                    }
                    Some(Older::Retired { host, instance }) => {
                        let why = "a newer attempt of its task has come".to_owned();
                        self.step(Event::AgentLost {
                            host,
                            instance,
                            why,
                        });
                    }
                }
                self.agents.add(
                    host.clone(),
                    agent.instance,
                    agent.address,
                    writer,
                    &self.setup,
                );
                // Before the first beat, so that a driver that stands still from now on is known to be patient or not.
                let lease = Some(self.lease);
                let _ = self.agents.send(&host, Order::Beat { heard: 0, lease });
                self.launcher.connected(&host);
                if let Some(list) = self.hosts.probed(&host, agent.slots, counted) {
                    self.step(Event::Discovered(list));
                }
                self.doubt_slots();
                self.step(Event::AgentConnected(agent));
            }
            control::Input::Reported {
                host,
                instance,
                reports,
            } => {
                for report in reports {
                    if report.epoch != self.agents.epoch() {
                        tracing::debug!(%host, "a report to another driver");
                        continue;
                    }
                    if let Report::Beat { commits, count } = report.report {
                        self.reporter.commits(&host, commits);
                        if self.agents.is_current(&host, instance) {
                            // One that does not read is found out by an order that matters.
                            let lease = Some(self.lease);
                            let order = Order::Beat {
                                heard: count,
                                lease,
                            };
                            let _ = self.agents.send(&host, order);
                        }
                    }
                    self.step(Event::Reported {
                        host: host.clone(),
                        instance,
                        report: report.report,
                    });
                }
            }
            control::Input::Lost {
                host,
                instance,
                why,
            } => {
                if self.agents.is_current(&host, instance) {
                    self.agents.remove(&host);
                    self.launcher.abandon(&host);
                }
                self.step(Event::AgentLost {
                    host,
                    instance,
                    why,
                });
            }
        }
    }

    fn discovered(&mut self, update: crate::discovery::Update) {
        let event = match update {
            crate::discovery::Update::List(list) => {
                self.launcher.learn(&list);
                let list = self.hosts.listed(list);
                self.doubt_slots();
                Event::Discovered(list)
            }
            crate::discovery::Update::Failed { fatal, why } => {
                Event::DiscoveryFailed { fatal, why }
            }
        };
        self.step(event);
    }

    /// Says which hosts show fewer slots than their source told of.
    fn doubt_slots(&mut self) {
        for doubt in self.hosts.take_doubts() {
            self.reporter.warn(&doubt);
        }
    }

    fn launch_ended(&mut self, ended: launch::Ended) {
        // One that was abandoned says nothing of the host any more.
        if self.launcher.ended(&ended) {
            self.step(Event::LaunchFailed {
                host: ended.host,
                why: ended.why,
            });
        }
    }

    fn signalled(&mut self, signal: i32) {
        match &mut self.ending {
            None => {
                self.reporter.stopping(signal);
                self.step(Event::StopRequested { signal });
            }
            Some(ending) if !ending.killed => {
                ending.killed = true;
                ending.deadline = Instant::now() + KILL_SLACK;
                self.agents.send_to_all(Order::Kill);
            }
            Some(_) => {}
        }
    }

    /// Gives whether there is nothing more to wait for.
    fn shutdown_overdue(&mut self) -> bool {
        let Some(ending) = &mut self.ending else {
            return false;
        };
        if ending.killed {
            return true;
        }
        ending.killed = true;
        ending.deadline = Instant::now() + KILL_SLACK;
        self.agents.send_to_all(Order::Kill);
        false
    }

    /// They have had their time.
    fn give_agents_up(&mut self) {
        for host in self.agents.hosts() {
            if let Some(instance) = self.agents.remove(&host) {
                let why = "its agent has not ended in time".to_owned();
                self.step(Event::AgentLost {
                    host,
                    instance,
                    why,
                });
            }
        }
    }

    fn beat(&mut self) {
        self.reporter.beat(&self.job);
    }

    fn execute(&mut self, mut commands: Vec<Command>) {
        self.agents.view(&mut commands);
        let (mut unheard, mut notes) = (Vec::new(), Vec::new());
        // Before any worker hears of it.
        for command in &commands {
            if let Command::Note(Note::RoundStarted { round, .. }) = command {
                self.store.round_started(self.agents.epoch(), *round);
            }
        }
        for command in commands {
            match command {
                Command::Launch { host } => self.launcher.launch(&host),
                Command::Send { host, order } => {
                    tracing::trace!(%host, ?order);
                    if let Err(instance) = self.agents.send(&host, order) {
                        unheard.push((host, instance));
                    }
                }
                Command::Disconnect { host, instance } => {
                    if instance.is_some_and(|known| self.agents.remove_instance(&host, known)) {
                        self.launcher.abandon(&host);
                    }
                    self.launcher.abandon_unless_connected(&host);
                }
                Command::Reject { host, why } => tracing::debug!(%host, %why, "refused a message"),
                // People are told once agents are.
                Command::Note(note) => notes.push(note),
                Command::End(outcome) => {
                    let deadline = Instant::now() + self.setup.grace * 2 + SHUTDOWN_SLACK;
                    self.ending = Some(Ending {
                        outcome,
                        deadline,
                        killed: false,
                    });
                    self.launcher.end();
                }
            }
        }
        for note in notes {
            self.sources.note(&note);
            self.reporter.note(&note, &self.job);
        }
        for (host, instance) in unheard {
            if self.agents.remove(&host).is_some() {
                self.launcher.abandon(&host);
                let why = "its agent does not read its orders".to_owned();
                self.step(Event::AgentLost {
                    host,
                    instance,
                    why,
                });
            }
        }
    }
}
