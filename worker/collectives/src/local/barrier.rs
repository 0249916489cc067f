//! The barrier of one host.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use crate::{
    error::{Error, Record},
    local::slices::Slices,
    region::{EPOCH_STEP, RegionMap, Wake},
    signature::CallSignature,
    topology::Topology,
};

/// Checks of the eventcount before sleeping, where each member has a processor: about 10
/// microseconds.
const SPINS: u32 = 200;

/// One member's view of its host.
#[derive(Debug)]
pub(crate) struct Local {
    pub(super) map: Arc<RegionMap>,
    pub(crate) me: u32,
    pub(crate) count: u32,
    pub(crate) first_rank: u32,
    pub(super) slices: Slices,
    spins: u32,
    /// Number of the next barrier of this member.
    next: u32,
    /// Epoch of the release eventcount before that barrier.
    release_epoch: u32,
}

impl Local {
    pub(crate) fn new(map: Arc<RegionMap>, topology: &Topology) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        let fits = topology.local_count as usize <= processors;
        Self {
            map,
            me: topology.local_index,
            count: topology.local_count,
            first_rank: topology.first_rank,
            slices: Slices::new(),
            spins: if fits { SPINS } else { 0 },
            next: 1,
            release_epoch: 0,
        }
    }

    /// Parity of the buffers to write before the next barrier.
    pub(super) fn write_parity(&self) -> usize {
        (self.next & 1) as usize
    }

    /// Parity of the buffers to read after the last barrier.
    pub(super) fn read_parity(&self) -> usize {
        (self.next & 1 ^ 1) as usize
    }

    /// Passes a barrier. The last member to arrive runs `work` while the others wait.
    pub(super) fn barrier(
        &mut self,
        call: Option<&CallSignature>,
        deadline: Option<Instant>,
        work: impl FnOnce(&Self),
    ) -> Result<(), Failure> {
        if self.arrive(call)? {
            self.verify(call)?;
            work(self);
            self.release();
            return Ok(());
        }
        let wake = self
            .map
            .release()
            .wait(self.release_epoch, self.spins, deadline);
        self.passed(wake)
    }

    /// Passes a barrier that the leader completes. The leader runs `work` once all have arrived.
    /// The others pass `None`.
    pub(super) fn leader_barrier<E>(
        &mut self,
        call: Option<&CallSignature>,
        deadline: Option<Instant>,
        work: Option<impl FnOnce(&Self) -> Result<(), E>>,
    ) -> Result<(), E>
    where
        E: From<Failure>,
    {
        let leader_epoch = self.map.leader().epoch();
        let last = self.arrive(call)?;
        let Some(work) = work else {
            if last {
                self.map.leader().notify();
            }
            let wake = self
                .map
                .release()
                .wait(self.release_epoch, self.spins, deadline);
            return Ok(self.passed(wake)?);
        };
        if !last {
            match self.map.leader().wait(leader_epoch, self.spins, deadline) {
                Wake::Notified => {}
                Wake::Closed => return Err(Failure::Closed.into()),
                Wake::TimedOut => return Err(self.missing().into()),
            }
        }
        self.verify(call)?;
        work(self)?;
        self.release();
        Ok(())
    }

    fn arrive(&mut self, call: Option<&CallSignature>) -> Result<bool, Failure> {
        if self.map.release().is_closed() {
            return Err(Failure::Closed);
        }
        if let Some(call) = call {
            self.map.set_call(self.me, self.write_parity(), call);
        }
        self.map.set_waits_at(self.me, self.next);
        // L2: acquire, to see what earlier arrivals wrote; release, so that later arrivals see this
        // member's writes.
        let before = self.map.arrived().fetch_add(1, Ordering::AcqRel);
        Ok(before + 1 == self.count)
    }

    fn release(&mut self) {
        // Relaxed: no member counts itself in again before it has seen the notification that
        // follows.
        self.map.arrived().store(0, Ordering::Relaxed);
        self.map.release().notify();
        self.advance();
    }

    fn passed(&mut self, wake: Wake) -> Result<(), Failure> {
        match wake {
            Wake::Notified => {
                self.advance();
                Ok(())
            }
            Wake::Closed => Err(Failure::Closed),
            Wake::TimedOut => Err(self.missing()),
        }
    }

    fn advance(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.release_epoch = self.release_epoch.wrapping_add(EPOCH_STEP);
    }

    fn missing(&self) -> Failure {
        let absent = |member: &u32| self.map.waits_at(*member) != self.next;
        Failure::TimedOut(
            (0..self.count)
                .filter(absent)
                .map(|m| self.first_rank + m)
                .collect(),
        )
    }

    /// Compares the calls of all members. Only the member that completes a barrier does so.
    fn verify(&self, call: Option<&CallSignature>) -> Result<(), Failure> {
        let Some(mine) = call else { return Ok(()) };
        let parity = self.write_parity();
        for member in 0..self.count {
            let theirs = self.map.call(member, parity);
            if theirs == *mine {
                continue;
            }
            // Names the lowest rank that differs from the lowest rank.
            let first = self.map.call(0, parity);
            let (other, other_call) = (0..self.count)
                .map(|other| (other, self.map.call(other, parity)))
                .find(|(_, other_call)| *other_call != first)
                .unwrap_or((member, theirs));
            let error = Error::Mismatch {
                rank: self.first_rank,
                call: first,
                other_rank: self.first_rank + other,
                other_call,
            };
            self.map.fail(Record::from_error(&error));
            return Err(Failure::Closed);
        }
        Ok(())
    }
}

/// Why a barrier was not passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The region was aborted, or a member left. The region may hold the reason.
    Closed,
    /// These ranks did not arrive.
    TimedOut(Vec<u32>),
}
