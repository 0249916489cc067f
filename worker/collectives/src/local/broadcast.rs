//! Broadcast and plain barriers within a host.

use std::{ops::Range, time::Instant};

use super::barrier::{Failure, Local};
use crate::{
    call::Call,
    kernels::stream::{self, LARGE},
};

impl Local {
    /// Waits until all members are here.
    pub(crate) fn wait_all(
        &mut self,
        call: &Call,
        deadline: Option<Instant>,
    ) -> Result<(), Failure> {
        self.barrier(Some(call), deadline, |_| {})
    }

    /// Waits until all members are here and the leader has done `between`.
    pub(crate) fn wait_all_with<E: From<Failure>>(
        &mut self,
        call: &Call,
        deadline: Option<Instant>,
        between: Option<impl FnOnce() -> Result<(), E>>,
    ) -> Result<(), E> {
        let work = between.map(|between| move |_: &Self| between());
        self.leader_barrier(Some(call), deadline, work)
    }

    /// Brings the data of member `root` to all. `call` is compared if it is given.
    pub(crate) fn broadcast(
        &mut self,
        call: Option<&Call>,
        deadline: Option<Instant>,
        data: &mut [u8],
        root: u32,
    ) -> Result<(), Failure> {
        let mut slice = self.slices.next(0, data.len(), 1);
        if self.me == root {
            self.put(data, &slice);
        }
        self.barrier(call, deadline, |_| {})?;
        loop {
            let reads = self.reads();
            let next = (slice.end < data.len()).then(|| self.slices.next(slice.end, data.len(), 1));
            if self.me != root {
                let large = data.len() >= LARGE;
                self.get(root, reads, &mut data[slice], large);
            } else if let Some(next) = &next {
                self.put(data, next);
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

    /// Broadcasts a message of at most a first slice in one barrier, in which the leader does
    /// `between` with the data in place: sends it to other hosts, or fills it from there.
    pub(crate) fn broadcast_small_with<E: From<Failure>>(
        &mut self,
        call: &Call,
        deadline: Option<Instant>,
        data: &mut [u8],
        root: u32,
        is_root: bool,
        between: Option<impl FnOnce(&mut [u8]) -> Result<(), E>>,
    ) -> Result<(), E> {
        if is_root {
            self.put(data, &(0..data.len()));
        }
        let len = data.len();
        let work = between.map(|between| {
            move |local: &Self| {
                let buffer = local.map.input(root, local.writes());
                // SAFETY: all members wait in this barrier, so only this one touches the buffer.
                between(unsafe { std::slice::from_raw_parts_mut(buffer, len) })
            }
        });
        self.leader_barrier(Some(call), deadline, work)?;
        if !is_root {
            self.get(root, self.reads(), data, false);
        }
        Ok(())
    }

    /// Copies a slice into this member's input buffer.
    pub(super) fn put(&self, data: &[u8], slice: &Range<usize>) {
        let data = &data[slice.clone()];
        // SAFETY: L1: this member alone writes its input of this parity now, and nobody reads it; a
        // slice fits into a buffer.
        unsafe {
            let mine = self.map.input(self.me, self.writes());
            std::ptr::copy_nonoverlapping(data.as_ptr(), mine, data.len());
        }
    }

    /// Copies the start of a member's input buffer of the last barrier.
    pub(super) fn get(&self, member: u32, parity: usize, data: &mut [u8], large: bool) {
        debug_assert_eq!(parity, self.reads());
        // SAFETY: L1: nobody writes buffers of the last barrier's parity now; a slice lies within.
        unsafe {
            let theirs = self.map.input(member, parity);
            stream::copy(theirs, data.as_mut_ptr(), data.len(), large);
        }
    }
}
