//! The message that the workers of a round exchange at its start.

use super::Disagreement;
use crate::{
    Malformed, Owner, ReadOrder,
    encoding::{put, take, take_word},
};

/// What a worker announces at the start of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundHello {
    /// The worker.
    pub owner: Owner,
    /// Its share in proportion to the others. Ignored in order "deterministic".
    pub weight: u32,
    /// Rows of each step, of this worker or, in order "deterministic", of all workers. At least 1.
    pub batch: u32,
}

impl RoundHello {
    /// The encoded message, with the digest of the ledger, and whether the epoch ends with its last complete step.
    pub(super) fn encode(&self, digest: u64, drop_last: bool) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [digest, self.owner.id, self.owner.host, self.owner.zone] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        put(&mut out, self.weight.into());
        put(&mut out, self.batch.into());
        // Earlier releases end the message here.
        if drop_last {
            put(&mut out, 1);
        }
        out
    }

    /// The digest, the message, and whether the epoch ends with its last complete step.
    fn decode(mut from: &[u8]) -> Result<(u64, Self, bool), Malformed> {
        let from = &mut from;
        let digest = take_word(from)?;
        let [id, host, zone] = [take_word(from)?, take_word(from)?, take_word(from)?];
        let hello = Self {
            owner: Owner { id, host, zone },
            weight: to_u32(take(from)?)?,
            batch: to_u32(take(from)?)?,
        };
        let drop_last = !from.is_empty() && take(from)? == 1;
        match hello.batch {
            0 => Err(Malformed("a step of no rows would never end the epoch")),
            _ => Ok((digest, hello, drop_last)),
        }
    }
}

/// Decodes the messages of all workers, by rank. Each must have the digest `expected`.
pub(super) fn decode_all<B: AsRef<[u8]>>(
    all: &[B],
    expected: u64,
    order: ReadOrder,
    drop_last: bool,
) -> Result<Vec<RoundHello>, Disagreement> {
    let mut workers: Vec<RoundHello> = Vec::with_capacity(all.len());
    for (rank, bytes) in all.iter().map(AsRef::as_ref).enumerate() {
        let (digest, worker, drops) =
            RoundHello::decode(bytes).map_err(|why| Disagreement::Malformed { rank, why })?;
        if digest != expected {
            return Err(Disagreement::Diverged { rank });
        }
        if drops != drop_last {
            return Err(Disagreement::DropLast { rank });
        }
        workers.push(worker);
    }
    let mut ids: Vec<(u64, usize)> = (workers.iter().enumerate())
        .map(|(rank, worker)| (worker.owner.id, rank))
        .collect();
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Disagreement::DuplicateWorker(pair[0].1, pair[1].1));
    }
    match order {
        ReadOrder::Local(_) if workers.iter().all(|worker| worker.weight == 0) => {
            return Err(Disagreement::NoWeight);
        }
        ReadOrder::Deterministic(_) => {
            let batch = workers.first().map_or(0, |worker| worker.batch);
            if let Some(rank) = workers.iter().position(|worker| worker.batch != batch) {
                let other = workers[rank].batch;
                return Err(Disagreement::Batch { rank, other, batch });
            }
        }
        ReadOrder::Local(_) => {}
    }
    Ok(workers)
}

fn to_u32(number: u64) -> Result<u32, Malformed> {
    u32::try_from(number).map_err(|_| Malformed("a number is too large"))
}
