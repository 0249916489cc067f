//! The agent's loop: it handles all events of this host, one at a time.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::poll_fn,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use elasticrun_core::agent::{Command, End, Event, Machine};
use elasticrun_protocol::{
    AgentCommand, FromWorker, HostId, Notice, Process, ToAgent, control::Setup,
};
use elasticrun_shm::liveness_watch::LivenessEnd;
use elasticrun_termination_notice::Notices;
use tokio::{
    sync::mpsc,
    time::{Instant, Sleep, sleep_until},
};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tracing::Span;

use crate::{
    clock::Clock,
    deferred_free::DeferredFree,
    durable::{Durable, Written},
    error::PeerError,
    inbox::InboxMessage,
    interfaces::Interface,
    keys::Keys,
    last_will::LastWillKeeper,
    link::DriverLink,
    memory::Memories,
    orphans,
    output::Output,
    passing_on::PassingOn,
    ports::Ports,
    probe::Prober,
    process::{ProcessState, Starter, WorkerProcess},
    redial::Redial,
    region::Region,
    replica::Replicator,
    run_dir::RunDir,
    spans::{self, Spans},
    stop_signals::StopSignals,
    store::Store,
};

/// The least time between two sweeps for adopted children that have ended. A deadline of the machine starts a sweep.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// One agent that has joined a run.
pub(crate) struct Agent {
    pub(crate) machine: Machine,
    pub(crate) host: HostId,
    pub(crate) setup: Setup,
    pub(crate) keys: Arc<Keys>,
    /// The driver's address, for further connections.
    pub(crate) driver: SocketAddr,
    /// The address at which other hosts reach this one.
    pub(crate) address: IpAddr,
    /// The port at which this agent serves commits.
    pub(crate) memory_port: u16,
    /// The address at which data plane, commits and coordinator listen: the one that other hosts reach, or all
    /// addresses of this host.
    pub(crate) listen: IpAddr,
    /// The interface that the user has chosen for data between workers.
    pub(crate) interface: Option<Interface>,
    pub(crate) ports: Ports,
    pub(crate) dir: RunDir,
    pub(crate) spans: Spans,
    /// What the loop works at: the host, in the round that started last.
    pub(crate) span: Span,
    /// None while there is no connection.
    pub(crate) link: Option<DriverLink>,
    pub(crate) memories: Memories,
    pub(crate) deferred_free: DeferredFree,
    /// None if the job has no durable store.
    pub(crate) durable: Option<Durable>,
    pub(crate) processes: BTreeMap<Process, WorkerProcess>,
    /// The region of the round that started last.
    pub(crate) region: Option<Region>,
    pub(crate) starter: Starter,
    pub(crate) output: Output,
    pub(crate) store: Store,
    /// None if the driver learns of the death of this agent by the end of its launch.
    pub(crate) last_will: Option<LastWillKeeper>,
    pub(crate) prober: Prober,
    pub(crate) replicator: Replicator,
    pub(crate) passing_on: PassingOn,
    pub(crate) redial: Redial,
    /// The agent ends, and waits for no driver any more.
    pub(crate) gave_up_driver: bool,
    pub(crate) liveness: LivenessEvents,
    pub(crate) inbox: mpsc::Receiver<InboxMessage>,
    /// Notices that the host will go away.
    pub(crate) notices: Notices,
    pub(crate) terminate: StopSignals,
    /// Events that the execution of commands made.
    pub(crate) pending_events: VecDeque<Event>,
    pub(crate) clock: Clock,
    pub(crate) last_sweep: Instant,
    /// The exit code of the job, once it has ended.
    pub(crate) job_code: Option<u8>,
    /// Why the machine has ended, once it has.
    pub(crate) end: Option<End>,
    /// The process that this agent was started under is gone.
    pub(crate) was_abandoned: bool,
    pub(crate) abandoned: Pin<Box<WaitForCancellationFutureOwned>>,
    pub(crate) done: bool,
}

/// The channel on which liveness watches report. Each worker causes at most one event, which bounds the channel.
pub(crate) struct LivenessEvents {
    pub(crate) sender: mpsc::UnboundedSender<LivenessEvent>,
    receiver: mpsc::UnboundedReceiver<LivenessEvent>,
}

/// The end of a worker's liveness lock.
#[derive(Debug)]
pub(crate) struct LivenessEvent {
    pub(crate) process: Process,
    pub(crate) how: LivenessEnd,
    /// When the watch saw the end.
    pub(crate) seen_at: Instant,
}

impl LivenessEvents {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self { sender, receiver }
    }
}

/// An input of the loop.
enum Input {
    FromDriver(Box<ToAgent>),
    DriverLost(PeerError),
    LivenessEnded(LivenessEvent),
    FromWorker(Process, FromWorker),
    /// A process leader has ended and must be reaped.
    Ended(Process),
    Inbox(InboxMessage),
    Internal(Event),
    Noticed(Notice),
    StopRequested,
    /// The process that this agent was started under is gone.
    Abandoned,
    /// A deadline of the machine has passed.
    Deadline,
    /// No input is ready.
    Idle,
}

