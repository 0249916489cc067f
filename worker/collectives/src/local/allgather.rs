//! Allgather within a host.

use std::{ops::Range, time::Instant};

use super::barrier::{Failure, Local};
use crate::{kernels::stream::LARGE, signature::CallSignature};

impl Local {
    /// Sends each member's `input` bytes to all. `lens` are the members' sizes. `out[member]`
    /// receives that member's bytes and has exactly its size.
    pub(crate) fn allgather(
        &mut self,
        call: &CallSignature,
        deadline: Option<Instant>,
        input: &[u8],
        lens: &[usize],
        out: &mut [&mut [u8]],
    ) -> Result<(), Failure> {
        debug_assert_eq!(lens.len(), self.count as usize);
        let longest = lens.iter().copied().max().unwrap_or(0);
        let large = lens.iter().sum::<usize>() >= LARGE;
        let mut part = self.slices.next(0, longest, 1);
        self.write_part(input, &part);
        self.barrier(Some(call), deadline, |_| {})?;
        loop {
            let parity = self.read_parity();
            let next = (part.end < longest).then(|| self.slices.next(part.end, longest, 1));
            if let Some(next) = &next {
                self.write_part(input, next);
            }
            for member in 0..self.count {
                let dst = &mut out[member as usize];
                let part = clip(&part, lens[member as usize]);
                if member == self.me {
                    dst[part.clone()].copy_from_slice(&input[part]);
                } else {
                    self.read_slice(member, parity, &mut dst[part], large);
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

    fn write_part(&self, input: &[u8], part: &Range<usize>) {
        self.write_slice(input, &clip(part, input.len()));
    }
}

/// The part of `part` that lies within the first `len` bytes.
fn clip(part: &Range<usize>, len: usize) -> Range<usize> {
    part.start.min(len)..part.end.min(len)
}
