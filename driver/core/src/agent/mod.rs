//! The state machine of an agent, which owns the worker processes of one host.
//!
//! An agent decides nothing about the job. It aggregates its workers: the driver receives one message for eight workers.
//!
//! The interface is that of [`crate::Job`]: [`Machine::step`] takes an event and appends commands. The memory that
//! agent and workers share is read and written at once, through the [`Memory`] port.
//!
//! Not promised: that a worker has received an abort. A worker is back when it sends [`elasticrun_protocol::FromWorker::Join`]. A worker
//! that is not back after the abort timeout, or sends no heartbeat, is killed and reported as lost.

mod commands;
mod cut;
mod driver;
mod durable;
mod ending;
mod event;
mod memory;
mod outbox;
pub mod passing;
mod replica;
mod reports;
mod returning;
mod servers;
mod stored;
mod worker;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use elasticrun_protocol::{
    AgentReport, DriverEpoch, Generation, LocalRank, Notice, Process, Round,
    control::{AdoptedRound, Setup},
};

use crate::{
    Time,
    lease::Lease,
    mutant::{Mutant, planted},
    time::earliest,
};
use cut::Cuts;
use durable::Durable;
pub use event::{Command, Copied, End, Event, Signal, Wanted};
pub use memory::Memory;
use outbox::Outbox;
use replica::Replicas;
use servers::Servers;
use worker::{Life, Worker};

/// How many times longer than others a worker may be silent that waits for a processor. After that its peers had better go on
/// without it.
const STARVED: u32 = 10;

#[derive(Clone, Debug)]
struct Plan {
    round: Round,
    members: Vec<Process>,
    answered: bool,
}

/// The state machine of an agent.
#[derive(Clone, Debug)]
pub struct Machine {
    epoch: DriverEpoch,
    setup: Setup,
    abort_timeout: Duration,
    free_port: u16,
    workers: BTreeMap<Process, Worker>,
    /// The last start of each slot. A command to start that generation or an older one is a repeat (R3).
    starts: BTreeMap<LocalRank, Generation>,
    /// Holds of rounds up to this one were withdrawn. A command to hold such a round is a repeat (R3).
    released: Round,
    /// Dead processes whose memory holds a commit.
    kept: BTreeSet<Process>,
    durable: Durable,
    replicas: Replicas,
    cuts: Cuts,
    servers: Servers,
    /// The newest command about the durable store. A command with an older number is a repeat (R3).
    stored: u64,
    /// The number of the last load of a durable commit or copy of a replica, among the processes that never lived.
    loads: Generation,
    plan: Option<Plan>,
    /// Rounds up to this one were planned or aborted. A plan of such a round changes nothing (R3).
    seen: Round,
    waiting: Vec<Process>,
    /// The newest probe. A command for an older one is a repeat (R3).
    probe: u64,
    next_beat: Time,
    /// Number of heartbeats sent.
    beats: u64,
    /// Heartbeats that the driver has not answered, with the time when each was sent.
    unanswered: VecDeque<(u64, Time)>,
    /// When the newest heartbeat that the driver has answered was sent. The lease counts from here. A heartbeat timeout
    /// later the driver counts as lost.
    heard: Time,
    /// Length of the lease.
    lease: Duration,
    /// When the driver's machine last acknowledged.
    reached: Time,
    /// When the agent returned to its driver last, if it did.
    connected: Time,
    has_returned: bool,
    /// The round that was started last.
    started: Option<AdoptedRound>,
    /// A round that began with a divided base, while hosts may pass on parts of it.
    passes: Option<Round>,
    outbox: Outbox,
    /// Processes without the SDK are stopped because the lease is over: they do not look at it.
    frozen: bool,
    orphan_since: Option<Time>,
    /// The connection to the driver has ended.
    closed: bool,
    /// The last dial since then was refused.
    refused: bool,
    /// The agent ends on its own, since the driver was silent for too long or the host asked for it. It obeys no
    /// further command.
    by_itself: bool,
    ending: bool,
    ended: bool,
    /// The driver has sent a shutdown.
    shut_down: bool,
    /// The host has asked the agent to end.
    stopped: bool,
    /// The end of the drain that the host's request began.
    drains_until: Option<Time>,
    /// A notice has arrived: the host may or will go away.
    at_risk: bool,
}

