//! Snapshots of the simulation: what is written, what a complete one must have, and a job that begins with it.

use std::collections::{BTreeMap, VecDeque};

use super::world::{Packet, World, all_keys};
use crate::core::{
    elastic::{
        engine::{NotServed, Piece, Position},
        map::ChainMap,
        message::{Command, Report},
        snapshot::{Origin, SavedRange},
    },
    node::{NodeId, SCHEDULER},
    ranges::KeyRange,
    store::Chunk,
};

/// What was saved, and the snapshot that is being taken.
#[derive(Debug, Default)]
pub(super) struct Saves {
    /// Snapshots are taken in this run.
    pub(super) taken: bool,
    /// How many are still to be taken.
    pub(super) left: usize,
    number: u64,
    /// By number and name of the file.
    files: BTreeMap<(u64, String), Vec<Piece>>,
    /// The pushes of each key that were acknowledged when the snapshot began.
    least: BTreeMap<u64, i64>,
    /// Why one has failed.
    pub(super) failed: Option<String>,
    /// The newest complete one.
    complete: Option<(u64, Vec<SavedRange>)>,
}

/// A server that saves its ranges, piece by piece.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    number: u64,
    ticket: u64,
    ranges: Vec<KeyRange>,
    position: Option<Position>,
    pieces: Vec<Piece>,
    saved: Vec<SavedRange>,
}

/// A server that loads its ranges, piece by piece.
#[derive(Clone, Debug)]
pub(super) struct Loading {
    ticket: u64,
    pieces: VecDeque<Piece>,
}

impl World {
    /// A world in which snapshots are taken.
    pub(super) fn saving(seed: u64) -> Self {
        let mut world = Self::with(seed, seed % 4 == 3);
        world.saves.taken = true;
        world.saves.left = 1 + world.dice.below(3);
        world
    }

    /// A snapshot begins, unless one is being taken.
    pub(super) fn begin_save(&mut self) {
        if self.coordinator.is_saving() || self.coordinator.map().is_none() {
            return;
        }
        self.saves.left -= 1;
        self.saves.number += 1;
        let sums = self.book.acknowledged.iter();
        self.saves.least = sums.map(|(key, sum)| (*key, sum.count)).collect();
        let actions = self.coordinator.save(self.saves.number);
        self.act(actions);
    }

    /// A server is told to save these ranges.
    pub(super) fn save(&mut self, node: NodeId, number: u64, ticket: u64, ranges: Vec<KeyRange>) {
        let progress = Progress {
            number,
            ticket,
            ranges,
            position: None,
            pieces: Vec::new(),
            saved: Vec::new(),
        };
        self.send(node, node, Packet::Save(progress));
    }

    /// A server saves the next piece.
    pub(super) fn save_piece(&mut self, node: NodeId, mut progress: Progress) {
        let Some(engine) = self.servers.get(&node) else {
            return;
        };
        let Some(keys) = progress.ranges.first().copied() else {
            let (ticket, ranges) = (progress.ticket, progress.saved);
            let report = Report::Saved { ticket, ranges };
            return self.send(node, SCHEDULER, Packet::Report(report));
        };
        let mut position = progress.position.unwrap_or_else(|| engine.saving(keys));
        match engine.next_piece(progress.ticket, keys, &mut position) {
            Ok(Some(piece)) => {
                progress.position = Some(position);
                progress.pieces.push(piece);
            }
            Ok(None) => {
                let file = format!("{}-{}-{node}-{}", keys.first, keys.last, progress.ticket);
                progress.saved.push(SavedRange {
                    first: keys.first,
                    last: keys.last,
                    file: file.clone(),
                    bytes: 0,
                });
                let pieces = std::mem::take(&mut progress.pieces);
                self.saves.files.insert((progress.number, file), pieces);
                progress.ranges.remove(0);
                progress.position = None;
            }
            Err(NotServed) => {
                progress.pieces.clear();
                progress.ranges.remove(0);
                progress.position = None;
            }
        }
        self.send(node, node, Packet::Save(progress));
    }

    /// A snapshot is complete.
    pub(super) fn saved(&mut self, number: u64, ranges: Vec<SavedRange>) -> Result<(), String> {
        if number != self.saves.number {
            return Err(format!("snapshot {number} is complete, and was not begun"));
        }
        let found = self.read(number, &ranges)?;
        for key in all_keys().into_iter().filter(|_| !self.optimizing) {
            let sum = found.get(&key).copied().unwrap_or((0, 0));
            let least = self.saves.least.get(&key).copied().unwrap_or(0);
            let most = self.book.begun.get(&key).copied().unwrap_or(0);
            if !(least..=most).contains(&sum.0) {
                return Err(format!(
                    "PS8: key {key} has {} pushes in snapshot {number}, of {least} to {most}",
                    sum.0
                ));
            }
            let acknowledged = self.book.acknowledged.get(&key).copied();
            let acknowledged = acknowledged.unwrap_or_default();
            if acknowledged.count == most && sum != (most, acknowledged.total) && sum.0 == most {
                return Err(format!(
                    "PS8: key {key} has another sum in snapshot {number}"
                ));
            }
        }
        self.saves.complete = Some((number, ranges));
        Ok(())
    }

