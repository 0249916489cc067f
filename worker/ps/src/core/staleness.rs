//! Bounded staleness: how far a worker may be ahead of the slowest one.
//!
//! Each worker counts its steps, and tells its clock. A pull of a worker at clock c waits until all others are at clock c - s
//! or later. A worker pushes before it tells its clock. So the pull sees all that the others have pushed in their first
//! c - s steps. With s = 0 workers go in step (BSP), and without a bound nobody waits (ASP).
//!
//! # Invariants
//! - PC1 A pull is let go only while no clock is behind its bound, and at once when this comes true.
//! - PC2 Each pull is let go, refused, given up at its deadline or dropped with its worker, once.
//! - PC3 The clock of the slowest never goes back: a worker that joins begins there.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::node::NodeId;

/// How stale the values of a pull may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staleness {
    /// No limit.
    Asp,
    /// The slowest worker is at most so many steps behind.
    Ssp(u64),
}

impl Staleness {
    /// All workers go in step.
    pub const BSP: Self = Self::Ssp(0);
}

/// For whom a pull waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitsFor {
    /// The slowest worker.
    pub(crate) slowest: NodeId,
    /// Its clock.
    pub(crate) clock: u64,
    /// The clock that it must reach.
    pub(crate) needed: u64,
}

/// What becomes of a pull.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict<R> {
    /// It may be answered.
    Go(R),
    /// It is kept.
    Held,
    /// Too many bytes are kept already.
    Full(R),
    /// Its worker has left.
    Gone(R),
}

#[derive(Debug)]
struct Held<R> {
    from: NodeId,
    request: R,
    bytes: usize,
    deadline: Duration,
}

/// The clocks of workers, and the pulls that wait for them. `R` is a pull.
#[derive(Debug)]
pub(crate) struct Clocks<R> {
    staleness: Staleness,
    clocks: BTreeMap<NodeId, u64>,
    gone: BTreeSet<NodeId>,
    /// The clock of the slowest worker.
    floor: u64,
    /// By the clock that they wait for, and in order of arrival.
    held: BTreeMap<(u64, u64), Held<R>>,
    arrivals: u64,
    bytes: usize,
    max_bytes: usize,
}

impl<R> Clocks<R> {
    /// These workers begin at clock 0.
    pub(crate) fn new(
        staleness: Staleness,
        workers: impl IntoIterator<Item = NodeId>,
        max_bytes: usize,
    ) -> Self {
        Self {
            staleness,
            clocks: workers.into_iter().map(|worker| (worker, 0)).collect(),
            gone: BTreeSet::new(),
            floor: 0,
            held: BTreeMap::new(),
            arrivals: 0,
            bytes: 0,
            max_bytes,
        }
    }

    /// Takes over the clocks of another server, in place of those here. Returns the pulls that may go.
    pub(crate) fn take_over(&mut self, clocks: impl IntoIterator<Item = (NodeId, u64)>) -> Vec<R> {
        self.clocks = clocks.into_iter().collect();
        self.gone.retain(|worker| !self.clocks.contains_key(worker));
        self.release()
    }

    /// A worker begins, or begins again: at the clock of the slowest one, unless it is known. Returns its clock.
    pub(crate) fn join(&mut self, worker: NodeId) -> u64 {
        self.gone.remove(&worker);
        *self.clocks.entry(worker).or_insert(self.floor)
    }

    /// A worker has come to a clock. An earlier clock than it had changes nothing. Returns the pulls that may go; `None` if the
    /// worker has left.
    pub(crate) fn tick(&mut self, worker: NodeId, clock: u64) -> Option<Vec<R>> {
        if self.gone.contains(&worker) {
            return None;
        }
        self.join(worker);
        if let Some(known) = self.clocks.get_mut(&worker) {
            *known = clock.max(*known);
        }
        Some(self.release())
    }

    /// A worker has left or died: nobody waits for it, and nobody waits for its pulls. Returns the pulls that may go.
    pub(crate) fn leave(&mut self, worker: NodeId) -> Vec<R> {
        self.clocks.remove(&worker);
        self.gone.insert(worker);
        let dropped = self.held.extract_if(.., |_, held| held.from == worker);
        self.bytes -= dropped.map(|(_, held)| held.bytes).sum::<usize>();
        self.release()
    }

    /// A worker pulls. `request` is made only if it is needed.
    pub(crate) fn pull(
        &mut self,
        worker: NodeId,
        request: R,
        bytes: usize,
        deadline: Duration,
    ) -> Verdict<R> {
        if self.gone.contains(&worker) {
            return Verdict::Gone(request);
        }
        let needed = self.needed(worker);
        if needed <= self.floor {
            return Verdict::Go(request);
        }
        if self.bytes + bytes > self.max_bytes {
            return Verdict::Full(request);
        }
        self.bytes += bytes;
        let held = Held {
            from: worker,
            request,
            bytes,
            deadline,
        };
        self.held.insert((needed, self.arrivals), held);
        self.arrivals += 1;
        Verdict::Held
    }

    /// Whether a pull of this worker would be let go. Its worker joins.
    pub(crate) fn may_go(&mut self, worker: NodeId) -> bool {
        !self.gone.contains(&worker) && self.needed(worker) <= self.floor
    }

    /// The clock that all must have reached before a pull of this worker.
    fn needed(&mut self, worker: NodeId) -> u64 {
        let clock = self.join(worker);
        match self.staleness {
            Staleness::Asp => 0,
            Staleness::Ssp(bound) => clock.saturating_sub(bound),
        }
    }

    /// The pulls whose deadline has come, and for whom they waited.
    pub(crate) fn expire(&mut self, now: Duration) -> Vec<(R, WaitsFor)> {
        let slowest = self.clocks.iter().min_by_key(|(_, clock)| **clock);
        let Some((&slowest, &clock)) = slowest else {
            return Vec::new();
        };
        let late = self.held.extract_if(.., |_, held| held.deadline <= now);
        let mut expired = Vec::new();
        for ((needed, _), held) in late {
            self.bytes -= held.bytes;
            let waits_for = WaitsFor {
                slowest,
                clock,
                needed,
            };
            expired.push((held.request, waits_for));
        }
        expired
    }

    /// The clocks of the workers.
    pub(crate) fn clocks(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.clocks.iter().map(|(&worker, &clock)| (worker, clock))
    }

    /// Number of pulls that wait.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    fn release(&mut self) -> Vec<R> {
        let slowest = self.clocks.values().min();
        self.floor = self.floor.max(slowest.copied().unwrap_or(self.floor));
        let mut released = Vec::new();
        while let Some(entry) = self.held.first_entry() {
            if entry.key().0 > self.floor {
                break;
            }
            let held = entry.remove();
            self.bytes -= held.bytes;
            released.push(held.request);
        }
        released
    }
}

#[cfg(test)]
mod tests;
