//! The agent's side of a page.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use elasticrun_core::hold;
use elasticrun_protocol::{Boundary, Round};

use super::layout::{Error, Layout, Page, Phase, phase_at_exit, phase_of};
use crate::{
    liveness,
    memfd::{self, PAGE},
};

/// The agent's handle of the page of one worker process. Cheap to clone.
///
/// No call blocks. Only one task should write: two tasks that hold different rounds at once would undo each other's
/// holds, though never stop a worker for ever.
#[derive(Clone, Debug)]
pub struct AgentPage {
    page: Page,
    fd: Arc<OwnedFd>,
    /// The newest held round + 1, so that a late hold of an older one is refused.
    newest: Arc<AtomicU64>,
}

impl AgentPage {
    /// Creates the page of a new worker process.
    pub fn create() -> Result<Self, Error> {
        let fd = memfd::create("elasticrun-page", PAGE as u64)?;
        memfd::seal_size(&fd).map_err(Error::Seal)?;
        Ok(Self {
            page: Page::format(&fd)?,
            fd: Arc::new(fd),
            newest: Arc::default(),
        })
    }

    pub(crate) fn layout(&self) -> &Layout {
        self.page.layout()
    }

    /// Holds a round: the worker stops at its next boundary until K is known. Returns the boundary that the worker may
    /// have passed, which K must exceed; 0 if the worker has not entered the round yet.
    ///
    /// A repeat changes nothing, also when K is known. `None` if a newer round was held on this page.
    pub fn hold(&self, round: Round) -> Option<Boundary> {
        let newest = round.0.saturating_add(1);
        if self.newest.fetch_max(newest, Ordering::SeqCst) > newest {
            return None;
        }
        let layout = self.layout();
        let word = layout.control.hold.load(Ordering::SeqCst);
        if let Some(word) = hold::after_hold(word, round) {
            layout.control.hold.store(word, Ordering::SeqCst);
            // A worker that waits because of an older hold is in a round that is over. Wake it.
            layout.notify();
        }
        Some(self.count(round))
    }

    /// Sets K of a held round: the boundary at which all members leave.
    ///
    /// `false` if the round is not held (withdrawn, or another one), if another K was set before, or if no boundary can
    /// have this number.
    pub fn set_leave_at(&self, round: Round, boundary: Boundary) -> bool {
        let Some(word) = hold::leave_at(round, boundary) else {
            return false;
        };
        let control = &self.layout().control;
        let stored = control.hold.compare_exchange(
            hold::held(round),
            word,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        match stored {
            Ok(_) => {
                self.layout().notify();
                true
            }
            Err(before) => before == word,
        }
    }

    /// Withdraws a hold, with or without K. A waiting worker continues. Does nothing if the round is not held.
    pub fn withdraw(&self, round: Round) {
        let changed =
            self.layout()
                .control
                .hold
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
                    hold::after_withdrawal(word, round)
                });
        if changed.is_ok() {
            self.layout().notify();
        }
    }

    /// Aborts a round and all before it. The worker's next boundary, or the one it waits at, reports the abort.
    pub fn abort(&self, round: Round) {
        self.layout().abort(round.0);
    }

    /// Sets the end of the worker's lease, on the clock [`boottime`](crate::boottime). After it the worker passes no
    /// boundary and makes no commit until a later end is set. This holds also if the agent is suspended. Without a lease
    /// there is no limit.
    pub fn set_lease(&self, until: Duration) {
        self.layout().set_lease(until);
    }

    /// Marks the host as one that may go away, for good. Wakes no worker.
    pub fn set_at_risk(&self) {
        self.layout().control.risk.store(1, Ordering::Relaxed);
    }

    /// The boundary of a round that the worker has reached; 0 if it has not entered the round.
    pub fn count(&self, round: Round) -> Boundary {
        hold::count_in(self.layout().progress.count.load(Ordering::SeqCst), round)
    }

    /// The round that the worker entered last.
    pub fn round(&self) -> Option<Round> {
        let word = self.layout().progress.round.load(Ordering::Acquire);
        word.checked_sub(1).map(Round)
    }

    /// The phase of the worker.
    pub fn phase(&self) -> Phase {
        phase_of(self.layout().liveness.phase.load(Ordering::SeqCst))
    }

    /// The phase in which the worker began an orderly `exit()`; `None` if it has not.
    pub fn phase_at_exit(&self) -> Option<Phase> {
        phase_at_exit(self.layout().liveness.phase.load(Ordering::SeqCst))
    }

    /// Beats of the SDK's own thread in the worker since it attached.
    pub fn beats(&self) -> u64 {
        self.layout().beats.beats.load(Ordering::Relaxed)
    }

    /// The SDK's own thread in the worker; `None` if it does not live.
    pub fn owner(&self) -> Option<u32> {
        liveness::thread_of(self.layout().liveness.owner.load(Ordering::SeqCst))
    }

    /// Commits of the worker since its start.
    pub fn commits(&self) -> u64 {
        self.layout().progress.commits.load(Ordering::Relaxed)
    }

    /// Steps that the worker counted since its start.
    pub fn steps(&self) -> u64 {
        self.layout().progress.steps.load(Ordering::Relaxed)
    }
}

impl AsFd for AgentPage {
    /// The descriptor for the worker.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
