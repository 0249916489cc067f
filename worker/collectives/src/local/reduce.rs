//! Reductions within a host.

use std::{ops::Range, time::Instant};

use super::{
    barrier::{Failure, Local},
    slices::share,
};
use crate::{
    element::Element,
    kernels::stream::{self, LARGE},
    reduction::{Finish, Op},
    region::SLICE,
    signature::CallSignature,
};

/// Up to this many bytes, the last member to arrive reduces alone: one barrier instead of two.
pub(crate) const SMALL: usize = 16 << 10;

/// The input of a reduction and the destination of its result.
#[derive(Debug)]
pub(crate) enum Buffers<'a, T> {
    /// The result replaces the data.
    InPlace(&'a mut [T]),
    /// The result goes to another buffer, or this member does not need it.
    Apart(&'a [T], Option<&'a mut [T]>),
}

impl<T> Buffers<'_, T> {
    fn input(&self) -> &[T] {
        match self {
            Self::InPlace(data) => data,
            Self::Apart(input, _) => input,
        }
    }

    fn output(&mut self) -> Option<&mut [T]> {
        match self {
            Self::InPlace(data) => Some(data),
            Self::Apart(_, output) => output.as_deref_mut(),
        }
    }
}

impl Local {
    /// Reduces the members' inputs, in order of their ranks, into the outputs of those that have one.
    pub(crate) fn reduce<T: Element>(
        &mut self,
        call: &CallSignature,
        deadline: Option<Instant>,
        mut data: Buffers<'_, T>,
        op: Op,
        finish: Finish,
    ) -> Result<(), Failure> {
        let len = data.input().len();
        let unit = size_of::<T>();
        if size_of_val(data.input()) <= SMALL {
            self.write_input(data.input());
            self.barrier(Some(call), deadline, |local| {
                // SAFETY: all members wait in this barrier.
                unsafe { local.reduce_all::<T>(len, op, finish) };
            })?;
            if let Some(output) = data.output() {
                self.read_output(output, false);
            }
            return Ok(());
        }
        let large = size_of_val(data.input()) >= LARGE;
        let mut slice = self.slices.next(0, len, unit);
        self.write_input_except_share(data.input(), &slice);
        self.barrier(Some(call), deadline, |_| {})?;
        loop {
            self.reduce_share(data.input(), &slice, op, finish);
            let next = (slice.end < len).then(|| self.slices.next(slice.end, len, unit));
            if let Some(next) = &next {
                self.write_input_except_share(data.input(), next);
            }
            self.barrier(None, deadline, |_| {})?;
            if let Some(output) = data.output() {
                self.read_output(&mut output[slice], large);
            }
            match next {
                Some(next) => slice = next,
                None => return Ok(()),
            }
        }
    }

    /// Reduces a small message in one barrier. Before the members read the result, the leader
    /// exchanges it with the other hosts in `between`.
    pub(crate) fn reduce_small_with<T: Element, E: From<Failure>>(
        &mut self,
        call: &CallSignature,
        deadline: Option<Instant>,
        data: &mut [T],
        op: Op,
        finish: Finish,
        between: Option<impl FnOnce(&mut [T]) -> Result<(), E>>,
    ) -> Result<(), E> {
        debug_assert!(size_of_val(data) <= SMALL);
        self.write_input(data);
        let len = data.len();
        let work = between.map(|between| {
            move |local: &Self| {
                // SAFETY: all members wait in this barrier, so only this one touches the buffers.
                unsafe {
                    local.reduce_all::<T>(len, op, finish);
                    let output = local.map.output(local.write_parity()).cast::<T>();
                    between(std::slice::from_raw_parts_mut(output, len))
                }
            }
        });
        self.leader_barrier(Some(call), deadline, work)?;
        self.read_output(data, false);
        Ok(())
    }

    /// Reduces `input` (`count * output.len()` elements, one block per member) and leaves this
    /// member's block in `output`.
    pub(crate) fn reduce_scatter<T: Element>(
        &mut self,
        call: &CallSignature,
        deadline: Option<Instant>,
        input: &[T],
        output: &mut [T],
        op: Op,
        finish: Finish,
    ) -> Result<(), Failure> {
        let block = output.len();
        let unit = size_of::<T>() * self.count as usize;
        let mut part = self.slices.next(0, block, unit);
        self.write_blocks(input, block, &part);
        self.barrier(Some(call), deadline, |_| {})?;
        loop {
            let next = (part.end < block).then(|| self.slices.next(part.end, block, unit));
            if let Some(next) = &next {
                self.write_blocks(input, block, next);
            }
            let stride = stride::<T>(self.count);
            let sources: Vec<*const T> = (0..self.count)
                .map(|member| {
                    if member == self.me {
                        return input[self.me as usize * block + part.start..].as_ptr();
                    }
                    let theirs = self.map.input(member, self.read_parity()).cast::<T>();
                    // SAFETY: `count` strides lie within an input buffer.
                    unsafe { theirs.add(stride * self.me as usize).cast_const() }
                })
                .collect();
            // SAFETY: L1: the inputs of the last barrier's parity are not written now; `input` is
            // borrowed; a part is at most a stride long, and `output` is none of them.
            unsafe { T::reduce(op, &mut output[part], &sources, finish) };
            match next {
                Some(next) => {
                    self.barrier(None, deadline, |_| {})?;
                    part = next;
                }
                None => return Ok(()),
            }
        }
    }

