//! The reader of an order, and what it has read.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use elasticrun_ledger::{Order, Position};

use super::{Error, remaining::Work};
use crate::{Batch, Dataset, Reader, ReaderOptions, Skipped, stripes::StripeReader};

/// See the module.
#[derive(Debug)]
pub(super) enum Reading {
    /// Order "local": a share, and what is left of it.
    Share { reader: Reader, work: Work },
    /// Order "deterministic".
    Stripes(StripeReader),
}

impl Reading {
    pub(super) fn new(
        dataset: Arc<Dataset>,
        options: ReaderOptions,
        order: Order,
    ) -> crate::Result<Self> {
        Ok(match order {
            Order::Local(_) => Self::Share {
                reader: Reader::new(dataset, options)?,
                work: Work::default(),
            },
            Order::Deterministic(_) => Self::Stripes(StripeReader::new(dataset, options)?),
        })
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        match self {
            Self::Share { reader, .. } => reader.schema(),
            Self::Stripes(reader) => reader.schema(),
        }
    }

    pub(super) fn skipped(&self) -> &Skipped {
        match self {
            Self::Share { reader, .. } => reader.skipped(),
            Self::Stripes(reader) => reader.skipped(),
        }
    }

    pub(super) fn memory(&self) -> u64 {
        match self {
            Self::Share { reader, .. } => reader.memory(),
            Self::Stripes(reader) => reader.memory(),
        }
    }

    pub(super) fn bytes_read(&self) -> u64 {
        match self {
            Self::Share { reader, .. } => reader.bytes_read(),
            Self::Stripes(reader) => reader.bytes_read(),
        }
    }

    /// How often a row group is decoded in an epoch, about.
    pub(super) fn passes(&self) -> f64 {
        match self {
            Self::Share { .. } => 1.0,
            Self::Stripes(reader) => reader.passes(),
        }
    }

    /// Goes on from a position.
    pub(super) fn assign(&mut self, position: &Position) -> Result<(), Error> {
        let epoch = position.ledger().epoch();
        match self {
            Self::Share { reader, work } => {
                *work = Work::new(position.share().clone());
                let stretches = position.share().clone().stretches(position.line());
                reader.assign(epoch, stretches.map(|stretch| stretch.piece))?;
            }
            Self::Stripes(reader) => {
                if let Some((stripes, rank, size)) = position.stripes() {
                    reader.assign(epoch, stripes, rank, size, position.next_step().start);
                }
            }
        }
        Ok(())
    }

    /// Reads a step of so many rows of this worker, or of all in order "deterministic", and moves the position. Nothing if no
    /// row is left.
    pub(super) fn step(
        &mut self,
        position: &mut Position,
        rows: u32,
    ) -> Result<Option<Batch>, Error> {
        match self {
            Self::Share { reader, work } => {
                let batch = reader.next_batch(rows as usize)?;
                for span in batch.iter().flat_map(Batch::spans) {
                    work.processed(position.line(), span);
                }
                position.step(work.left())?;
                Ok(batch)
            }
            Self::Stripes(reader) => {
                let batch = reader.next_batch(position.line(), position.next_step())?;
                position.step_stripes();
                Ok(Some(batch))
            }
        }
    }
}
