//! The reader: opens pieces, draws rows, returns batches, and tracks the progress in each piece.

mod memory;
mod open;
mod pending_batch;
pub(crate) mod pool;
mod row_group_cache;
mod sampling;

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use arrow_schema::{Field, SchemaRef};

use self::{
    open::{OpenPiece, OpenSet, Rows},
    pending_batch::PendingBatch,
    pool::Pool,
    row_group_cache::RowGroupCache,
};
use crate::{
    batch::{Batch, Span},
    column::{DecodedColumn, Pick, gather},
    dataset::Dataset,
    decode::{DecodedGroup, Decoder},
    error::{Error, Problem, Result},
    options::ReaderOptions,
    piece::{Cursor, Piece},
};

/// Reads the pieces that it is assigned; see the header of the crate.
#[derive(Debug)]
pub struct Reader {
    dataset: Arc<Dataset>,
    decoder: Arc<Decoder>,
    options: ReaderOptions,
    epoch: u64,
    /// Pieces to open, in this order.
    queue: VecDeque<Piece>,
    /// Number of pieces at the front of the queue that are prefetched.
    prefetched: usize,
    open: OpenSet,
    cache: RowGroupCache,
    /// Pieces finished since the last report of progress.
    finished: Vec<Cursor>,
    /// Processed spans without a row in a batch. The next batch lists them.
    dropped: Vec<Span>,
    /// Rows of `dropped` that could not be read.
    unreadable: u64,
    skipped: Skipped,
    /// Whether memory has grown since the last eviction.
    grown: bool,
}

/// What was skipped under `OnError::Skip`.
#[derive(Debug, Default)]
pub struct Skipped {
    /// Pieces that could not be opened.
    pub pieces: u64,
    /// Rows of these pieces.
    pub rows: u64,
    /// The last error.
    pub last: Option<Error>,
}

impl Reader {
    /// A reader without pieces; see [`Self::assign`].
    ///
    /// # Errors
    /// If a column does not exist or differs between files, or if a thread cannot be started.
    pub fn new(dataset: Arc<Dataset>, options: ReaderOptions) -> Result<Self> {
        let decoder = Arc::new(Decoder::new(dataset.clone(), &options)?);
        let threads = decoder.clone();
        let pool = Pool::new(options.threads, move |group: &u32| threads.decode(*group))
            .map_err(Problem::Io)?;
        Ok(Self {
            dataset,
            decoder,
            epoch: 0,
            queue: VecDeque::new(),
            prefetched: 0,
            open: OpenSet::in_order(),
            cache: RowGroupCache::new(pool),
            finished: Vec::new(),
            dropped: Vec::new(),
            unreadable: 0,
            skipped: Skipped::default(),
            grown: false,
            options,
        })
    }

    /// Names and types of the columns of a batch.
    pub fn schema(&self) -> &SchemaRef {
        match &self.decoder.ngram {
            Some(plan) => &plan.schema,
            None => &self.decoder.selection.schema,
        }
    }

    /// The widths of the columns of a batch, as far as the data set has them; see [`Column`](crate::Column). The first
    /// call may decode a row group. Blocks.
    pub fn widths(&self) -> &[Option<usize>] {
        self.decoder.widths()
    }

    /// Assigns pieces of an epoch, which are opened in this order. Called at the start of an epoch, after a
    /// repartition, and after a rollback. Unprocessed rows of the previous assignment are given up. Row groups in
    /// memory that are still assigned stay there, and all others are dropped.
    ///
    /// # Errors
    /// If a piece is not part of this data set. The reader is then unchanged.
    pub fn assign(&mut self, epoch: u64, pieces: impl IntoIterator<Item = Piece>) -> Result<()> {
        let queue: VecDeque<Piece> = pieces
            .into_iter()
            .filter(|piece| piece.lo != piece.hi)
            .collect();
        for piece in &queue {
            self.check(piece)?;
        }
        for open in self.open.iter() {
            if let Rows::Group(_) = open.rows {
                self.cache.release(open.piece.group);
            }
        }
        let assigned: HashSet<u32> = queue.iter().map(|piece| piece.group).collect();
        self.cache.retain(|group| assigned.contains(&group));
        self.open = if self.options.shuffle {
            OpenSet::shuffled(self.options.seed, epoch, queue.front())
        } else {
            OpenSet::in_order()
        };
        self.epoch = epoch;
        self.queue = queue;
        self.prefetched = 0;
        self.finished.clear();
        self.clear_dropped();
        self.read_ahead();
        Ok(())
    }

