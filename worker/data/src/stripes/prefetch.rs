//! What comes next is asked for, and waited for.

use std::collections::HashMap;

use elasticrun_ledger::{Line, Stretch};

use super::{
    StripeReader,
    chunk::{Chunk, Cut, Visit},
    stripe::{Part, Rows},
};
use crate::{
    error::{Error, Problem, Result},
    options::OnError,
};

impl StripeReader {
    /// Asks for what comes next in all stripes, as far as memory goes.
    pub(super) fn ask(&mut self, line: &Line) {
        let mut visits: Vec<(u32, Vec<Cut>)> = Vec::new();
        let mut of_group: HashMap<u32, usize> = HashMap::new();
        while let Some((at, place)) = self.plan.first() {
            let stripe = &self.stripes[place];
            let needs_at = stripe.needs_at(stripe.planned(), self.order.stripes());
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
            let stripe = &self.stripes[place];
            (self.plan).add(
                stripe.needs_at(stripe.planned(), self.order.stripes()),
                place,
            );
        }
        for (group, cuts) in visits {
            self.visit(group, cuts);
        }
    }

    /// The next part of a stripe that is not asked for.
    fn next_cut(&self, line: &Line, place: usize) -> Option<Cut> {
        let stripe = &self.stripes[place];
        let Stretch { mut piece, at } = line.stretches(stripe.planned()..stripe.rest.end).next()?;
        let most = if stripe.is_new {
            self.plan.first_rows(self.stripes.len(), piece.group)
        } else {
            self.plan.rows(self.stripes.len())
        };
        piece.hi = piece.lo + u64::from(piece.rows()).min(most) as u32;
        let stripe = stripe.number;
        Some(Cut { stripe, piece, at })
    }

    /// A part of a stripe is on its way.
    fn expect(&mut self, place: usize, cut: &Cut, visit: u64, bytes: u64) {
        self.plan.holds(bytes);
        let stripe = &mut self.stripes[place];
        stripe.is_new = false;
        stripe.parts.push_back(Part {
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

    /// Waits until a row of a stripe is in memory.
    pub(super) fn wait_for(&mut self, line: &Line, place: usize, row: u64) -> Result<()> {
        loop {
            let stripe = &self.stripes[place];
            let Some(part) = stripe.part_of(row) else {
                let Some(cut) = self.next_cut(line, place) else {
                    return Err(Problem::Corrupt(format!("row {row} is not on the line")).into());
                };
                let bytes = self.plan.estimate(cut.piece.rows().into());
                self.expect(place, &cut, self.next_visit, bytes);
                self.visit(cut.piece.group, vec![cut]);
                continue;
            };
            let Rows::Asked(number) = stripe.parts[part].rows else {
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
        let number = chunk.cut.stripe;
        let place = number
            .checked_sub(self.rank.into())
            .map_or(0, |stripe| stripe / u64::from(self.size));
        // Else the stripe is another worker's by now.
        if let Some(stripe) = self.stripes.get_mut(place as usize)
            && stripe.number == number
        {
            let more = stripe.take(visit, chunk);
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
}
