//! Nodes of a rendezvous over one holder in memory, in virtual time.
//!
//! A node has a shell that obeys: it joins again when it is asked to. Messages wait in queues until they are served, so a
//! test decides on their order. Invariants are checked at each write and each command.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use elasticrun_core::{
    Time,
    rendezvous::{
        Command, Event, Machine, Membership, MemoryHolder, NodeId, Role, Settings, State,
    },
};
use elasticrun_protocol::{Rank, Round};

use crate::states::node;

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// One node, its shell and its network.
pub(crate) struct Node {
    pub(crate) machine: Machine,
    /// The name without the number of the process.
    name: String,
    process: u32,
    pub(crate) alive: bool,
    /// Whether the process stands still.
    pub(crate) stopped: bool,
    /// Whether the network between the node and the holder is cut.
    pub(crate) cut: bool,
    /// Whether the shell joins again when asked to.
    pub(crate) obeys: bool,
    /// How far the clock of the node is ahead.
    pub(crate) ahead: Duration,
    to_holder: VecDeque<Command>,
    to_node: VecDeque<Event>,
    /// The round whose workers run.
    pub(crate) training: Option<Membership>,
    /// All commands for the shell, oldest first.
    pub(crate) log: Vec<Command>,
}

/// Nodes and their holder.
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) holder: MemoryHolder,
    pub(crate) nodes: Vec<Node>,
    pub(crate) now: Duration,
    /// The number of nodes and the ranks that the nodes of each round have learnt.
    rounds: BTreeMap<Round, (u32, BTreeMap<Rank, NodeId>)>,
    /// All nodes that others have removed.
    pub(crate) removed: Vec<NodeId>,
    pub(crate) writes: usize,
    pub(crate) heartbeats: usize,
    /// Whether the holder reports writes.
    pub(crate) reports: bool,
    pub(crate) conflicts: usize,
    /// Whether the holder has lost heartbeats.
    pub(crate) heartbeats_lost: bool,
    seed: u64,
}

impl World {
    pub(crate) fn new(nodes: usize, settings: Settings) -> Self {
        let mut world = Self {
            settings,
            holder: MemoryHolder::default(),
            nodes: Vec::new(),
            now: Duration::ZERO,
            rounds: BTreeMap::new(),
            removed: Vec::new(),
            writes: 0,
            heartbeats: 0,
            reports: true,
            conflicts: 0,
            heartbeats_lost: false,
            seed: 0,
        };
        // Names run against the order of the nodes, so that ranks by name would show.
        (0..nodes).for_each(|index| world.add(&format!("n{:02}", nodes - index)));
        world
    }

    pub(crate) fn add(&mut self, name: &str) {
        let machine = self.machine(name, 0);
        self.nodes.push(Node {
            machine,
            name: name.to_owned(),
            process: 0,
            alive: true,
            stopped: false,
            cut: false,
            obeys: true,
            ahead: Duration::ZERO,
            to_holder: VecDeque::new(),
            to_node: VecDeque::new(),
            training: None,
            log: Vec::new(),
        });
    }

    fn machine(&mut self, name: &str, process: u32) -> Machine {
        self.seed += 1;
        Machine::new(
            node(&format!("{name}_{process}")),
            self.settings.clone(),
            self.seed,
        )
    }

    pub(crate) fn state(&self) -> State {
        self.holder.snapshot().state.clone().unwrap_or_default()
    }

    /// A request of the shell. Its workers are stopped first.
    pub(crate) fn request(&mut self, index: usize, event: Event) {
        if event != Event::CloseRequested {
            self.nodes[index].training = None;
        }
        self.step(index, Some(event));
    }

    pub(crate) fn join(&mut self, index: usize) {
        self.request(index, Event::JoinRequested);
    }

    /// Ends a process without a word.
    pub(crate) fn kill(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        (node.alive, node.training) = (false, None);
        node.to_holder.clear();
        node.to_node.clear();
    }

    /// Starts a process on a node whose former one is dead.
    pub(crate) fn restart(&mut self, index: usize) {
        let process = self.nodes[index].process + 1;
        let name = self.nodes[index].name.clone();
        let machine = self.machine(&name, process);
        let node = &mut self.nodes[index];
        (node.machine, node.process, node.alive) = (machine, process, true);
        node.stopped = false;
    }

    /// The oldest command of a node reaches the holder. `false` if there is none.
    pub(crate) fn serve(&mut self, index: usize) -> bool {
        let node = &mut self.nodes[index];
        let Some(command) = node.to_holder.pop_front() else {
            return false;
        };
        if node.cut {
            return true;
        }
        let before = self.state();
        let answer = self
            .holder
            .perform(command)
            .expect("only requests are queued");
        self.nodes[index].to_node.push_back(answer.clone());
        match answer {
            Event::Written { .. } => {
                self.writes += 1;
                self.check_write(index, &before);
                let snapshot = self.holder.snapshot().clone();
                for (other, node) in self.nodes.iter_mut().enumerate() {
                    if self.reports && other != index && node.alive && !node.cut {
                        node.to_node
                            .push_back(Event::StateChanged(snapshot.clone()));
                    }
                }
            }
            Event::Conflict { .. } => self.conflicts += 1,
            Event::HeartbeatRecorded { .. } => self.heartbeats += 1,
            _ => {}
        }
        true
    }

