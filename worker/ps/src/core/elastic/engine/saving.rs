//! Values that are saved in a snapshot while the server goes on to serve, and those that it loads before it serves.

use bytes::Bytes;

use super::{Command, Engine, KeyRange};
use crate::core::elastic::mutant::{Mutant, planted};

/// Where the saving of a range is: apps before this one are saved, and the keys of this one below `next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    app: usize,
    next: u64,
}

/// A piece of a range.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) app: u32,
    /// The bytes of a chunk of the store.
    pub(crate) chunk: Bytes,
}

impl Engine {
    /// The ranges of these keys that the server serves are to be saved. What was to be saved before is given up.
    pub(super) fn save(
        &mut self,
        number: u64,
        ticket: u64,
        keys: &[(u64, u64)],
        out: &mut Vec<Command>,
    ) {
        self.saves = ticket;
        let is_wanted = |first: u64, last: u64| {
            let mut keys = keys.iter();
            keys.any(|keys| keys.0 <= first && last <= keys.1)
        };
        let ranges = (self.ranges.iter())
            .filter(|(first, range)| is_wanted(**first, range.last) && self.is_saved_here(**first))
            .map(|(&first, range)| KeyRange {
                first,
                last: range.last,
            });
        out.push(Command::Save {
            number,
            ticket,
            ranges: ranges.collect(),
        });
    }

    fn is_saved_here(&self, first: u64) -> bool {
        let range = self.ranges.get(&first);
        range.is_some_and(|range| range.is_tail(self.me) && !range.stopped)
    }

    /// Where the saving of a range begins.
    pub(crate) fn saving(&self, keys: KeyRange) -> Position {
        Position {
            app: 0,
            next: keys.first,
        }
    }

    /// The next piece of a range, and `None` behind the last one. Pushes to keys behind it may come before the next piece.
    ///
    /// # Errors
    /// The server does not serve this range any more, or is to save something else.
    pub(crate) fn next_piece(
        &self,
        ticket: u64,
        keys: KeyRange,
        position: &mut Position,
    ) -> Result<Option<Piece>, NotServed> {
        let same = (self.ranges.get(&keys.first)).is_some_and(|range| range.last == keys.last);
        if self.fenced || self.saves != ticket || !same || !self.is_saved_here(keys.first) {
            return Err(NotServed);
        }
        while let Some((&app, store)) = self.stores.iter().nth(position.app) {
            let rest = KeyRange {
                first: position.next,
                ..keys
            };
            let exported = store.export(rest, self.piece);
            (position.app, position.next) = match exported.next {
                Some(next) => (position.app, next),
                None => (position.app + 1, keys.first),
            };
            if !exported.chunk.is_empty() {
                let chunk = exported.chunk;
                return Ok(Some(Piece { app, chunk }));
            }
        }
        Ok(None)
    }

    /// Forgets all values, and begins to load others. Pieces of an earlier loading are ignored from now on.
    pub(super) fn begin_load(
        &mut self,
        number: u64,
        ticket: u64,
        ranges: &[(u64, u64)],
        out: &mut Vec<Command>,
    ) {
        if self.map.is_some() {
            return;
        }
        self.loads = ticket;
        self.loaded = ranges
            .iter()
            .map(|&(first, last)| KeyRange { first, last })
            .collect();
        self.loaded.sort_unstable_by_key(|range| range.first);
        let all = KeyRange {
            first: 0,
            last: u64::MAX,
        };
        self.stores.values_mut().for_each(|store| store.remove(all));
        out.push(Command::Load {
            number,
            ticket,
            ranges: self.loaded.clone(),
        });
    }

    /// Takes over what a piece of a snapshot has of the ranges to load. `false` if another loading has begun.
    ///
    /// # Errors
    /// The piece does not fit the app.
    pub(crate) fn load_piece(
        &mut self,
        ticket: u64,
        app: u32,
        chunk: &[u8],
    ) -> Result<bool, String> {
        if self.loads != ticket || self.map.is_some() {
            return Ok(false);
        }
        let all = KeyRange {
            first: 0,
            last: u64::MAX,
        };
        let ranges = match planted(Mutant::LoadKeepsOthers) {
            true => &[all][..],
            false => &self.loaded,
        };
        let imported = match self.stores.get_mut(&app) {
            Some(store) => store.load(chunk, ranges).map_err(|error| error.to_string()),
            None => Err("it is not here".to_owned()),
        };
        imported.map_err(|error| format!("a piece of app {app} does not fit: {error}"))?;
        Ok(true)
    }
}

/// A server serves a range no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotServed;
