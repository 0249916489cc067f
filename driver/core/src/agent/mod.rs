//! The agent's machine: owner of the worker processes of one host. It decides nothing about the job; it
//! answers for its workers, so that the driver hears one message where there are eight workers.
//!
//! Same shape as [`crate::Job`]: [`Machine::step`] takes an event and appends commands; what lies in the
//! memory that agent and workers share is read and written through the [`Memory`] port, at once.
//!
//! Not promised: that a worker told to abort has heard it. It is back when it says [`FromWorker::Join`];
//! one that is not back after the abort timeout, or does not beat, is killed and reported lost.

mod driver;
mod ending;
mod orders;
mod reports;
mod worker;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use elasticrun_protocol::{
    AgentReport, Boundary, CommitId, DriverEpoch, FromWorker, Generation, HostId, LocalRank,
    Notice, Process, Round, ToAgent,
    control::{Exit, ProbeHost, Setup, Spawn, Start, StopReason},
};

use crate::{
    Time,
    lease::Lease,
    mutant::{Mutant, planted},
    time::earliest,
};
use worker::{Life, Worker};

/// The memory that the agent shares with its workers.
pub trait Memory {
    /// Sets the hold word of a worker, then reads the boundary it has reached.
    fn hold(&mut self, process: Process, round: Round) -> Boundary;
    /// Lets a held worker run to this boundary and leave there.
    fn leave_at(&mut self, process: Process, round: Round, at: Boundary);
    /// Takes the hold back.
    fn withdraw(&mut self, process: Process, round: Round);
    /// Says that the host may go away.
    fn set_at_risk(&mut self, process: Process);
    /// Says until when a worker may train: beyond that it passes no boundary and commits nothing (R11), also if this agent
    /// stands still.
    fn set_lease(&mut self, process: Process, until: Time) {
        let _ = (process, until);
    }
    /// The complete commits in a process's memory, newest first; also of a dead process.
    fn commits(&self, process: Process) -> Vec<CommitId>;
    /// How often it has beaten.
    fn beats(&self, process: Process) -> u64;
    /// How often it has committed.
    fn commit_count(&self, process: Process) -> u64;
}

/// Something that happened on the host or came from the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The driver orders.
    Ordered(ToAgent),
    /// The connection to the driver has ended.
    DriverLost,
    /// The driver's machine has acknowledged all that was sent, up to a moment ago. The driver is there, though it may say
    /// nothing: somebody has suspended it.
    DriverReached,
    /// A process has opened its page.
    Attached {
        /// Which one.
        process: Process,
    },
    /// A worker says something.
    Said {
        /// Which one.
        process: Process,
        /// What.
        message: FromWorker,
    },
    /// The kernel released what a process held: it is dying, whatever its memory takes to go.
    Died {
        /// Which one.
        process: Process,
    },
    /// A process is reaped; its output may go on.
    Ended {
        /// Which one.
        process: Process,
        /// How.
        exit: Exit,
    },
    /// A process is reaped and its output has ended, or it could not be started.
    Exited {
        /// Which one.
        process: Process,
        /// How.
        exit: Exit,
        /// Its last lines of output.
        tail: Vec<String>,
    },
    /// What the members of a round on this host share cannot be made: none of them has heard of its start.
    CannotBegin {
        /// Which round.
        round: Round,
        /// What the system said.
        why: String,
    },
    /// What [`Command::Probe`] has shown.
    Probed {
        /// Which one.
        number: u64,
        /// Those that did not answer in time as what they should be.
        unreachable: Vec<HostId>,
    },
    /// The host will go away, or may.
    Noticed(Notice),
    /// The host asks the agent to end (SIGTERM). The first time that is a notice, if the job can do without
    /// the host: the workers leave it first. The second time all are killed.
    StopRequested,
}

