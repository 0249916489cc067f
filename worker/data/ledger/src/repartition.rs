//! Handing out what is left to the workers of a new round.

use std::collections::{BTreeMap, VecDeque};

use super::{Line, Share, quota::targets};

/// Whether a row group may be cut to make the shares even.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Split {
    /// It may: shares are even to the row.
    #[default]
    Rows,
    /// Row groups stay whole: a share exceeds its target by less than the largest row group.
    Never,
}

/// A worker of the last round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Former<'a> {
    /// What it had left at the commit that the job goes on from.
    pub share: &'a Share,
    /// Its host: any number that hosts do not share.
    pub host: u64,
    /// The zone of its host.
    pub zone: u64,
}

/// A worker of the new round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Which former worker it is; `None` if it is new.
    pub former: Option<usize>,
    /// How much it gets in proportion to the others: 1 each, unless their speeds differ.
    pub weight: u32,
    /// Its host.
    pub host: u64,
    /// The zone of its host.
    pub zone: u64,
}

/// Who reads what from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The shares of the new round, in the order of its members.
    pub shares: Vec<Share>,
    /// Rows that go to another worker.
    pub moved: u64,
}

/// Where a receiver looks for rows, the nearest first.
#[derive(Clone, Copy)]
enum Near {
    Host,
    Zone,
    Anywhere,
}

impl Near {
    /// What two workers have in common that are so near.
    fn place(self, host: u64, zone: u64) -> (u64, u64) {
        match self {
            Near::Host => (zone, host),
            Near::Zone => (zone, 0),
            Near::Anywhere => (0, 0),
        }
    }
}

/// Hands out the rows that are left, so that each member has its proportion within one row, and the fewest rows move.
///
/// With q, r = divmod(rows, members), L the rows of a survivor and O the rows of who is gone, no even plan moves fewer than
/// `O + sum(max(0, L - q)) - min(r, #(L > q))` rows; this one moves just as many (for weights: q of each member). It
/// makes at most one piece less than there are members. A donor keeps the front of its share, which is what it
/// has opened; who receives gets from its own host first, then from its zone.
///
/// O(r + m log m) for r ranges and m members, and with [`Split::Never`] a binary search in the line for each cut.
///
/// # Panics
/// If no member has a weight, or if two members say that they are the same former worker.
pub fn repartition(line: &Line, former: &[Former<'_>], members: &[Member], split: Split) -> Plan {
    let whole = (split == Split::Never).then_some(line);
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
    let targets = targets(total, &weights, &held);

    // What the survivors keep.
    let mut given = vec![Share::EMPTY; former.len()];
    for ((member, share), target) in members.iter().zip(&mut shares).zip(&targets) {
        if let Some(index) = member.former {
            given[index] = share.cut(*target, whole);
        }
    }
    for (index, former) in former.iter().enumerate() {
        if !survives[index] {
            given[index] = former.share.clone();
        }
    }
    let moved = given.iter().map(Share::rows).sum();

    let mut missing: Vec<u64> = (shares.iter().zip(&targets))
        .map(|(share, target)| target.saturating_sub(share.rows()))
        .collect();
    for near in [Near::Host, Near::Zone, Near::Anywhere] {
        let mut lots: BTreeMap<(u64, u64), VecDeque<usize>> = BTreeMap::new();
        for (index, former) in former.iter().enumerate() {
            if !given[index].is_empty() {
                lots.entry(near.place(former.host, former.zone))
                    .or_default()
                    .push_back(index);
            }
        }
        if lots.is_empty() {
            break;
        }
        for (receiver, member) in members.iter().enumerate() {
            let Some(lots) = lots.get_mut(&near.place(member.host, member.zone)) else {
                continue;
            };
            while missing[receiver] > 0
                && let Some(lot) = lots.front()
            {
                let lot = &mut given[*lot];
                let behind = lot.cut(missing[receiver], whole);
                missing[receiver] = missing[receiver].saturating_sub(lot.rows());
                shares[receiver].append(std::mem::replace(lot, behind));
                if lot.is_empty() {
                    lots.pop_front();
                }
            }
        }
    }
    debug_assert!(given.iter().all(Share::is_empty), "every row has a reader");
    Plan { shares, moved }
}
