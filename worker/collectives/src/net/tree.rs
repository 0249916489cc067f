//! Small messages: up and down the binomial tree.

use rustix::event::PollFlags;

use super::{
    link::Progress,
    wire::{Net, NetOperation},
};
use crate::{
    element::Element,
    error::Error,
    reduction::{Finish, Op},
};

const UP: u32 = 0;
const DOWN: u32 = 1;

impl Net {
    /// Waits until all leaders have arrived.
    pub(crate) fn barrier(&mut self, operation: NetOperation<'_>) -> Result<(), Error> {
        self.tree_allreduce::<u8>(operation, &mut [], Op::Sum, Finish::Keep)
    }

    /// Reduces to host 0, in ascending order of the hosts below each, and sends the result down.
    pub(super) fn tree_allreduce<T: Element>(
        &mut self,
        operation: NetOperation<'_>,
        data: &mut [T],
        op: Op,
        finish: Finish,
    ) -> Result<(), Error> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(scratch.len().max(size_of_val(data) + size_of::<T>()), 0);
        let result = self.tree_allreduce_with(operation, data, op, finish, &mut scratch);
        self.scratch = scratch;
        result
    }

    fn tree_allreduce_with<T: Element>(
        &mut self,
        operation: NetOperation<'_>,
        data: &mut [T],
        op: Op,
        finish: Finish,
        scratch: &mut [u8],
    ) -> Result<(), Error> {
        let bytes = size_of_val(data);
        let other = aligned::<T>(scratch, data.len());
        if self.count == 2 {
            let peer = 1 - self.me;
            let received = bytemuck::cast_slice_mut(&mut other[..]);
            self.exchange(operation, peer, bytemuck::cast_slice(data), received)?;
            // Both compute host 0's value op host 1's, so that both have the same bits.
            if self.me == 0 {
                T::combine(op, data, other, finish);
            } else {
                T::combine(op, other, data, finish);
                data.copy_from_slice(other);
            }
            return Ok(());
        }
        let tree = self.tree();
        for child in tree.children() {
            let received = bytemuck::cast_slice_mut(&mut other[..]);
            self.receive(operation, child, UP, received)?;
            T::combine(op, data, other, Finish::Keep);
        }
        if let Some(parent) = tree.parent() {
            self.send(operation, parent, UP, bytemuck::cast_slice(data))?;
        } else {
            T::finish(data, finish);
        }
        debug_assert_eq!(bytes, size_of_val(data));
        self.hand_down(operation, bytemuck::cast_slice_mut(data))
    }

    /// Sends the root host's bytes to all, along the edges of the tree, away from the root.
    pub(super) fn tree_broadcast(
        &mut self,
        operation: NetOperation<'_>,
        data: &mut [u8],
        root: u32,
    ) -> Result<(), Error> {
        let tree = self.tree();
        let towards_root = if self.me == root {
            None
        } else if tree.below(self.me).contains(&root) {
            tree.children()
                .find(|&child| tree.below(child).contains(&root))
        } else {
            tree.parent()
        };
        if let Some(from) = towards_root {
            self.receive(operation, from, DOWN, data)?;
        }
        for to in tree.children().rev().chain(tree.parent()) {
            if Some(to) != towards_root {
                self.send(operation, to, DOWN, data)?;
            }
        }
        Ok(())
    }

    /// Sends the part of each host (between its bounds, in units of `unit` bytes) to all.
    pub(super) fn tree_allgather(
        &mut self,
        operation: NetOperation<'_>,
        data: &mut [u8],
        bounds: &[usize],
        unit: usize,
    ) -> Result<(), Error> {
        let tree = self.tree();
        let part = |host: u32| {
            let below = tree.below(host);
            bounds[below.start as usize] * unit..bounds[below.end as usize] * unit
        };
        for child in tree.children() {
            self.receive(operation, child, UP, &mut data[part(child)])?;
        }
        if let Some(parent) = tree.parent() {
            self.send(operation, parent, UP, &data[part(self.me)])?;
        }
        self.hand_down(operation, data)
    }

    fn hand_down(&mut self, operation: NetOperation<'_>, data: &mut [u8]) -> Result<(), Error> {
        let tree = self.tree();
        if let Some(parent) = tree.parent() {
            self.receive(operation, parent, DOWN, data)?;
        }
        for child in tree.children().rev() {
            self.send(operation, child, DOWN, data)?;
        }
        Ok(())
    }

    /// Sends and receives a frame of the same size at the same time.
    fn exchange(
        &mut self,
        operation: NetOperation<'_>,
        peer: u32,
        out: &[u8],
        into: &mut [u8],
    ) -> Result<(), Error> {
        let (mut sent, mut received) = (false, false);
        loop {
            sent = sent || self.push(operation, peer, UP, out)? == Progress::Done;
            received = received || self.pull(operation, peer, UP, into)? == Progress::Done;
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::OUT, !sent);
            wanted.set(PollFlags::IN, !received);
            if wanted.is_empty() {
                return Ok(());
            }
            self.wait(operation, &[(peer, wanted)])?;
        }
    }
}

/// `len` aligned elements within `scratch`, which must have space for one more.
pub(super) fn aligned<T: Element>(scratch: &mut [u8], len: usize) -> &mut [T] {
    let skip = scratch.as_ptr().align_offset(align_of::<T>());
    bytemuck::cast_slice_mut(&mut scratch[skip..skip + len * size_of::<T>()])
}