/// What the shell must do.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Tell the driver.
    AgentReport(AgentReport),
    /// Start a process with its own group, page and memories.
    Spawn(Spawn),
    /// Send a signal to a process's group.
    Signal {
        /// Whose.
        process: Process,
        /// Which.
        signal: Signal,
    },
    /// Make the region of the round and tell its members of this host.
    Start(Box<Start>),
    /// Wake every member of the round on this host: abort its region and tell them.
    Abort {
        /// Which round.
        round: Round,
        /// Whom to tell.
        members: Vec<Process>,
    },
    /// Tell a worker to end.
    TellStop {
        /// Which one.
        process: Process,
        /// Why.
        why: StopReason,
    },
    /// The memory of a dead process is not needed any more.
    Forget {
        /// Whose.
        process: Process,
    },
    /// Dial these hosts at once, instead of those of an earlier probe, and say which of them do not answer.
    Probe {
        /// Which one.
        number: u64,
        /// Whom.
        hosts: Vec<ProbeHost>,
        /// How long each may take.
        within: Duration,
    },
    /// All is ended, or the kernel does not let it go; the agent ends.
    Exit {
        /// Why.
        why: End,
        /// Killed processes that are still there.
        stuck: Vec<Process>,
    },
}

/// Why an agent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its driver has told it to.
    ShutDown,
    /// Its host has asked it to.
    Stopped,
    /// Its driver was away for too long.
    Orphaned,
}

/// A signal to a process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
}

#[derive(Clone, Debug)]
struct Plan {
    round: Round,
    members: Vec<Process>,
    answered: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Machine {
    epoch: DriverEpoch,
    setup: Setup,
    abort_timeout: Duration,
    free_port: u16,
    workers: BTreeMap<Process, Worker>,
    /// The last start of each slot: an order to start an older one is a repeat (R3).
    starts: BTreeMap<LocalRank, Generation>,
    /// Holds of rounds up to this one were taken back: an order to hold one again is a repeat (R3).
    released: Round,
    /// Dead processes whose memory holds a commit.
    kept: BTreeSet<Process>,
    plan: Option<Plan>,
    /// Rounds up to this one were planned or aborted: an older one changes nothing (R3).
    seen: Round,
    waiting: Vec<Process>,
    /// The newest probe: an older one is a repeat (R3).
    probe: u64,
    next_beat: Time,
    /// Beats that were sent.
    beats: u64,
    /// Those of them that the driver has not answered, and when they were sent.
    unanswered: VecDeque<(u64, Time)>,
    /// When the last one was sent that the driver has answered: it declares nobody lost for a heartbeat
    /// timeout after that, and later nobody obeys it.
    heard: Time,
    /// How long after that workers may train.
    lease: Duration,
    /// When the driver's machine was there last.
    reached: Time,
    /// Processes without the SDK, which look at no lease, are stopped since theirs is over.
    frozen: bool,
    orphan_since: Option<Time>,
    /// The connection to the driver has ended.
    closed: bool,
    /// It ends without its driver's wish, silent for too long or by its host's: it obeys nobody any more.
    by_itself: bool,
    ending: bool,
    ended: bool,
    /// Its driver has told it to end.
    shut_down: bool,
    /// Its host has asked it to end.
    stopped: bool,
    /// Until then its workers may leave, since its host asked it to end.
    drains_until: Option<Time>,
    /// It has heard that the host may or will go away.
    at_risk: bool,
}

impl Machine {
    /// An agent that has just been welcomed by a driver.
    pub fn new(now: Time, epoch: DriverEpoch, setup: Setup, free_port: u16) -> Self {
        Self {
            epoch,
            abort_timeout: setup.abort_timeout,
            // Until the first answer, and of an older driver.
            lease: Lease {
                interval: setup.heartbeat_interval,
                timeout: setup.heartbeat_timeout,
                orphan: setup.orphan_timeout,
            }
            .length(),
            reached: now,
            frozen: false,
            next_beat: now + setup.heartbeat_interval,
            setup,
            free_port,
            workers: BTreeMap::new(),
            starts: BTreeMap::new(),
            released: Round(0),
            kept: BTreeSet::new(),
            plan: None,
            seen: Round(0),
            waiting: Vec::new(),
            probe: 0,
            beats: 0,
            unanswered: VecDeque::new(),
            heard: now,
            orphan_since: None,
            closed: false,
            by_itself: false,
            ending: false,
            ended: false,
            shut_down: false,
            stopped: false,
            drains_until: None,
            at_risk: false,
        }
    }

    /// When it sent its registration, which the driver has answered with the settings: as with beats, the lease counts from
    /// then, however late the answer came. Orders that were held up with it start nothing that outlives the fence (R11).
    pub fn registered(&mut self, at: Time) {
        self.heard = at;
    }

