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
use crate::memfd::{self, PAGE};

/// The page of one worker process, as its agent sees it. Cheap to clone.
///
/// No call blocks. Give orders from one task: two tasks that hold different rounds at once would undo
/// each other's orders, though never stop a worker for ever.
#[derive(Clone, Debug)]
pub struct AgentPage {
    page: Page,
    fd: Arc<OwnedFd>,
    /// The newest round held + 1, so that a late order of an older one is refused.
    newest: Arc<AtomicU64>,
}

impl AgentPage {
    /// Makes the page of a new worker process.
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

    /// Holds a round: the worker stops at its next boundary until K is known. Returns the boundary that
    /// it may have passed, which K must exceed; 0 if it has not entered the round yet.
    ///
    /// A repeat changes nothing, also when K is known. `None` if a newer round was held here.
    pub fn hold(&self, round: Round) -> Option<Boundary> {
        let newest = round.0.saturating_add(1);
        if self.newest.fetch_max(newest, Ordering::SeqCst) > newest {
            return None;
        }
        let layout = self.layout();
        let word = layout.orders.hold.load(Ordering::SeqCst);
        if let Some(word) = hold::after_hold(word, round) {
            layout.orders.hold.store(word, Ordering::SeqCst);
            // A worker that waits by an older hold is in a round that is over: let it look.
            layout.ring();
        }
        Some(self.count(round))
    }

    /// Tells K to a held round: the boundary at which all members leave.
    ///
    /// `false` if the round is not held (withdrawn, or another one), if another K was told before, or if
    /// no boundary can have this number.
    pub fn set_leave_at(&self, round: Round, boundary: Boundary) -> bool {
        let Some(word) = hold::leave_at(round, boundary) else {
            return false;
        };
        let orders = &self.layout().orders;
        let told = orders.hold.compare_exchange(
            hold::held(round),
            word,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        match told {
            Ok(_) => {
                self.layout().ring();
                true
            }
            Err(before) => before == word,
        }
    }

    /// Takes a hold back, with or without K: who waits runs on. Nothing if the round is not held.
    pub fn withdraw(&self, round: Round) {
        let changed =
            self.layout()
                .orders
                .hold
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
                    hold::after_withdrawal(word, round)
                });
        if changed.is_ok() {
            self.layout().ring();
        }
    }

    /// Ends a round and all before it: the worker's next boundary, or the one it waits at, says so.
    pub fn abort(&self, round: Round) {
        self.layout().abort(round.0);
    }

    /// Lets the worker go on until then, on the clock [`boottime`](crate::boottime). Beyond it no boundary is passed and
    /// nothing is committed, until a later end is set; so it is also if this agent stands still. A page without one has no
    /// end.
    pub fn set_lease(&self, until: Duration) {
        self.layout().set_lease(until);
    }

    /// Says, from now on, that the host may go away. Nobody is woken for that.
    pub fn set_at_risk(&self) {
        self.layout().orders.risk.store(1, Ordering::Relaxed);
    }

    /// The boundary of a round that the worker has reached; 0 if it has not entered it.
    pub fn count(&self, round: Round) -> Boundary {
        hold::count_in(self.layout().progress.count.load(Ordering::SeqCst), round)
    }

    /// The round that the worker entered last.
    pub fn round(&self) -> Option<Round> {
        let word = self.layout().progress.round.load(Ordering::Acquire);
        word.checked_sub(1).map(Round)
    }

    /// What the worker does.
    pub fn phase(&self) -> Phase {
        phase_of(self.layout().life.phase.load(Ordering::SeqCst))
    }

    /// What the worker did when it began an orderly `exit()`; `None` if it has not.
    pub fn phase_at_exit(&self) -> Option<Phase> {
        phase_at_exit(self.layout().life.phase.load(Ordering::SeqCst))
    }

    /// Beats of the worker's own thread since it was attached.
    pub fn beats(&self) -> u64 {
        self.layout().beats.beats.load(Ordering::Relaxed)
    }

    /// Commits that the worker made in its life.
    pub fn commits(&self) -> u64 {
        self.layout().progress.commits.load(Ordering::Relaxed)
    }

    /// Steps that the worker counted in its life.
    pub fn steps(&self) -> u64 {
        self.layout().progress.steps.load(Ordering::Relaxed)
    }
}

impl AsFd for AgentPage {
    /// What the worker gets.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
