//! The reader: opens pieces, draws rows, gives batches, and knows how far each piece is.

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
    pending_batch::Draft,
    pool::Pool,
    row_group_cache::Shelf,
};
use crate::{
    batch::{Batch, Span},
    column::{Decoded, Pick, gather},
    dataset::Dataset,
    decode::{DecodedGroup, Decoder},
    error::{Error, Problem, Result},
    options::ReaderOptions,
    piece::{Cursor, Piece},
};

/// Reads the pieces that it is assigned. See the crate's header.
#[derive(Debug)]
pub struct Reader {
    dataset: Arc<Dataset>,
    decoder: Arc<Decoder>,
    options: ReaderOptions,
    epoch: u64,
    /// Pieces to open, in this order.
    queue: VecDeque<Piece>,
    /// So many pieces at the front of the queue were asked for.
    asked: usize,
    open: OpenSet,
    shelf: Shelf,
    /// Pieces finished since progress was last reported.
    finished: Vec<Cursor>,
    /// Processed without a row of a batch; the next batch names them.
    dropped: Vec<Span>,
    skipped: Skipped,
    /// Whether memory grew since room was last made.
    grown: bool,
}

/// What `OnError::Skip` left out.
#[derive(Debug, Default)]
pub struct Skipped {
    /// Pieces that could not be opened.
    pub pieces: u64,
    /// Their rows.
    pub rows: u64,
    /// Why the last one could not.
    pub last: Option<Error>,
}

impl Reader {
    /// A reader with nothing to read yet; see [`Self::assign`].
    ///
    /// # Errors
    /// Columns that are not there, or differ between files; threads that cannot be started.
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
            asked: 0,
            open: OpenSet::in_order(),
            shelf: Shelf::new(pool),
            finished: Vec::new(),
            dropped: Vec::new(),
            skipped: Skipped::default(),
            grown: false,
            options,
        })
    }

    /// Names and types of the columns of a batch.
    pub fn schema(&self) -> &SchemaRef {
        match &self.decoder.windows {
            Some(plan) => &plan.schema,
            None => &self.decoder.selection.schema,
        }
    }

    /// From now on reads these pieces of this epoch, and opens them in this order: at the start of an epoch,
    /// after a repartition, after a rollback. What was assigned before and is not processed counts as given
    /// away. Row groups that are in memory and still assigned stay there; all others are dropped.
    ///
    /// # Errors
    /// A piece that is not of this data set. Nothing has changed then.
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
                self.shelf.close(open.piece.group);
            }
        }
        let assigned: HashSet<u32> = queue.iter().map(|piece| piece.group).collect();
        self.shelf.retain(|group| assigned.contains(&group));
        self.open = if self.options.shuffle {
            OpenSet::shuffled(self.options.seed, epoch, queue.front())
        } else {
            OpenSet::in_order()
        };
        self.epoch = epoch;
        self.queue = queue;
        self.asked = 0;
        self.finished.clear();
        self.dropped.clear();
        self.read_ahead();
        Ok(())
    }

    /// The next rows, or nothing when all assigned pieces are processed.
    ///
    /// A batch has `rows` rows (at least 1), and only the last one has fewer. It has none at all if what was
    /// left was skipped: its spans then say so. Waits for row groups that are not decoded yet.
    ///
    /// # Errors
    /// A row group that cannot be read, by the name of file, row group and column. Nothing has changed then:
    /// no row is lost, and calling again tries again.
    pub fn next_batch(&mut self, rows: usize) -> Result<Option<Batch>> {
        // Whoever asks for all rows at once has no room for them here yet.
        let room = rows.min(1 << 16);
        let mut draft = Draft::new(self.open.number_of_slots(), room);
        let batch = self
            .draw(rows.max(1), &mut draft)
            .and_then(|()| self.gather(&mut draft));
        match batch {
            Ok(batch) => {
                for (slot, _) in draft.spans() {
                    if let Some(done) = self.open.remove_done(slot) {
                        self.finish(done);
                    }
                }
                self.dropped.clear();
                self.make_room();
                Ok(batch)
            }
            Err(error) => {
                for (slot, span) in draft.spans() {
                    self.open.undo(slot, span.hi - span.lo);
                }
                Err(error)
            }
        }
    }

    /// Cursors that moved since this was last called or pieces were assigned: a commit's delta. Counts all
    /// rows that batches hold, and those that were dropped or skipped.
    pub fn progress(&mut self) -> Vec<Cursor> {
        let mut moved = std::mem::take(&mut self.finished);
        for open in self.open.iter_mut().filter(|open| open.at != open.reported) {
            open.reported = open.at;
            moved.push(cursor(open));
        }
        moved
    }

    /// The cursors of all open pieces, that is of those begun and not finished.
    pub fn cursors(&self) -> Vec<Cursor> {
        self.open.iter().map(cursor).collect()
    }

    /// Rows that are assigned and not processed.
    pub fn rows_left(&self) -> u64 {
        let queued: u64 = self.queue.iter().map(|piece| u64::from(piece.rows())).sum();
        queued + self.open.left() as u64
    }

    /// What could not be read, if options say to skip it.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Bytes of row groups that were read so far, without footers: from the storage, or from its cache.
    pub fn bytes_read(&self) -> u64 {
        self.decoder.bytes_read()
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
            self.shelf.close(done.piece.group);
        }
        self.finished.push(cursor(&done));
    }

    /// Copies the rows of a draft together.
    fn gather(&self, draft: &mut Draft) -> Result<Option<Batch>> {
        let spans: Vec<Span> = draft
            .spans()
            .map(|(_, span)| span)
            .chain(self.dropped.iter().copied())
            .collect();
        if spans.is_empty() {
            return Ok(None);
        }
        let groups: Vec<&DecodedGroup> = draft
            .sources()
            .map(|slot| &**self.open.get(slot).data())
            .collect();
        let column = |number: usize, field: &Field, picks: &[Pick]| {
            let sources: Vec<&Decoded> =
                groups.iter().map(|group| &group.columns[number]).collect();
            gather(field, &sources, picks)
        };
        let fields = self.schema().fields().iter();
        let columns = match &self.decoder.windows {
            None => fields
                .enumerate()
                .map(|(number, field)| column(number, field, draft.picks()))
                .collect::<Result<_>>()?,
            Some(plan) => fields
                .zip(&plan.columns)
                .map(|(field, (row, number))| {
                    let behind = |pick: &Pick| Pick {
                        row: pick.row + row,
                        ..*pick
                    };
                    let picks: Vec<Pick> = draft.picks().iter().map(behind).collect();
                    column(*number, field, &picks)
                })
                .collect::<Result<_>>()?,
        };
        Ok(Some(Batch {
            schema: self.schema().clone(),
            columns,
            rows: draft.take_origins(),
            spans,
        }))
    }
}

fn cursor(open: &OpenPiece) -> Cursor {
    Cursor {
        piece: open.piece,
        at: open.at,
    }
}
