//! Allgathers.

use crate::{
    element::Element,
    error::Error,
    group::{Group, Operation, Stop},
    signature::{CallSignature, OperationKind},
};

impl Group {
    /// Sends the `input` of all members to all: `all` receives a block of `input.len()` elements
    /// from each rank, in rank order.
    ///
    /// # Errors
    /// [`Error::Argument`] if `all.len()` is not `size * input.len()`; else any of [`Error`].
    pub fn allgather<T: Element>(&mut self, input: &[T], all: &mut [T]) -> Result<(), Error> {
        let size = self.topology.size as usize;
        if all.len() != size * input.len() {
            return Err(Error::Argument(format!(
                "allgather over {size} ranks needs room for {size} x {} elements, not {}",
                input.len(),
                all.len()
            )));
        }
        let bytes = size_of_val(input);
        self.run(
            |sequence| {
                CallSignature::new(
                    OperationKind::Allgather,
                    Some(T::DTYPE),
                    None,
                    0,
                    input.len(),
                    sequence,
                )
            },
            |group, operation| {
                let input = bytemuck::cast_slice(input);
                group.gather_parts(operation, input, &|_| bytes, bytemuck::cast_slice_mut(all))
            },
        )
    }

    /// Sends the `input` bytes of all members, whose lengths may differ, to all. The result is in
    /// rank order.
    ///
    /// # Errors
    /// Any of [`Error`] but [`Error::Argument`].
    pub fn allgatherv(&mut self, input: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let mut lens = vec![0u64; self.topology.size as usize];
        self.allgather(&[input.len() as u64], &mut lens)?;
        let lens: Vec<usize> = lens
            .into_iter()
            .map(|len| usize::try_from(len).unwrap_or(usize::MAX))
            .collect();
        let total = lens
            .iter()
            .fold(0, |sum: usize, len| sum.saturating_add(*len));
        let mut all = vec![0; total];
        if total > 0 {
            self.run(
                |sequence| {
                    CallSignature::new(OperationKind::Allgatherv, None, None, 0, total, sequence)
                },
                |group, operation| {
                    group.gather_parts(operation, input, &|rank| lens[rank as usize], &mut all)
                },
            )?;
        }
        let mut rest = &all[..];
        Ok(lens
            .into_iter()
            .map(|len| {
                let (part, after) = rest.split_at(len);
                rest = after;
                part.to_vec()
            })
            .collect())
    }

    /// `len(rank)` is the number of bytes of each rank. Their sum is the length of `all`.
    fn gather_parts(
        &mut self,
        operation: Operation<'_>,
        input: &[u8],
        len: &dyn Fn(u32) -> usize,
        all: &mut [u8],
    ) -> Result<(), Stop> {
        let topology = &self.topology;
        let before: usize = (0..topology.first_rank).map(len).sum();
        let lens: Vec<usize> = topology.local_ranks().map(len).collect();
        let host = before..before + lens.iter().sum::<usize>();
        match &mut self.local {
            Some(local) => {
                let mut out = Vec::with_capacity(lens.len());
                let mut rest = &mut all[host.clone()];
                for &len in &lens {
                    let (part, after) = rest.split_at_mut(len);
                    out.push(part);
                    rest = after;
                }
                local.allgather(operation.call, operation.deadline, input, &lens, &mut out)?;
            }
            None => all[host.clone()].copy_from_slice(input),
        }
        if topology.host_count == 1 {
            return Ok(());
        }
        if let Some(net) = &mut self.net {
            let bounds = net.bounds(len);
            net.allgather(operation.on_net(), all, &bounds)?;
        }
        if let Some(local) = &mut self.local {
            for part in [0..host.start, host.end..all.len()] {
                if !part.is_empty() {
                    local.broadcast(None, operation.deadline, &mut all[part], 0)?;
                }
            }
        }
        Ok(())
    }
}