    /// The next rows, or `None` when all assigned pieces are processed.
    ///
    /// A batch has `rows` rows (at least 1), and only the last one has fewer. If all remaining rows are skipped or
    /// dropped, the batch has no rows, and its spans list them. Waits for row groups that are not decoded yet.
    ///
    /// # Errors
    /// A row group cannot be read; the error names file, row group and column. The reader is then unchanged, and the
    /// next call tries again.
    pub fn next_batch(&mut self, rows: usize) -> Result<Option<Batch>> {
        // A caller may ask for more rows than there are.
        let capacity = rows.min(1 << 16);
        let mut pending = PendingBatch::new(self.open.number_of_slots(), capacity);
        let batch = self
            .draw(rows.max(1), &mut pending)
            .and_then(|()| self.gather(&mut pending));
        match batch {
            Ok(batch) => {
                for (slot, _) in pending.spans() {
                    if let Some(done) = self.open.remove_done(slot) {
                        self.finish(done);
                    }
                }
                self.clear_dropped();
                self.free_memory();
                Ok(batch)
            }
            Err(error) => {
                for (slot, span) in pending.spans() {
                    self.open.undo(slot, span.hi - span.lo);
                }
                Err(error)
            }
        }
    }

    /// The cursors that moved since the last call or assignment: the delta of a commit. Includes rows that were
    /// dropped or skipped.
    pub fn progress(&mut self) -> Vec<Cursor> {
        let mut moved = std::mem::take(&mut self.finished);
        for open in self
            .open
            .iter_mut()
            .filter(|open| open.next != open.reported)
        {
            open.reported = open.next;
            moved.push(cursor(open));
        }
        moved
    }

    /// The cursors of all open pieces.
    pub fn cursors(&self) -> Vec<Cursor> {
        self.open.iter().map(cursor).collect()
    }

    /// Rows that are assigned and not processed.
    pub fn rows_left(&self) -> u64 {
        let queued: u64 = self.queue.iter().map(|piece| u64::from(piece.rows())).sum();
        queued + self.open.left() as u64
    }

    /// What was skipped under [`OnError::Skip`](crate::OnError::Skip).
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Bytes of row groups that were read so far from the storage or its cache, without footers.
    pub fn bytes_read(&self) -> u64 {
        self.decoder.bytes_read()
    }

    /// Bytes of pages that were decompressed so far: those of the columns that were asked for, each once.
    #[must_use]
    pub fn bytes_decompressed(&self) -> u64 {
        self.decoder.bytes_decompressed()
    }

    fn clear_dropped(&mut self) {
        self.dropped.clear();
        self.unreadable = 0;
    }

    fn check(&self, piece: &Piece) -> Result<()> {
        let Piece { group, lo, hi } = *piece;
        let bad = |why| Error::from(Problem::BadPiece { group, lo, hi, why });
        let groups = self.dataset.groups();
        let Some(known) = groups.get(group as usize) else {
            return Err(bad(format!("the data set has {} row groups", groups.len())));
        };
        if lo > hi {
            return Err(bad("it ends before it begins".to_owned()));
        }
        if hi > known.rows {
            return Err(bad(format!("the row group has {} rows", known.rows)));
        }
        Ok(())
    }

    fn finish(&mut self, done: OpenPiece) {
        if let Rows::Group(_) = done.rows {
            self.cache.release(done.piece.group);
        }
        self.finished.push(cursor(&done));
    }

    /// Copies the rows of a pending batch.
    fn gather(&self, pending: &mut PendingBatch) -> Result<Option<Batch>> {
        let spans: Vec<Span> = pending
            .spans()
            .map(|(_, span)| span)
            .chain(self.dropped.iter().copied())
            .collect();
        if spans.is_empty() {
            return Ok(None);
        }
        let groups: Vec<&DecodedGroup> = pending
            .sources()
            .map(|slot| &**self.open.get(slot).data())
            .collect();
        let column = |number: usize, field: &Field, picks: &[Pick]| {
            let sources: Vec<&DecodedColumn> =
                groups.iter().map(|group| &group.columns[number]).collect();
            gather(field, &sources, picks)
        };
        let fields = self.schema().fields().iter();
        let columns = match &self.decoder.ngram {
            None => fields
                .enumerate()
                .map(|(number, field)| column(number, field, pending.picks()))
                .collect::<Result<_>>()?,
            Some(plan) => fields
                .zip(&plan.columns)
                .map(|(field, (row, number))| {
                    let behind = |pick: &Pick| Pick {
                        row: pick.row + row,
                        ..*pick
                    };
                    let picks: Vec<Pick> = pending.picks().iter().map(behind).collect();
                    column(*number, field, &picks)
                })
                .collect::<Result<_>>()?,
        };
        Ok(Some(Batch {
            schema: self.schema().clone(),
            columns,
            rows: pending.take_origins(),
            spans,
            skipped: self.unreadable,
        }))
    }
}

fn cursor(open: &OpenPiece) -> Cursor {
    Cursor {
        piece: open.piece,
        next: open.next,
    }
}
