//! The loop around the machine of a node.

use std::sync::{Arc, mpsc::Sender};

use elasticrun_core::{
    Time,
    rendezvous::{Command, Event, Failure, Machine, Membership, NodeId, Operation, Role, State},
};
use elasticrun_protocol::Rank;
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep_until},
};

use super::{
    Exit, JoinError, Request,
    link::{Heard, Link},
    observed::Shared,
};

/// A node within its runtime.
#[derive(Debug)]
pub(super) struct Task {
    machine: Machine,
    link: Link,
    shared: Arc<Shared>,
    began: Instant,
    join: Option<Sender<Result<Membership, JoinError>>>,
    exit: Option<Sender<Exit>>,
    close: Option<Sender<Exit>>,
}

impl Task {
    pub(super) fn new(machine: Machine, link: Link, shared: Arc<Shared>) -> Self {
        Self {
            machine,
            link,
            shared,
            began: Instant::now(),
            join: None,
            exit: None,
            close: None,
        }
    }

    /// Runs until the program drops its handle.
    pub(super) async fn run(mut self, mut requests: UnboundedReceiver<Request>) {
        loop {
            let due = self.machine.next_deadline();
            let due = due.and_then(|due| self.began.checked_add(due.since_start()));
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => self.on_request(request),
                    None => return,
                },
                heard = self.link.next() => self.on_heard(heard),
                () = sleep_until(due.unwrap_or(self.began)), if due.is_some() => {
                    let mut out = Vec::new();
                    self.machine.tick(self.now(), &mut out);
                    self.execute(out);
                }
            }
        }
    }

    fn on_request(&mut self, request: Request) {
        let event = match request {
            Request::Join(result) => {
                self.shared.update(|observed| observed.over = None);
                self.join = Some(result);
                Event::JoinRequested
            }
            Request::Exit(result) => {
                self.exit = Some(result);
                Event::ExitRequested
            }
            Request::Close(result) => {
                self.close = Some(result);
                Event::CloseRequested
            }
        };
        self.step(event);
    }

    fn on_heard(&mut self, heard: Heard) {
        match heard {
            Heard::Event(event) => {
                self.step(event);
            }
            Heard::Lost(event) => {
                if !self.step(event) {
                    self.link.pass();
                }
            }
            Heard::Changed(event) => {
                self.step(event);
                self.link.seen();
            }
            Heard::Ended(failed) => {
                match failed {
                    Some(event) => _ = self.step(event),
                    None => self.observe(),
                }
                if self.machine.round().is_some() {
                    // Reports come over it, so it is needed before the next heartbeat.
                    self.link.open();
                }
            }
        }
    }

    /// Steps the machine. Whether it writes because of that.
    fn step(&mut self, event: Event) -> bool {
        let mut out = Vec::new();
        self.machine.step(self.now(), event, &mut out);
        self.execute(out)
    }

    fn now(&self) -> Time {
        Time::from_start(self.began.elapsed())
    }

    fn execute(&mut self, commands: Vec<Command>) -> bool {
        let mut writes = false;
        for command in commands {
            match command {
                Command::Read { request } => self.link.read(request),
                Command::CompareAndSet {
                    request,
                    expected,
                    state,
                    heartbeats,
                } => {
                    (self.link).compare_and_set(request, expected, &state, heartbeats);
                    writes = true;
                }
                Command::Heartbeat {
                    request,
                    node,
                    since,
                } => self.link.heartbeat(request, &node, since),
                Command::Joined(membership) => {
                    self.shared.set_first(self.first());
                    answer(&mut self.join, Ok(membership));
                }
                Command::Released => answer(&mut self.join, Err(JoinError::Released)),
                Command::Exited => answer(&mut self.exit, Ok(())),
                Command::Closed => answer(&mut self.close, Ok(())),
                Command::RequestFailed { operation, failure } => self.failed(operation, failure),
                Command::RoundOver { round, reason } => {
                    tracing::warn!(round = round.0, ?reason, node = %self.machine.node(), "the round of this node is over");
                    self.shared.update(|observed| observed.over = Some(reason));
                }
                Command::NodesRemoved { nodes } => {
                    tracing::warn!(?nodes, "nodes without heartbeats are removed");
                }
                // The state has it too.
                Command::MembershipChanged { .. } => {}
                Command::Reject { why } => tracing::debug!(?why, "an event changes nothing"),
            }
        }
        self.observe();
        writes
    }

    fn failed(&mut self, operation: Operation, failure: Failure) {
        let error = JoinError::Failed(failure);
        match operation {
            Operation::Join => answer(&mut self.join, Err(error)),
            Operation::Exit => answer(&mut self.exit, Err(error)),
            Operation::Close => answer(&mut self.close, Err(error)),
        }
    }

    fn observe(&self) {
        let state = self.machine.state();
        let in_round = self.machine.round().is_some();
        let connected = self.link.is_open();
        self.shared.update(|observed| {
            observed.connected = connected;
            // For good, also when the holder no longer has the state: it keeps a closed one for late nodes alone.
            observed.closed |= state.is_some_and(|state| state.is_closed());
            let of_round = state.filter(|_| in_round);
            observed.waiting = of_round.map_or(0, |state| state.waiting());
            observed.left = of_round.map_or(0, |state| state.left());
            observed.others = state.map_or(0, |state| others(state, self.machine.node()));
        });
    }

    /// The node with rank 0 in the round of this node, if it has not left.
    fn first(&self) -> Option<NodeId> {
        let first = Role::Participant {
            rank: Some(Rank(0)),
        };
        let mut members = self.machine.state()?.members();
        let first = members.find(|(_, member)| member.role == first);
        first.map(|(node, _)| node.clone())
    }
}

fn others(state: &State, node: &NodeId) -> usize {
    state.members().filter(|(other, _)| *other != node).count()
}

/// Gives the result to the thread that waits for it, if any does.
fn answer<T>(waiting: &mut Option<Sender<Result<T, JoinError>>>, result: Result<T, JoinError>) {
    if let Some(waiting) = waiting.take() {
        let _ = waiting.send(result);
    }
}
