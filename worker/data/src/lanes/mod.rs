//! Reads the lanes of a worker: the order that does not depend on the number of workers; see
//! [`elasticrun_core::data::Lanes`].
//!
//! A lane is a contiguous part of the line of an epoch, and gives one row in each turn. So a worker has as many row groups
//! open as it has lanes, which may be far more than memory holds. Therefore no row group is held: a thread decodes it, takes
//! out the next rows of the lanes that are in it ([`Chunk`]), and lets go of it.
//!
//! ```text
//! lane 3   ... | chunk in use | chunk ahead | asked for .....        each a part of one row group
//! lane 7          ... | chunk in use .......... | asked for ..
//!                      ^ the turn
//! ```
//!
//! # What it costs
//! The memory budget is shared out among the lanes. If a lane's share holds the rest of a row group, each row group is
//! decoded once. Else it is decoded once for each chunk ([`LaneReader::passes`]): more memory, more workers or fewer lanes
//! make that fewer. It is never more than [`plan::MOST_PASSES`] times; there the budget gives way.
//!
//! # Invariants
//! - **L1** the parts of a lane are disjoint, in order, without a gap, and all rows of the lane that are to come and are
//!   planned are in one.
//! - **L2** what a step gives depends on its positions alone: neither on memory nor on which row group is decoded first.

mod chunk;
mod lane;
mod plan;

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use arrow_schema::SchemaRef;
use elasticrun_core::data::{Lanes, Line, Stretch};

use self::{
    chunk::{Chunk, Cut, Visit},
    lane::{Lane, Mark, Part, Rows},
    plan::Plan,
};
use crate::{
    batch::{Batch, Origin, Span},
    column::{Decoded, Pick, gather},
    dataset::Dataset,
    decode::{DecodedGroup, Decoder},
    error::{Error, Problem, Result},
    reader::{OnError, ReaderOptions, Skipped, pool::Pool},
};

/// See the module.
#[derive(Debug)]
pub(crate) struct LaneReader {
    decoder: Arc<Decoder>,
    options: ReaderOptions,
    pool: Pool<Visit, Vec<Chunk>>,
    epoch: u64,
    order: Lanes,
    rank: u32,
    size: u32,
    /// Those of this worker, the lowest first.
    lanes: Vec<Lane>,
    /// Visits that lanes wait for, by number.
    asked: HashMap<u64, Visit>,
    /// The number of the next one.
    next_visit: u64,
    plan: Plan,
    skipped: Skipped,
}

impl LaneReader {
    /// A reader with nothing to read yet; see [`Self::assign`].
    ///
    /// # Errors
    /// As [`crate::Reader::new`].
    pub(crate) fn new(dataset: Arc<Dataset>, options: ReaderOptions) -> Result<Self> {
        let decoder = Arc::new(Decoder::new(dataset, &options)?);
        let threads = decoder.clone();
        let seed = options.shuffle.then_some(options.seed);
        let pool = Pool::new(options.threads, move |visit: &Visit| {
            visit.chunks(&threads, seed)
        })
        .map_err(Problem::Io)?;
        Ok(Self {
            plan: Plan::new(&decoder, options.memory),
            decoder,
            options,
            pool,
            epoch: 0,
            order: Lanes::new(0, 1),
            rank: 0,
            size: 1,
            lanes: Vec::new(),
            asked: HashMap::new(),
            next_visit: 0,
            skipped: Skipped::default(),
        })
    }

