//! Who copies what from whom when a state is divided anew.
//!
//! Each member reads from its own memory what that has, then from other memory of its host. What no memory of a host has
//! comes over the network once. Members that need the same bytes pass them on to each other ([`Chain`]), if that is worth it.
//! For each set of shards that hold the same, a host or a chain reads from one holder: the one whose host has the fewest
//! bytes to send so far. So the load of two hosts with equal demands differs by one such set at most.
//!
//! The time to make a plan grows with tensors, workers, and the overlaps of each class. Tensors are of one class if they
//! are divided alike, in both layouts, and have equal lengths where they are cut. A transformer has some twenty classes.

mod cells;
mod chain;
mod choice;
mod divisions;
mod error;
mod fetch;
mod flows;
mod groups;
mod pieces;
mod runs;
mod sized_cells;

use std::collections::BTreeMap;

pub use chain::{Chain, Link, Relay};
pub use error::PlanError;
pub use fetch::Fetch;
pub use flows::{Flow, Flows, HostBytes};
pub use runs::{Run, Runs};

use self::{
    choice::{Choice, Demands},
    divisions::{Divisions, unit},
    sized_cells::SizedCells,
};
use crate::{Layout, Tensor};

/// A member of the new round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seat {
    /// Its shard of the new layout.
    pub shard: u32,
    /// Its host.
    pub host: u32,
    /// Its rank in the new round.
    pub rank: u32,
}

/// Memory that holds a shard of the old layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The shard.
    pub shard: u32,
    /// The host of the memory.
    pub host: u32,
    /// The rank in the new round of the member whose memory it is. `None` if its process is no member.
    pub rank: Option<u32>,
    /// Of holders that are equally good, the lowest is read.
    pub order: u32,
}

/// Tensors that only one of the layouts has, for example because an optimizer has made its states since.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Differences {
    /// Tensors of the new layout that the old one does not have. No fetch writes them.
    pub missing: Vec<u32>,
    /// Tensors of the old layout that the new one does not have. No fetch reads them.
    pub extra: Vec<u32>,
}

/// Who copies what from whom. All members make the same plan of the same input.
#[derive(Debug)]
pub struct Plan<'a> {
    old: &'a Layout,
    new: &'a Layout,
    seats: &'a [Seat],
    holders: &'a [Holder],
    old_cells: Divisions,
    new_cells: Divisions,
    pairs: Vec<Pair>,
    classes: Vec<Class>,
    differences: Differences,
    choice: Choice,
}

/// A tensor that both layouts have.
#[derive(Clone, Copy, Debug)]
struct Pair {
    new: u32,
    old: u32,
    class: u32,
}

/// Tensors that are divided alike and have equal lengths where they are cut.
#[derive(Debug)]
struct Class {
    /// Indices of their cells.
    old: u32,
    new: u32,
    /// The dimensions that one of the layouts cuts, and their lengths.
    dims: Vec<usize>,
    lens: Vec<u64>,
    /// Bytes of all tensors for each element of these dimensions.
    unit: u64,
}

impl<'a> Plan<'a> {
    /// A plan for the members of a new round, which hold `new`, of the holders of a commit, which is divided as `old`. Bytes
    /// that several members need are passed on if they are at least `least`; fewer are not worth the way through other hosts.
    ///
    /// # Errors
    /// If the layouts have a tensor of the same name that is not the same, if a shard is of another layout, or if no
    /// holder has something that a member needs.
    pub fn new(
        old: &'a Layout,
        new: &'a Layout,
        seats: &'a [Seat],
        holders: &'a [Holder],
        least: u64,
    ) -> Result<Self, PlanError> {
        let shards = new.shards();
        if let Some(&Seat { rank, shard, .. }) = seats.iter().find(|seat| seat.shard >= shards) {
            return Err(PlanError::Seat {
                rank,
                shard,
                shards,
            });
        }
        let shards = old.shards();
        if let Some(&Holder { shard, .. }) = holders.iter().find(|holder| holder.shard >= shards) {
            return Err(PlanError::Holder { shard, shards });
        }
        let (old_cells, new_cells) = (Divisions::new(old), Divisions::new(new));
        let mut plan = Self {
            choice: Choice::new(seats, holders, &old_cells.groups, &new_cells.groups),
            old,
            new,
            seats,
            holders,
            old_cells,
            new_cells,
            pairs: Vec::new(),
            classes: Vec::new(),
            differences: Differences::default(),
        };
        plan.match_tensors()?;
        plan.choose_holders(least)?;
        Ok(plan)
    }

