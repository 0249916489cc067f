//! The main loop of the driver. It turns all inputs into events, [`Job`] answers with commands, and the loop executes them.
//! No other code decides anything. The job receives what agents have sent by now, up to [`BATCH`] inputs
//! ([`crate::inputs`]), and then plans once.
//! The same holds for launches that ended. A signal of the user never waits behind other inputs.
//!
//! The loop never waits for a peer, a disk or a terminal. Each agent has its tasks ([`crate::control`]), each launch has
//! one ([`crate::launch`]), and threads write the output of workers ([`crate::console`]).

use std::time::Duration;

use elasticrun_core::{Command, Decision, Event, Job, Time, results::Outcome};
use elasticrun_plugin_sdk::text::one_line;
use elasticrun_protocol::{AgentCommand, AgentReport, FromAgent, HostId, control::Setup};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tracing::{Span, error_span};

use crate::{
    admin_socket,
    agents::Agents,
    clock::Clock,
    console::Console,
    control,
    discovery::Sources,
    inputs::{BATCH, Inputs, notified, received, take_arrived},
    journal::{Final, Notice},
    launch::{self, Launcher},
    parameter_servers::Scheduler,
    recording::Recording,
    report::{self, Reporter},
    signals::{Signals, UserSignal},
    standbys::Standbys,
    start, store,
};

/// How long launched processes may take to end after their agents.
const LAUNCHES_TIMEOUT: Duration = Duration::from_secs(10);

/// The driver of one job.
#[derive(Debug)]
pub struct Driver {
    pub(crate) job: Job,
    pub(crate) setup: Setup,
    pub(crate) launcher: Launcher,
    pub(crate) reporter: Reporter,
    pub(crate) console: Console,
    pub(crate) agents: Agents,
    pub(crate) sources: Sources,
    pub(crate) requests: admin_socket::Pending,
    pub(crate) store: store::Handle,
    pub(crate) clock: Clock,
    /// The span of the job.
    pub(crate) span: Span,
    /// The span of the round that started last, or that of the job.
    pub(crate) round: Span,
    /// Set when the job is over: the deadline for launched processes.
    pub(crate) exits_by: Option<Instant>,
    pub(crate) recording: Recording,
    pub(crate) standbys: Standbys,
    /// The scheduler of the parameter servers, if the job has any.
    pub(crate) scheduler: Option<Scheduler>,
}

/// The signal by which a user lets a standby driver continue the run.
const HAND_OVER: i32 = libc::SIGUSR2;

/// Why a driver has ended.
#[derive(Debug)]
pub enum Ended {
    /// Its job has this outcome.
    Job(Outcome),
    /// Another driver continues the run.
    Replaced,
    /// The user has asked this driver to let a standby driver continue the run.
    Resigned,
}

/// Why the loop ends before all launched processes have ended.
enum Stop {
    GaveUp,
    Replaced,
    Resigned,
}