    /// Takes over what earlier sessions of this agent in the same run have kept.
    pub fn keep(&mut self, kept: impl IntoIterator<Item = Process>) {
        self.kept.extend(kept);
    }

    /// Whether nothing has been heard of the driver for a heartbeat timeout, or its connection has ended.
    pub fn misses_driver(&self) -> bool {
        self.orphan_since.is_some()
    }

    /// A port that was found free, for the next coordinator.
    pub fn set_free_port(&mut self, port: u16) {
        self.free_port = port;
    }

    /// Whether it ends all its workers, to end itself.
    pub fn is_ending(&self) -> bool {
        self.ending
    }

    /// Whether it has ended.
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
            Event::Ordered(order) => self.ordered(now, order, memory, out),
            Event::DriverLost => {
                self.closed = true;
                self.driver_lost(now, memory);
            }
            Event::DriverReached => self.reached = now,
            Event::Attached { process } => {
                let until = self.lease_end();
                if let Some(worker) = self.workers.get_mut(&process) {
                    worker.attached(now);
                    memory.set_lease(process, until);
                    if self.setup.groups {
                        out.push(Command::AgentReport(AgentReport::Attached { process }));
                    }
                    if self.at_risk {
                        memory.set_at_risk(process);
                    }
                }
            }
            Event::Said { process, message } => self.said(now, process, message, out),
            Event::Died { process } => self.died(now, process, out),
            // Its peers need not wait for its last lines.
            Event::Ended { process, exit } => {
                let attached = |worker: &Worker| worker.is_attached();
                if !exit.is_success() && self.workers.get(&process).is_some_and(attached) {
                    self.died(now, process, out);
                }
            }
            Event::Exited {
                process,
                exit,
                tail,
            } => {
                self.exited(process, exit, tail, memory, out);
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
            Event::Noticed(notice) => self.noticed(notice, memory, out),
            Event::StopRequested => self.stop_requested(now, memory, out),
        }
        self.answer_plan(memory, out);
        self.end_when_alone(out);
    }

    /// Sends what was folded.
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

    /// Lets the deadlines that have passed take effect.
    pub fn tick(&mut self, now: Time, memory: &mut dyn Memory, out: &mut Vec<Command>) {
        if self.next_beat <= now {
            self.excuse(now);
            self.next_beat = now + self.setup.heartbeat_interval;
            self.beat(now, memory, out);
            self.check_beats(now, memory, out);
            if self.orphan_since.is_none() && self.heard + self.setup.heartbeat_timeout <= now {
                self.driver_lost(now, memory);
            }
        }
        let slow =
            |worker: &Worker| matches!(worker.life, Life::Returning { until } if until <= now);
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
        if self.drain_deadline().is_some_and(|until| until <= now) {
            self.end_by_itself(now, out);
        }
        if self.freeze_deadline().is_some_and(|until| until <= now) {
            self.freeze(out);
        }
        if self.orphan_deadline().is_some_and(|until| until <= now) {
            // A driver may start the next round elsewhere from now on (R11).
            self.by_itself = true;
            self.abort_all(now, out);
            self.end_all(now, out);
        }
        self.end_when_alone(out);
        self.give_up_stuck(now, out);
    }

    /// When [`Machine::tick`] has something to do.
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
        ]))
    }

    /// The driver decides what it means for the job; workers of the host may commit more often meanwhile.
    fn noticed(&mut self, notice: Notice, memory: &mut dyn Memory, out: &mut Vec<Command>) {
        self.at_risk = true;
        for process in self.workers.keys() {
            memory.set_at_risk(*process);
        }
        out.push(Command::AgentReport(AgentReport::Noticed { notice }));
    }

    /// A worker that is alive and whose thread does not run is as good as dead.
    fn check_beats(&mut self, now: Time, memory: &dyn Memory, out: &mut Vec<Command>) {
        if planted(Mutant::SilenceUnnoticed) {
            return;
        }
        let limit = self.setup.heartbeat_timeout;
        let mut silent = Vec::new();
        for (process, worker) in &mut self.workers {
            if worker.is_silent(now, memory.beats(*process), limit) {
                silent.push(*process);
            }
        }
        for process in silent {
            self.lose(now, process, true, out);
        }
    }
}
