//! The loop: all that happens on this host, one event at a time.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::poll_fn,
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use elasticrun_core::agent::{Command, End, Event, Machine};
use elasticrun_protocol::{
    FromWorker, HostId, Notice, Process, ToAgent, auth::Secret, control::Setup,
};
use elasticrun_shm::death::Ended as SignOfLife;
use elasticrun_termination_notice::Notices;
use tokio::{
    signal::unix,
    sync::mpsc,
    time::{Instant, Sleep, sleep_until},
};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::{
    clock::Clock,
    discard::Discard,
    error::PeerError,
    execute::Region,
    inbox, leftovers,
    link::DriverLink,
    memory::Memories,
    output::Output,
    ports::Ports,
    probe::Prober,
    process::{Hosted, Life, Starter},
    rundir::RunDir,
    store::Store,
};

/// How often adopted children are reaped, at least; no more often than something else happens.
const SWEEP: Duration = Duration::from_secs(1);

/// One agent that has joined a run.
pub(crate) struct Agent {
    pub(crate) machine: Machine,
    pub(crate) host: HostId,
    pub(crate) setup: Setup,
    pub(crate) secret: Secret,
    /// Where data plane, commits and coordinator listen: where other hosts reach this one, or at all its addresses.
    pub(crate) listen: IpAddr,
    pub(crate) ports: Ports,
    pub(crate) dir: RunDir,
    /// None once the driver is lost.
    pub(crate) link: Option<DriverLink>,
    pub(crate) memories: Memories,
    pub(crate) discard: Discard,
    pub(crate) processes: BTreeMap<Process, Hosted>,
    /// That of the round which started last.
    pub(crate) region: Option<Region>,
    pub(crate) starter: Starter,
    pub(crate) output: Output,
    pub(crate) store: Store,
    pub(crate) prober: Prober,
    pub(crate) deaths: Deaths,
    pub(crate) inbox: mpsc::Receiver<inbox::Note>,
    /// Word that the host will go away.
    pub(crate) notices: Notices,
    pub(crate) terminate: unix::Signal,
    /// Events that executing a command made.
    pub(crate) own: VecDeque<Event>,
    pub(crate) clock: Clock,
    pub(crate) last_sweep: Instant,
    /// Why it has ended, once it has.
    pub(crate) end: Option<End>,
    /// What it was started under is gone.
    pub(crate) was_abandoned: bool,
    pub(crate) abandoned: Pin<Box<WaitForCancellationFutureOwned>>,
    pub(crate) done: bool,
}

/// The ends of signs of life. Each worker sends one at most, so the channel is bounded by them.
pub(crate) struct Deaths {
    pub(crate) sender: mpsc::UnboundedSender<Death>,
    receiver: mpsc::UnboundedReceiver<Death>,
}

/// The end of a sign of life.
#[derive(Debug)]
pub(crate) struct Death {
    pub(crate) process: Process,
    pub(crate) how: SignOfLife,
    /// When it was seen.
    pub(crate) at: Instant,
}

impl Deaths {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self { sender, receiver }
    }
}

/// What happened.
enum Input {
    Ordered(Box<ToAgent>),
    DriverLost(PeerError),
    Death(Death),
    Said(Process, FromWorker),
    /// A leader has ended and is to be reaped.
    Ended(Process),
    Note(inbox::Note),
    Own(Event),
    Noticed(Notice),
    StopRequested,
    /// What this agent was started under is gone.
    Abandoned,
    /// A deadline of the machine.
    Time,
    /// Nothing more is at hand.
    Idle,
}

