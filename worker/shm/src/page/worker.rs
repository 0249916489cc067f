//! The worker's side of a page.

use std::{
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use elasticrun_core::hold::{self, Look, Verdict};
use elasticrun_protocol::{Boundary, Round};

use super::layout::{Error, Layout, Page, Phase, exiting, phase_of};
use crate::futex;

/// The page of this process. Cheap to clone; used by its training thread and by the SDK's own thread.
#[derive(Clone, Debug)]
pub struct WorkerPage {
    page: Page,
}

impl WorkerPage {
    /// Maps the page that the agent made; the descriptor is not needed afterwards.
    pub fn open(fd: &impl AsFd) -> Result<Self, Error> {
        Ok(Self {
            page: Page::open(fd)?,
        })
    }

    pub(crate) fn layout(&self) -> &Layout {
        self.page.layout()
    }

    /// Says what this process does. `Exiting`, once said, stays.
    pub fn set_phase(&self, phase: Phase) {
        let word = &self.layout().life.phase;
        // The closure never refuses, so neither does the update.
        let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |before| {
            Some(match phase {
                Phase::Exiting => exiting(before),
                _ if phase_of(before) == Phase::Exiting => before,
                _ => phase as u32,
            })
        });
    }

    /// Enters a round at its boundary 0. The training thread's; the handle of the round before is dead by now.
    pub fn enter(&self, round: Round) -> InRound {
        let progress = &self.layout().progress;
        let count = hold::count_word(round, 0);
        progress.count.store(count, Ordering::SeqCst);
        let entered = round.0.saturating_add(1);
        progress.round.store(entered, Ordering::Release);
        self.set_phase(Phase::Training);
        InRound {
            page: self.clone(),
            round,
            count: 0,
        }
    }

    /// One beat of the SDK's own thread.
    pub fn beat(&self) {
        self.layout().beats.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the agent has said that the host may go away. It does not take that back.
    pub fn at_risk(&self) -> bool {
        self.layout().orders.risk.load(Ordering::Relaxed) != 0
    }

    /// Counts a commit. The training thread's.
    pub fn count_commit(&self) {
        add(&self.layout().progress.commits);
    }

    /// Counts a step. The training thread's.
    pub fn count_step(&self) {
        add(&self.layout().progress.steps);
    }

    /// Ends a round and all before it, as the agent can: for the SDK's own thread, when it has lost the
    /// agent or a peer. A training thread that waits at a boundary wakes up.
    pub fn abort(&self, round: Round) {
        self.layout().abort(round.0);
    }

    /// Sleeps until the round that this process is in is held, if it is another one than `told`, and gives it. For a
    /// thread beside the training thread, which learns of it at its next boundary by itself.
    pub fn wait_for_hold(&self, told: Option<Round>) -> Round {
        let layout = self.layout();
        loop {
            let bell = layout.orders.bell.load(Ordering::SeqCst);
            let entered = layout.progress.round.load(Ordering::Acquire);
            let hold = layout.orders.hold.load(Ordering::SeqCst);
            if let Some(round) = entered.checked_sub(1).map(Round)
                && told != Some(round)
                && hold::concerns(hold, round)
            {
                return round;
            }
            futex::wait(&layout.orders.bell, bell, None);
        }
    }

    /// Whether a round is over by an abort.
    pub fn aborted(&self, round: Round) -> bool {
        self.layout().aborted(round.0)
    }
}

/// One writer, so a plain addition is enough.
fn add(word: &AtomicU64) {
    word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// What a boundary says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum AtBoundary {
    /// Train on.
    Continue,
    /// This is the common boundary: commit, and leave the round.
    Leave,
    /// The round was aborted: leave it at once; what is newer than the next base is void.
    Aborted,
}

/// How often a worker whose lease is over looks again, beside being woken.
const LOOK: Duration = Duration::from_secs(1);

fn wait_for_lease(layout: &Layout, bell: u32) {
    futex::wait(&layout.orders.bell, bell, Some(LOOK));
}

/// A round that this process trains in: counts its boundaries. The training thread's.
#[derive(Debug)]
pub struct InRound {
    page: WorkerPage,
    round: Round,
    count: u64,
}

impl InRound {
    /// One boundary: a store, loads of one cache line that is hardly ever written, and a look at the clock, while nothing is
    /// asked. If the round is held, it sleeps until K is known, the hold is withdrawn or the round is aborted; if the lease
    /// is over, until there is another one or the round is aborted.
    ///
    /// There is no timeout: the agent, or this process's own thread when the agent is gone, ends the wait.
    pub fn boundary(&mut self) -> AtBoundary {
        self.count = (self.count + 1).min(hold::LAST);
        let layout = self.page.layout();
        let word = hold::count_word(self.round, self.count);
        layout.progress.count.store(word, Ordering::SeqCst);
        loop {
            // Before the words it guards, so that a change after our look also changes the bell.
            let bell = layout.orders.bell.load(Ordering::SeqCst);
            let look = Look {
                hold: layout.orders.hold.load(Ordering::SeqCst),
                aborted: layout.aborted(self.round.0),
                leased: layout.is_leased(),
            };
            match hold::judge(look, self.round, self.count) {
                Verdict::Continue => return AtBoundary::Continue,
                Verdict::Leave => return AtBoundary::Leave,
                Verdict::Abort => return AtBoundary::Aborted,
                Verdict::AwaitLease => wait_for_lease(layout, bell),
                Verdict::Wait => {
                    futex::wait(&layout.orders.bell, bell, None);
                }
            }
        }
    }

    /// Sleeps until the lease of this process is not over, or the round is: what is committed beyond the lease might be
    /// beside another round.
    pub fn wait_until_leased(&self) {
        let layout = self.page.layout();
        loop {
            let bell = layout.orders.bell.load(Ordering::SeqCst);
            if layout.is_leased() || layout.aborted(self.round.0) {
                return;
            }
            wait_for_lease(layout, bell);
        }
    }

    /// The round.
    pub fn round(&self) -> Round {
        self.round
    }

    /// Boundaries so far.
    pub fn count(&self) -> Boundary {
        Boundary(self.count)
    }

    /// Whether the round is over by an abort.
    pub fn aborted(&self) -> bool {
        self.page.aborted(self.round)
    }
}
