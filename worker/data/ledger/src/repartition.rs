//! Divides the remaining rows among the workers of a new round.

use std::collections::{BTreeMap, VecDeque};

use super::{EpochLayout, Share, quota::quotas};

/// Whether a row group may be split to make shares even.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Split {
    /// Row groups are split: shares are even to the row.
    #[default]
    Rows,
    /// Row groups stay whole: a share exceeds its quota by less than the largest row group.
    Never,
}

/// A worker of the previous round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FormerMember<'a> {
    /// What it had left at the commit from which the job continues.
    pub share: &'a Share,
    /// Its host: any number that is unique to the host.
    pub host: u64,
    /// The zone of its host.
    pub zone: u64,
}

/// A worker of the new round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its index in the previous round; `None` if it is new.
    pub former: Option<usize>,
    /// Its share in proportion to the others: 1 each, unless speeds differ.
    pub weight: u32,
    /// Its host.
    pub host: u64,
    /// The zone of its host.
    pub zone: u64,
}

/// The result of a repartition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The shares of the new round, in the order of its members.
    pub shares: Vec<Share>,
    /// Rows that move to another worker.
    pub moved: u64,
}

/// Where a receiver looks for rows, nearest first.
#[derive(Clone, Copy)]
enum Locality {
    Host,
    Zone,
    Anywhere,
}

impl Locality {
    /// The key that two workers share if they are within this distance.
    fn key(self, host: u64, zone: u64) -> (u64, u64) {
        match self {
            Locality::Host => (zone, host),
            Locality::Zone => (zone, 0),
            Locality::Anywhere => (0, 0),
        }
    }
}

/// Divides the remaining rows: each member gets its proportion to within one row, and the fewest rows move.
///
/// Let q, r = divmod(rows, members), L the rows of a survivor and O the rows of departed workers. Every even plan
/// moves at least `O + sum(max(0, L - q)) - min(r, #(L > q))` rows, and this plan moves exactly that many. (With
/// weights, q is the proportion of each member.) The number of pieces grows by less than the number of members. A
/// donor keeps the front of its share, where its opened row groups are. A receiver takes rows from its own host first,
/// then from its zone.
///
/// O(r + m log m) for r ranges and m members. [`Split::Never`] adds a binary search in the layout for each split.
///
/// # Panics
/// If all weights are 0, or if two members name the same former worker.
pub fn repartition(
    layout: &EpochLayout,
    former: &[FormerMember<'_>],
    members: &[Member],
    split: Split,
) -> Plan {
    let whole = (split == Split::Never).then_some(layout);
    let total = former.iter().map(|former| former.share.rows()).sum();
    let mut survives = vec![false; former.len()];
    let mut shares: Vec<Share> = (members.iter())
        .map(|member| match member.former {
            Some(index) => {
                let twice = std::mem::replace(&mut survives[index], true);
                assert!(!twice, "two members are former worker {index}");
                former[index].share.clone()
            }
            None => Share::EMPTY,
        })
        .collect();
    let weights: Vec<u32> = members.iter().map(|member| member.weight).collect();
    let held: Vec<u64> = shares.iter().map(Share::rows).collect();
    let quotas = quotas(total, &weights, &held);

    // Survivors keep their quota and give away the rest.
    let mut given = vec![Share::EMPTY; former.len()];
    for ((member, share), quota) in members.iter().zip(&mut shares).zip(&quotas) {
        if let Some(index) = member.former {
            given[index] = share.split_off(*quota, whole);
        }
    }
    for (index, former) in former.iter().enumerate() {
        if !survives[index] {
            given[index] = former.share.clone();
        }
    }
    let moved = given.iter().map(Share::rows).sum();

    let mut missing: Vec<u64> = (shares.iter().zip(&quotas))
        .map(|(share, quota)| quota.saturating_sub(share.rows()))
        .collect();
    for locality in [Locality::Host, Locality::Zone, Locality::Anywhere] {
        let mut donors: BTreeMap<(u64, u64), VecDeque<usize>> = BTreeMap::new();
        for (index, former) in former.iter().enumerate() {
            if !given[index].is_empty() {
                donors
                    .entry(locality.key(former.host, former.zone))
                    .or_default()
                    .push_back(index);
            }
        }
        if donors.is_empty() {
            break;
        }
        for (receiver, member) in members.iter().enumerate() {
            let Some(donors) = donors.get_mut(&locality.key(member.host, member.zone)) else {
                continue;
            };
            while missing[receiver] > 0
                && let Some(donor) = donors.front()
            {
                let donor = &mut given[*donor];
                let behind = donor.split_off(missing[receiver], whole);
                missing[receiver] = missing[receiver].saturating_sub(donor.rows());
                shares[receiver].append(std::mem::replace(donor, behind));
                if donor.is_empty() {
                    donors.pop_front();
                }
            }
        }
    }
    debug_assert!(given.iter().all(Share::is_empty), "every row has a reader");
    Plan { shares, moved }
}
