//! The barrier of one host.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use crate::{
    call::Call,
    error::{Error, Record},
    local::slices::Slices,
    region::{RING, RegionMap, Wake},
    topology::Topology,
};

/// Looks at the bell before sleeping, where each member has a processor: about 10 microseconds.
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
    /// Number of the barrier that this member comes to next.
    next: u32,
    /// Count of the release bell, as it is before that barrier.
    rings: u32,
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
            rings: 0,
        }
    }

    /// Parity of the buffers to write before the next barrier.
    pub(super) fn writes(&self) -> usize {
        (self.next & 1) as usize
    }

    /// Parity of the buffers to read after the last barrier.
    pub(super) fn reads(&self) -> usize {
        (self.next & 1 ^ 1) as usize
    }

    /// Passes a barrier. The last to arrive runs `work` while the others wait.
    pub(super) fn barrier(
        &mut self,
        call: Option<&Call>,
        deadline: Option<Instant>,
        work: impl FnOnce(&Self),
    ) -> Result<(), Failure> {
        if self.arrive(call)? {
            self.verify(call)?;
            work(self);
            self.release();
            return Ok(());
        }
        let wake = self.map.release().wait(self.rings, self.spins, deadline);
        self.passed(wake)
    }

    /// Passes a barrier that the leader completes: it runs `work` when all have arrived; the others
    /// pass `None`.
    pub(super) fn leader_barrier<E>(
        &mut self,
        call: Option<&Call>,
        deadline: Option<Instant>,
        work: Option<impl FnOnce(&Self) -> Result<(), E>>,
    ) -> Result<(), E>
    where
        E: From<Failure>,
    {
        let calls_for_leader = self.map.leader().rings();
        let last = self.arrive(call)?;
        let Some(work) = work else {
            if last {
                self.map.leader().ring();
            }
            let wake = self.map.release().wait(self.rings, self.spins, deadline);
            return Ok(self.passed(wake)?);
        };
        if !last {
            match self
                .map
                .leader()
                .wait(calls_for_leader, self.spins, deadline)
            {
                Wake::Rung => {}
                Wake::Over => return Err(Failure::Over.into()),
                Wake::TimedOut => return Err(self.missing().into()),
            }
        }
        self.verify(call)?;
        work(self)?;
        self.release();
        Ok(())
    }

    fn arrive(&mut self, call: Option<&Call>) -> Result<bool, Failure> {
        if self.map.release().is_over() {
            return Err(Failure::Over);
        }
        if let Some(call) = call {
            self.map.set_call(self.me, self.writes(), call);
        }
        self.map.set_waits_at(self.me, self.next);
        // L2: acquire, to see what the earlier arrivals wrote; release, so that later ones see ours.
        let before = self.map.arrived().fetch_add(1, Ordering::AcqRel);
        Ok(before + 1 == self.count)
    }

    fn release(&mut self) {
        // Relaxed: nobody counts itself in again before it has seen the ring that follows.
        self.map.arrived().store(0, Ordering::Relaxed);
        self.map.release().ring();
        self.advance();
    }

    fn passed(&mut self, wake: Wake) -> Result<(), Failure> {
        match wake {
            Wake::Rung => {
                self.advance();
                Ok(())
            }
            Wake::Over => Err(Failure::Over),
            Wake::TimedOut => Err(self.missing()),
        }
    }

    fn advance(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.rings = self.rings.wrapping_add(RING);
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

    /// Compares what all have called; only the member that completes a barrier does.
    fn verify(&self, call: Option<&Call>) -> Result<(), Failure> {
        let Some(mine) = call else { return Ok(()) };
        let parity = self.writes();
        for member in 0..self.count {
            let theirs = self.map.call(member, parity);
            if theirs == *mine {
                continue;
            }
            // Name the lowest rank that differs from the lowest rank.
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
            self.map.fail(Record::of(&error));
            return Err(Failure::Over);
        }
        Ok(())
    }
}

/// Why a barrier was not passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The region was aborted, or a member left; it may hold the reason.
    Over,
    /// These ranks did not come.
    TimedOut(Vec<u32>),
}
