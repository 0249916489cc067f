//! Broadcasts and plain barriers within a host.

use std::{ops::Range, time::Instant};

use super::barrier::{Failure, Local};
use crate::{
    kernels::stream::{self, LARGE},
    signature::CallSignature,
};

impl Local {
    /// Waits until all members have arrived.
    pub(crate) fn wait_all(
        &mut self,
        call: &CallSignature,
        deadline: Option<Instant>,
    ) -> Result<(), Failure> {
        self.barrier(Some(call), deadline, |_| {})
    }

    /// Waits until all members have arrived and the leader has run `between`.
    pub(crate) fn wait_all_with<E: From<Failure>>(
        &mut self,
        call: &CallSignature,
        deadline: Option<Instant>,
        between: Option<impl FnOnce() -> Result<(), E>>,
    ) -> Result<(), E> {
        let work = between.map(|between| move |_: &Self| between());
        self.leader_barrier(Some(call), deadline, work)
    }

    /// Sends the data of member `root` to all. `call` is compared if it is given.
    pub(crate) fn broadcast(
        &mut self,
        call: Option<&CallSignature>,
        deadline: Option<Instant>,
        data: &mut [u8],
        root: u32,
    ) -> Result<(), Failure> {
        let mut slice = self.slices.next(0, data.len(), 1);
        if self.me == root {
            self.write_slice(data, &slice);
        }
        self.barrier(call, deadline, |_| {})?;
        loop {
            let parity = self.read_parity();
            let next = (slice.end < data.len()).then(|| self.slices.next(slice.end, data.len(), 1));
            if self.me != root {
                let large = data.len() >= LARGE;
                self.read_slice(root, parity, &mut data[slice], large);
            } else if let Some(next) = &next {
                self.write_slice(data, next);
            }
            match next {
                Some(next) => {
                    self.barrier(None, deadline, |_| {})?;
                    slice = next;
                }
                None => return Ok(()),
            }
        }
    }

    /// Broadcasts a message that fits the first slice in one barrier. In it, the leader runs
    /// `between` on the data in place: sends it to other hosts, or receives it from there.
    pub(crate) fn broadcast_small_with<E: From<Failure>>(
        &mut self,
        call: &CallSignature,
        deadline: Option<Instant>,
        data: &mut [u8],
        root: u32,
        is_root: bool,
        between: Option<impl FnOnce(&mut [u8]) -> Result<(), E>>,
    ) -> Result<(), E> {
        if is_root {
            self.write_slice(data, &(0..data.len()));
        }
        let len = data.len();
        let work = between.map(|between| {
            move |local: &Self| {
                let buffer = local.map.input(root, local.write_parity());
                // SAFETY: all members wait in this barrier, so only this one touches the buffer.
                between(unsafe { std::slice::from_raw_parts_mut(buffer, len) })
            }
        });
        self.leader_barrier(Some(call), deadline, work)?;
        if !is_root {
            self.read_slice(root, self.read_parity(), data, false);
        }
        Ok(())
    }

    /// Copies a slice into this member's input buffer.
    pub(super) fn write_slice(&self, data: &[u8], slice: &Range<usize>) {
        let data = &data[slice.clone()];
        // SAFETY: L1: only this member writes its input of this parity now, and no member reads it;
        // a slice fits into a buffer.
        unsafe {
            let mine = self.map.input(self.me, self.write_parity());
            std::ptr::copy_nonoverlapping(data.as_ptr(), mine, data.len());
        }
    }

    /// Copies the start of a member's input buffer of the last barrier.
    pub(super) fn read_slice(&self, member: u32, parity: usize, data: &mut [u8], large: bool) {
        debug_assert_eq!(parity, self.read_parity());
        // SAFETY: L1: no member writes buffers of the last barrier's parity now; a slice lies
        // within.
        unsafe {
            let theirs = self.map.input(member, parity);
            stream::copy(theirs, data.as_mut_ptr(), data.len(), large);
        }
    }
}
