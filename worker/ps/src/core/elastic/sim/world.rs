//! The nodes of the simulation, their channels, and what happens to them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    dice::Dice,
    saving::{Loading, Progress, Saves},
    worker::{Book, Worker},
};
use crate::{
    core::{
        elastic::{
            client::Part,
            coordinator::{Action, Coordinator},
            engine::Engine,
            map::{App, ChainMap},
            message::{Command, Message, Op, Order, Origin, Report},
            store::{ElasticStore, aligned, optimized, sums},
            wire,
        },
        frame::{PULL, PUSH},
        node::{NodeId, SCHEDULER},
        optimizer::{Optimizer, Rule},
        store::Init,
    },
    error::Refusal,
};

/// What is on its way.
#[derive(Clone, Debug)]
pub(super) enum Packet {
    Map(ChainMap),
    Order(Order),
    Dead(NodeId),
    Ready,
    Report(Report),
    Drain,
    Request {
        version: u64,
        op: Op,
    },
    Answer {
        origin: Origin,
        values: Option<Vec<u8>>,
    },
    Refuse {
        origin: Origin,
        refusal: Refusal,
    },
    Message(Message),
    /// The receiver notices that its connection to the sender is a new one.
    Reset,
    /// A server tells a worker that it has noticed that.
    Opened,
    /// The scheduler notices that the sender is dead.
    Gone,
    /// A server goes on to save its ranges.
    Save(Progress),
    /// A server goes on to load its ranges.
    Load(Loading),
}

/// From, to, and the number of the connection.
pub(super) type Channel = (NodeId, NodeId, u64);

/// All keys that are pushed: three clusters, with those at the ends.
pub(super) fn all_keys() -> Vec<u64> {
    let clusters = [0, 1 << 62, u64::MAX - 9];
    clusters
        .iter()
        .flat_map(|&first| first..=first + 9)
        .collect()
}

/// What the servers of a world keep.
fn store(optimizing: bool) -> Box<dyn ElasticStore> {
    match optimizing {
        true => {
            let rule = Rule::Adam {
                beta1: 0.9,
                // Its table of corrections is short: many servers are made.
                beta2: 0.9,
                epsilon: 1e-8,
                decoupled: false,
            };
            let optimizer = Optimizer {
                rule,
                ..Optimizer::adam(0.1)
            };
            let weights = optimized::<f64>(Init::uniform(-1.0, 1.0, 3), optimizer);
            weights.expect("the numbers are allowed")
        }
        false => sums::<i64>(),
    }
}

