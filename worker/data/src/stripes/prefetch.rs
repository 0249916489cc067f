//! Requests rows ahead of their use, and waits for them.

use std::collections::HashMap;

use elasticrun_ledger::{EpochLayout, Segment};

use super::{
    StripeReader,
    stripe::{Part, Rows},
    stripe_chunk::{ChunkRequest, DecodeJob, StripeChunk},
};
use crate::{
    error::{Error, Problem, Result},
    options::OnError,
};

impl StripeReader {
    /// Requests the next rows of all stripes, as far as memory allows.
    pub(super) fn prefetch(&mut self, layout: &EpochLayout) {
        let mut jobs: Vec<(u32, Vec<ChunkRequest>)> = Vec::new();
        let mut job_of_group: HashMap<u32, usize> = HashMap::new();
        while let Some((position, index)) = self.plan.peek() {
            let stripe = &self.stripes[index];
            let needed_at = stripe.needed_at(stripe.planned_end(), self.order.stripes());
            if needed_at != Some(position) {
                self.plan.pop();
                self.plan.push(needed_at, index);
                continue;
            }
            let Some(request) = self.next_request(layout, index) else {
                self.plan.pop();
                continue;
            };
            let bytes = self.plan.estimate(request.piece.rows().into());
            if !self.plan.fits(bytes) {
                break;
            }
            let group = request.piece.group;
            let job = *job_of_group.entry(group).or_insert_with(|| {
                jobs.push((group, Vec::new()));
                jobs.len() - 1
            });
            self.add_part(index, &request, self.next_job + job as u64, bytes);
            jobs[job].1.push(request);
            self.plan.pop();
            let stripe = &self.stripes[index];
            (self.plan).push(
                stripe.needed_at(stripe.planned_end(), self.order.stripes()),
                index,
            );
        }
        for (group, requests) in jobs {
            self.submit(group, requests);
        }
    }

    /// The next part of a stripe that is not requested yet.
    fn next_request(&self, layout: &EpochLayout, index: usize) -> Option<ChunkRequest> {
        let stripe = &self.stripes[index];
        let Segment { mut piece, start } = layout
            .segments(stripe.planned_end()..stripe.rest.end)
            .next()?;
        let max = if stripe.is_new {
            self.plan.first_rows(self.stripes.len(), piece.group)
        } else {
            self.plan.rows(self.stripes.len())
        };
        piece.hi = piece.lo + u64::from(piece.rows()).min(max) as u32;
        let stripe = stripe.number;
        Some(ChunkRequest {
            stripe,
            piece,
            start,
        })
    }

    /// Adds a requested part to a stripe.
    fn add_part(&mut self, index: usize, request: &ChunkRequest, job: u64, bytes: u64) {
        self.plan.reserve(bytes);
        let stripe = &mut self.stripes[index];
        stripe.is_new = false;
        stripe.parts.push_back(Part {
            range: request.start..request.start + u64::from(request.piece.rows()),
            bytes,
            rows: Rows::Requested(job),
        });
    }

    /// Submits a row group for decoding.
    fn submit(&mut self, group: u32, requests: Vec<ChunkRequest>) {
        let job = DecodeJob {
            number: self.next_job,
            epoch: self.epoch,
            group,
            requests: requests.into(),
        };
        self.next_job += 1;
        self.requested.insert(job.number, job.clone());
        self.pool.prefetch(job);
    }

    /// Waits until a row of a stripe is in memory.
    pub(super) fn wait_for(&mut self, layout: &EpochLayout, index: usize, row: u64) -> Result<()> {
        loop {
            let stripe = &self.stripes[index];
            let Some(part) = stripe.part_of(row) else {
                let Some(request) = self.next_request(layout, index) else {
                    return Err(Problem::Corrupt(format!("row {row} is not on the layout")).into());
                };
                let bytes = self.plan.estimate(request.piece.rows().into());
                self.add_part(index, &request, self.next_job, bytes);
                self.submit(request.piece.group, vec![request]);
                continue;
            };
            let Rows::Requested(number) = stripe.parts[part].rows else {
                return Ok(());
            };
            let job = self.requested[&number].clone();
            let chunks = match self.pool.wait(&job) {
                Ok(chunks) => chunks,
                Err(error) if self.options.on_error == OnError::Skip => self.skip(&job, error),
                Err(error) => return Err(error),
            };
            self.requested.remove(&number);
            for chunk in chunks {
                self.deliver(number, chunk);
            }
        }
    }

    fn deliver(&mut self, job: u64, chunk: StripeChunk) {
        let (rows, bytes) = (chunk.request.piece.rows().into(), chunk.bytes());
        let number = chunk.request.stripe;
        let index = number
            .checked_sub(self.rank.into())
            .map_or(0, |stripe| stripe / u64::from(self.size));
        // Otherwise the stripe belongs to another worker by now.
        if let Some(stripe) = self.stripes.get_mut(index as usize)
            && stripe.number == number
        {
            let more = stripe.load(job, chunk);
            self.plan.loaded(rows, bytes, more);
        }
    }

    /// Counts an unreadable row group as processed.
    fn skip(&mut self, job: &DecodeJob, error: Error) -> Vec<StripeChunk> {
        let rows: u64 = job
            .requests
            .iter()
            .map(|request| u64::from(request.piece.rows()))
            .sum();
        tracing::warn!(%error, rows, "skipped");
        self.skipped.pieces += job.requests.len() as u64;
        self.skipped.rows += rows;
        self.skipped.last = Some(error);
        job.empty_chunks()
    }
}