impl Agent {
    /// Runs until the machine has ended or the agent is abandoned.
    pub(crate) async fn run(&mut self) {
        let mut out = Vec::new();
        let mut sleep = Box::pin(sleep_until(Instant::now()));
        let mut flushed = false;
        let mut armed = None;
        while !self.done {
            let deadline = self.machine.next_deadline();
            if armed != deadline
                && let Some(instant) = deadline.and_then(|time| self.clock.instant(time))
            {
                armed = deadline;
                sleep.as_mut().reset(instant);
            }
            let span = self.span.clone();
            let input = poll_fn(|cx| {
                let _in_round = span.enter();
                match self.poll(cx, sleep.as_mut(), deadline.is_some()) {
                    Poll::Pending if !flushed => Poll::Ready(Input::Idle),
                    other => other,
                }
            })
            .await;
            let _in_round = span.entered();
            flushed = matches!(input, Input::Idle);
            if matches!(input, Input::Deadline) {
                armed = None;
            }
            self.handle(input, &mut out);
            self.give_up_driver_if_ending();
            self.execute(&mut out);
        }
    }

    /// The next input. Pending events come first, then deaths, then commands of the driver.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        sleep: Pin<&mut Sleep>,
        has_deadline: bool,
    ) -> Poll<Input> {
        if let Some(event) = self.pending_events.pop_front() {
            return Poll::Ready(Input::Internal(event));
        }
        if let Poll::Ready(Some(event)) = self.liveness.receiver.poll_recv(cx) {
            return Poll::Ready(Input::LivenessEnded(event));
        }
        if !self.was_abandoned && self.abandoned.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Input::Abandoned);
        }
        if let Some(link) = &mut self.link
            && let Poll::Ready(message) = link.poll_message(cx)
        {
            return Poll::Ready(match message {
                Ok(message) => Input::FromDriver(Box::new(message)),
                Err(error) => Input::DriverLost(error),
            });
        }
        for (process, worker) in &mut self.processes {
            if let Poll::Ready(message) = worker.poll_message(cx) {
                return Poll::Ready(Input::FromWorker(*process, message));
            }
            if worker.poll_ended(cx).is_ready() {
                return Poll::Ready(Input::Ended(*process));
            }
        }
        if let Poll::Ready(Some(message)) = self.inbox.poll_recv(cx) {
            return Poll::Ready(Input::Inbox(message));
        }
        if let Poll::Ready(Some(notice)) = self.notices.poll_next(cx) {
            return Poll::Ready(Input::Noticed(notice));
        }
        if self.terminate.poll_next(cx).is_ready() {
            return Poll::Ready(Input::StopRequested);
        }
        if has_deadline && sleep.poll(cx).is_ready() {
            return Poll::Ready(Input::Deadline);
        }
        Poll::Pending
    }

    /// Makes an event of an input and lets the machine step.
    fn handle(&mut self, input: Input, out: &mut Vec<Command>) {
        match input {
            Input::Idle => self.machine.flush(out),
            Input::Deadline => self.on_deadline(out),
            Input::Internal(event) => self.step(event, out),
            Input::FromDriver(mut message) => {
                if let AgentCommand::Heartbeat {
                    standbys, job_code, ..
                } = &mut message.command
                {
                    self.redial.learn(std::mem::take(standbys));
                    self.job_code = job_code.or(self.job_code);
                }
                self.step(Event::FromDriver(*message), out);
            }
            Input::DriverLost(error) => self.connection_ended(&error, out),
            Input::LivenessEnded(event) => self.liveness_ended(&event, out),
            Input::FromWorker(process, message) => {
                self.step(Event::FromWorker { process, message }, out)
            }
            Input::Ended(process) => self.process_ended(process, out),
            Input::Inbox(message) => self.on_inbox(message, out),
            Input::Noticed(notice) => {
                tracing::info!(?notice, "this host will go away, or may");
                self.step(Event::Noticed(notice), out);
            }
            Input::StopRequested => {
                tracing::info!("told to end");
                self.step(Event::StopRequested, out);
            }
            Input::Abandoned => self.abandoned(),
        }
    }

    /// Ends without an orderly shutdown. The connections to the driver close before any process is killed.
    fn abandoned(&mut self) {
        tracing::warn!(
            "what this agent was started under is gone: it ends, and its workers with it"
        );
        self.was_abandoned = true;
        self.link = None;
        self.store.driver_lost();
        self.done = true;
    }

    pub(crate) fn step(&mut self, event: Event, out: &mut Vec<Command>) {
        let now = self.clock.now();
        self.machine.step(now, event, &mut self.memories, out);
    }

    fn on_deadline(&mut self, out: &mut Vec<Command>) {
        let now = Instant::now();
        if self.last_sweep + SWEEP_INTERVAL <= now {
            self.last_sweep = now;
            self.sweep();
        }
        let missed = self.machine.misses_driver();
        match &self.link {
            // A suspended driver goes on with this connection.
            Some(link) if missed && link.is_acknowledged() => {
                self.redial.stop();
                if self.machine.may_return() {
                    self.redial.seek_standbys();
                }
                self.step(Event::DriverReached, out);
            }
            Some(_) if missed && self.machine.may_return() => self.redial.begin(self.driver),
            Some(_) if !missed => self.redial.stop(),
            _ => {}
        }
        self.machine.tick(self.clock.now(), &mut self.memories, out);
        if !missed && self.machine.misses_driver() && self.link.is_some() {
            tracing::warn!(
                "the driver is silent; workers train on for a while, then wait for it at their next commit"
            );
        }
    }

    /// Reaps adopted children that have ended.
    fn sweep(&mut self) {
        // The process id of a worker that is being started is not known yet.
        let starting = |worker: &WorkerProcess| matches!(worker.state, ProcessState::Starting(_));
        if !self.processes.values().any(starting) {
            let leaders = self.processes.values().filter_map(WorkerProcess::leader);
            let leaders: BTreeSet<_> = leaders.collect();
            orphans::reap_orphans(|pid| leaders.contains(&pid));
        }
    }

    /// D1 and D2 of [`elasticrun_shm::liveness_watch`]: an orderly exit is reported by its status.
    fn liveness_ended(&mut self, event: &LivenessEvent, out: &mut Vec<Command>) {
        let process = event.process;
        if event.how != (LivenessEnd::Died { exiting: None }) {
            spans::worker(process)
                .in_scope(|| tracing::debug!(how = ?event.how, "a worker ends in good order"));
            return;
        }
        let woken = event.seen_at.elapsed().as_micros() as u64;
        self.step(Event::Died { process }, out);
        // Send the report and the abort before the kill.
        self.execute(out);
        let micros = event.seen_at.elapsed().as_micros() as u64;
        spans::worker(process)
            .in_scope(|| tracing::debug!(woken, micros, "a worker died; reported and aborted"));
        if let Some(worker) = self.processes.get(&process) {
            worker.kill_attached();
        }
    }

    fn process_ended(&mut self, process: Process, out: &mut Vec<Command>) {
        let Some(worker) = self.processes.get_mut(&process) else {
            return;
        };
        for message in worker.drain_messages() {
            self.step(Event::FromWorker { process, message }, out);
        }
        if let Some(worker) = self.processes.get_mut(&process) {
            let exit = worker.reap();
            spans::worker(process).in_scope(|| tracing::debug!(%exit, "a worker has ended"));
            self.output.ended(process);
            self.store.ended(process);
            self.step(Event::Ended { process, exit }, out);
        }
    }

    fn on_inbox(&mut self, message: InboxMessage, out: &mut Vec<Command>) {
        match message {
            InboxMessage::Attach(request) => self.on_attach(request),
            InboxMessage::Dialled(dialled) => self.on_dialled(dialled, out),
            InboxMessage::Started { process, result } => self.on_started(process, result),
            InboxMessage::Probed {
                number,
                unreachable,
            } => self.step(
                Event::Probed {
                    number,
                    unreachable,
                },
                out,
            ),
            InboxMessage::DurableEnded(Ok(Some(Written {
                commit,
                bytes,
                took,
            }))) => self.step(
                Event::DurableWritten {
                    commit,
                    bytes,
                    took,
                },
                out,
            ),
            InboxMessage::DurableFound { number, found } => self.step(
                Event::DurableFound {
                    number,
                    commits: found.commits,
                    refused: found.refused,
                },
                out,
            ),
            InboxMessage::DurableLoaded {
                number,
                process,
                result,
            } => self.step(
                Event::DurableLoaded {
                    number,
                    process,
                    refused: result.err(),
                },
                out,
            ),
            InboxMessage::Copied { process, copied } => {
                self.step(Event::Copied { process, copied }, out);
            }
            InboxMessage::DurableEnded(Ok(None)) => self.step(Event::DurableEmpty, out),
            InboxMessage::DurableUnusable(why) => self.step(Event::DurableUnusable { why }, out),
            InboxMessage::DurableEnded(Err(why)) => self.step(Event::DurableFailed { why }, out),
            InboxMessage::OutputEnded { process, tail } => {
                let Some(worker) = self.processes.remove(&process) else {
                    return;
                };
                if let ProcessState::Ended(exit) = worker.state {
                    self.step(
                        Event::Exited {
                            process,
                            exit,
                            tail,
                        },
                        out,
                    );
                }
            }
        }
    }
}
