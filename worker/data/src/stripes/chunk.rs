//! Rows of a stripe, taken out of their row group in the order in which they are given out.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use elasticrun_ledger::Piece;

use crate::{
    column::{Decoded, Pick, gather},
    decode::{DecodedGroup, Decoder},
    error::Result,
    order::GroupOrder,
};

/// What a stripe wants of a row group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Place of the stripe among those of its worker when it was asked for.
    pub(super) stripe: u64,
    pub(super) piece: Piece,
    /// Where the piece lies on the line.
    pub(super) at: u64,
}

/// A row group that is decoded once for all stripes that want some of it now.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    /// Its name: no other visit has the number.
    pub(super) number: u64,
    pub(super) epoch: u64,
    pub(super) group: u32,
    pub(super) cuts: Arc<[Cut]>,
}

impl PartialEq for Visit {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Visit {}

impl Hash for Visit {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

/// A cut in memory.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) cut: Cut,
    /// For each position, the row of the file; nothing if none is kept, or the row group could not be read.
    rows: Box<[u32]>,
    /// For each position, where its values are in `data`, or [`DROPPED`]. In their order if nothing.
    places: Option<Box<[u32]>>,
    /// The values of the rows that a predicate keeps.
    pub(super) data: Option<DecodedGroup>,
}

/// Where the values of a row are that a predicate drops.
const DROPPED: u32 = u32::MAX;

impl Visit {
    /// Decodes the row group. Blocks.
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub(super) fn chunks(&self, decoder: &Decoder, seed: Option<u64>) -> Result<Vec<Chunk>> {
        let group = decoder.decode(self.group)?;
        let order = match seed {
            Some(seed) => GroupOrder::shuffled(seed, self.epoch, self.group, group.rows),
            None => GroupOrder::Identity,
        };
        (self.cuts.iter())
            .map(|cut| Chunk::new(decoder, &group, &order, *cut))
            .collect()
    }

    /// What comes instead of a row group that cannot be read.
    pub(super) fn nothing(&self) -> Vec<Chunk> {
        self.cuts
            .iter()
            .map(|cut| Chunk::without_rows(*cut))
            .collect()
    }
}

impl Chunk {
    fn new(decoder: &Decoder, group: &DecodedGroup, order: &GroupOrder, cut: Cut) -> Result<Self> {
        if group.is_dropped() {
            return Ok(Self::without_rows(cut));
        }
        let rows: Box<[u32]> = (cut.piece.lo..cut.piece.hi)
            .map(|position| order.row(position))
            .collect();
        let kept = |row: &u32| (group.keep.as_ref()).is_none_or(|keep| keep.value(*row as usize));
        let picks: Vec<Pick> = (rows.iter().copied())
            .filter(kept)
            .map(|row| Pick {
                source: 0,
                row: group.place(row),
            })
            .collect();
        let places = (picks.len() < rows.len()).then(|| {
            let mut next = 0..DROPPED;
            let place = |row: &u32| match kept(row) {
                true => next.next().unwrap_or(DROPPED),
                false => DROPPED,
            };
            rows.iter().map(place).collect()
        });
        let fields = decoder.selection.schema.fields();
        let columns = (fields.iter().zip(&group.columns))
            .map(|(field, column)| Ok(Decoded::from_array(gather(field, &[column], &picks)?.array)))
            .collect::<Result<_>>()?;
        Ok(Self {
            cut,
            data: Some(DecodedGroup::new(columns, picks.len() as u32)),
            places,
            rows,
        })
    }

    fn without_rows(cut: Cut) -> Self {
        Self {
            cut,
            rows: Box::default(),
            data: None,
            places: None,
        }
    }

    /// The row of the file at an offset in the chunk, and where its values are, if it is one of a batch.
    pub(super) fn row(&self, offset: u32) -> Option<(u32, u32)> {
        let row = self.rows.get(offset as usize)?;
        let place = (self.places.as_ref()).map_or(offset, |places| places[offset as usize]);
        (place != DROPPED).then_some((*row, place))
    }

    /// Bytes of memory that it holds.
    pub(super) fn bytes(&self) -> u64 {
        let columns = self
            .data
            .as_ref()
            .map_or(0, |data| data.bytes + data.columns.len() * OVERHEAD);
        let tables = self.rows.len() + self.places.as_ref().map_or(0, |places| places.len());
        (columns + tables * size_of::<u32>()) as u64
    }
}

/// What a column of a chunk needs beside its values, about.
pub(super) const OVERHEAD: usize = 256;
