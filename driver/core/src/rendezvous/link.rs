//! The requests to the holder: one at a time, each with a timeout.

use std::time::Duration;

use super::{
    NodeId, Settings, State,
    holder::{RequestId, Snapshot, Token},
    mutant::{Mutant, planted},
};
use crate::{Time, random::Random};

/// The first delay after a failed request. It doubles up to one keep-alive interval.
pub(super) const FIRST_RETRY: Duration = Duration::from_millis(100);

/// The connection of a machine to its holder.
#[derive(Clone, Debug)]
pub(super) struct Link {
    random: Random,
    last_request: u64,
    in_flight: Option<InFlight>,
    /// The newest state that this node knows.
    snapshot: Option<Snapshot>,
    /// Whether an answer has shown the snapshot to be the current one since [`Self::distrust`].
    fresh: bool,
    failures: u32,
    retry_at: Time,
}

/// A request without an answer.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub(super) request: RequestId,
    pub(super) sent: Time,
    expires: Time,
    pub(super) asks: Ask,
}

/// What a request asks.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Read,
    Write(Write),
    Heartbeat,
}

/// A write without an answer.
#[derive(Clone, Debug)]
pub(super) struct Write {
    /// The token that it replaces.
    pub(super) expected: Token,
    pub(super) state: State,
    /// Whether it is a heartbeat of this node.
    pub(super) beats: bool,
    /// The dead nodes that it removes.
    pub(super) removed: Vec<NodeId>,
}

impl Link {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random::from_seed(seed),
            last_request: 0,
            in_flight: None,
            snapshot: None,
            fresh: false,
            failures: 0,
            retry_at: Time::ZERO,
        }
    }

    pub(super) fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// The holder is read again before the next decision.
    pub(super) fn distrust(&mut self) {
        self.fresh = false;
    }

    /// Begins a request and gives its number.
    pub(super) fn begin(&mut self, now: Time, timeout: Duration, asks: Ask) -> RequestId {
        self.last_request += 1;
        let request = RequestId(self.last_request);
        self.in_flight = Some(InFlight {
            request,
            sent: now,
            expires: match planted(Mutant::AnswerAwaitedForever) {
                true => Time::NEVER,
                false => now + timeout,
            },
            asks,
        });
        request
    }

    /// The request with this number, if it is in flight: it is over now.
    pub(super) fn answered(&mut self, request: RequestId) -> Option<InFlight> {
        self.in_flight.take_if(|flight| flight.request == request)
    }

    /// The holder has answered, and the snapshot is what it has.
    pub(super) fn reached(&mut self) {
        self.fresh = true;
        self.failures = 0;
    }

    /// The holder has answered, and has a newer state.
    pub(super) fn is_behind(&mut self) {
        self.fresh = false;
        self.failures = 0;
    }

    /// Whether this node knows the state with this token, or a newer one.
    pub(super) fn knows(&self, token: Token) -> bool {
        let known = self.snapshot.as_ref().map(|known| known.token);
        known >= Some(token)
    }

    /// Takes over what the holder has, if it is newer than what this node knows.
    pub(super) fn accept(&mut self, snapshot: Snapshot) -> bool {
        let known = self.snapshot.as_ref().map(|known| known.token);
        let newer = known.is_none_or(|known| snapshot.token > known);
        if newer {
            self.snapshot = Some(snapshot);
        }
        newer
    }

    /// A request failed. The next one follows after a delay that grows and is random.
    pub(super) fn failed(&mut self, now: Time, settings: &Settings) {
        let doubled = FIRST_RETRY.saturating_mul(1 << self.failures.min(16));
        let ceiling = doubled.min(settings.keep_alive_interval);
        self.failures = self.failures.saturating_add(1);
        self.fresh = false;
        self.retry_at = now + ceiling.mul_f64(0.5 + self.random.unit() / 2.0);
    }

    /// A write was not the first. The next one follows at once, or after a random delay and a read, since others have
    /// written meanwhile.
    pub(super) fn lost_race(&mut self, now: Time, longest: Duration) {
        self.fresh &= longest.is_zero();
        self.retry_at = now + longest.mul_f64(self.random.unit());
    }

    /// Ends a request whose timeout is over.
    pub(super) fn expire(&mut self, now: Time, settings: &Settings) {
        let expired = |flight: &mut InFlight| now >= flight.expires;
        if self.in_flight.take_if(expired).is_some() {
            self.failed(now, settings);
        }
    }

    /// Whether a request may begin.
    pub(super) fn is_idle(&self, now: Time) -> bool {
        self.in_flight.is_none() && now >= self.retry_at
    }

    /// When a request may begin, if it may not yet.
    pub(super) fn idle_at(&self, now: Time) -> Option<Time> {
        match &self.in_flight {
            Some(flight) => Some(flight.expires),
            None => Some(self.retry_at).filter(|at| *at > now),
        }
    }
}
