//! Rows of a stripe, extracted from their row group in reading order.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use elasticrun_ledger::Piece;

use crate::{
    column::{DecodedColumn, Pick, gather},
    decode::{DecodedGroup, Decoder},
    error::Result,
    group_order::GroupOrder,
};

/// The rows that a stripe needs of one row group.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkRequest {
    /// The number of the stripe.
    pub(super) stripe: u64,
    pub(super) piece: Piece,
    /// The first row in the epoch layout.
    pub(super) start: u64,
}

/// A row group that is decoded once for all stripes that need a part of it now.
#[derive(Clone, Debug)]
pub(super) struct DecodeJob {
    /// Unique number of the job.
    pub(super) number: u64,
    pub(super) epoch: u64,
    pub(super) group: u32,
    pub(super) requests: Arc<[ChunkRequest]>,
}

impl PartialEq for DecodeJob {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for DecodeJob {}

impl Hash for DecodeJob {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

/// The rows of a request, in memory.
#[derive(Debug)]
pub(super) struct StripeChunk {
    pub(super) request: ChunkRequest,
    /// For each position, the row of the file. Empty if no row is kept, or if the row group could not be read.
    rows: Box<[u32]>,
    /// For each position, the index of its values in `data`, or [`DROPPED`]. If `None`, the values are in order.
    value_indices: Option<Box<[u32]>>,
    /// The values of the rows that a predicate keeps.
    pub(super) data: Option<DecodedGroup>,
    /// Whether the row group could not be read.
    pub(super) unreadable: bool,
}

/// The index of a row that the predicate drops.
const DROPPED: u32 = u32::MAX;

impl DecodeJob {
    /// Decodes the row group. Blocks.
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub(super) fn chunks(&self, decoder: &Decoder, seed: Option<u64>) -> Result<Vec<StripeChunk>> {
        let group = decoder.decode(self.group)?;
        let order = match seed {
            Some(seed) => GroupOrder::shuffled(seed, self.epoch, self.group, group.rows),
            None => GroupOrder::Identity,
        };
        (self.requests.iter())
            .map(|request| StripeChunk::new(decoder, &group, &order, *request))
            .collect()
    }

    /// Chunks without rows, in place of a row group that cannot be read.
    pub(super) fn empty_chunks(&self) -> Vec<StripeChunk> {
        self.requests
            .iter()
            .map(|request| StripeChunk {
                unreadable: true,
                ..StripeChunk::without_rows(*request)
            })
            .collect()
    }
}

impl StripeChunk {
    fn new(
        decoder: &Decoder,
        group: &DecodedGroup,
        order: &GroupOrder,
        request: ChunkRequest,
    ) -> Result<Self> {
        if group.is_dropped() {
            return Ok(Self::without_rows(request));
        }
        let rows: Box<[u32]> = (request.piece.lo..request.piece.hi)
            .map(|position| order.row(position))
            .collect();
        let kept = |row: &u32| (group.keep.as_ref()).is_none_or(|keep| keep.value(*row as usize));
        let picks: Vec<Pick> = (rows.iter().copied())
            .filter(kept)
            .map(|row| Pick {
                source: 0,
                row: group.row_index(row),
            })
            .collect();
        let value_indices = (picks.len() < rows.len()).then(|| {
            let mut next = 0..DROPPED;
            let index = |row: &u32| match kept(row) {
                true => next.next().unwrap_or(DROPPED),
                false => DROPPED,
            };
            rows.iter().map(index).collect()
        });
        let fields = decoder.selection.schema.fields();
        let columns = (fields.iter().zip(&group.columns))
            .map(|(field, column)| {
                Ok(DecodedColumn::from_array(
                    gather(field, &[column], &picks)?.array,
                ))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            request,
            data: Some(DecodedGroup::new(columns, picks.len() as u32)),
            value_indices,
            rows,
            unreadable: false,
        })
    }

    fn without_rows(request: ChunkRequest) -> Self {
        Self {
            request,
            rows: Box::default(),
            data: None,
            value_indices: None,
            unreadable: false,
        }
    }

    /// The row of the file at an offset of the chunk and the index of its values, unless the row is dropped.
    pub(super) fn row(&self, offset: u32) -> Option<(u32, u32)> {
        let row = self.rows.get(offset as usize)?;
        let index = (self.value_indices.as_ref())
            .map_or(offset, |value_indices| value_indices[offset as usize]);
        (index != DROPPED).then_some((*row, index))
    }

    /// Bytes of memory in use.
    pub(super) fn bytes(&self) -> u64 {
        let columns = self
            .data
            .as_ref()
            .map_or(0, |data| data.bytes + data.columns.len() * OVERHEAD);
        let tables = self.rows.len()
            + self
                .value_indices
                .as_ref()
                .map_or(0, |value_indices| value_indices.len());
        (columns + tables * size_of::<u32>()) as u64
    }
}

/// Approximate bytes of a column of a chunk in addition to its values.
pub(super) const OVERHEAD: usize = 256;