impl Agent {
    /// Runs until all is ended.
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
            let input = poll_fn(
                |cx| match self.poll(cx, sleep.as_mut(), deadline.is_some()) {
                    Poll::Pending if !flushed => Poll::Ready(Input::Idle),
                    other => other,
                },
            )
            .await;
            flushed = matches!(input, Input::Idle);
            if matches!(input, Input::Time) {
                armed = None;
            }
            self.take(input, &mut out);
            self.execute(&mut out);
        }
    }

    /// The next thing that happened; deaths first, then what the driver orders.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        sleep: Pin<&mut Sleep>,
        has_deadline: bool,
    ) -> Poll<Input> {
        if let Some(event) = self.own.pop_front() {
            return Poll::Ready(Input::Own(event));
        }
        if let Poll::Ready(Some(death)) = self.deaths.receiver.poll_recv(cx) {
            return Poll::Ready(Input::Death(death));
        }
        if !self.was_abandoned && self.abandoned.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Input::Abandoned);
        }
        if let Some(link) = &mut self.link
            && let Poll::Ready(order) = link.poll_order(cx)
        {
            return Poll::Ready(match order {
                Ok(order) => Input::Ordered(Box::new(order)),
                Err(error) => Input::DriverLost(error),
            });
        }
        for (process, hosted) in &mut self.processes {
            if let Poll::Ready(message) = hosted.poll_message(cx) {
                return Poll::Ready(Input::Said(*process, message));
            }
            if hosted.poll_ended(cx).is_ready() {
                return Poll::Ready(Input::Ended(*process));
            }
        }
        if let Poll::Ready(Some(note)) = self.inbox.poll_recv(cx) {
            return Poll::Ready(Input::Note(note));
        }
        if let Poll::Ready(Some(notice)) = self.notices.poll_next(cx) {
            return Poll::Ready(Input::Noticed(notice));
        }
        if self.terminate.poll_recv(cx).is_ready() {
            return Poll::Ready(Input::StopRequested);
        }
        if has_deadline && sleep.poll(cx).is_ready() {
            return Poll::Ready(Input::Time);
        }
        Poll::Pending
    }

    /// Makes an event of it and lets the machine step.
    fn take(&mut self, input: Input, out: &mut Vec<Command>) {
        match input {
            Input::Idle => self.machine.flush(out),
            Input::Time => self.time_passed(out),
            Input::Own(event) => self.step(event, out),
            Input::Ordered(order) => self.step(Event::Ordered(*order), out),
            Input::DriverLost(error) => {
                tracing::warn!(%error, "the driver is lost");
                self.link = None;
                self.store.driver_lost();
                self.step(Event::DriverLost, out);
            }
            Input::Death(death) => self.sign_of_life_ended(&death, out),
            Input::Said(process, message) => self.step(Event::Said { process, message }, out),
            Input::Ended(process) => self.process_ended(process, out),
            Input::Note(note) => self.note(note, out),
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

    /// Nobody here has time to end in good order. Its peers hear of it before anything is killed.
    fn abandoned(&mut self) {
        tracing::warn!(
            "what this agent was started under is gone: it ends, and its workers with it"
        );
        self.was_abandoned = true;
        self.link = None;
        self.store.driver_lost();
        self.done = true;
    }

    fn step(&mut self, event: Event, out: &mut Vec<Command>) {
        let now = self.clock.now();
        self.machine.step(now, event, &mut self.memories, out);
    }

    fn time_passed(&mut self, out: &mut Vec<Command>) {
        let now = Instant::now();
        if self.last_sweep + SWEEP <= now {
            self.last_sweep = now;
            self.sweep();
        }
        let missed = self.machine.misses_driver();
        if missed && (self.link.as_ref()).is_some_and(DriverLink::is_acknowledged) {
            self.step(Event::DriverReached, out);
        }
        self.machine.tick(self.clock.now(), &mut self.memories, out);
        if !missed && self.machine.misses_driver() && self.link.is_some() {
            tracing::warn!(
                "the driver is silent; workers train on for a while, then wait for it at their next commit"
            );
        }
    }

    /// Reaps what was adopted.
    fn sweep(&mut self) {
        // One that is being started is not known by its number yet.
        let starting = |hosted: &Hosted| matches!(hosted.life, Life::Starting(_));
        if !self.processes.values().any(starting) {
            let leaders = self.processes.values().filter_map(Hosted::leader);
            let leaders: BTreeSet<_> = leaders.collect();
            leftovers::reap_adopted(|pid| leaders.contains(&pid));
        }
    }

    /// D1 and D2 of [`elasticrun_shm::death`]: an orderly exit is told by its status.
    fn sign_of_life_ended(&mut self, death: &Death, out: &mut Vec<Command>) {
        let process = death.process;
        if death.how != (SignOfLife::Died { exiting: None }) {
            tracing::debug!(%process, how = ?death.how, "a worker ends in good order");
            return;
        }
        let woken = death.at.elapsed().as_micros() as u64;
        self.step(Event::Died { process }, out);
        // The report and the abort go first.
        self.execute(out);
        let micros = death.at.elapsed().as_micros() as u64;
        tracing::debug!(%process, woken, micros, "a worker died; reported and aborted");
        if let Some(hosted) = self.processes.get(&process) {
            hosted.kill_attached();
        }
    }

    fn process_ended(&mut self, process: Process, out: &mut Vec<Command>) {
        let Some(hosted) = self.processes.get_mut(&process) else {
            return;
        };
        for message in hosted.last_words() {
            self.step(Event::Said { process, message }, out);
        }
        if let Some(hosted) = self.processes.get_mut(&process) {
            let exit = hosted.reap();
            tracing::debug!(%process, %exit, "a worker has ended");
            self.output.ended(process);
            self.store.ended(process);
            self.step(Event::Ended { process, exit }, out);
        }
    }

    fn note(&mut self, note: inbox::Note, out: &mut Vec<Command>) {
        match note {
            inbox::Note::Knock(knock) => self.knocked(knock),
            inbox::Note::Started { process, result } => self.started(process, result),
            inbox::Note::Probed {
                number,
                unreachable,
            } => self.step(
                Event::Probed {
                    number,
                    unreachable,
                },
                out,
            ),
            inbox::Note::OutputEnded { process, tail } => {
                let Some(hosted) = self.processes.remove(&process) else {
                    return;
                };
                if let Life::Ended(exit) = hosted.life {
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