impl Machine {
    /// A new machine for an agent that a driver has just accepted.
    pub fn new(now: Time, epoch: DriverEpoch, setup: Setup, free_port: u16) -> Self {
        Self {
            epoch,
            abort_timeout: setup.abort_timeout,
            // Holds until the first answer, and with an older driver, which grants no lease.
            lease: Lease::from_setup(&setup).length(),
            reached: now,
            connected: now,
            has_returned: false,
            started: None,
            passes: None,
            outbox: Outbox::default(),
            frozen: false,
            next_beat: now + setup.heartbeat_interval,
            setup,
            free_port,
            workers: BTreeMap::new(),
            starts: BTreeMap::new(),
            released: Round(0),
            kept: BTreeSet::new(),
            durable: Durable::default(),
            replicas: Replicas::default(),
            cuts: Cuts::default(),
            servers: Servers::default(),
            stored: 0,
            loads: Generation(0),
            plan: None,
            seen: Round(0),
            waiting: Vec::new(),
            probe: 0,
            beats: 0,
            unanswered: VecDeque::new(),
            heard: now,
            orphan_since: None,
            closed: false,
            refused: false,
            by_itself: false,
            ending: false,
            ended: false,
            shut_down: false,
            stopped: false,
            drains_until: None,
            at_risk: false,
        }
    }

    /// Sets when the agent sent its registration, which the driver has answered with the settings. As with heartbeats,
    /// the lease counts from then, however late the answer arrived. So commands that were delayed with the answer start
    /// nothing that outlives the fence (R11).
    ///
    /// The first heartbeat is due one interval after the registration. If the answer arrives later, this heartbeat precedes
    /// all reports. So the driver renews the lease before it starts a round of their workers.
    pub fn registered(&mut self, at: Time) {
        self.heard = at;
        self.next_beat = at + self.setup.heartbeat_interval;
    }

    /// Adopts dead processes whose memory earlier sessions of this agent in the same run have kept.
    pub fn keep(&mut self, kept: impl IntoIterator<Item = Process>) {
        self.kept.extend(kept);
    }

    /// The epoch of the driver that the agent obeys.
    pub fn epoch(&self) -> DriverEpoch {
        self.epoch
    }

    /// Whether the driver counts as lost: no answer for a heartbeat timeout, or the connection has ended.
    pub fn misses_driver(&self) -> bool {
        self.orphan_since.is_some()
    }

    /// Sets a port that was found free, for the next coordinator.
    pub fn set_free_port(&mut self, port: u16) {
        self.free_port = port;
    }

    /// Whether the agent ends all its workers, and then itself.
    pub fn is_ending(&self) -> bool {
        self.ending
    }

    /// Whether the agent has ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Applies one event. Call [`Machine::flush`] when no further event is at hand.
    pub fn step(
        &mut self,
        now: Time,
        event: Event,
        memory: &mut dyn Memory,
        out: &mut Vec<Command>,
    ) {
        match event {
            Event::FromDriver(message) => self.on_command(now, message, memory, out),
            Event::DriverLost => {
                // An earlier refusal says nothing of this end.
                self.refused &= self.closed;
                self.closed = true;
                self.driver_lost(now, memory);
            }
            Event::DriverReached => self.reached = now,
            Event::DialFailed { refused } => self.refused = refused,
            Event::DriverBack { epoch, setup } => {
                self.driver_back(now, epoch, *setup, memory, out);
            }
            Event::Attached { process } => {
                let until = self.lease_end();
                if let Some(worker) = self.workers.get_mut(&process) {
                    worker.attached(now);
                    memory.set_lease(process, until);
                    memory.keep_commits(process, self.cuts.named());
                    if self.setup.groups {
                        out.push(Command::AgentReport(AgentReport::Attached { process }));
                    }
                    if self.at_risk {
                        memory.set_at_risk(process);
                    }
                }
            }
            Event::FromWorker { process, message } => self.on_report(now, process, message, out),
            Event::Died { process } => self.died(now, process, out),
            // The peers do not wait for its last lines of output.
            Event::Ended { process, exit } => {
                if let Some(worker) = self.workers.get_mut(&process)
                    && worker.is_attached()
                    && !exit.is_success()
                {
                    if memory.exited_outside(process) && !planted(Mutant::ObeyedIsFailed) {
                        worker.has_obeyed();
                    }
                    self.died(now, process, out);
                }
            }
            Event::Exited {
                process,
                exit,
                tail,
            } => {
                if process.is_server() {
                    self.server_exited(process, exit, tail, out);
                } else {
                    self.exited(process, exit, tail, memory, out);
                }
            }
            Event::CannotBegin { round, why } => self.cannot_begin(round, why, out),
            Event::Probed {
                number,
                unreachable,
            } if number == self.probe => {
                out.push(Command::AgentReport(AgentReport::Probed {
                    number,
                    unreachable,
                }));
            }
            Event::Probed { .. } => {}
            Event::DurableWritten {
                commit,
                bytes,
                took,
            } => self.durable_written(now, commit, (bytes, took), out),
            Event::DurableEmpty => self.durable_empty(now),
            Event::DurableUnusable { why } => self.report_failure(why, out),
            Event::DurableFailed { why } => self.durable_failed(now, why, out),
            Event::DurableFound {
                number,
                commits,
                refused,
            } => self.stored_found(number, commits, refused, out),
            Event::DurableLoaded {
                number,
                process,
                refused,
            } => self.stored_loaded(number, process, refused, out),
            Event::Copied { process, copied } => {
                if !self.shard_copied(now, process, &copied, memory, out) {
                    self.copied(now, process, copied, memory, out);
                }
            }
            Event::Noticed(notice) => self.noticed(now, notice, memory, out),
            Event::StopRequested => self.stop_requested(now, memory, out),
        }
        self.answer_plan(memory, out);
        self.end_when_alone(out);
    }

