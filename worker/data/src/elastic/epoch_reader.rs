//! The reader for the configured order.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use elasticrun_ledger::{Position, ReadOrder, Share};

use super::{Error, remaining::RemainingRows};
use crate::{Batch, Dataset, Reader, ReaderOptions, Skipped, stripes::StripeReader};

/// Reads an epoch in the configured order.
#[derive(Debug)]
pub(super) enum EpochReader {
    /// Order "local": the reader of a share, and what remains of it.
    Local {
        reader: Reader,
        remaining: RemainingRows,
    },
    /// Order "deterministic".
    Deterministic(StripeReader),
}

impl EpochReader {
    pub(super) fn new(
        dataset: Arc<Dataset>,
        options: ReaderOptions,
        order: ReadOrder,
    ) -> crate::Result<Self> {
        Ok(match order {
            ReadOrder::Local(_) => Self::Local {
                reader: Reader::new(dataset, options)?,
                remaining: RemainingRows::default(),
            },
            ReadOrder::Deterministic(_) => {
                Self::Deterministic(StripeReader::new(dataset, options)?)
            }
        })
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        match self {
            Self::Local { reader, .. } => reader.schema(),
            Self::Deterministic(reader) => reader.schema(),
        }
    }

    pub(super) fn widths(&self) -> &[Option<usize>] {
        match self {
            Self::Local { reader, .. } => reader.widths(),
            Self::Deterministic(reader) => reader.widths(),
        }
    }

    pub(super) fn skipped(&self) -> &Skipped {
        match self {
            Self::Local { reader, .. } => reader.skipped(),
            Self::Deterministic(reader) => reader.skipped(),
        }
    }

    pub(super) fn memory(&self) -> u64 {
        match self {
            Self::Local { reader, .. } => reader.memory(),
            Self::Deterministic(reader) => reader.memory(),
        }
    }

    pub(super) fn bytes_read(&self) -> u64 {
        match self {
            Self::Local { reader, .. } => reader.bytes_read(),
            Self::Deterministic(reader) => reader.bytes_read(),
        }
    }

    /// Approximate number of times that a row group is decoded in an epoch.
    pub(super) fn passes(&self) -> f64 {
        match self {
            Self::Local { .. } => 1.0,
            Self::Deterministic(reader) => reader.passes(),
        }
    }

    /// Continues from a position.
    pub(super) fn assign(&mut self, position: &Position) -> Result<(), Error> {
        let epoch = position.ledger().epoch();
        match self {
            Self::Local { reader, remaining } => {
                *remaining = RemainingRows::new(position.share().clone());
                let segments = position.share().clone().segments(position.layout());
                reader.assign(epoch, segments.map(|segment| segment.piece))?;
            }
            Self::Deterministic(reader) => {
                if let Some((stripes, rank, size)) = position.stripes() {
                    reader.assign(epoch, stripes, rank, size, position.next_step().start);
                }
            }
        }
        Ok(())
    }

    /// Reads the rows of the step that follows `ahead` others. These were drawn before, and do not count yet. `rows` are
    /// those of this worker in order "local". Returns also what is then left of the share in that order. There is no batch if
    /// no row was left.
    pub(super) fn draw(
        &mut self,
        position: &Position,
        ahead: u64,
        rows: u32,
    ) -> Result<(Option<Batch>, Option<Share>), Error> {
        match self {
            Self::Local { reader, remaining } => {
                let batch = reader.next_batch(rows as usize)?;
                for span in batch.iter().flat_map(Batch::spans) {
                    remaining.processed(position.layout(), span);
                }
                Ok((batch, Some(remaining.left())))
            }
            Self::Deterministic(reader) => {
                let batch = reader.next_batch(position.layout(), position.later_step(ahead))?;
                Ok((Some(batch), None))
            }
        }
    }
}