pub(super) struct World {
    pub(super) dice: Dice,
    pub(super) copies: usize,
    pub(super) coordinator: Coordinator,
    pub(super) servers: BTreeMap<NodeId, Engine>,
    /// Servers that the coordinator has declared dead, or will.
    pub(super) gone: BTreeSet<NodeId>,
    /// Those of them of which it does not know yet.
    pub(super) unnoticed: BTreeSet<NodeId>,
    pub(super) draining: BTreeSet<NodeId>,
    /// Servers have left on purpose. If the server to which they have given their ranges is dead and nobody has noticed it yet, all
    /// copies are lost by right: that is the end of the run.
    pub(super) left: bool,
    pub(super) workers: Vec<Worker>,
    pub(super) channels: BTreeMap<Channel, VecDeque<Packet>>,
    /// Numbers of connections, and those whose sender has not noticed that they broke.
    pub(super) links: BTreeMap<(NodeId, NodeId), u64>,
    pub(super) down: BTreeSet<(NodeId, NodeId)>,
    pub(super) ranks: u32,
    pub(super) book: Book,
    pub(super) trace: bool,
    /// Servers have an optimizer, and one worker has one request at a time.
    pub(super) optimizing: bool,
    pub(super) saves: Saves,
    window: usize,
    apps: [App; 1],
    /// Of so many pairs of nodes, one is slow: what it sends waits behind most of what the others do. 0: none is.
    slow: u64,
    seed: u64,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self::with(seed, false)
    }

    /// A world whose servers have an optimizer.
    pub(super) fn optimizing(seed: u64) -> Self {
        Self::with(seed, true)
    }

    pub(super) fn with(seed: u64, optimizing: bool) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x1234_5679).wrapping_add(99));
        let servers = 1 + dice.below(3) as u32;
        let replicas = dice.below(3) as u32;
        let workers = match optimizing {
            true => 1,
            false => 1 + dice.below(3) as u32,
        };
        let slow = [0, 2, 4, 8][dice.below(4)];
        let kept = store(optimizing);
        let worker = |rank| Worker::new(rank, optimizing.then(|| store(true)));
        let mut world = Self {
            dice,
            copies: replicas as usize + 1,
            coordinator: Coordinator::new(servers, replicas),
            servers: BTreeMap::new(),
            gone: BTreeSet::new(),
            unnoticed: BTreeSet::new(),
            draining: BTreeSet::new(),
            left: false,
            workers: (0..workers).map(worker).collect(),
            channels: BTreeMap::new(),
            links: BTreeMap::new(),
            down: BTreeSet::new(),
            ranks: 0,
            book: Book::default(),
            trace: std::env::var_os("PS_SIM_TRACE").is_some(),
            optimizing,
            saves: Saves::default(),
            apps: [App {
                app: 3,
                dtype: kept.dtype(),
                rule: kept.rule().to_owned(),
            }],
            window: if optimizing { 1 } else { 2 },
            slow,
            seed,
        };
        (0..servers).for_each(|_| world.add_server());
        world
    }

    pub(super) fn log(&self, text: impl FnOnce() -> String) {
        if self.trace {
            println!("{}", text());
        }
    }

    pub(super) fn add_server(&mut self) {
        let id = NodeId::server(self.ranks);
        self.ranks += 1;
        let mut engine = Engine::new(id, BTreeMap::from([(3, store(self.optimizing))]));
        engine.set_piece(1 + self.dice.below(100));
        self.servers.insert(id, engine);
        self.send(id, SCHEDULER, Packet::Ready);
    }

    pub(super) fn send(&mut self, from: NodeId, to: NodeId, packet: Packet) {
        if self.down.contains(&(from, to)) {
            return;
        }
        let link = self.links.get(&(from, to)).copied().unwrap_or(0);
        let channel = self.channels.entry((from, to, link)).or_default();
        channel.push_back(packet);
    }

    /// A run, until all is done.
    pub(super) fn run(&mut self) -> Result<(), String> {
        let mut requests = 20 + self.dice.below(60);
        let mut faults = self.dice.below(12);
        for _ in 0..60_000 {
            let map = self.coordinator.map();
            let lost = map.is_some_and(|map| map.ranges.iter().any(|it| it.chain.is_empty()));
            if lost && self.left {
                return Ok(());
            }
            let busy = self.channels.values().any(|channel| !channel.is_empty());
            if requests > 0 && (!busy || self.dice.chance(12)) {
                requests -= usize::from(self.begin_request()?);
                if !busy && self.coordinator.map().is_none() {
                    return Err("there is no map".to_owned());
                }
            } else if self.saves.left > 0 && (!busy || self.dice.chance(3)) {
                self.begin_save();
            } else if faults > 0 && (!busy || self.dice.chance(3)) {
                faults -= 1;
                self.fault()?;
            } else if busy {
                self.deliver()?;
            } else {
                self.check_end()?;
                return match self.saves.taken {
                    true => self.begin_again(),
                    false => Ok(()),
                };
            }
        }
        Err("PS7: it does not end".to_owned())
    }

    fn begin_request(&mut self) -> Result<bool, String> {
        let index = self.dice.below(self.workers.len());
        if self.workers[index].made.len() >= self.window {
            return if self.channels.values().all(VecDeque::is_empty) {
                let open: Vec<_> = self.workers.iter().map(|it| &it.requests).collect();
                Err(format!(
                    "PS7: nothing is on its way, and not answered are {open:?}"
                ))
            } else {
                Ok(false)
            };
        }
        let mut keys = all_keys();
        let density = 1 + self.dice.below(60);
        keys.retain(|_| self.dice.chance(density));
        if keys.is_empty() {
            keys = vec![self.dice.pick(&all_keys()).unwrap_or(0)];
        }
        let numbers = keys.iter().map(|_| self.dice.next() as i64).collect();
        let flags = [PUSH, PUSH, PULL, PUSH | PULL][self.dice.below(4)];
        let worker = &mut self.workers[index];
        let parts = worker.begin(keys, numbers, flags, &mut self.book)?;
        self.send_parts(index, parts);
        Ok(true)
    }

    fn send_parts(&mut self, index: usize, parts: Vec<Part>) {
        for part in parts {
            let worker = &self.workers[index];
            let (from, op) = (worker.id, worker.op(&part));
            let version = part.version;
            self.send(from, part.to, Packet::Request { version, op });
        }
    }

    pub(super) fn deliver(&mut self) -> Result<(), String> {
        let busy = self.channels.iter().filter(|(_, queue)| !queue.is_empty());
        let mut busy: Vec<Channel> = busy.map(|(&channel, _)| channel).collect();
        if self.slow > 0 && self.dice.chance(97) && !busy.iter().all(|it| self.is_slow(it)) {
            busy.retain(|channel| !self.is_slow(channel));
        }
        let Some(channel) = self.dice.pick(&busy) else {
            return Ok(());
        };
        let Some(packet) = self
            .channels
            .get_mut(&channel)
            .and_then(VecDeque::pop_front)
        else {
            return Ok(());
        };
        let (from, to, _) = channel;
        self.log(|| format!("{from} -> {to}: {packet:?}"));
        if to == SCHEDULER {
            self.at_scheduler(from, packet)
        } else if let Some(index) = self.workers.iter().position(|worker| worker.id == to) {
            self.at_worker(index, from, packet)
        } else {
            self.at_server(to, from, packet)
        }
    }

    /// Whether packets of this channel wait behind others: the same in the whole run, so that one node lags behind another.
    fn is_slow(&self, &(from, to, _): &Channel) -> bool {
        let pair = u64::from(from.0) << 32 | u64::from(to.0);
        self.slow > 0
            && Dice(self.seed ^ pair.wrapping_mul(0x9e37_79b9))
                .next()
                .is_multiple_of(self.slow)
    }

    fn at_scheduler(&mut self, from: NodeId, packet: Packet) -> Result<(), String> {
        let dead = self.gone.contains(&from);
        let actions = match packet {
            Packet::Gone => {
                self.unnoticed.remove(&from);
                for node in self.everyone() {
                    self.send(SCHEDULER, node, Packet::Dead(from));
                }
                self.coordinator.died(from)
            }
            _ if dead && !self.servers.contains_key(&from) => Vec::new(),
            Packet::Ready => {
                let actions = self.coordinator.ready(from, &self.apps);
                if let Some(map) = self.coordinator.map().cloned() {
                    self.send(SCHEDULER, from, Packet::Map(map));
                }
                actions
            }
            Packet::Report(report) => self.coordinator.report(from, &report),
            Packet::Drain => self.coordinator.drain(from),
            _ => Vec::new(),
        };
        let (saved, others) = (actions.into_iter())
            .partition::<Vec<_>, _>(|action| matches!(action, Action::Saved { .. }));
        self.act(others);
        for action in saved {
            if let Action::Saved { number, ranges } = action {
                self.saved(number, ranges)?;
            }
        }
        Ok(())
    }

    fn everyone(&self) -> Vec<NodeId> {
        let servers = self.servers.keys().copied();
        servers
            .chain(self.workers.iter().map(|worker| worker.id))
            .collect()
    }

    pub(super) fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            self.log(|| format!("coordinator: {action:?}"));
            match action {
                Action::Publish(map) => {
                    for node in self.everyone() {
                        self.send(SCHEDULER, node, Packet::Map(map.clone()));
                    }
                }
                Action::Order { to, order } => self.send(SCHEDULER, to, Packet::Order(order)),
                Action::Drained(node) => {
                    // It ends: what it has sent arrives.
                    self.draining.remove(&node);
                    self.servers.remove(&node);
                }
                Action::DrainRefused { node, .. } => _ = self.draining.remove(&node),
                Action::NotSaved { reason, .. } if !reason.contains("lost") => {
                    self.saves.failed = Some(reason);
                }
                Action::Saved { .. } | Action::NotSaved { .. } => {}
                Action::Accept(_) | Action::Refuse { .. } | Action::Note(_) => {}
            }
        }
    }

    fn at_worker(&mut self, index: usize, from: NodeId, packet: Packet) -> Result<(), String> {
        let worker = &mut self.workers[index];
        let (parts, failures) = match packet {
            Packet::Map(map) => worker.requests.map(&map),
            Packet::Reset => {
                self.down.remove(&(worker.id, from));
                worker.requests.link_reset(from)
            }
            Packet::Opened => worker.requests.link_reset(from),
            Packet::Answer { origin, values } => {
                worker.answer(&origin, values.as_deref(), &mut self.book)?;
                Default::default()
            }
            Packet::Refuse { origin, refusal } => match refusal {
                Refusal::Moved { asked, version } => {
                    let part = (origin.identity.timestamp, origin.part);
                    let parts = worker.requests.moved(part, asked, version);
                    (parts, Vec::new())
                }
                other => return Err(format!("{from} refuses: {other}")),
            },
            _ => Default::default(),
        };
        if let Some((_, failure)) = failures.first() {
            return Err(format!("PS3: a request failed: {failure:?}"));
        }
        self.send_parts(index, parts);
        Ok(())
    }

    fn at_server(&mut self, to: NodeId, from: NodeId, packet: Packet) -> Result<(), String> {
        let packet = match packet {
            Packet::Save(progress) => {
                self.save_piece(to, progress);
                return Ok(());
            }
            Packet::Load(loading) => return self.load_piece(to, loading),
            other => other,
        };
        let Some(engine) = self.servers.get_mut(&to) else {
            return Ok(());
        };
        let mut out = Vec::new();
        match packet {
            Packet::Map(map) => engine.map(&map, &mut out),
            Packet::Order(order) => engine.order(&order, &mut out),
            Packet::Dead(node) => engine.died(node, &mut out),
            Packet::Request { version, op } => {
                engine.request(version, op.origin, op.body(), &mut out);
            }
            Packet::Message(message) => engine.message(from, message, &mut out),
            Packet::Reset => {
                self.down.remove(&(to, from));
                engine.link_reset(from, &mut out);
                self.send(to, from, Packet::Opened);
            }
            _ => {}
        }
        for command in out {
            match command {
                Command::Answer { origin, found, .. } => {
                    let values = found.map(|found| found.values.to_vec());
                    let packet = Packet::Answer { origin, values };
                    self.send(to, origin.identity.worker, packet);
                }
                Command::Refuse {
                    origin, refusal, ..
                } => {
                    let packet = Packet::Refuse { origin, refusal };
                    self.send(to, origin.identity.worker, packet);
                }
                Command::Send { to: other, message } => {
                    let message = over_the_wire(&message, to)?;
                    self.send(to, other, Packet::Message(message));
                }
                Command::Report(report) => self.send(to, SCHEDULER, Packet::Report(report)),
                Command::Diverged(text) => return Err(format!("{to}: {text}")),
                saves => self.of_snapshots(to, saves)?,
            }
        }
        Ok(())
    }
}

/// The message as it comes out of its frame.
fn over_the_wire(message: &Message, sender: NodeId) -> Result<Message, String> {
    let (header, [words, lens, values]) = wire::encode(message, sender);
    let header =
        crate::core::frame::Header::decode(&header.encode()).map_err(|error| error.to_string())?;
    let words: Vec<u64> = aligned(&words);
    let lens: Vec<u32> = aligned(&lens);
    let incoming = wire::decode(&header, &words, &lens, &values).ok_or("no message")?;
    match incoming.to_message() == *message {
        true => Ok(incoming.to_message()),
        false => Err(format!("{message:?} is another one behind the wire")),
    }
}
