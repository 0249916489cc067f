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

/// The worker's handle of its page. Cheap to clone; the training thread and the SDK's own thread use it.
#[derive(Clone, Debug)]
pub struct WorkerPage {
    page: Page,
}

impl WorkerPage {
    /// Maps the page that the agent created. The descriptor is not needed afterwards.
    pub fn open(fd: &impl AsFd) -> Result<Self, Error> {
        Ok(Self {
            page: Page::open(fd)?,
        })
    }

    pub(crate) fn layout(&self) -> &Layout {
        self.page.layout()
    }

    /// Sets the phase of this process. `Exiting` is final.
    pub fn set_phase(&self, phase: Phase) {
        let word = &self.layout().liveness.phase;
        // The closure never refuses, so neither does the update.
        let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |before| {
            Some(match phase {
                Phase::Exiting => exiting(before),
                _ if phase_of(before) == Phase::Exiting => before,
                _ => phase as u32,
            })
        });
    }

    /// Enters a round at its boundary 0. For the training thread. The handle of the round before must not be used again.
    pub fn enter(&self, round: Round) -> BoundaryCounter {
        let progress = &self.layout().progress;
        let count = hold::count_word(round, 0);
        progress.count.store(count, Ordering::SeqCst);
        let entered = round.0.saturating_add(1);
        progress.round.store(entered, Ordering::Release);
        self.set_phase(Phase::Training);
        BoundaryCounter {
            page: self.clone(),
            round,
            count: 0,
        }
    }

    /// Counts a beat of the SDK's own thread.
    pub fn beat(&self) {
        self.layout().beats.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the agent has marked the host as one that may go away. The mark is final.
    pub fn at_risk(&self) -> bool {
        self.layout().control.risk.load(Ordering::Relaxed) != 0
    }

    /// Counts a commit. For the training thread.
    pub fn count_commit(&self) {
        add(&self.layout().progress.commits);
    }

    /// Counts a step. For the training thread.
    pub fn count_step(&self) {
        add(&self.layout().progress.steps);
    }

    /// Aborts a round and all before it, as the agent can. For the SDK's own thread, when it has lost the agent or a
    /// peer. It wakes a training thread that waits at a boundary.
    pub fn abort(&self, round: Round) {
        self.layout().abort(round.0);
    }

    /// Sleeps until the current round of this process is held and is not `reported`, and returns it. For a thread beside
    /// the training thread, which sees the hold at its next boundary.
    pub fn wait_for_hold(&self, reported: Option<Round>) -> Round {
        let layout = self.layout();
        loop {
            let seen = layout.control.eventcount.load(Ordering::SeqCst);
            let entered = layout.progress.round.load(Ordering::Acquire);
            let hold = layout.control.hold.load(Ordering::SeqCst);
            if let Some(round) = entered.checked_sub(1).map(Round)
                && reported != Some(round)
                && hold::concerns(hold, round)
            {
                return round;
            }
            futex::wait(&layout.control.eventcount, seen, None);
        }
    }

    /// Whether a round is aborted.
    pub fn aborted(&self, round: Round) -> bool {
        self.layout().aborted(round.0)
    }
}

/// Adds 1. There is one writer, so no atomic addition is needed.
fn add(word: &AtomicU64) {
    word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// The result of a boundary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum BoundaryOutcome {
    /// Continue to train.
    Continue,
    /// This is the common boundary: commit, and leave the round.
    Leave,
    /// The round was aborted: leave it at once. Commits newer than the next base are void.
    Aborted,
}

/// How often a worker whose lease has ended checks it, in addition to wakeups.
const LEASE_POLL_INTERVAL: Duration = Duration::from_secs(1);

fn wait_for_lease(layout: &Layout, seen: u32) {
    futex::wait(&layout.control.eventcount, seen, Some(LEASE_POLL_INTERVAL));
}

/// The current round of this process. It counts boundaries. For the training thread.
#[derive(Debug)]
pub struct BoundaryCounter {
    page: WorkerPage,
    round: Round,
    count: u64,
}

impl BoundaryCounter {
    /// Passes one boundary. The fast path is one store, loads of one cache line that is rarely written, and a read of the
    /// clock if there is a lease.
    ///
    /// In a held round the call sleeps until K is set, the hold is withdrawn or the round is aborted. If the lease has
    /// ended, the call sleeps until the lease is renewed or the round is aborted.
    ///
    /// There is no timeout. The agent ends the wait, or the SDK's own thread if the agent is gone.
    pub fn boundary(&mut self) -> BoundaryOutcome {
        self.count = (self.count + 1).min(hold::LAST);
        let layout = self.page.layout();
        let word = hold::count_word(self.round, self.count);
        layout.progress.count.store(word, Ordering::SeqCst);
        loop {
            // Load the eventcount before the words that it covers. Then a later change of these also changes it.
            let seen = layout.control.eventcount.load(Ordering::SeqCst);
            let look = Look {
                hold: layout.control.hold.load(Ordering::SeqCst),
                aborted: layout.aborted(self.round.0),
                leased: layout.is_leased(),
            };
            match hold::judge(look, self.round, self.count) {
                Verdict::Continue => return BoundaryOutcome::Continue,
                Verdict::Leave => return BoundaryOutcome::Leave,
                Verdict::Abort => return BoundaryOutcome::Aborted,
                Verdict::AwaitLease => wait_for_lease(layout, seen),
                Verdict::Wait => {
                    futex::wait(&layout.control.eventcount, seen, None);
                }
            }
        }
    }

    /// Sleeps until the lease has not ended or the round is aborted. Another round may run elsewhere after the lease, so
    /// no commit may be made then.
    pub fn wait_until_leased(&self) {
        let layout = self.page.layout();
        loop {
            let seen = layout.control.eventcount.load(Ordering::SeqCst);
            if layout.is_leased() || layout.aborted(self.round.0) {
                return;
            }
            wait_for_lease(layout, seen);
        }
    }

    /// The round.
    pub fn round(&self) -> Round {
        self.round
    }

    /// The number of boundaries so far.
    pub fn count(&self) -> Boundary {
        Boundary(self.count)
    }

    /// Whether the round is aborted.
    pub fn aborted(&self) -> bool {
        self.page.aborted(self.round)
    }
}