    /// Tensors that only one of the layouts has.
    pub fn differences(&self) -> &Differences {
        &self.differences
    }

    /// The chains on which bytes are passed on. [`Fetch::chain`] is an index in this list.
    pub fn chains(&self) -> &[Chain] {
        self.choice.chains()
    }

    /// Finds the tensors that both layouts have, and their classes.
    fn match_tensors(&mut self) -> Result<(), PlanError> {
        let mut ids: BTreeMap<(u32, u32, Vec<u64>), u32> = BTreeMap::new();
        let mut old = (0..).zip(self.old.tensors()).peekable();
        for (new_index, new) in (0..).zip(self.new.tensors()) {
            while let Some((extra, _)) = old.next_if(|(_, old)| old.name < new.name) {
                self.differences.extra.push(extra);
            }
            let Some((old_index, old)) = old.next_if(|(_, old)| old.name == new.name) else {
                self.differences.missing.push(new_index);
                continue;
            };
            if old.shape != new.shape {
                return Err(PlanError::shape(old, new));
            }
            if old.dtype != new.dtype {
                return Err(PlanError::dtype(old, new));
            }
            let class = self.class_of(&mut ids, (old_index, new_index), new);
            self.pairs.push(Pair {
                new: new_index,
                old: old_index,
                class,
            });
        }
        self.differences.extra.extend(old.map(|(extra, _)| extra));
        Ok(())
    }

    /// The class of a tensor with these indices in both layouts.
    fn class_of(
        &mut self,
        ids: &mut BTreeMap<(u32, u32, Vec<u64>), u32>,
        (old, new): (u32, u32),
        tensor: &Tensor,
    ) -> u32 {
        let old = self.old_cells.by_tensor[old as usize];
        let new = self.new_cells.by_tensor[new as usize];
        let dims = |divisions: &Divisions, cells: u32| divisions.cells[cells as usize].dims.clone();
        let mut dims = [dims(&self.old_cells, old), dims(&self.new_cells, new)].concat();
        dims.sort_unstable();
        dims.dedup();
        let unit = unit(tensor, &dims);
        let lens: Vec<u64> = dims.iter().map(|&dim| tensor.shape[dim]).collect();
        let class = *ids
            .entry((old, new, lens))
            .or_insert_with_key(|(_, _, lens)| {
                let lens = lens.clone();
                self.classes.push(Class {
                    old,
                    new,
                    dims,
                    lens,
                    unit: 0,
                });
                self.classes.len() as u32 - 1
            });
        self.classes[class as usize].unit += unit;
        class
    }

    /// The cells of a class, in the old and the new layout.
    fn sized(&self, class: &Class) -> [SizedCells; 2] {
        let old = &self.old_cells.cells[class.old as usize];
        let new = &self.new_cells.cells[class.new as usize];
        [old, new].map(|cells| SizedCells::new(cells, &class.dims, &class.lens))
    }

    /// Chooses who sends what between hosts.
    fn choose_holders(&mut self, least: u64) -> Result<(), PlanError> {
        let mut demands = Demands::new();
        for class in self.classes.iter().filter(|class| class.unit > 0) {
            let old = &self.old_cells.cells[class.old as usize];
            let new = &self.new_cells.cells[class.new as usize];
            let [sources, targets] = self.sized(class);
            for (cell, &readers) in (0..).zip(&new.groups) {
                if !self.choice.is_read(readers) {
                    continue;
                }
                for overlap in sources.overlaps(&targets.intervals(cell)) {
                    let group = old.groups[overlap.cell as usize];
                    let holders = self.choice.holders(group);
                    if holders.is_empty() {
                        let shard = self.old_cells.groups.shards(group)[0];
                        return Err(PlanError::Lacking { shard });
                    }
                    let bytes = overlap.elements() * class.unit;
                    self.choice.demand(&mut demands, (group, readers), bytes);
                }
            }
        }
        self.choice.assign(self.holders, demands, least);
        Ok(())
    }
}