    /// Names and types of the columns of a batch.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.decoder.selection.schema
    }

    /// What could not be read, if options say to skip it.
    pub(crate) fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Bytes of rows in memory, with those that are asked for.
    pub(crate) fn memory(&self) -> u64 {
        self.plan.bytes()
    }

    /// How often a row group is decoded in an epoch, about: 1 at best.
    pub(crate) fn passes(&self) -> f64 {
        self.plan.passes(self.lanes.len())
    }

    /// From now on reads the lanes of `rank` of so many workers, from a position of this epoch on: at the start of an epoch, after
    /// a change of the workers, after a rollback. Rows that are in memory and still to come stay there.
    pub(crate) fn assign(&mut self, epoch: u64, order: Lanes, rank: u32, size: u32, at: u64) {
        let former = std::mem::take(&mut self.lanes);
        let same = (epoch, order) == (self.epoch, self.order);
        let mut former = former.into_iter().filter(|_| same).peekable();
        for (number, rest) in order.ahead(at, rank, size) {
            while former.next_if(|lane| lane.number < number).is_some() {}
            let lane = match former.next_if(|lane| lane.number == number) {
                Some(former) => former.starting(rest.start),
                None => Lane::new(&order, number, rest),
            };
            self.lanes.push(lane);
        }
        (self.epoch, self.order, self.rank, self.size) = (epoch, order, rank, size);
        let wanted: HashSet<u64> = self.lanes.iter().flat_map(Lane::visits).collect();
        self.asked.retain(|number, _| wanted.contains(number));
        self.pool.retain(|visit| wanted.contains(&visit.number));
        self.plan.begin();
        for (place, lane) in self.lanes.iter().enumerate() {
            self.plan.holds(lane.bytes());
            self.plan
                .add(lane.needs_at(lane.planned(), order.lanes()), place);
        }
    }

    /// The rows of this worker at the positions `step` of the epoch, in their order. Steps follow each other.
    ///
    /// With a predicate a batch has fewer rows than positions. Waits for what is not decoded yet.
    ///
    /// # Errors
    /// A row group that cannot be read, by the name of file, row group and column. Nothing has changed then: no row is lost,
    /// and calling again tries again.
    pub(crate) fn next_batch(&mut self, line: &Line, step: Range<u64>) -> Result<Batch> {
        self.ask(line);
        let own: Vec<(usize, u64)> = (self.order.share(step, self.rank, self.size))
            .map(|position| self.find(position))
            .collect();
        for (place, row) in &own {
            self.wait_for(line, *place, *row)?;
        }
        let batch = self.gather(&own);
        for (place, row) in own {
            let lane = &mut self.lanes[place];
            lane.mark = None;
            if batch.is_ok() {
                self.plan.gone(lane.pass(row + 1));
            }
        }
        self.ask(line);
        batch
    }

    /// Where the row at a position is: the place of its lane among those of this worker, and the row on the line.
    fn find(&self, position: u64) -> (usize, u64) {
        let lane = position % self.order.lanes();
        let place = (lane - u64::from(self.rank)) / u64::from(self.size);
        (place as usize, self.order.row(position))
    }

    /// Asks for what comes next in all lanes, as far as memory goes.
    fn ask(&mut self, line: &Line) {
        let mut visits: Vec<(u32, Vec<Cut>)> = Vec::new();
        let mut of_group: HashMap<u32, usize> = HashMap::new();
        while let Some((at, place)) = self.plan.first() {
            let lane = &self.lanes[place];
            let needs_at = lane.needs_at(lane.planned(), self.order.lanes());
            if needs_at != Some(at) {
                self.plan.remove_first();
                self.plan.add(needs_at, place);
                continue;
            }
            let Some(cut) = self.next_cut(line, place) else {
                self.plan.remove_first();
                continue;
            };
            let bytes = self.plan.estimate(cut.piece.rows().into());
            if !self.plan.has_room(bytes) {
                break;
            }
            let group = cut.piece.group;
            let visit = *of_group.entry(group).or_insert_with(|| {
                visits.push((group, Vec::new()));
                visits.len() - 1
            });
            self.expect(place, &cut, self.next_visit + visit as u64, bytes);
            visits[visit].1.push(cut);
            self.plan.remove_first();
            let lane = &self.lanes[place];
            (self.plan).add(lane.needs_at(lane.planned(), self.order.lanes()), place);
        }
        for (group, cuts) in visits {
            self.visit(group, cuts);
        }
    }

    /// The next part of a lane that is not asked for.
    fn next_cut(&self, line: &Line, place: usize) -> Option<Cut> {
        let lane = &self.lanes[place];
        let Stretch { mut piece, at } = line.stretches(lane.planned()..lane.rest.end).next()?;
        let most = if lane.is_new {
            self.plan.first_rows(self.lanes.len(), piece.group)
        } else {
            self.plan.rows(self.lanes.len())
        };
        piece.hi = piece.lo + u64::from(piece.rows()).min(most) as u32;
        let lane = lane.number;
        Some(Cut { lane, piece, at })
    }

    /// A part of a lane is on its way.
    fn expect(&mut self, place: usize, cut: &Cut, visit: u64, bytes: u64) {
        self.plan.holds(bytes);
        let lane = &mut self.lanes[place];
        lane.is_new = false;
        lane.parts.push_back(Part {
            range: cut.at..cut.at + u64::from(cut.piece.rows()),
            bytes,
            rows: Rows::Asked(visit),
        });
    }

    /// Has a row group decoded.
    fn visit(&mut self, group: u32, cuts: Vec<Cut>) {
        let visit = Visit {
            number: self.next_visit,
            epoch: self.epoch,
            group,
            cuts: cuts.into(),
        };
        self.next_visit += 1;
        self.asked.insert(visit.number, visit.clone());
        self.pool.want(visit);
    }

    /// Waits until a row of a lane is in memory.
    fn wait_for(&mut self, line: &Line, place: usize, row: u64) -> Result<()> {
        loop {
            let lane = &self.lanes[place];
            let Some(part) = lane.part_of(row) else {
                let Some(cut) = self.next_cut(line, place) else {
                    return Err(Problem::Corrupt(format!("row {row} is not on the line")).into());
                };
                let bytes = self.plan.estimate(cut.piece.rows().into());
                self.expect(place, &cut, self.next_visit, bytes);
                self.visit(cut.piece.group, vec![cut]);
                continue;
            };
            let Rows::Asked(number) = lane.parts[part].rows else {
                return Ok(());
            };
            let visit = self.asked[&number].clone();
            let chunks = match self.pool.take(&visit) {
                Ok(chunks) => chunks,
                Err(error) if self.options.on_error == OnError::Skip => self.skip(&visit, error),
                Err(error) => return Err(error),
            };
            self.asked.remove(&number);
            for chunk in chunks {
                self.deliver(number, chunk);
            }
        }
    }

    fn deliver(&mut self, visit: u64, chunk: Chunk) {
        let (rows, bytes) = (chunk.cut.piece.rows().into(), chunk.bytes());
        let number = chunk.cut.lane;
        let place = number
            .checked_sub(self.rank.into())
            .map_or(0, |lane| lane / u64::from(self.size));
        // Else the lane is another worker's by now.
        if let Some(lane) = self.lanes.get_mut(place as usize)
            && lane.number == number
        {
            let more = lane.take(visit, chunk);
            self.plan.came(rows, bytes, more);
        }
    }

    /// Counts what cannot be read as processed.
    fn skip(&mut self, visit: &Visit, error: Error) -> Vec<Chunk> {
        let rows: u64 = visit
            .cuts
            .iter()
            .map(|cut| u64::from(cut.piece.rows()))
            .sum();
        tracing::warn!(%error, rows, "skipped");
        self.skipped.pieces += visit.cuts.len() as u64;
        self.skipped.rows += rows;
        self.skipped.last = Some(error);
        visit.nothing()
    }

    /// Copies rows of lanes together, all of which are in memory.
    fn gather(&mut self, own: &[(usize, u64)]) -> Result<Batch> {
        let (mut picks, mut origins) =
            (Vec::with_capacity(own.len()), Vec::with_capacity(own.len()));
        let (mut spans, mut sources): (Vec<Span>, Vec<(usize, usize)>) = Default::default();
        for &(place, row) in own {
            let lane = &mut self.lanes[place];
            let part = match lane.mark {
                Some(mark) if row < lane.parts[mark.part].range.end => mark.part,
                Some(mark) => mark.part + 1,
                None => lane.part_of(row).unwrap_or(0),
            };
            let Rows::Here(chunk) = &lane.parts[part].rows else {
                return Err(Problem::Corrupt("rows that are not in memory".to_owned()).into());
            };
            let offset = (row - chunk.cut.at) as u32;
            let mut mark = match lane.mark {
                Some(mark) if mark.part == part => mark,
                _ => {
                    let position = chunk.cut.piece.lo + offset;
                    spans.push(Span {
                        group: chunk.cut.piece.group,
                        lo: position,
                        hi: position,
                    });
                    Mark {
                        part,
                        span: (spans.len() - 1) as u32,
                        source: None,
                    }
                }
            };
            spans[mark.span as usize].hi += 1;
            if let Some(row) = chunk.row(offset) {
                let source = *mark.source.get_or_insert_with(|| {
                    sources.push((place, part));
                    (sources.len() - 1) as u32
                });
                let span = mark.span;
                picks.push(Pick {
                    source,
                    row: offset,
                });
                origins.push(Origin { span, row });
            }
            lane.mark = Some(mark);
        }
        let groups: Vec<&DecodedGroup> = (sources.iter())
            .filter_map(
                |(place, part)| match &self.lanes[*place].parts[*part].rows {
                    Rows::Here(chunk) => chunk.data.as_ref(),
                    Rows::Asked(_) => None,
                },
            )
            .collect();
        let columns = (self.schema().fields().iter().enumerate())
            .map(|(number, field)| {
                let sources: Vec<&Decoded> =
                    groups.iter().map(|group| &group.columns[number]).collect();
                gather(field, &sources, &picks)
            })
            .collect::<Result<_>>()?;
        Ok(Batch {
            schema: self.schema().clone(),
            columns,
            rows: origins,
            spans,
        })
    }
}
