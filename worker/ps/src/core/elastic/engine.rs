//! An elastic server: which ranges it has, and what it does with requests, pushes on their way and acknowledgements.
//!
//! # Theory of operation
//! The head of a chain gives each push of a range a number and passes it on; the tail answers. Each server keeps what its
//! successor has not acknowledged, and sends it again when the chain changes or the connection broke. A receiver applies
//! only the number behind its last one. `copy` makes a copy of a range for a learner, `maps` follows the map.
//!
//! # Invariants
//! - PS3 An acknowledged push is on all servers of its chain, and on a learner that may become its tail.
//! - PS4 A push is applied once on each range, whatever is replayed (PE1).
//! - PS5 A server takes requests for a range only if its own map says so, and not after it has stopped. Pushes of its chain go on.

mod chain;
mod copy;
mod load;
mod maps;
mod saving;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use copy::Learner;
use load::Load;
#[cfg(test)]
pub(crate) use saving::{NotServed, Piece, Position};

use super::{
    filter::Filter,
    map::ChainMap,
    message::{
        Body, Command, EntryHead, EntryKind, Message, Mode, Op, Order, Origin, PieceHead, Report,
    },
    mutant::{Mutant, planted},
    store::ElasticStore,
};
use crate::{
    core::{node::NodeId, ranges::KeyRange},
    error::Refusal,
};

/// Bytes of a piece of a copy. While the last one is on its way, pushes wait.
const PIECE: usize = 256 << 10;

/// A push that the successor has not acknowledged.
#[derive(Debug)]
struct Pending {
    index: u64,
    kind: EntryKind,
    /// This server was the tail and answers it, once its learner has it.
    answer: bool,
    op: Arc<Op>,
}

/// What a server is for a range.
#[derive(Debug)]
enum State {
    Member,
    /// It gets a copy from the tail.
    Learning {
        source: NodeId,
        /// The version of the tail's map when the copy began.
        version: u64,
        stream: u64,
        complete: bool,
    },
}

/// A range on one server.
#[derive(Debug)]
struct Range {
    last: u64,
    chain: Vec<NodeId>,
    changed: u64,
    /// The number of the last push.
    index: u64,
    filter: Filter,
    pending: VecDeque<Pending>,
    learner: Option<Learner>,
    state: State,
    /// It leaves the chain, and serves no requests of workers any more.
    stopped: bool,
    load: Load,
}

impl Range {
    fn position(&self, me: NodeId) -> Option<usize> {
        let member = matches!(self.state, State::Member);
        (self.chain.iter().position(|node| *node == me)).filter(|_| member)
    }

    fn successor(&self, me: NodeId) -> Option<NodeId> {
        self.chain.get(self.position(me)? + 1).copied()
    }

    fn predecessor(&self, me: NodeId) -> Option<NodeId> {
        (self.position(me)?.checked_sub(1)).map(|position| self.chain[position])
    }

    fn is_tail(&self, me: NodeId) -> bool {
        self.position(me).is_some() && self.chain.last() == Some(&me)
    }

    /// All pushes up to this one are on all servers behind.
    fn acknowledged(&self) -> u64 {
        match self.pending.front() {
            Some(pending) => pending.index - 1,
            None => self.index,
        }
    }
}

/// What came with a newer version of the map than the server has.
#[derive(Debug)]
enum Held {
    Request { version: u64, op: Op },
    Message { from: NodeId, message: Message },
}

/// An elastic server.
pub(crate) struct Engine {
    me: NodeId,
    map: Option<ChainMap>,
    /// By first key.
    ranges: BTreeMap<u64, Range>,
    stores: BTreeMap<u32, Box<dyn ElasticStore>>,
    held: Vec<Held>,
    /// Copies that were begun.
    streams: u64,
    /// The coordinator may have given the ranges to others.
    fenced: bool,
    /// Bytes of a piece of a copy.
    piece: usize,
    /// The ticket of the last order to load values.
    loads: u64,
    /// Which ranges are loaded.
    loaded: Vec<KeyRange>,
    /// The ticket of the last order to save ranges.
    saves: u64,
}

