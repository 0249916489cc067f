//! Aborts a round from any thread of the process.

use std::{
    fmt,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::{
    error::Error,
    region::{RegionMap, abort_region},
    round_id::RoundId,
};

/// Ends the collectives of a process, from any of its threads. Clones share their state.
///
/// Aborts are level-triggered. A round that was aborted stays aborted, together with all older
/// rounds, also for a group that connects later. An abort never waits for a collective. It waits at
/// most for another abort or a connect.
#[derive(Clone, Default)]
pub struct Aborter {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    aborted: Option<RoundId>,
    targets: Vec<Weak<Target>>,
}

impl Aborter {
    /// Creates an aborter that has aborted nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Aborts `round_id` and all older rounds. Each call that blocks in such a group, or is made
    /// later, returns [`Error::Aborted`]. If the members of this host share a region, this holds
    /// for all of them.
    pub fn abort(&self, round_id: RoundId) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.aborted = state.aborted.max(Some(round_id));
        state.targets.retain(|target| match target.upgrade() {
            None => false,
            Some(target) if target.round_id > round_id => true,
            Some(target) => {
                target.fire();
                false
            }
        });
    }

    /// The newest round that was aborted.
    pub fn aborted(&self) -> Option<RoundId> {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .aborted
    }

    pub(crate) fn register(
        &self,
        round_id: RoundId,
        region: Option<Arc<RegionMap>>,
    ) -> Result<Arc<Target>, Error> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(Error::system("eventfd"))?;
        let target = Arc::new(Target {
            round_id,
            fired: AtomicBool::new(false),
            event,
            region,
        });
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.aborted.is_some_and(|aborted| aborted >= round_id) {
            target.fire();
        } else {
            state.targets.retain(|target| target.strong_count() > 0);
            state.targets.push(Arc::downgrade(&target));
        }
        Ok(target)
    }
}

impl fmt::Debug for Aborter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aborter")
            .field("aborted", &self.aborted())
            .finish_non_exhaustive()
    }
}

/// The parts of one group that an abort reaches.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) round_id: RoundId,
    fired: AtomicBool,
    /// Readable from the abort on. It is never read, so it stays readable.
    event: EventFd,
    pub(crate) region: Option<Arc<RegionMap>>,
}

impl Target {
    fn fire(&self) {
        // Release: a thread that sees the flag also sees what led to the abort. The descriptor and
        // the event counts wake sleeping threads. Other threads check the flag or the event counts
        // before they sleep.
        self.fired.store(true, Ordering::Release);
        if let Err(error) = self.event.write(1) {
            tracing::warn!(%error, "could not signal an abort to a waiting thread");
        }
        if let Some(region) = &self.region {
            abort_region(region);
        }
    }

    /// The reason why the group is over. Call it only when the group is over.
    pub(crate) fn reason(&self) -> Error {
        let round_id = self.round_id;
        match (self.fired.load(Ordering::Acquire), &self.region) {
            (false, Some(region)) => region.failure(round_id),
            _ => Error::Aborted { round_id },
        }
    }

    /// Returns the reason to stop, if there is one: an abort of this process, or a failure or abort
    /// in the region. A member that left is no such reason: it concerns only the operations that
    /// wait for it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let aborted = |region: &Arc<RegionMap>| region.is_aborted();
        if self.fired.load(Ordering::Acquire) || self.region.as_ref().is_some_and(aborted) {
            return Err(self.reason());
        }
        Ok(())
    }

    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn round_id(round: u64) -> RoundId {
        RoundId { epoch: 1, round }
    }

    #[test]
    fn an_abort_holds_for_later_groups_and_spares_newer_rounds() {
        let aborter = Aborter::new();
        let before = aborter.register(round_id(4), None).unwrap();
        let newer = aborter.register(round_id(6), None).unwrap();
        aborter.clone().abort(round_id(5));
        aborter.abort(round_id(3));
        let after = aborter.register(round_id(5), None).unwrap();
        assert!(before.check().is_err());
        assert!(after.check().is_err());
        assert!(newer.check().is_ok());
        aborter.abort(round_id(6));
        assert!(newer.check().is_err());
        assert_eq!(aborter.aborted(), Some(round_id(6)));
    }
}
