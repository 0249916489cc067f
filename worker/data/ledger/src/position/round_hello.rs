//! What the workers of a round tell each other when it begins.

use super::Disagreement;
use crate::{
    Malformed, Order, Owner,
    encoding::{put, take, take_word},
};

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Introduction {
    /// Who this worker is.
    pub owner: Owner,
    /// How much it gets in proportion to the others. Nothing in order "deterministic".
    pub weight: u32,
    /// How many rows it takes at each step, or in order "deterministic" all workers together; not 0.
    pub batch: u32,
}

impl Introduction {
    /// As bytes, with what it says of the ledger.
    pub(super) fn encode(&self, digest: u64) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [digest, self.owner.id, self.owner.host, self.owner.zone] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        put(&mut out, self.weight.into());
        put(&mut out, self.batch.into());
        out
    }

    /// Digest and introduction.
    fn decode(mut from: &[u8]) -> Result<(u64, Self), Malformed> {
        let from = &mut from;
        let digest = take_word(from)?;
        let [id, host, zone] = [take_word(from)?, take_word(from)?, take_word(from)?];
        let introduction = Self {
            owner: Owner { id, host, zone },
            weight: small(take(from)?)?,
            batch: small(take(from)?)?,
        };
        match introduction.batch {
            0 => Err(Malformed("a step of no rows would never end the epoch")),
            _ => Ok((digest, introduction)),
        }
    }
}

/// Reads what all workers of a round have said, by rank, to one whose ledger has this digest.
pub(super) fn read_all<B: AsRef<[u8]>>(
    all: &[B],
    own: u64,
    order: Order,
) -> Result<Vec<Introduction>, Disagreement> {
    let mut workers: Vec<Introduction> = Vec::with_capacity(all.len());
    for (rank, bytes) in all.iter().map(AsRef::as_ref).enumerate() {
        let (digest, worker) =
            Introduction::decode(bytes).map_err(|why| Disagreement::Malformed { rank, why })?;
        if digest != own {
            return Err(Disagreement::Elsewhere { rank });
        }
        workers.push(worker);
    }
    let mut ids: Vec<(u64, usize)> = (workers.iter().enumerate())
        .map(|(rank, worker)| (worker.owner.id, rank))
        .collect();
    ids.sort_unstable();
    if let Some(twins) = ids.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Disagreement::Twins(twins[0].1, twins[1].1));
    }
    match order {
        Order::Local(_) if workers.iter().all(|worker| worker.weight == 0) => {
            return Err(Disagreement::NoWeight);
        }
        Order::Deterministic(_) => {
            let batch = workers.first().map_or(0, |worker| worker.batch);
            if let Some(rank) = workers.iter().position(|worker| worker.batch != batch) {
                let other = workers[rank].batch;
                return Err(Disagreement::Batch { rank, other, batch });
            }
        }
        Order::Local(_) => {}
    }
    Ok(workers)
}

fn small(number: u64) -> Result<u32, Malformed> {
    u32::try_from(number).map_err(|_| Malformed("a number is too large"))
}