impl Engine {
    /// A server with these apps, without a range.
    pub(crate) fn new(me: NodeId, stores: BTreeMap<u32, Box<dyn ElasticStore>>) -> Self {
        Self {
            me,
            map: None,
            ranges: BTreeMap::new(),
            stores,
            held: Vec::new(),
            streams: 0,
            fenced: false,
            piece: PIECE,
            loads: 0,
            loaded: Vec::new(),
            saves: 0,
        }
    }

    /// Copies in pieces of so many bytes, for tests.
    #[cfg(test)]
    pub(crate) fn set_piece(&mut self, bytes: usize) {
        self.piece = bytes;
    }

    fn version(&self) -> u64 {
        self.map.as_ref().map_or(0, |map| map.version)
    }

    /// From now on the server serves nothing: it may have been declared dead.
    pub(crate) fn fence(&mut self) {
        if planted(Mutant::FencedServerServes) {
            return;
        }
        self.fenced = true;
        self.held.clear();
    }

    /// A request of a worker. `version` is that of the worker's map.
    pub(crate) fn request(
        &mut self,
        version: u64,
        origin: Origin,
        body: Body<'_>,
        out: &mut Vec<Command>,
    ) {
        if self.fenced {
            return;
        }
        if version > self.version() || self.map.is_none() {
            let op = Op::new(origin, body);
            return self.held.push(Held::Request { version, op });
        }
        if let Err(refusal) = self.check(&origin, body) {
            return self.refuse(origin, refusal, out);
        }
        let Some(first) = self.serving(&origin, body.keys) else {
            // If this server has stopped, a newer map is about to come.
            let moved = Refusal::Moved {
                asked: version,
                version: self.version() + u64::from(self.is_stopped(body.keys[0])),
            };
            return self.refuse(origin, moved, out);
        };
        let range = self.ranges.get_mut(&first).expect("it was found just now");
        range.load.note(body.keys, body.values.len());
        if !origin.is_push() {
            return self.answer(&origin, body, out);
        }
        let repeated = !range.filter.is_new(origin.identity);
        if !repeated && let Err(error) = push(&mut self.stores, &origin, body) {
            return self.refuse(origin, error, out);
        }
        range.filter.note(origin.identity, origin.floor);
        range.index += 1;
        let kind = match repeated {
            true => EntryKind::Repeated,
            false => EntryKind::Push,
        };
        self.pass_on(first, kind, &origin, body, None, out);
    }

    fn check(&self, origin: &Origin, body: Body<'_>) -> Result<(), Refusal> {
        let Some(store) = self.stores.get(&origin.app) else {
            return Err(Refusal::BadRequest(format!("no app {}", origin.app)));
        };
        if store.dtype() != origin.dtype {
            let name = |code| elasticrun_collectives::DType::name(code).to_owned();
            return Err(Refusal::TypeDiffers {
                expected: name(store.dtype()),
                found: name(origin.dtype),
            });
        }
        body.check(origin.is_push(), store.size())
            .map_err(|error| Refusal::BadRequest(error.to_string()))
    }

    /// The range of these keys, if this server may serve the request.
    fn serving(&self, origin: &Origin, keys: &[u64]) -> Option<u64> {
        let (&first, range) = self.ranges.range(..=keys[0]).next_back()?;
        let at = match origin.is_push() {
            true => range.chain.first(),
            false => range.chain.last(),
        };
        let stopped = range.stopped && !planted(Mutant::StoppedTailServes);
        let serves = range.position(self.me).is_some() && at == Some(&self.me) && !stopped;
        (keys[keys.len() - 1] <= range.last && serves).then_some(first)
    }

    fn is_stopped(&self, key: u64) -> bool {
        let range = self.ranges.range(..=key).next_back();
        range.is_some_and(|(_, range)| range.stopped && key <= range.last)
    }

