//! Allgathers.

use crate::{
    call::{Call, Kind},
    element::Element,
    error::Error,
    group::{Group, Run, Stop},
};

impl Group {
    /// Brings the `own` data of all members to all: `all` takes a block of `own.len()` elements from
    /// each rank, in order.
    ///
    /// # Errors
    /// [`Error::Argument`] if `all.len()` is not `size * own.len()`; else any of [`Error`].
    pub fn allgather<T: Element>(&mut self, own: &[T], all: &mut [T]) -> Result<(), Error> {
        let size = self.topology.size as usize;
        if all.len() != size * own.len() {
            return Err(Error::Argument(format!(
                "allgather over {size} ranks needs room for {size} x {} elements, not {}",
                own.len(),
                all.len()
            )));
        }
        let bytes = size_of_val(own);
        self.run(
            |sequence| {
                Call::new(
                    Kind::Allgather,
                    Some(T::DTYPE),
                    None,
                    0,
                    own.len(),
                    sequence,
                )
            },
            |group, run| {
                let own = bytemuck::cast_slice(own);
                group.gather_parts(run, own, &|_| bytes, bytemuck::cast_slice_mut(all))
            },
        )
    }

    /// Brings the `own` bytes of all members, of any number, to all, in order of rank.
    ///
    /// # Errors
    /// Any of [`Error`] but [`Error::Argument`].
    pub fn allgatherv(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let mut lens = vec![0u64; self.topology.size as usize];
        self.allgather(&[own.len() as u64], &mut lens)?;
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
                |sequence| Call::new(Kind::Allgatherv, None, None, 0, total, sequence),
                |group, run| group.gather_parts(run, own, &|rank| lens[rank as usize], &mut all),
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

    /// `len(rank)` is each rank's number of bytes; their sum is that of `all`.
    fn gather_parts(
        &mut self,
        run: Run<'_>,
        own: &[u8],
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
                local.allgather(run.call, run.deadline, own, &lens, &mut out)?;
            }
            None => all[host.clone()].copy_from_slice(own),
        }
        if topology.host_count == 1 {
            return Ok(());
        }
        if let Some(net) = &mut self.net {
            let bounds = net.bounds(len);
            net.allgather(run.order(), all, &bounds)?;
        }
        if let Some(local) = &mut self.local {
            for part in [0..host.start, host.end..all.len()] {
                if !part.is_empty() {
                    local.broadcast(None, run.deadline, &mut all[part], 0)?;
                }
            }
        }
        Ok(())
    }
}
