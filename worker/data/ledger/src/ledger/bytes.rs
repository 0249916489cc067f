//! Encoding of a ledger: what a commit stores about the data.

use super::{DatasetId, Ledger, Owner, Remaining};
use crate::{
    Malformed, Share,
    encoding::{disjoint, put, take, take_word},
};

/// Version of the encoding. In version 1, the digest of the data set does not cover its files.
const VERSION: u64 = 2;
pub(crate) const WITHOUT_FILES: u64 = 1;

impl Ledger {
    /// The encoded ledger. All workers that agree have the same bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let DatasetId {
            rows,
            groups,
            digest,
        } = self.identity;
        put(&mut out, VERSION);
        put(&mut out, rows);
        put(&mut out, groups.into());
        put(&mut out, digest);
        put(&mut out, self.seed.is_some().into());
        put(&mut out, self.seed.unwrap_or(0));
        put(&mut out, self.epoch);
        match &self.left {
            Remaining::Stripes { stripes, next } => {
                put(&mut out, (*stripes).into());
                put(&mut out, *next);
            }
            Remaining::Shares { owners, shares } => {
                put(&mut out, NO_STRIPES);
                put(&mut out, shares.len() as u64);
                for (owner, share) in owners.iter().zip(shares) {
                    for number in [owner.id, owner.host, owner.zone] {
                        out.extend_from_slice(&number.to_le_bytes());
                    }
                    share.encode(&mut out);
                }
            }
        }
        out
    }

    /// Decodes the output of [`Ledger::encode`].
    ///
    /// # Errors
    /// If the bytes do not decode, or violate invariant D1.
    pub fn decode(from: &[u8]) -> Result<Self, Malformed> {
        Self::decode_versioned(from).map(|(_, ledger)| ledger)
    }

    /// Decodes the output of [`Ledger::encode`], also of earlier releases. Returns its version as well.
    ///
    /// # Errors
    /// As [`Ledger::decode`].
    pub(crate) fn decode_versioned(mut from: &[u8]) -> Result<(u64, Self), Malformed> {
        let from = &mut from;
        let version = take(from)?;
        if ![WITHOUT_FILES, VERSION].contains(&version) {
            return Err(Malformed("it is of another version of elasticrun"));
        }
        let identity = DatasetId {
            rows: take(from)?,
            groups: u32::try_from(take(from)?).map_err(|_| Malformed("too many row groups"))?,
            digest: take(from)?,
        };
        let shuffled = take(from)? == 1;
        let seed = take(from)?;
        let epoch = take(from)?;
        let left = match take(from)? {
            NO_STRIPES => take_shares(from, identity.rows)?,
            stripes => Remaining::Stripes {
                stripes: u32::try_from(stripes).map_err(|_| Malformed("too many stripes"))?,
                next: take(from)?,
            },
        };
        if matches!(left, Remaining::Stripes { next, .. } if next > identity.rows) {
            return Err(BEYOND);
        }
        if !from.is_empty() {
            return Err(Malformed("something follows it"));
        }
        let ledger = Self {
            identity,
            seed: shuffled.then_some(seed),
            epoch,
            left,
        };
        Ok((version, ledger))
    }
}

/// In order "local", takes the place of the number of stripes.
const NO_STRIPES: u64 = 0;

pub(super) const BEYOND: Malformed = Malformed("a row is beyond the end of the epoch");

/// Decodes the owners and shares of an epoch with `rows` rows.
fn take_shares(from: &mut &[u8], rows: u64) -> Result<Remaining, Malformed> {
    let count = take(from)?;
    let (mut owners, mut shares) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let [id, host, zone] = [take_word(from)?, take_word(from)?, take_word(from)?];
        owners.push(Owner { id, host, zone });
        shares.push(Share::decode(from)?);
    }
    let all = || shares.iter().flat_map(Share::ranges).cloned();
    if all().any(|range| range.end > rows) {
        return Err(BEYOND);
    }
    disjoint(all())?;
    Ok(Remaining::Shares { owners, shares })
}
