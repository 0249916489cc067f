//! A node: its machine, and the shell that obeys it.

use std::time::Duration;

use elasticrun_core::{
    Time,
    rendezvous::{Command, Event, Failure, Machine, Membership, NodeId, Operation, Settings},
};

use super::world::{Occurrence, World};

/// A node of the simulation.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) machine: Machine,
    name: String,
    /// The number of the process: each has an id of its own.
    pub(super) process: u32,
    pub(super) alive: bool,
    pub(super) stopped: bool,
    /// Whether the node wants to be in rounds.
    pub(super) wants: bool,
    /// How far its clock is ahead.
    pub(super) ahead: Duration,
    pub(super) cut_until: Time,
    pub(super) deaf_until: Time,
    /// What has arrived while the process stood still.
    pub(super) backlog: Vec<Event>,
    /// The round whose workers run.
    pub(super) training: Option<Membership>,
    /// Whether the workers are about to stop, for the next join.
    stopping: bool,
    /// Until then its workers may run beside another round: the process stood still.
    pub(super) excused_until: Time,
    pub(super) released: bool,
}

impl Node {
    /// A node without a process.
    pub(super) fn new(name: String, settings: &Settings, seed: u64) -> Self {
        Self {
            machine: Machine::new(id(&name, 0), settings.clone(), seed),
            name,
            process: 0,
            alive: false,
            stopped: false,
            wants: true,
            ahead: Duration::ZERO,
            cut_until: Time::ZERO,
            deaf_until: Time::ZERO,
            backlog: Vec::new(),
            training: None,
            stopping: false,
            excused_until: Time::ZERO,
            released: false,
        }
    }

    pub(super) fn id(&self) -> &NodeId {
        self.machine.node()
    }

    /// Whether a shell that was to join does so: its workers do not run, or are about to stop.
    pub(super) fn may_join(&self, process: u32) -> bool {
        self.process == process && self.wants && (self.training.is_none() || self.stopping)
    }

    pub(super) fn kill(&mut self) {
        (self.alive, self.stopped) = (false, false);
        self.training = None;
        self.backlog.clear();
    }
}

fn id(name: &str, process: u32) -> NodeId {
    NodeId::new(&format!("{name}_{process}")).expect("a short name")
}

impl World {
    /// Starts a process on a node, which joins.
    pub(super) fn start(&mut self, index: usize) {
        let seed = self.rng.seed();
        let node = &mut self.nodes[index];
        node.process += 1;
        let id = id(&node.name, node.process);
        node.machine = Machine::new(id, self.scenario.settings.clone(), seed);
        (node.alive, node.stopping, node.released) = (true, false, false);
        let process = node.process;
        let join = Occurrence::Join {
            node: index,
            process,
        };
        self.later(Duration::ZERO, join);
    }

    /// A request of the shell, after it has stopped the workers.
    pub(super) fn request(&mut self, index: usize, event: Event) {
        let node = &mut self.nodes[index];
        if !node.alive {
            return;
        }
        if node.stopped {
            return node.backlog.push(event);
        }
        self.step(index, Some(event));
    }

    /// A step of the machine: an event, or a deadline.
    pub(super) fn step(&mut self, index: usize, event: Option<Event>) {
        let node = &mut self.nodes[index];
        if matches!(event, Some(Event::JoinRequested | Event::ExitRequested)) {
            (node.training, node.stopping) = (None, false);
        }
        self.trace
            .note(self.now, format_args!("{} {event:?}", node.id()));
        let local = Time::from_start(self.now.since_start() + node.ahead);
        let mut out = Vec::new();
        match event {
            Some(event) => node.machine.step(local, event, &mut out),
            None => node.machine.tick(local, &mut out),
        }
        if node.machine.next_deadline().is_some_and(|due| due <= local) {
            self.violate(
                "deadlines",
                format!("{index} has a deadline that has passed"),
            );
        }
        for command in out {
            self.trace
                .note(self.now, format_args!("{index} {command:?}"));
            self.execute(index, command);
        }
        self.schedule_tick(index);
    }

    fn execute(&mut self, index: usize, command: Command) {
        let node = &mut self.nodes[index];
        match command {
            Command::Read { .. } | Command::CompareAndSet { .. } | Command::Heartbeat { .. } => {
                let process = node.process;
                let delay = self.scenario.delay(&mut self.rng, self.healed);
                let arrival = Occurrence::ToHolder {
                    node: index,
                    process,
                    command: Box::new(command),
                };
                self.later(delay, arrival);
            }
            Command::Joined(membership) => {
                node.training = Some(membership);
                self.joined(index, membership);
            }
            Command::MembershipChanged { .. } if node.stopping => {}
            Command::MembershipChanged { .. } => {
                node.stopping = true;
                self.join_later(index, 3000);
            }
            Command::RoundOver { .. } => {
                (node.training, node.stopping) = (None, true);
                self.join_later(index, 1000);
            }
            Command::RequestFailed {
                operation: Operation::Join,
                failure,
            } if !matches!(failure, Failure::Closed | Failure::Cancelled) => {
                self.join_later(index, 2000);
            }
            Command::Released => node.released = true,
            Command::NodesRemoved { nodes } => self.removals += nodes.len() as u64,
            Command::Exited
            | Command::Closed
            | Command::RequestFailed { .. }
            | Command::Reject { .. } => {}
        }
    }

    fn join_later(&mut self, index: usize, millis: u64) {
        let process = self.nodes[index].process;
        let delay = self.rng.millis(0, millis);
        let join = Occurrence::Join {
            node: index,
            process,
        };
        self.later(delay, join);
    }

    /// A process that stood still goes on: it sees its deadlines first, or what has arrived.
    pub(super) fn resume(&mut self, index: usize) {
        let grace = self.scenario.heartbeat_timeout + Duration::from_millis(1);
        let ticks_first = self.rng.percent(50);
        let node = &mut self.nodes[index];
        if !node.alive || !std::mem::take(&mut node.stopped) {
            return;
        }
        node.excused_until = self.now + grace;
        let backlog = std::mem::take(&mut node.backlog);
        if ticks_first {
            self.tick(index);
        }
        backlog
            .into_iter()
            .for_each(|event| self.step(index, Some(event)));
        self.tick(index);
    }

    /// Applies a deadline of a node, if one has passed.
    pub(super) fn tick(&mut self, index: usize) {
        let node = &self.nodes[index];
        let local = Time::from_start(self.now.since_start() + node.ahead);
        let is_due = node.machine.next_deadline().is_some_and(|due| due <= local);
        if node.alive && !node.stopped && is_due {
            self.step(index, None);
        }
    }

    pub(super) fn schedule_tick(&mut self, index: usize) {
        let node = &self.nodes[index];
        if let Some(due) = node.machine.next_deadline() {
            let real = due.since_start().saturating_sub(node.ahead);
            let wait = Time::from_start(real).since(self.now);
            self.later(wait, Occurrence::Tick { node: index });
        }
    }
}
