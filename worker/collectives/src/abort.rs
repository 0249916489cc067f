//! Aborting a round from any thread of the process.

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
    topology::Session,
};

/// Ends the collectives of a process, from any of its threads. Clones share their state.
///
/// Level-triggered: a session once aborted stays so, also for a group that connects later, and with
/// it all older sessions. It never waits for a collective: at most for another abort or connect.
#[derive(Clone, Default)]
pub struct Aborter {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    aborted: Option<Session>,
    targets: Vec<Weak<Target>>,
}

impl Aborter {
    /// One that has aborted nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Aborts `session` and all that are older: each call that blocks in such a group, or is made
    /// later, returns [`Error::Aborted`], on all members of this host if they share a region.
    pub fn abort(&self, session: Session) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.aborted = state.aborted.max(Some(session));
        state.targets.retain(|target| match target.upgrade() {
            None => false,
            Some(target) if target.session > session => true,
            Some(target) => {
                target.fire();
                false
            }
        });
    }

    /// The newest session that was aborted.
    pub fn aborted(&self) -> Option<Session> {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .aborted
    }

    pub(crate) fn register(
        &self,
        session: Session,
        region: Option<Arc<RegionMap>>,
    ) -> Result<Arc<Target>, Error> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(Error::system("eventfd"))?;
        let target = Arc::new(Target {
            session,
            fired: AtomicBool::new(false),
            event,
            region,
        });
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.aborted.is_some_and(|aborted| aborted >= session) {
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

/// What an abort reaches of one group.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) session: Session,
    fired: AtomicBool,
    /// Readable from the abort on; never read, so that it stays so.
    event: EventFd,
    pub(crate) region: Option<Arc<RegionMap>>,
}

impl Target {
    fn fire(&self) {
        // Release: who sees the flag sees all that led to the abort. The descriptor and the bells
        // wake who sleeps; who is awake looks at the flag or the bells before it sleeps.
        self.fired.store(true, Ordering::Release);
        if let Err(error) = self.event.write(1) {
            tracing::warn!(%error, "could not signal an abort to a waiting thread");
        }
        if let Some(region) = &self.region {
            abort_region(region);
        }
    }

    /// Why the group is over, when it is known that it is.
    pub(crate) fn reason(&self) -> Error {
        let session = self.session;
        match (self.fired.load(Ordering::Acquire), &self.region) {
            (false, Some(region)) => region.failure(session),
            _ => Error::Aborted { session },
        }
    }

    /// The reason to stop, if there is one: an abort here, or a failure or abort in the region. That a
    /// member left is none: it matters to who waits for it.
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

    const fn session(round: u64) -> Session {
        Session { epoch: 1, round }
    }

    #[test]
    fn an_abort_is_seen_by_who_comes_later_and_spares_newer_rounds() {
        let aborter = Aborter::new();
        let before = aborter.register(session(4), None).unwrap();
        let newer = aborter.register(session(6), None).unwrap();
        aborter.clone().abort(session(5));
        aborter.abort(session(3));
        let after = aborter.register(session(5), None).unwrap();
        assert!(before.check().is_err());
        assert!(after.check().is_err());
        assert!(newer.check().is_ok());
        aborter.abort(session(6));
        assert!(newer.check().is_err());
        assert_eq!(aborter.aborted(), Some(session(6)));
    }
}
