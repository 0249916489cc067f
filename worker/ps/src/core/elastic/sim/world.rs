//! The nodes of the simulation, their channels, and what happens to them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::worker::{Book, Worker};
use crate::{
    core::{
        elastic::{
            balance::RangeLoad,
            client::Part,
            coordinator::{Action, Coordinator},
            engine::Engine,
            map::{App, ChainMap},
            message::{Command, Message, Op, Order, Origin, Report},
            store::{aligned, sums},
            wire,
        },
        frame::{PULL, PUSH},
        node::{NodeId, SCHEDULER},
        ranges::KeyRange,
        store::Chunk,
    },
    error::Refusal,
};

/// A random source: SplitMix64.
pub(super) struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ number >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(self.below(all.len())).copied()
    }
}

/// What is on its way.
#[derive(Clone, Debug)]
enum Packet {
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
    /// The scheduler notices that the sender is dead.
    Gone,
}

/// From, to, and the number of the connection.
type Channel = (NodeId, NodeId, u64);

/// All keys that are pushed: three clusters, with those at the ends.
fn all_keys() -> Vec<u64> {
    let clusters = [0, 1 << 62, u64::MAX - 9];
    clusters
        .iter()
        .flat_map(|&first| first..=first + 9)
        .collect()
}

pub(super) struct World {
    dice: Dice,
    copies: usize,
    coordinator: Coordinator,
    servers: BTreeMap<NodeId, Engine>,
    /// Servers that the coordinator has declared dead, or will.
    gone: BTreeSet<NodeId>,
    draining: BTreeSet<NodeId>,
    /// Servers have left on purpose. If the server to which they have given their ranges is dead and nobody has noticed it yet, all
    /// copies are lost by right: that is the end of the run.
    left: bool,
    workers: Vec<Worker>,
    channels: BTreeMap<Channel, VecDeque<Packet>>,
    /// Numbers of connections, and those whose sender has not noticed that they broke.
    links: BTreeMap<(NodeId, NodeId), u64>,
    down: BTreeSet<(NodeId, NodeId)>,
    ranks: u32,
    book: Book,
    trace: bool,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x1234_5679).wrapping_add(99));
        let servers = 1 + dice.below(3) as u32;
        let replicas = dice.below(3) as u32;
        let workers = 1 + dice.below(3) as u32;
        let mut world = Self {
            dice,
            copies: replicas as usize + 1,
            coordinator: Coordinator::new(servers, replicas),
            servers: BTreeMap::new(),
            gone: BTreeSet::new(),
            draining: BTreeSet::new(),
            left: false,
            workers: (0..workers).map(Worker::new).collect(),
            channels: BTreeMap::new(),
            links: BTreeMap::new(),
            down: BTreeSet::new(),
            ranks: 0,
            book: Book::default(),
            trace: std::env::var_os("PS_SIM_TRACE").is_some(),
        };
        (0..servers).for_each(|_| world.add_server());
        world
    }

    fn log(&self, text: impl FnOnce() -> String) {
        if self.trace {
            println!("{}", text());
        }
    }

    fn add_server(&mut self) {
        let id = NodeId::server(self.ranks);
        self.ranks += 1;
        let mut engine = Engine::new(id, BTreeMap::from([(3, sums::<i64>())]));
        engine.set_piece(1 + self.dice.below(100));
        self.servers.insert(id, engine);
        self.send(id, SCHEDULER, Packet::Ready);
    }

    fn send(&mut self, from: NodeId, to: NodeId, packet: Packet) {
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
            } else if faults > 0 && (!busy || self.dice.chance(3)) {
                faults -= 1;
                self.fault()?;
            } else if busy {
                self.deliver()?;
            } else {
                return self.check_end();
            }
        }
        Err("PS7: it does not end".to_owned())
    }

    fn begin_request(&mut self) -> Result<bool, String> {
        let index = self.dice.below(self.workers.len());
        if self.workers[index].made.len() >= 2 {
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

    fn deliver(&mut self) -> Result<(), String> {
        let busy = self.channels.iter().filter(|(_, queue)| !queue.is_empty());
        let busy: Vec<Channel> = busy.map(|(&channel, _)| channel).collect();
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
            self.to_scheduler(from, packet);
            Ok(())
        } else if let Some(index) = self.workers.iter().position(|worker| worker.id == to) {
            self.to_worker(index, from, packet)
        } else {
            self.to_server(to, from, packet)
        }
    }

    fn to_scheduler(&mut self, from: NodeId, packet: Packet) {
        let apps = [App {
            app: 3,
            dtype: elasticrun_collectives::DType::I64 as u8,
            rule: String::new(),
        }];
        let dead = self.gone.contains(&from);
        let actions = match packet {
            Packet::Gone => {
                for node in self.everyone() {
                    self.send(SCHEDULER, node, Packet::Dead(from));
                }
                self.coordinator.died(from)
            }
            _ if dead && !self.servers.contains_key(&from) => Vec::new(),
            Packet::Ready => {
                let actions = self.coordinator.ready(from, &apps);
                if let Some(map) = self.coordinator.map().cloned() {
                    self.send(SCHEDULER, from, Packet::Map(map));
                }
                actions
            }
            Packet::Report(report) => self.coordinator.report(from, &report),
            Packet::Drain => self.coordinator.drain(from),
            _ => Vec::new(),
        };
        self.act(actions);
    }

    fn everyone(&self) -> Vec<NodeId> {
        let servers = self.servers.keys().copied();
        servers
            .chain(self.workers.iter().map(|worker| worker.id))
            .collect()
    }

    fn act(&mut self, actions: Vec<Action>) {
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
                Action::Refuse { .. } | Action::Note(_) => {}
            }
        }
    }

    fn to_worker(&mut self, index: usize, from: NodeId, packet: Packet) -> Result<(), String> {
        let worker = &mut self.workers[index];
        let (parts, failures) = match packet {
            Packet::Map(map) => worker.requests.map(&map),
            Packet::Reset => {
                self.down.remove(&(worker.id, from));
                worker.requests.link_reset(from)
            }
            Packet::Answer { origin, values } => {
                worker.answer(&origin, values.as_deref(), &mut self.book)?;
                Default::default()
            }
            Packet::Refuse { origin, refusal } => match refusal {
                Refusal::Moved { version } => {
                    let timestamp = origin.identity.timestamp;
                    let parts = worker.requests.moved(timestamp, origin.part, version);
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

    fn to_server(&mut self, to: NodeId, from: NodeId, packet: Packet) -> Result<(), String> {
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
            }
        }
        Ok(())
    }

    /// Something goes wrong, or changes.
    fn fault(&mut self) -> Result<(), String> {
        let living: Vec<NodeId> = (self.servers.keys().copied())
            .filter(|node| !self.gone.contains(node))
            .collect();
        match self.dice.below(10) {
            0 | 1 if living.len() < 6 => self.add_server(),
            2 | 3 => {
                let Some(node) = self.dice.pick(&living) else {
                    return Ok(());
                };
                if self.draining.insert(node) {
                    self.left = true;
                    self.send(node, SCHEDULER, Packet::Drain);
                }
            }
            4..=6 => self.lose_server(&living),
            7 | 8 => self.break_link(&living),
            _ => self.split(),
        }
        Ok(())
    }

    /// A server dies, or is cut off and declared dead, if each of its ranges has another copy.
    fn lose_server(&mut self, living: &[NodeId]) {
        let Some(map) = self.coordinator.map() else {
            return;
        };
        let mut others = self.gone.clone();
        let Some(node) = self.dice.pick(living) else {
            return;
        };
        others.insert(node);
        let survives = |range: &crate::core::elastic::map::ChainRange| {
            range.chain.iter().any(|member| !others.contains(member))
        };
        // The deaths that the coordinator has not noticed count together.
        if !map.ranges.iter().all(survives) {
            return;
        }
        self.gone.insert(node);
        let killed = self.dice.chance(70);
        self.log(|| format!("{node} is lost, killed: {killed}"));
        if killed {
            self.servers.remove(&node);
            let channels: Vec<Channel> = self.channels.keys().copied().collect();
            for channel in channels.into_iter().filter(|channel| channel.0 == node) {
                self.cut(channel);
            }
        } else if let Some(engine) = self.servers.get_mut(&node) {
            // It serves nothing when its time is over, which is before it is declared dead.
            engine.fence();
        }
        // Behind all that it has sent to the scheduler.
        self.send(node, SCHEDULER, Packet::Gone);
    }

    /// The last packets of a channel are lost.
    fn cut(&mut self, channel: Channel) {
        if let Some(queue) = self.channels.get_mut(&channel) {
            let kept = self.dice.below(queue.len() + 1);
            queue.truncate(kept);
        }
    }

    /// The connection of two nodes breaks: the last packets are lost, until each end has noticed it.
    fn break_link(&mut self, living: &[NodeId]) {
        let workers: Vec<_> = self.workers.iter().map(|worker| worker.id).collect();
        let all: Vec<_> = living.iter().copied().chain(workers).collect();
        let (Some(a), Some(b)) = (self.dice.pick(living), self.dice.pick(&all)) else {
            return;
        };
        if a == b || self.down.contains(&(a, b)) || self.down.contains(&(b, a)) {
            return;
        }
        self.log(|| format!("the connection of {a} and {b} breaks"));
        for (from, to) in [(a, b), (b, a)] {
            let link = self.links.get(&(from, to)).copied().unwrap_or(0);
            self.cut((from, to, link));
            // Each end notices the new connection at any time, before it gets anything over it, and sends nothing until then.
            let channel = (from, to, link + 1);
            self.channels
                .insert(channel, VecDeque::from([Packet::Reset]));
            self.links.insert((from, to), link + 1);
        }
        self.down.extend([(a, b), (b, a)]);
    }

    /// All servers report that one range is used most.
    fn split(&mut self) {
        let Some(map) = self.coordinator.map().filter(|map| map.ranges.len() < 100) else {
            return;
        };
        let key = self.dice.pick(&all_keys()).unwrap_or(0);
        let first = map.range_of(key).first;
        let load = RangeLoad {
            first,
            keys: 1 << 30,
            middle: Some(key),
        };
        let servers: Vec<NodeId> = (0..self.ranks).map(NodeId::server).collect();
        for node in servers {
            let actions = self.coordinator.load(node, &[load]);
            self.act(actions);
        }
    }

    /// Nothing is on its way, and nothing happens any more.
    fn check_end(&mut self) -> Result<(), String> {
        for worker in &self.workers {
            if !worker.requests.open().is_empty() {
                return Err(format!("PS7: not answered: {:?}", worker.requests));
            }
        }
        if !self.draining.is_empty() {
            let drains: Vec<_> = self.draining.difference(&self.gone).collect();
            if !drains.is_empty() {
                return Err(format!("the drain of {drains:?} does not end"));
            }
        }
        let living = self
            .servers
            .keys()
            .filter(|node| !self.gone.contains(node))
            .count();
        let Some(map) = self.coordinator.map().cloned() else {
            return Err("there is no map".to_owned());
        };
        for range in &map.ranges {
            if range.chain.len() != self.copies.min(living) {
                return Err(format!("{range:?} has not {} copies", self.copies));
            }
            let mut contents = Vec::new();
            for node in &range.chain {
                let engine = self
                    .servers
                    .get_mut(node)
                    .ok_or("a dead server in a chain")?;
                contents.push(engine.contents(range.keys()));
            }
            if contents.windows(2).any(|pair| pair[0] != pair[1]) {
                return Err(format!("the copies of {range:?} differ"));
            }
        }
        for key in all_keys() {
            let range = map.range_of(key);
            let tail = range.tail().and_then(|tail| self.servers.get_mut(&tail));
            let engine = tail.ok_or("a dead tail")?;
            let keys = KeyRange {
                first: key,
                last: key,
            };
            let found = match &engine.contents(keys)[0] {
                chunk if chunk.is_empty() => Vec::new(),
                chunk => {
                    let chunk = Chunk::<i64>::decode(chunk);
                    chunk.map_err(|error| error.to_string())?.values().to_vec()
                }
            };
            let sum = self
                .book
                .acknowledged
                .get(&key)
                .copied()
                .unwrap_or_default();
            let expected = match sum.count {
                0 => Vec::new(),
                _ => vec![sum.count, sum.total],
            };
            if found != expected {
                return Err(format!(
                    "PS3, PS4: key {key} has {found:?}, expected {expected:?}"
                ));
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