    /// Sends the reports that were collected since the last call.
    pub fn flush(&mut self, out: &mut Vec<Command>) {
        let workers: Vec<_> = (std::mem::take(&mut self.waiting).into_iter())
            .filter_map(|process| {
                let worker = self.workers.get(&process)?;
                let planned = self
                    .plan
                    .as_ref()
                    .is_some_and(|plan| plan.members.contains(&process));
                (worker.life == Life::Joined && !planned).then(|| worker.waiting(process))
            })
            .collect();
        if !workers.is_empty() {
            out.push(Command::AgentReport(AgentReport::Waiting { workers }));
        }
    }

    /// Applies the deadlines that have passed.
    pub fn tick(&mut self, now: Time, memory: &mut dyn Memory, out: &mut Vec<Command>) {
        if self.next_beat <= now {
            self.excuse(now);
            self.next_beat = now + self.setup.heartbeat_interval;
            self.beat(now, memory, out);
            self.check_beats(now, memory, out);
            let heard = self.heard.max(self.connected);
            if self.orphan_since.is_none() && heard + self.setup.heartbeat_timeout <= now {
                self.driver_lost(now, memory);
            }
        }
        let slow =
            |worker: &Worker| matches!(worker.life, Life::Returning { until, .. } if until <= now);
        let slow: Vec<_> = self
            .workers
            .iter()
            .filter(|(_, w)| slow(w))
            .map(|(p, _)| *p)
            .collect();
        for process in slow {
            self.lose(now, process, true, out);
        }
        for (process, worker) in &mut self.workers {
            if let Some(signal) = worker.due_signal(now, self.setup.grace) {
                out.push(Command::Signal {
                    process: *process,
                    signal,
                });
            }
        }
        self.signal_servers(now, out);
        if self.drain_deadline().is_some_and(|until| until <= now) {
            self.end_by_itself(now, out);
        }
        if self.freeze_deadline().is_some_and(|until| until <= now) {
            self.freeze(out);
        }
        if self.orphan_deadline().is_some_and(|until| until <= now) {
            // From now on a driver may start the next round elsewhere (R11).
            self.by_itself = true;
            self.abort_all(now, out);
            self.end_all(now, out);
        }
        self.write_behind(now, memory, out);
        self.drop_fallback(memory, out);
        self.copy_replica(now, memory, out);
        self.follow_cut(now, memory, out);
        // A plan may have waited for a worker that was lost above.
        self.answer_plan(memory, out);
        self.end_when_alone(out);
        self.give_up_stuck(now, out);
    }

    /// When [`Machine::tick`] is due.
    pub fn next_deadline(&self) -> Option<Time> {
        if self.ended {
            return None;
        }
        let workers = self.workers.values().map(Worker::deadline);
        earliest(workers.chain([
            Some(self.next_beat),
            self.orphan_deadline(),
            self.drain_deadline(),
            self.freeze_deadline(),
            self.stuck_deadline(),
            self.durable_deadline(),
            self.replica_deadline(),
            self.cut_deadline(),
            self.servers.deadline(),
        ]))
    }

    /// Reports a notice; the driver decides what it means for the job. Workers of the host may commit more often from
    /// now on.
    fn noticed(
        &mut self,
        now: Time,
        notice: Notice,
        memory: &mut dyn Memory,
        out: &mut Vec<Command>,
    ) {
        self.at_risk = true;
        self.hasten_write(now);
        for process in self.workers.keys() {
            memory.set_at_risk(*process);
        }
        out.push(Command::AgentReport(AgentReport::Noticed { notice }));
    }

    /// Ends workers that are alive but send no heartbeat. On a busy host, a worker may get no processor for seconds. Then it
    /// could not even die, and goes on as soon as it gets one.
    fn check_beats(&mut self, now: Time, memory: &dyn Memory, out: &mut Vec<Command>) {
        if planted(Mutant::SilenceUnnoticed) {
            return;
        }
        let limit = self.setup.heartbeat_timeout;
        let mut silent = Vec::new();
        for (process, worker) in &mut self.workers {
            if !worker.is_silent(now, memory.beats(*process), limit) {
                continue;
            }
            let limit = match memory.is_starved(*process) {
                true => limit * STARVED,
                false => limit,
            };
            // Read again: it may have got a processor just before that look.
            if worker.is_silent(now, memory.beats(*process), limit) {
                silent.push(*process);
            }
        }
        for process in silent {
            self.lose(now, process, true, out);
        }
    }
}
