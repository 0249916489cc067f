//! The world: what happens next, until all has come to rest.

use std::{collections::BTreeMap, time::Duration};

use elasticrun_core::{
    Time,
    rendezvous::{Command, Event, HolderError, MemoryHolder},
};

use super::{
    Report,
    fault::Fault,
    invariants::Invariants,
    node::Node,
    scenario::{FAULTS_END, Scenario},
};
use crate::{
    rng::Rng,
    trace::{Detail, Trace},
    world::Violation,
};

/// The faults stop this long after the last one may have struck.
const HEALING: Duration = Duration::from_secs(10);

/// The longest time from the end of the faults to rest.
const PATIENCE: Duration = Duration::from_secs(900);

/// Nodes must stay at rest this long.
const REST: Duration = Duration::from_secs(60);

/// More events than any run needs.
const MAX_EVENTS: u64 = 3_000_000;

/// Something that happens at its time.
#[derive(Debug)]
pub(super) enum Occurrence {
    ToHolder {
        node: usize,
        process: u32,
        command: Box<Command>,
    },
    ToNode {
        node: usize,
        process: u32,
        event: Box<Event>,
    },
    Tick {
        node: usize,
    },
    Join {
        node: usize,
        process: u32,
    },
    Resume {
        node: usize,
    },
    Race,
    Fault(Fault),
    Heal,
    Look,
}

/// The state of a run.
#[derive(Debug)]
pub(super) struct World {
    pub(super) now: Time,
    pub(super) rng: Rng,
    pub(super) scenario: Scenario,
    pub(super) holder: MemoryHolder,
    pub(super) holder_down_until: Time,
    pub(super) nodes: Vec<Node>,
    pub(super) healed: bool,
    pub(super) invariants: Invariants,
    pub(super) trace: Trace,
    pub(super) removals: u64,
    /// Removals that were refused, since their nodes had beaten.
    spared: u64,
    writes: (u64, u64),
    queue: BTreeMap<(Time, u64), Occurrence>,
    scheduled: u64,
    /// Since when nothing changes, with the writes and rounds at that time.
    rest: Option<(Time, u64, usize)>,
    closing: bool,
    over: bool,
    violation: Option<Violation>,
}

impl World {
    pub(super) fn new(seed: u64, detail: Detail) -> Self {
        let mut rng = Rng::new(seed);
        let scenario = Scenario::draw(&mut rng);
        let count = scenario.starts.len();
        // Ids run against the order of the nodes, and the starts are random.
        let node =
            |index: usize| Node::new(format!("n{:02}", count - index), &scenario.settings, 0);
        let nodes = (0..count).map(node).collect();
        Self {
            now: Time::ZERO,
            rng,
            scenario,
            holder: MemoryHolder::default(),
            holder_down_until: Time::ZERO,
            nodes,
            healed: false,
            invariants: Invariants::default(),
            trace: Trace::new(detail),
            removals: 0,
            spared: 0,
            writes: (0, 0),
            queue: BTreeMap::new(),
            scheduled: 0,
            rest: None,
            closing: false,
            over: false,
            violation: None,
        }
    }

    pub(super) fn report(self, seed: u64) -> Report {
        Report {
            seed,
            hash: self.trace.hash(),
            events: self.trace.events(),
            rounds: self.invariants.rounds(),
            writes: self.writes,
            removals: self.removals,
            spared: self.spared,
            violation: self.violation,
        }
    }

    pub(super) fn run(&mut self) {
        let scenario = format!("{:?}", self.scenario);
        self.trace.note(self.now, format_args!("{scenario}"));
        for (index, start) in self.scenario.starts.clone().into_iter().enumerate() {
            self.later(start, Occurrence::Fault(Fault::Restart(index)));
        }
        for (at, fault) in std::mem::take(&mut self.scenario.faults) {
            self.later(at, Occurrence::Fault(fault));
        }
        self.later(
            FAULTS_END + HEALING + Duration::from_secs(20),
            Occurrence::Heal,
        );
        while self.violation.is_none() && !self.over {
            let Some(((at, _), occurrence)) = self.queue.pop_first() else {
                return self.violate("D8", "nothing happens any more".to_owned());
            };
            self.now = at;
            self.trace.event(at, self.scheduled);
            self.happen(occurrence);
            if self.trace.events() > MAX_EVENTS {
                self.violate("D8", "nodes never stop to talk".to_owned());
            }
        }
    }

    pub(super) fn later(&mut self, delay: Duration, occurrence: Occurrence) {
        self.scheduled += 1;
        self.queue
            .insert((self.now + delay, self.scheduled), occurrence);
    }

    pub(super) fn violate(&mut self, invariant: &'static str, what: String) {
        self.trace
            .note(self.now, format_args!("VIOLATION {invariant}: {what}"));
        self.violation.get_or_insert(Violation { invariant, what });
    }

    fn happen(&mut self, occurrence: Occurrence) {
        match occurrence {
            Occurrence::ToHolder {
                node,
                process,
                command,
            } => self.arrive(node, process, *command),
            Occurrence::ToNode {
                node,
                process,
                event,
            } => self.answer(node, process, *event),
            Occurrence::Tick { node } => self.tick(node),
            Occurrence::Join { node, process } => {
                if self.nodes[node].may_join(process) && !self.closing {
                    self.request(node, Event::JoinRequested);
                }
            }
            Occurrence::Resume { node } => self.resume(node),
            Occurrence::Race => self.race(),
            Occurrence::Fault(fault) => {
                self.trace.note(self.now, format_args!("fault {fault:?}"));
                self.strike(fault);
            }
            Occurrence::Heal => {
                self.heal();
                self.later(Duration::from_secs(1), Occurrence::Look);
            }
            Occurrence::Look => self.look(),
        }
    }

