//! The loop: all that happens on this host, one event at a time.

use std::{
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};

use elasticrun_core::{
    Time,
    agent::{Command, Event, Machine},
};
use elasticrun_protocol::{FromWorker, HostId, Process, ToAgent, auth::Secret, control::Setup};
use elasticrun_shared::death::Ended as SignOfLife;
use tokio::{
    signal::unix::Signal,
    sync::mpsc,
    time::{Instant, Sleep, sleep_until},
};

use crate::{
    error::PeerError,
    execute::{Place, Region},
    inbox::Note,
    link::DriverLink,
    memory::Memories,
    output::Output,
    process::{Hosted, Life, Starter},
    rundir::RunDir,
};

/// One agent that has joined a run.
pub(crate) struct Agent {
    pub(crate) machine: Machine,
    pub(crate) host: HostId,
    pub(crate) setup: Setup,
    pub(crate) secret: Secret,
    pub(crate) place: Place,
    pub(crate) dir: RunDir,
    /// None once the driver is lost.
    pub(crate) link: Option<DriverLink>,
    pub(crate) memories: Memories,
    pub(crate) processes: BTreeMap<Process, Hosted>,
    /// That of the round which started last.
    pub(crate) region: Option<Region>,
    pub(crate) starter: Starter,
    pub(crate) output: Output,
    pub(crate) deaths: Deaths,
    pub(crate) inbox: mpsc::Receiver<Note>,
    pub(crate) terminate: Signal,
    /// Events that executing a command made.
    pub(crate) own: VecDeque<Event>,
    pub(crate) clock: Clock,
    pub(crate) stop_requests: u32,
    pub(crate) was_shut_down: bool,
    pub(crate) done: bool,
}

/// The ends of signs of life. Each worker sends one at most, so the channel is bounded by them.
pub(crate) struct Deaths {
    pub(crate) sender: mpsc::UnboundedSender<(Process, SignOfLife)>,
    receiver: mpsc::UnboundedReceiver<(Process, SignOfLife)>,
}

impl Deaths {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self { sender, receiver }
    }
}

/// The machine's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Time {
        Time::from_start(self.0.elapsed())
    }

    fn instant(self, time: Time) -> Instant {
        self.0 + time.since_start()
    }
}

/// What happened.
enum Input {
    Ordered(Box<ToAgent>),
    DriverLost(PeerError),
    SignOfLife(Process, SignOfLife),
    Said(Process, FromWorker),
    /// A leader has ended and is to be reaped.
    Ended(Process),
    Note(Note),
    Own(Event),
    StopRequested,
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
        while !self.done {
            let deadline = self.machine.next_deadline();
            let deadline = deadline.map(|time| self.clock.instant(time));
            if let Some(deadline) = deadline
                && sleep.deadline() != deadline
            {
                sleep.as_mut().reset(deadline);
            }
            let input = poll_fn(
                |cx| match self.poll(cx, sleep.as_mut(), deadline.is_some()) {
                    Poll::Pending if !flushed => Poll::Ready(Input::Idle),
                    other => other,
                },
            )
            .await;
            flushed = matches!(input, Input::Idle);
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
        if let Poll::Ready(Some((process, how))) = self.deaths.receiver.poll_recv(cx) {
            return Poll::Ready(Input::SignOfLife(process, how));
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
            Input::Time => self.machine.tick(self.clock.now(), &mut self.memories, out),
            Input::Own(event) => self.step(event, out),
            Input::Ordered(order) => {
                use elasticrun_protocol::Order;
                self.was_shut_down |= matches!(order.order, Order::Shutdown | Order::Kill);
                self.step(Event::Ordered(*order), out);
            }
            Input::DriverLost(error) => {
                tracing::warn!(%error, "the driver is lost");
                self.link = None;
                self.step(Event::DriverLost, out);
            }
            Input::SignOfLife(process, how) => self.sign_of_life_ended(process, how, out),
            Input::Said(process, message) => self.step(Event::Said { process, message }, out),
            Input::Ended(process) => self.process_ended(process, out),
            Input::Note(note) => self.note(note, out),
            Input::StopRequested => self.stop_requested(out),
        }
    }

    fn step(&mut self, event: Event, out: &mut Vec<Command>) {
        let now = self.clock.now();
        self.machine.step(now, event, &mut self.memories, out);
    }

    /// D1 and D2 of [`elasticrun_shared::death`]: an orderly exit is told by its status.
    fn sign_of_life_ended(&mut self, process: Process, how: SignOfLife, out: &mut Vec<Command>) {
        if how != (SignOfLife::Died { exiting: None }) {
            tracing::debug!(%process, ?how, "a worker ends in good order");
            return;
        }
        self.step(Event::Died { process }, out);
        // The report and the abort go first.
        self.execute(out);
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
        }
    }

    fn note(&mut self, note: Note, out: &mut Vec<Command>) {
        match note {
            Note::Knock(knock) => self.knocked(knock),
            Note::Started { process, result } => self.started(process, result),
            Note::OutputEnded { process, tail } => {
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

    fn stop_requested(&mut self, out: &mut Vec<Command>) {
        self.stop_requests += 1;
        tracing::info!(times = self.stop_requests, "told to end");
        self.step(Event::StopRequested, out);
        if self.stop_requests > 1 {
            for hosted in self.processes.values_mut() {
                hosted.signal(elasticrun_core::agent::Signal::Kill);
            }
        }
    }
}
