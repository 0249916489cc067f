//! Allgather within a host.

use std::{ops::Range, time::Instant};

use super::barrier::{Failure, Local};
use crate::{call::Call, kernels::stream::LARGE};

impl Local {
    /// Brings each member's `own` bytes to all. `lens` are the members' sizes; `out(member)` is where
    /// that member's bytes go, exactly that many.
    pub(crate) fn allgather(
        &mut self,
        call: &Call,
        deadline: Option<Instant>,
        own: &[u8],
        lens: &[usize],
        out: &mut [&mut [u8]],
    ) -> Result<(), Failure> {
        debug_assert_eq!(lens.len(), self.count as usize);
        let longest = lens.iter().copied().max().unwrap_or(0);
        let large = lens.iter().sum::<usize>() >= LARGE;
        let mut part = self.slices.next(0, longest, 1);
        self.put_part(own, &part);
        self.barrier(Some(call), deadline, |_| {})?;
        loop {
            let reads = self.reads();
            let next = (part.end < longest).then(|| self.slices.next(part.end, longest, 1));
            if let Some(next) = &next {
                self.put_part(own, next);
            }
            for member in 0..self.count {
                let to = &mut out[member as usize];
                let part = clip(&part, lens[member as usize]);
                if member == self.me {
                    to[part.clone()].copy_from_slice(&own[part]);
                } else {
                    self.get(member, reads, &mut to[part], large);
                }
            }
            match next {
                Some(next) => {
                    self.barrier(None, deadline, |_| {})?;
                    part = next;
                }
                None => return Ok(()),
            }
        }
    }

    fn put_part(&self, own: &[u8], part: &Range<usize>) {
        self.put(own, &clip(part, own.len()));
    }
}

/// `part` of something that has only `len` bytes.
fn clip(part: &Range<usize>, len: usize) -> Range<usize> {
    part.start.min(len)..part.end.min(len)
}