impl Driver {
    /// Runs the job until it ends the driver. Returns why, and the signals that come later.
    pub async fn run(&mut self, mut inputs: Inputs) -> (Ended, Signals) {
        let mut heartbeat = interval(self.setup.heartbeat_interval);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ticks = self.clock.ticks();
        let never = Instant::now();
        let (mut batch, mut ended) = (Vec::new(), Vec::new());
        loop {
            let due = self.job.next_deadline();
            let due = due.and_then(|due| self.clock.instant(due));
            let others = async {
                tokio::select! {
                    Some(()) = received(&mut inputs.control, &mut batch) => {
                        self.on_agents(&mut batch);
                    }
                    Some(event) = inputs.discovery.recv() => self.step(event),
                    1.. = inputs.launches.recv_many(&mut ended, BATCH) => {
                        self.on_launches_ended(&mut ended);
                    }
                    Some(request) = inputs.admin.recv() => {
                        let event = self.requests.register(request);
                        self.step(event);
                    }
                    commands = self.recording.recorded(), if self.recording.holds() => {
                        // A driver that is replaced ends no agent.
                        if let Some(stop) = self.take_notices(&mut inputs.journal) {
                            return Some(stop);
                        }
                        self.carry_out(commands);
                    }
                    Some(notice) = notified(&mut inputs.journal) => return self.on_notice(notice),
                    _ = heartbeat.tick() => return self.on_heartbeat(),
                    _ = ticks.tick() => self.check_clock(),
                    () = sleep_until(due.unwrap_or(never)), if due.is_some() => {
                        // Messages that have arrived by now are in time.
                        take_arrived(&mut inputs.control, &mut batch);
                        self.on_agents(&mut batch);
                        self.tick();
                    }
                    () = sleep_until(self.exits_by.unwrap_or(never)), if self.exits_by.is_some() => {
                        return Some(Stop::GaveUp);
                    }
                }
                None
            };
            let stop = tokio::select! {
                biased;
                signal = inputs.signals.next() => self.on_signal(signal),
                stop = others => stop,
            };
            match stop {
                None => {}
                Some(Stop::GaveUp) => break,
                Some(Stop::Replaced) => return (Ended::Replaced, inputs.signals),
                Some(Stop::Resigned) => return (Ended::Resigned, inputs.signals),
            }
            if self.exits_by.is_some() && self.launcher.is_idle() {
                break;
            }
        }
        while let Some(Ok(notice)) = inputs.journal.as_mut().map(mpsc::Receiver::try_recv) {
            self.reporter.journal(&notice);
        }
        let outcome = self.job.results().outcome().cloned();
        let ended = Ended::Job(outcome.unwrap_or(Outcome::NoStateLeft));
        (ended, inputs.signals)
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    /// Reports a stall of the driver.
    fn check_clock(&mut self) {
        if let Some(stall) = self.clock.take_stall() {
            self.reporter.warn(&format!(
                "the driver stood still for {:.1} s (suspended, or its machine was too busy); no host is blamed for that time",
                stall.as_secs_f64()
            ));
        }
    }

    /// Receives what agents have sent, and plans once.
    fn on_agents(&mut self, inputs: &mut Vec<control::Input>) {
        let _in_round = self.round.clone().entered();
        let mut commands = Vec::new();
        for input in inputs.drain(..) {
            self.on_agent(input, &mut commands);
        }
        self.job.settle(self.now(), &mut commands);
        self.execute(commands);
    }

    fn step(&mut self, event: Event) {
        let _in_round = self.round.clone().entered();
        let mut commands = Vec::new();
        self.receive(event, &mut commands);
        self.job.settle(self.now(), &mut commands);
        self.execute(commands);
    }

    fn receive(&mut self, event: Event, commands: &mut Vec<Command>) {
        tracing::trace!(?event);
        self.job.receive(self.now(), event, commands);
    }

    fn tick(&mut self) {
        let _in_round = self.round.clone().entered();
        let mut commands = Vec::new();
        self.job.tick(self.now(), &mut commands);
        self.execute(commands);
    }

    fn on_agent(&mut self, input: control::Input, commands: &mut Vec<Command>) {
        match input {
            control::Input::Connected {
                agent,
                software,
                version,
                writer,
            } => {
                let host = agent.host.clone();
                tracing::debug!(%host, software, version, "an agent has connected");
                if software != env!("CARGO_PKG_VERSION") {
                    let software = one_line(&software);
                    let this = env!("CARGO_PKG_VERSION");
                    self.reporter.warn(&format!(
                        "host {host} runs elasticrun {software}, this is {this}"
                    ));
                }
                self.agents.connected(&agent, writer);
                if agent.self_registered
                    && let Some(expected) = elasticrun_agent::node_slots(&self.setup)
                    && agent.slots != expected.get()
                {
                    // The settings say to the agent what is expected.
                    let setup = Box::new(self.setup.clone());
                    self.agents
                        .refuse(agent.instance, AgentCommand::Setup(setup));
                    let slots = agent.slots;
                    return self.reporter.warn(&format!(
                        "host {host} is refused: it has {slots} workers, and the job has {expected} on each node (--nproc-per-node)"
                    ));
                }
                self.launcher.connected(&host);
                self.receive(Event::AgentConnected(agent), commands);
            }
            control::Input::Reported {
                host,
                instance,
                reports,
            } => {
                for FromAgent {
                    epoch,
                    number,
                    report,
                } in reports
                {
                    if let AgentReport::Heartbeat { commits, .. } = report {
                        self.reporter.commits(&host, commits);
                    }
                    let host = host.clone();
                    let event = Event::Reported {
                        host,
                        instance,
                        epoch,
                        number,
                        report,
                    };
                    self.receive(event, commands);
                }
            }
            control::Input::Lost {
                host,
                instance,
                why,
            } => {
                let event = Event::AgentLost {
                    host,
                    instance,
                    why,
                };
                self.receive(event, commands);
            }
            control::Input::Died { host, agent, why } => {
                self.receive(Event::AgentDied { host, agent, why }, commands);
            }
        }
    }

    /// Receives the ends of launches, and plans once.
    fn on_launches_ended(&mut self, launches: &mut Vec<launch::Ended>) {
        let _in_round = self.round.clone().entered();
        let mut commands = Vec::new();
        for ended in launches.drain(..) {
            // The end of an abandoned launch says nothing about the host.
            if self.launcher.ended(&ended) {
                let (host, why) = (ended.host, ended.why);
                self.receive(Event::LaunchFailed { host, why }, &mut commands);
            }
        }
        self.job.settle(self.now(), &mut commands);
        self.execute(commands);
    }

    fn on_signal(&mut self, signal: UserSignal) -> Option<Stop> {
        let signal = match signal {
            UserSignal::Stop(signal) => signal,
            UserSignal::ForAgents(HAND_OVER)
                if self.recording.is_shared() && self.job.results().outcome().is_none() =>
            {
                // One may have registered that this driver has not heard of yet.
                if !self.standbys.hand_over() {
                    self.reporter.warn(&format!(
                        "signal {HAND_OVER}: no standby driver is known; the next one will continue this run"
                    ));
                }
                return self.resigns();
            }
            UserSignal::ForAgents(signal) => {
                self.reporter.warn(&format!(
                    "signal {signal} is ignored: as a notice it is for agents (docs/draining.md); SIGTERM ends the job"
                ));
                return None;
            }
        };
        if self.job.results().outcome().is_none() {
            self.reporter.stopping(signal);
        }
        let waits_for_journal = self.recording.holds();
        self.step(Event::StopRequested { signal });
        if waits_for_journal {
            self.recording.wait_no_longer();
        }
        None
    }

    fn on_notice(&mut self, notice: Notice) -> Option<Stop> {
        if let Notice::Standbys(addresses) = notice {
            let command = self.standbys.changed(addresses);
            self.agents.queue_for_all(&command);
            self.flush();
            return None;
        }
        self.reporter.journal(&notice);
        matches!(notice, Notice::Replaced(_)).then_some(Stop::Replaced)
    }

    /// Takes the notices that have come, up to one that ends the loop.
    fn take_notices(&mut self, notices: &mut Option<mpsc::Receiver<Notice>>) -> Option<Stop> {
        while let Some(Ok(notice)) = notices.as_mut().map(mpsc::Receiver::try_recv) {
            if let Some(stop) = self.on_notice(notice) {
                return Some(stop);
            }
        }
        None
    }

    /// Sends all queued commands. An agent that does not read its commands is lost.
    fn flush(&mut self) {
        let unresponsive = self.agents.flush();
        self.lose(unresponsive);
    }

    fn lose(&mut self, unresponsive: Vec<(HostId, u64)>) {
        for (host, instance) in unresponsive {
            let why = "its agent does not read its commands".to_owned();
            self.step(Event::AgentLost {
                host,
                instance,
                why,
            });
        }
    }

    fn on_heartbeat(&mut self) -> Option<Stop> {
        if let Some(notice) = self.standbys.told() {
            self.reporter.journal(&notice);
        }
        if let Some(limit) = self.recording.tell_wait() {
            self.reporter.waits_for_journal(limit);
        }
        self.reporter.on_heartbeat(&self.job);
        self.resigns()
    }

    /// Hands the run over if the user wants it and a standby driver can take it. The end of a job is not handed over.
    fn resigns(&self) -> Option<Stop> {
        let goes_on = self.job.results().outcome().is_none();
        (goes_on && self.standbys.take_over()).then_some(Stop::Resigned)
    }

    /// The record of an outcome. The driver has not yet ended the agents, unless `finished`.
    fn record(job: &Job, outcome: &Outcome, finished: bool) -> Final {
        Final {
            code: start::code(outcome),
            lines: report::outcome_lines(outcome, job),
            finished,
        }
    }

    /// Writes what the journal lacks, and gives up the lead of the run.
    pub(crate) async fn resign(&mut self) {
        if let Some(journal) = self.recording.take_journal() {
            journal.release().await;
        }
        self.reporter
            .warn("a standby driver continues this run, and this one ends");
    }

    /// Writes the last record of the run, and closes the journal. A signal ends that.
    pub(crate) async fn end_journal(&mut self, outcome: &Outcome, signals: &mut Signals) {
        let Some(journal) = self.recording.take_journal() else {
            return;
        };
        let last = Self::record(&self.job, outcome, true);
        let ended = tokio::select! {
            ended = journal.end([last.entry()]) => ended,
            signal = signals.stop() => Err(report::signal_text(signal)),
        };
        if let Err(why) = ended {
            let why = one_line(&why);
            self.reporter.warn(&format!(
                "the journal lacks the end of this run, and elasticrun resume cannot show it: {why}"
            ));
        }
    }

    fn execute(&mut self, commands: Vec<Command>) {
        if self.recording.is_on() {
            self.recording.write(self.job.journal());
        }
        let job = &self.job;
        let record = |outcome: &Outcome| Self::record(job, outcome, false);
        let commands = self.recording.admit(commands, record);
        self.carry_out(commands);
    }

    fn carry_out(&mut self, mut commands: Vec<Command>) {
        self.agents.rewrite_addresses(&mut commands);
        let (mut unresponsive, mut decisions) = (Vec::new(), Vec::new());
        for command in commands {
            match command {
                Command::Launch { host } => self.launcher.launch(&host, self.job.sources()),
                Command::Send { host, mut command } => {
                    if matches!(command, AgentCommand::Shutdown | AgentCommand::Kill)
                        && let Some(outcome) = self.job.results().outcome()
                    {
                        let last = self.standbys.ended(start::code(outcome));
                        if let Err(instance) = self.agents.queue(&host, last) {
                            unresponsive.push((host.clone(), instance));
                        }
                    }
                    if let AgentCommand::Heartbeat { applied, .. } = &mut command {
                        *applied = self.recording.acknowledged(&host, *applied);
                    }
                    self.standbys.name_in(&mut command);
                    tracing::trace!(%host, ?command);
                    if let Err(instance) = self.agents.queue(&host, command) {
                        unresponsive.push((host, instance));
                    }
                }
                Command::Admit {
                    host,
                    instance,
                    adopted,
                } => self.agents.admit(host, instance, &self.setup, adopted),
                Command::SendBack { instance, .. } => {
                    let setup = Box::new(self.setup.clone());
                    self.agents.refuse(instance, AgentCommand::Setup(setup));
                }
                Command::Refuse { instance, .. } => {
                    self.agents.refuse(instance, AgentCommand::Kill);
                }
                Command::RefuseName { instance, by, .. } => {
                    self.agents.refuse(instance, AgentCommand::NameTaken { by });
                }
                Command::Disconnect { host, instance } => self.agents.disconnect(&host, instance),
                Command::EndLaunch {
                    host,
                    unless_connected: true,
                } => self.launcher.abandon_unless_connected(&host),
                Command::EndLaunch { host, .. } => self.launcher.abandon(&host),
                Command::Reject { host, why } => tracing::debug!(%host, %why, "refused a message"),
                Command::OpenRound { round } => {
                    self.store.round_started(self.agents.epoch(), round);
                }
                Command::Answer { id, answer } => self.requests.answer(id, answer),
                Command::TellSources { host, state } => self.sources.notify(&host, state),
                // Reported after the agents have their commands.
                Command::Announce(decision) => decisions.push(decision),
                Command::End(_) => {
                    self.launcher.end();
                    if let Some(scheduler) = &self.scheduler {
                        scheduler.end();
                    }
                    self.console.job_ended();
                }
                Command::Exit => self.exits_by = Some(Instant::now() + LAUNCHES_TIMEOUT),
            }
        }
        unresponsive.extend(self.agents.flush());
        let mut reported = false;
        for decision in decisions {
            if let Decision::RoundStarted { round, .. } = &decision {
                self.round = error_span!(parent: &self.span, "round", number = round.0);
            }
            self.reporter.report(&decision);
            reported = true;
        }
        if reported {
            self.reporter.progress(&self.job);
        }
        self.lose(unresponsive);
    }
}