    /// The sums of a snapshot.
    fn read(
        &self,
        number: u64,
        ranges: &[SavedRange],
    ) -> Result<BTreeMap<u64, (i64, i64)>, String> {
        let mut sums = BTreeMap::new();
        for range in ranges {
            let pieces = self.saves.files.get(&(number, range.file.clone()));
            let pieces = pieces.ok_or_else(|| format!("PS8: {range:?} is not written"))?;
            for piece in pieces.iter().filter(|_| !self.optimizing) {
                let chunk = Chunk::<i64>::decode(&piece.chunk);
                let chunk = chunk.map_err(|error| error.to_string())?;
                let values = chunk.keys().iter().zip(chunk.values().chunks(2));
                for (key, sum) in values {
                    if sums.insert(*key, (sum[0], sum[1])).is_some() {
                        return Err(format!("PS8: key {key} is twice in snapshot {number}"));
                    }
                }
            }
        }
        Ok(sums)
    }

    /// A server begins to load its ranges.
    fn load(&mut self, node: NodeId, ticket: u64, ranges: Vec<KeyRange>) -> Result<(), String> {
        let Some((number, saved)) = &self.saves.complete else {
            return Err("there is nothing to load".to_owned());
        };
        let overlaps = |saved: &&SavedRange| {
            let mut own = ranges.iter();
            own.any(|own| own.first <= saved.last && saved.first <= own.last)
        };
        let files = saved.iter().filter(overlaps);
        let pieces = files.flat_map(|range| &self.saves.files[&(*number, range.file.clone())]);
        let progress = Loading {
            ticket,
            pieces: pieces.cloned().collect(),
        };
        self.send(node, node, Packet::Load(progress));
        Ok(())
    }

    /// A server loads the next piece.
    pub(super) fn load_piece(&mut self, node: NodeId, mut loading: Loading) -> Result<(), String> {
        let Some(engine) = self.servers.get_mut(&node) else {
            return Ok(());
        };
        let ticket = loading.ticket;
        let Some(piece) = loading.pieces.pop_front() else {
            self.send(node, SCHEDULER, Packet::Report(Report::Loaded { ticket }));
            return Ok(());
        };
        if engine.load_piece(ticket, piece.app, &piece.chunk)? {
            self.send(node, node, Packet::Load(loading));
        }
        Ok(())
    }

    /// The run is over: a last snapshot is taken, and another job begins with it. Its servers have what those of this one have.
    pub(super) fn begin_again(&mut self) -> Result<(), String> {
        if let Some(reason) = &self.saves.failed {
            return Err(format!("PS8: a snapshot has failed: {reason}"));
        }
        let map = self.coordinator.map().cloned().ok_or("there is no map")?;
        self.saves.left = 1;
        self.begin_save();
        let number = self.saves.number;
        self.settle()?;
        if (self.saves.complete.as_ref()).is_none_or(|(newest, _)| *newest != number) {
            return Err("PS8: a quiet job has no snapshot".to_owned());
        }
        let mut later = Self::with(self.dice.next() % 100_000, self.optimizing);
        later.saves.complete.clone_from(&self.saves.complete);
        later.saves.files.clone_from(&self.saves.files);
        later.coordinator.begin_with(Origin {
            number,
            apps: map.apps.clone(),
        });
        let servers = later.servers.len();
        if servers > 1 && later.dice.chance(50) {
            // One dies while others load.
            for _ in 0..later.dice.below(60) {
                later.deliver()?;
            }
            let all: Vec<NodeId> = later.servers.keys().copied().collect();
            let first = later.dice.pick(&all).ok_or("there is no server")?;
            later.servers.remove(&first);
            later.gone.insert(first);
            later.send(first, SCHEDULER, Packet::Gone);
        }
        later.settle()?;
        // Its death may have lost values.
        if later.servers.len() < servers && later.copies == 1 {
            return Ok(());
        }
        let now = later.coordinator.map().cloned();
        let now = now.ok_or("PS8: a job that loads a snapshot does not begin")?;
        for key in all_keys() {
            let before = self.content(&map, key);
            let nothing = vec![bytes::Bytes::new(); before.len()];
            let keys = KeyRange {
                first: key,
                last: key,
            };
            let chain = &now.range_of(key).chain;
            for (node, engine) in &later.servers {
                let expected = if chain.contains(node) {
                    &before
                } else {
                    &nothing
                };
                if engine.contents(keys) != *expected {
                    return Err(format!("PS8: key {key} is another one at {node}"));
                }
            }
            if chain.is_empty() {
                return Err(format!("PS8: key {key} is nowhere"));
            }
        }
        Ok(())
    }

    /// What the tail of a key has.
    fn content(&self, map: &ChainMap, key: u64) -> Vec<bytes::Bytes> {
        let keys = KeyRange {
            first: key,
            last: key,
        };
        let tail = map.range_of(key).tail();
        let engine = tail.and_then(|tail| self.servers.get(&tail));
        engine
            .map(|engine| engine.contents(keys))
            .unwrap_or_default()
    }

    /// Delivers all that is on its way.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..60_000 {
            if self.channels.values().all(VecDeque::is_empty) {
                return Ok(());
            }
            self.deliver()?;
        }
        Err("PS7: it does not end".to_owned())
    }

    /// What a server wants done, if it is about snapshots.
    pub(super) fn of_snapshots(&mut self, node: NodeId, command: Command) -> Result<(), String> {
        match command {
            Command::Save {
                number,
                ticket,
                ranges,
            } => {
                self.save(node, number, ticket, ranges);
                Ok(())
            }
            Command::Load { ticket, ranges, .. } => self.load(node, ticket, ranges),
            _ => Ok(()),
        }
    }
}
