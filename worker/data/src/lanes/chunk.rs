//! Rows of a lane, taken out of their row group in the order in which they are given out.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use arrow_buffer::BooleanBuffer;
use elasticrun_core::data::Piece;

use crate::{
    column::{Decoded, Pick, gather},
    decode::{DecodedGroup, Decoder},
    error::Result,
    order::GroupOrder,
};

/// What a lane wants of a row group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Place of the lane among those of its worker when it was asked for.
    pub(super) lane: u64,
    pub(super) piece: Piece,
    /// Where the piece lies on the line.
    pub(super) at: u64,
}

/// A row group that is decoded once for all lanes that want some of it now.
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
    /// For each position, the row of the file.
    rows: Box<[u32]>,
    /// The values of each position; nothing if no row of the group is kept, or it could not be read.
    pub(super) data: Option<DecodedGroup>,
    /// The positions that a predicate keeps; all if nothing.
    keep: Option<BooleanBuffer>,
}

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
        let picks: Vec<Pick> = rows
            .iter()
            .map(|row| Pick {
                source: 0,
                row: *row,
            })
            .collect();
        let fields = decoder.selection.schema.fields();
        let columns = (fields.iter().zip(&group.columns))
            .map(|(field, column)| Ok(Decoded::from_array(gather(field, &[column], &picks)?.array)))
            .collect::<Result<_>>()?;
        let kept =
            |keep: &BooleanBuffer| rows.iter().map(|row| keep.value(*row as usize)).collect();
        Ok(Self {
            cut,
            data: Some(DecodedGroup::new(columns, cut.piece.rows())),
            keep: group.keep.as_ref().map(kept),
            rows,
        })
    }

    fn without_rows(cut: Cut) -> Self {
        Self {
            cut,
            rows: Box::default(),
            data: None,
            keep: None,
        }
    }

    /// The row of the file at a place in the chunk, if it is one of a batch.
    pub(super) fn row(&self, place: u32) -> Option<u32> {
        let kept = (self.keep.as_ref()).is_none_or(|keep| keep.value(place as usize));
        self.rows.get(place as usize).copied().filter(|_| kept)
    }

    /// Bytes of memory that it holds.
    pub(super) fn bytes(&self) -> u64 {
        let columns = self
            .data
            .as_ref()
            .map_or(0, |data| data.bytes + data.columns.len() * OVERHEAD);
        (columns + self.rows.len() * size_of::<u32>()) as u64
    }
}

/// What a column of a chunk needs beside its values, about.
pub(super) const OVERHEAD: usize = 256;
