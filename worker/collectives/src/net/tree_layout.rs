//! The shape of the tree, and the ranks of each host.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use super::wire::{Net, NetOperation};
use crate::{
    error::Error,
    signature::{CallSignature, OperationKind},
    topology::Topology,
};

/// The binomial tree rooted at host 0. The parent of a host is its index without the lowest set
/// bit. The hosts below one are a contiguous range that begins with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    pub(super) me: u32,
    pub(super) count: u32,
}

impl Tree {
    pub(super) fn parent(self) -> Option<u32> {
        (self.me > 0).then(|| self.me & (self.me - 1))
    }

    /// Children in ascending order.
    pub(super) fn children(self) -> impl DoubleEndedIterator<Item = u32> {
        let levels = if self.me == 0 {
            31
        } else {
            self.me.trailing_zeros()
        };
        let used = (0..levels)
            .filter(move |level| self.me | 1 << level < self.count)
            .count() as u32;
        (0..used).map(move |level| self.me | 1 << level)
    }

    /// The hosts at and below `host`.
    pub(super) fn below(self, host: u32) -> Range<u32> {
        let span = if host == 0 {
            self.count
        } else {
            host & host.wrapping_neg()
        };
        host..self.count.min(host.saturating_add(span))
    }
}

impl Net {
    pub(super) fn tree(&self) -> Tree {
        Tree {
            me: self.me,
            count: self.count,
        }
    }

    /// Distributes the layout of all hosts up and down the tree. This is the last step of
    /// connecting, so it returns when all leaders are connected.
    pub(super) fn exchange_layout(
        &mut self,
        topology: &Topology,
        all_here: bool,
        deadline: Instant,
        timeout: Duration,
    ) -> Result<(), Error> {
        let hosts = self.count as usize;
        let call = CallSignature::new(OperationKind::Places, None, None, 0, hosts, 0);
        let operation = NetOperation {
            call: &call,
            deadline: Some(deadline),
            timeout,
        };
        // For each host: its lowest rank, and whether all its neighbours are on its machine.
        let mut table = vec![[0u32; 2]; hosts];
        table[self.me as usize] = [topology.first_rank, u32::from(all_here)];
        let bounds: Vec<usize> = (0..=hosts).collect();
        let unit = size_of::<[u32; 2]>();
        self.tree_allgather(
            operation,
            bytemuck::cast_slice_mut(&mut table),
            &bounds,
            unit,
        )?;
        let first_ranks = table.iter().map(|host| host[0]);
        self.starts = first_ranks.chain([topology.size]).collect();
        self.one_machine = table.iter().all(|host| host[1] == 1);
        if !self.starts.is_sorted_by(|a, b| a < b) || self.starts[0] != 0 {
            return Err(Error::Config(format!(
                "the hosts of the round do not agree on their ranks: {:?}",
                self.starts
            )));
        }
        Ok(())
    }

    /// The host of a rank.
    pub(crate) fn host_of(&self, rank: u32) -> u32 {
        self.starts
            .partition_point(|&start| start <= rank)
            .saturating_sub(1) as u32
    }

    /// The offsets at which each host's part begins in a buffer with `unit(rank)` elements for each
    /// rank, and the end of the last part.
    pub(crate) fn bounds(&self, unit: impl Fn(u32) -> usize) -> Vec<usize> {
        let mut bounds = vec![0];
        let mut end = 0;
        for pair in self.starts.windows(2) {
            end += (pair[0]..pair[1]).map(&unit).sum::<usize>();
            bounds.push(end);
        }
        bounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_reaches_each_host_once() {
        for count in 1..40 {
            let mut seen = vec![0; count as usize];
            for me in 0..count {
                let tree = Tree { me, count };
                for child in tree.children() {
                    seen[child as usize] += 1;
                    assert_eq!(Tree { me: child, count }.parent(), Some(me));
                    assert!(tree.below(me).contains(&child));
                }
                let below: u32 = tree.children().map(|c| tree.below(c).len() as u32).sum();
                assert_eq!(below + 1, tree.below(me).len() as u32, "{me} of {count}");
            }
            assert_eq!(seen[0], 0);
            assert!(seen[1..].iter().all(|&times| times == 1), "{seen:?}");
        }
    }
}