    fn answer(&self, origin: &Origin, body: Body<'_>, out: &mut Vec<Command>) {
        let version = self.version();
        let found = match (origin.is_pull(), self.stores.get(&origin.app)) {
            (true, Some(store)) => match store.pull(body.keys, body.expected()) {
                Ok(found) => Some(found),
                Err(error) => {
                    let refusal = Refusal::BadRequest(error.to_string());
                    return self.refuse(*origin, refusal, out);
                }
            },
            _ => None,
        };
        out.push(Command::Answer {
            origin: *origin,
            version,
            keys: body.keys.len(),
            found,
        });
    }

    fn refuse(&self, origin: Origin, refusal: Refusal, out: &mut Vec<Command>) {
        out.push(Command::Refuse {
            origin,
            version: self.version(),
            refusal,
        });
    }

    /// A message of another server that the caller owns.
    pub(crate) fn message(&mut self, from: NodeId, message: Message, out: &mut Vec<Command>) {
        match message {
            Message::Entry { head, op } => {
                self.entry(from, head, &op.origin, op.body(), Some(&op), out);
            }
            Message::Acknowledged { first, mode, index } => {
                self.acknowledged(from, first, mode, index, out);
            }
            Message::Piece { head, chunk } => self.piece(from, head, &chunk, out),
            Message::PieceTaken { first, stream } => self.piece_taken(from, first, stream, out),
        }
    }

    /// An order of the coordinator.
    pub(crate) fn order(&mut self, order: &Order, out: &mut Vec<Command>) {
        if self.fenced {
            return;
        }
        match *order {
            Order::Attach {
                first,
                learner,
                join,
            } => self.attach(first, learner, join, out),
            Order::Stop { first, ticket } => {
                if let Some(range) = self.ranges.get_mut(&first) {
                    range.stopped = true;
                }
                out.push(Command::Report(Report::Stopped { first, ticket }));
            }
            Order::Resume { first } => {
                if let Some(range) = self.ranges.get_mut(&first) {
                    range.stopped = false;
                }
            }
            Order::Save {
                number,
                ticket,
                ref keys,
            } => self.save(number, ticket, keys, out),
            Order::Load {
                number,
                ticket,
                ref ranges,
            } => self.begin_load(number, ticket, ranges, out),
        }
    }

    /// Another server is dead.
    pub(crate) fn died(&mut self, node: NodeId, out: &mut Vec<Command>) {
        self.held
            .retain(|held| !matches!(held, Held::Message { from, .. } if *from == node));
        let learns = |range: &Range| {
            let learner = range.learner.as_ref();
            learner.is_some_and(|learner| learner.node == node)
        };
        let learning = self.ranges.iter().filter(|(_, range)| learns(range));
        let firsts: Vec<u64> = learning.map(|(&first, _)| first).collect();
        for first in firsts {
            self.abort_learner(first, out);
        }
    }

    /// Refuses the requests that wait for a newer map.
    pub(crate) fn refuse_held(&mut self, refusal: &Refusal, out: &mut Vec<Command>) {
        let held = std::mem::take(&mut self.held);
        for held in held {
            match held {
                Held::Request { op, .. } => self.refuse(op.origin, refusal.clone(), out),
                message @ Held::Message { .. } => self.held.push(message),
            }
        }
    }

    /// Whether requests wait for a newer map.
    pub(crate) fn holds_requests(&self) -> bool {
        let mut held = self.held.iter();
        held.any(|held| matches!(held, Held::Request { .. }))
    }
}

fn push(
    stores: &mut BTreeMap<u32, Box<dyn ElasticStore>>,
    origin: &Origin,
    body: Body<'_>,
) -> Result<(), Refusal> {
    let Some(store) = stores.get_mut(&origin.app) else {
        return Err(Refusal::BadRequest(format!("no app {}", origin.app)));
    };
    store
        .push(body.keys, body.lens(), body.values)
        .map_err(|error| Refusal::BadRequest(error.to_string()))
}