    /// A request arrives at the holder. Requests of dead processes do as well.
    fn arrive(&mut self, node: usize, process: u32, command: Command) {
        let (Command::Read { request }
        | Command::CompareAndSet { request, .. }
        | Command::Heartbeat { request, .. }) = command
        else {
            return;
        };
        if self.now < self.nodes[node].cut_until {
            return;
        }
        if self.now < self.holder_down_until {
            if self.rng.percent(50) {
                let error = HolderError::Unreachable;
                self.send(node, process, Event::Failed { request, error });
            }
            return;
        }
        self.note_heartbeat(&command);
        let before = self.state();
        let Some(answer) = self.holder.perform(command) else {
            return;
        };
        match &answer {
            Event::Written { .. } => {
                self.writes.0 += 1;
                let writer = self.nodes[node].id().clone();
                if self.nodes[node].process == process {
                    self.wrote(&writer, &before);
                }
                self.note_members(&before);
                self.check_kept();
                self.report_state(node);
            }
            Event::Conflict { .. } => self.writes.1 += 1,
            Event::NotSilent { .. } => self.spared += 1,
            _ => {}
        }
        self.send(node, process, answer);
    }

    /// The holder tells all other nodes of a write.
    pub(super) fn report_state(&mut self, writer: usize) {
        for node in (0..self.nodes.len()).filter(|node| *node != writer) {
            if !self.rng.percent(self.scenario.lost_reports) {
                let snapshot = self.holder.snapshot().clone();
                let process = self.nodes[node].process;
                self.send(node, process, Event::StateChanged(snapshot));
            }
        }
    }

    fn send(&mut self, node: usize, process: u32, event: Event) {
        let delay = self.scenario.delay(&mut self.rng, self.healed);
        let arrival = Occurrence::ToNode {
            node,
            process,
            event: Box::new(event),
        };
        self.later(delay, arrival);
    }

    /// A message of the holder arrives at a node.
    fn answer(&mut self, index: usize, process: u32, event: Event) {
        let node = &mut self.nodes[index];
        let is_cut = self.now < node.cut_until || self.now < node.deaf_until;
        if node.alive && node.process == process && !is_cut {
            self.request(index, event);
        }
    }

    /// D8: nodes come to rest and stay there, and a heartbeat is no write. Then the rendezvous closes.
    fn look(&mut self) {
        if self.closing {
            return self.look_at_end();
        }
        let healed = Time::ZERO + FAULTS_END + HEALING + Duration::from_secs(20);
        let unrest = self.unrest();
        let rounds = self.invariants.rounds();
        let rest = self
            .rest
            .filter(|rest| unrest.is_none() && rest.2 == rounds);
        let (since, writes, _) =
            *self
                .rest
                .insert(rest.unwrap_or((self.now, self.writes.0, rounds)));
        let rest = self.now.since(since);
        if self.now.since(healed) > PATIENCE {
            let why =
                unrest.unwrap_or_else(|| "rounds follow each other without a cause".to_owned());
            return self.violate("D8", why);
        }
        // Those that were under way.
        if self.writes.0 > writes + self.nodes.len() as u64 {
            return self.violate(
                "D8",
                format!("{} writes in {rest:?} of rest", self.writes.0 - writes),
            );
        }
        if rest >= REST {
            return self.close();
        }
        self.later(Duration::from_secs(1), Occurrence::Look);
    }

    /// Why the nodes are not at rest: as many as fit train in one round, and the others are redundant.
    fn unrest(&self) -> Option<String> {
        let state = self.state();
        let alive = self.nodes.iter().filter(|node| node.alive).count();
        let n = alive.min(self.scenario.max_nodes);
        let training = self.nodes.iter().filter_map(|node| node.training);
        let trains = training
            .clone()
            .filter(|training| training.round == state.round())
            .count();
        let whole = training
            .clone()
            .all(|training| training.world_size as usize == n);
        let rests = state.is_complete()
            && trains == n
            && training.count() == n
            && whole
            && (state.waiting(), state.left(), state.redundant()) == (0, 0, alive - n);
        (!rests).then(|| format!("{trains} of {n} nodes train, {state:?}"))
    }

    fn close(&mut self) {
        let trains = |index: &usize| self.nodes[*index].training.is_some();
        let training: Vec<_> = (0..self.nodes.len()).filter(trains).collect();
        self.closing = true;
        if let Some(node) = self.rng.pick(&training) {
            self.request(node, Event::CloseRequested);
        }
        self.later(Duration::from_secs(30), Occurrence::Look);
    }

    fn look_at_end(&mut self) {
        let alive = self.nodes.iter().filter(|node| node.alive);
        let ended = |node: &&Node| node.released || node.training.is_some();
        let waits = alive.filter(|node| !ended(node)).count();
        if !self.state().is_closed() || waits > 0 {
            let state = self.state();
            self.violate(
                "D8",
                format!("{waits} nodes wait after the close, {state:?}"),
            );
        }
        self.over = true;
    }
}
