//! The decisions of a candidate, in the time that the caller passes.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::{Command, Event, Holder, Settings, Status, Time};
use crate::{LeaseId, Revision};

/// How long before the end of a lease its leader stops to act.
const MARGIN: Duration = Duration::from_millis(500);
/// How long after a failed call the next one begins.
const RETRY: Duration = Duration::from_millis(200);

/// A lease as its holder knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Lease {
    id: LeaseId,
    /// Until when its holder may count on it.
    until: Time,
}

impl Lease {
    fn new(id: LeaseId, sent: Time, ttl: Duration) -> Self {
        let until = sent + ttl.saturating_sub(MARGIN);
        Self { id, until }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Phase {
    Observing,
    Standby,
    Granting { epoch: (u64, Revision) },
    Campaigning { epoch: u64 },
    Leading,
    Retired,
}

/// A candidate.
#[derive(Debug)]
pub struct Machine {
    settings: Settings,
    status: Status,
    /// Whether it has ever led.
    has_led: bool,
    phase: Phase,
    lease: Option<Lease>,
    /// Whether a call is under way.
    is_busy: bool,
    /// When the next call is due.
    due: Option<Time>,
    /// Until when etcd must have answered, where that is limited.
    limit: Option<Time>,
    /// Whether the keys must be read once the call that is under way has ended.
    observe_again: bool,
    /// Whether there is a watch that has not ended.
    is_watching: bool,
    failure: String,
}

impl Machine {
    /// A candidate that begins at once.
    pub fn new(settings: Settings, now: Time) -> Self {
        Self {
            limit: Some(now + settings.give_up),
            settings,
            status: Status::Standby(None),
            has_led: false,
            phase: Phase::Observing,
            lease: None,
            is_busy: false,
            due: Some(now),
            observe_again: false,
            is_watching: false,
            failure: "etcd has not answered".into(),
        }
    }

    /// What the candidate is.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// When [`Machine::tick`] has something to do.
    pub fn next_deadline(&self) -> Option<Time> {
        let due = self.due.filter(|_| !self.is_busy);
        due.into_iter().chain(self.limit).min()
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Time, out: &mut Vec<Command>) {
        if self.limit.is_some_and(|limit| now >= limit) {
            self.retire(Status::Unreachable(self.failure.clone()), out);
        }
        if self.is_busy || self.due.is_none_or(|due| now < due) {
            return;
        }
        self.due = None;
        let command = match (&self.phase, self.lease) {
            (Phase::Retired, _) => return,
            (Phase::Leading, Some(lease)) => Command::KeepAlive(lease.id),
            (Phase::Granting { .. }, _) => Command::Grant(self.settings.ttl),
            _ => {
                self.phase = Phase::Observing;
                Command::Observe
            }
        };
        self.call(command, out);
    }

    /// Applies an event.
    pub fn receive(&mut self, now: Time, event: Event, out: &mut Vec<Command>) {
        let is_answer = !matches!(event, Event::Changed | Event::Fenced(_) | Event::Resign);
        if is_answer {
            self.is_busy = false;
        }
        if self.phase == Phase::Retired {
            self.receive_late(event, out);
            return;
        }
        match event {
            Event::Observed {
                leader,
                epoch,
                revision,
            } => self.observed(now, leader, epoch, revision, out),
            Event::Granted { sent, lease, ttl } => {
                self.granted(now, Lease::new(lease, sent, ttl), out);
            }
            Event::KeptAlive { sent, lease, ttl } => self.kept_alive(now, sent, lease, ttl),
            Event::Campaigned(Some(fence)) => self.won(now, fence),
            Event::Campaigned(None) => self.observe(now),
            Event::Changed => self.changed(now),
            Event::Fenced(refused) => self.fenced(now, refused),
            Event::Failed { is_temporary, why } => self.failed(now, is_temporary, why, out),
            Event::Resign => self.retire(Status::Resigned, out),
        }
        if std::mem::take(&mut self.observe_again) {
            self.observe(now);
        }
        self.tick(now, out);
    }

    /// A lease or a campaign that was under way when the candidate retired must not outlive it.
    fn receive_late(&mut self, event: Event, out: &mut Vec<Command>) {
        if let Event::Granted { lease, .. } = event {
            out.push(Command::Revoke(lease));
        }
    }

    fn call(&mut self, command: Command, out: &mut Vec<Command>) {
        self.is_busy = true;
        out.push(command);
    }

    /// Reads the keys as soon as no call is under way.
    fn observe(&mut self, now: Time) {
        if self.is_busy {
            self.observe_again = true;
            return;
        }
        self.phase = Phase::Observing;
        self.due = Some(now);
    }

    fn observed(
        &mut self,
        now: Time,
        leader: Option<(Holder, Revision, LeaseId)>,
        epoch: (u64, Revision),
        revision: Revision,
        out: &mut Vec<Command>,
    ) {
        if !matches!(self.status, Status::Leading { .. }) {
            self.limit = None;
        }
        match leader {
            None => {
                self.phase = Phase::Granting { epoch };
                self.due = Some(now);
            }
            Some((holder, created, lease)) if self.is_own(&holder, lease) => {
                // The answer to a campaign was lost.
                self.lead(now, holder.epoch, created);
            }
            // A candidate that has led waits as any other one: the new leader may give its place back.
            Some((holder, ..)) => {
                self.limit = None;
                let status = Status::Standby(Some(holder));
                // A watch may be silent for ever, so the keys are read now and then. One that has missed a change is no good.
                if !self.is_watching || self.status != status {
                    self.is_watching = true;
                    out.push(Command::Watch(Revision(revision.0 + 1)));
                }
                self.status = status;
                self.phase = Phase::Standby;
                self.due = Some(now + self.settings.ttl);
            }
        }
    }

    fn is_own(&self, holder: &Holder, lease: LeaseId) -> bool {
        holder.nonce == self.settings.nonce && self.lease.is_some_and(|own| own.id == lease)
    }

    fn granted(&mut self, now: Time, lease: Lease, out: &mut Vec<Command>) {
        let Phase::Granting { epoch } = self.phase else {
            out.push(Command::Revoke(lease.id));
            return;
        };
        if let Some(old) = self.lease.replace(lease) {
            out.push(Command::Revoke(old.id));
        }
        if now >= lease.until {
            self.observe(now);
            return;
        }
        let holder = Holder {
            epoch: epoch.0 + 1,
            nonce: self.settings.nonce,
            endpoints: self.settings.endpoints.clone(),
        };
        self.phase = Phase::Campaigning {
            epoch: holder.epoch,
        };
        let command = Command::Campaign {
            holder,
            lease: lease.id,
            seen: epoch.1,
        };
        self.call(command, out);
    }

    fn won(&mut self, now: Time, fence: Revision) {
        if let Phase::Campaigning { epoch, .. } = self.phase {
            self.lead(now, epoch, fence);
        }
    }

    fn lead(&mut self, now: Time, epoch: u64, fence: Revision) {
        let Some(lease) = self.lease else { return };
        self.phase = Phase::Leading;
        self.has_led = true;
        self.status = Status::Leading {
            epoch,
            fence,
            until: lease.until,
        };
        self.limit = self.limit_of(lease);
        self.due = Some(now);
    }

    /// Until when a leader with this lease tries to renew it.
    fn limit_of(&self, lease: Lease) -> Option<Time> {
        let after = self.settings.leader_gives_up?;
        Some(lease.until + after)
    }

    fn kept_alive(&mut self, now: Time, sent: Time, id: LeaseId, ttl: Option<Duration>) {
        if self.phase != Phase::Leading || self.lease.is_none_or(|lease| lease.id != id) {
            return;
        }
        let Some(ttl) = ttl else {
            // The key has ended with its lease. Another one may have taken it.
            self.lease = None;
            self.end_leadership(now);
            self.observe(now);
            return;
        };
        let lease = Lease::new(id, sent, ttl);
        self.lease = Some(lease);
        self.limit = self.limit_of(lease);
        if let Status::Leading { until, .. } = &mut self.status {
            *until = lease.until;
        }
        self.due = Some((sent + ttl / 3).max(now));
    }

    fn changed(&mut self, now: Time) {
        self.is_watching = false;
        if matches!(self.phase, Phase::Standby | Phase::Observing) {
            self.observe(now);
        }
    }

    fn fenced(&mut self, now: Time, refused: Revision) {
        if matches!(self.status, Status::Leading { fence, .. } if fence == refused) {
            self.end_leadership(now);
            self.observe(now);
        }
    }

    /// Ends the leadership at `now`, if it has not ended before.
    fn end_leadership(&mut self, now: Time) {
        if let Status::Leading { until, .. } = &mut self.status {
            *until = (*until).min(now);
        }
    }

    fn failed(&mut self, now: Time, is_temporary: bool, why: String, out: &mut Vec<Command>) {
        self.failure = why;
        if !is_temporary && !self.has_led {
            self.retire(Status::Unreachable(self.failure.clone()), out);
            return;
        }
        match self.phase {
            Phase::Leading | Phase::Granting { .. } => {}
            _ => self.phase = Phase::Observing,
        }
        self.due = Some(now + RETRY);
    }

    fn retire(&mut self, status: Status, out: &mut Vec<Command>) {
        if let Some(lease) = self.lease.take() {
            out.push(Command::Revoke(lease.id));
        }
        self.status = status;
        self.phase = Phase::Retired;
        (self.due, self.limit) = (None, None);
    }
}