    /// The oldest event of a node reaches its machine. `false` if there is none.
    pub(crate) fn deliver(&mut self, index: usize) -> bool {
        if self.nodes[index].stopped {
            return false;
        }
        let Some(event) = self.nodes[index].to_node.pop_front() else {
            return false;
        };
        self.step(index, Some(event));
        true
    }

    /// All that is under way arrives.
    pub(crate) fn settle(&mut self) {
        loop {
            let nodes = 0..self.nodes.len();
            let moves = |world: &mut Self, index| world.serve(index) | world.deliver(index);
            if !nodes.fold(false, |moved, index| moves(self, index) | moved) {
                return;
            }
        }
    }

    /// Lets time pass. Everything arrives at once.
    pub(crate) fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        self.settle();
        while let Some(due) = self.next_due().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.tick_due();
            self.settle();
        }
        self.now = end;
    }

    /// Lets time pass in which nothing arrives.
    pub(crate) fn pass(&mut self, duration: Duration) {
        self.now += duration;
        self.tick_due();
    }

    fn next_due(&self) -> Option<Duration> {
        let due = |node: &Node| {
            let deadline = node
                .machine
                .next_deadline()
                .filter(|_| node.alive && !node.stopped)?;
            Some(deadline.since_start().saturating_sub(node.ahead))
        };
        self.nodes.iter().filter_map(due).min()
    }

    fn tick_due(&mut self) {
        for index in 0..self.nodes.len() {
            let node = &self.nodes[index];
            let local = Time::from_start(self.now + node.ahead);
            let is_due = node.machine.next_deadline().is_some_and(|due| due <= local);
            if node.alive && !node.stopped && is_due {
                self.step(index, None);
                let deadline = self.nodes[index].machine.next_deadline();
                assert!(
                    deadline > Some(local) || deadline.is_none(),
                    "a deadline that has passed"
                );
            }
        }
    }

    fn step(&mut self, index: usize, event: Option<Event>) {
        let node = &mut self.nodes[index];
        if !node.alive {
            return;
        }
        let now = Time::from_start(self.now + node.ahead);
        let mut out = Vec::new();
        match event {
            Some(event) => node.machine.step(now, event, &mut out),
            None => node.machine.tick(now, &mut out),
        }
        out.into_iter()
            .for_each(|command| self.execute(index, command));
    }

    fn execute(&mut self, index: usize, command: Command) {
        let node = &mut self.nodes[index];
        if matches!(
            command,
            Command::Read { .. } | Command::CompareAndSet { .. } | Command::Heartbeat { .. }
        ) {
            return node.to_holder.push_back(command);
        }
        node.log.push(command.clone());
        match command {
            Command::Joined(membership) => {
                node.training = Some(membership);
                self.check_joined(index, membership);
            }
            Command::MembershipChanged { .. } | Command::RoundOver { .. } => {
                node.training = None;
                if node.obeys {
                    self.step(index, Some(Event::JoinRequested));
                }
            }
            Command::NodesRemoved { nodes } => self.removed.extend(nodes),
            _ => {}
        }
    }

    /// D1, D2 and D5.
    fn check_joined(&mut self, index: usize, joined: Membership) {
        let id = self.nodes[index].machine.node().clone();
        let log = self.nodes[index].log.iter().rev().skip(1);
        let before = log.filter_map(|command| match command {
            Command::Joined(before) => Some(before.round),
            _ => None,
        });
        assert!(
            before.into_iter().all(|before| before < joined.round) || self.nodes[index].process > 0
        );
        let (world_size, ranks) =
            (self.rounds.entry(joined.round)).or_insert((joined.world_size, BTreeMap::new()));
        assert_eq!(
            *world_size, joined.world_size,
            "{id} disagrees in {:?}",
            joined.round
        );
        assert!(joined.rank < Rank(*world_size));
        if let Some(other) = ranks.insert(joined.rank, id.clone()) {
            assert_eq!(other, id, "one rank twice in {:?}", joined.round);
        }
    }

    /// D1, D3, D4 and D9, for the write of a node.
    fn check_write(&self, writer: usize, before: &State) {
        let writer = self.nodes[writer].machine.node();
        let after = self.state();
        assert_eq!(State::decode(&after.encode()), Ok(after.clone()));
        let members = after.members().count();
        assert!(self.heartbeats_lost || self.holder.heartbeats() == members);
        let participates = |role: Role| matches!(role, Role::Participant { .. });
        for (id, member) in after.members() {
            let former = before.member(id);
            assert!(former.is_none_or(|former| former.arrival == member.arrival));
            let is_new = !former.is_some_and(|former| participates(former.role));
            assert!(
                !is_new || !participates(member.role) || id == writer,
                "{id} was added"
            );
        }
        if after.round() != before.round() {
            let left = before
                .members()
                .filter(|(_, member)| participates(member.role));
            let stays = |(id, _): &(&NodeId, _)| *id != writer && after.member(id).is_some();
            assert_eq!(
                left.filter(stays).count(),
                0,
                "a round formed over participants"
            );
        }
    }

    /// The rounds in which workers run.
    pub(crate) fn training_rounds(&self) -> Vec<Round> {
        let training = self.nodes.iter().filter(|node| !node.stopped);
        let mut rounds: Vec<_> = training
            .filter_map(|node| node.training.map(|training| training.round))
            .collect();
        rounds.dedup();
        rounds
    }

    /// The ranks of the nodes that train, by node.
    pub(crate) fn ranks(&self) -> Vec<Option<u32>> {
        let rank = |node: &Node| node.training.map(|training| training.rank.0);
        self.nodes.iter().map(rank).collect()
    }
}