    /// The leader's `input` holds a block for each member. Each member receives its block.
    pub(crate) fn scatter<T: Element>(
        &mut self,
        deadline: Option<Instant>,
        input: Option<&[T]>,
        output: &mut [T],
    ) -> Result<(), Failure> {
        let block = output.len();
        let unit = size_of::<T>() * self.count as usize;
        let mut done = 0;
        while done < block {
            let part = self.slices.next(done, block, unit);
            done = part.end;
            if let Some(input) = input {
                self.write_blocks(input, block, &part);
                output[part.clone()].copy_from_slice(&input[part.clone()]);
            }
            self.barrier(None, deadline, |_| {})?;
            if input.is_none() {
                let offset = stride::<T>(self.count) * self.me as usize;
                let output = &mut output[part];
                // SAFETY: L1: the leader's buffer of the last barrier's parity is not written now;
                // `count` strides lie within it, and a part is at most a stride long.
                unsafe {
                    let theirs = self
                        .map
                        .input(0, self.read_parity())
                        .cast::<T>()
                        .add(offset);
                    std::ptr::copy_nonoverlapping(theirs, output.as_mut_ptr(), output.len());
                }
            }
        }
        Ok(())
    }

    /// Copies a small message into this member's input buffer.
    fn write_input<T: Element>(&self, data: &[T]) {
        // SAFETY: L1: only this member writes its input of this parity now, and no member reads it;
        // a small message fits.
        unsafe {
            let mine = self.map.input(self.me, self.write_parity()).cast::<T>();
            std::ptr::copy_nonoverlapping(data.as_ptr(), mine, data.len());
        }
    }

    /// Copies a slice into this member's input buffer, except for the share that it reduces itself.
    fn write_input_except_share<T: Element>(&self, data: &[T], slice: &Range<usize>) {
        let my_share = share(slice, self.me, self.count, size_of::<T>());
        let mine = self.map.input(self.me, self.write_parity()).cast::<T>();
        for part in [slice.start..my_share.start, my_share.end..slice.end] {
            let part_data = &data[part.clone()];
            // SAFETY: L1: only this member writes its input of this parity now, and no member reads
            // it; a slice fits into a buffer.
            unsafe {
                let dst = mine.add(part.start - slice.start);
                std::ptr::copy_nonoverlapping(part_data.as_ptr(), dst, part_data.len());
            }
        }
    }

    /// Copies `part` of each block of `input`, except this member's own, into this member's input
    /// buffer.
    fn write_blocks<T: Element>(&self, input: &[T], block: usize, part: &Range<usize>) {
        let mine = self.map.input(self.me, self.write_parity()).cast::<T>();
        for member in (0..self.count).filter(|&member| member != self.me) {
            let offset = member as usize * block;
            let from = &input[offset + part.start..offset + part.end];
            // SAFETY: L1 as above; `count` strides lie within a buffer and a part is at most one.
            unsafe {
                let dst = mine.add(stride::<T>(self.count) * member as usize);
                std::ptr::copy_nonoverlapping(from.as_ptr(), dst, from.len());
            }
        }
    }

    /// Copies the start of the output buffer of the last barrier.
    pub(super) fn read_output<T: Element>(&self, data: &mut [T], large: bool) {
        // SAFETY: L1: no member writes the output of the last barrier's parity now; at most a slice
        // is read, and at least as much was written there.
        unsafe {
            let output = self.map.output(self.read_parity());
            stream::copy(output, data.as_mut_ptr().cast(), size_of_val(data), large);
        }
    }

    /// Reduces the inputs of the coming barrier into its output.
    ///
    /// # Safety
    /// All members must have arrived at the barrier and none may leave it meanwhile.
    unsafe fn reduce_all<T: Element>(&self, len: usize, op: Op, finish: Finish) {
        let parity = self.write_parity();
        let sources: Vec<*const T> = (0..self.count)
            .map(|member| self.map.input(member, parity).cast::<T>().cast_const())
            .collect();
        // SAFETY: no other member touches the buffers (the caller's promise), each of which fits a
        // small message, and they do not overlap.
        unsafe {
            let output = self.map.output(parity).cast::<T>();
            T::reduce(
                op,
                std::slice::from_raw_parts_mut(output, len),
                &sources,
                finish,
            );
        }
    }

    /// Reduces this member's share of `slice` into the output buffer.
    fn reduce_share<T: Element>(&self, data: &[T], slice: &Range<usize>, op: Op, finish: Finish) {
        let my_share = share(slice, self.me, self.count, size_of::<T>());
        if my_share.is_empty() {
            return;
        }
        let offset = my_share.start - slice.start;
        let sources: Vec<*const T> = (0..self.count)
            .map(|member| {
                if member == self.me {
                    return data[my_share.start..].as_ptr();
                }
                let theirs = self.map.input(member, self.read_parity()).cast::<T>();
                // SAFETY: a slice lies within a buffer.
                unsafe { theirs.add(offset).cast_const() }
            })
            .collect();
        // SAFETY: L1: the inputs of the last barrier's parity are not written now, and only this member
        // writes its share of the output; the buffers do not overlap.
        unsafe {
            let output = self.map.output(self.write_parity()).cast::<T>().add(offset);
            let output = std::slice::from_raw_parts_mut(output, my_share.len());
            T::reduce(op, output, &sources, finish);
        }
    }
}

/// Elements from one member's block to the next in an input buffer.
fn stride<T>(count: u32) -> usize {
    SLICE / size_of::<T>() / count as usize
}
