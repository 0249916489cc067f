//! Whether the driver hears of agents, and how long a round waits for those of which it does not.
//!
//! ```text
//! host a   heard ------ silence ------>| others go on without it
//!
//! host a   heard --- ... --------------+------ silence ------>| others go on without it
//! host b   heard --- ...               back                   |
//!                    no host is heard  |
//! ```
//! - C1 A connection that ends says no more than silence: its agent may return within moments. So others go on without a
//!   host only when it was not heard of for as long as makes a host silent.
//! - C2 Silence of all hosts says nothing about any of them: the network of the driver is down. So the silence of a host
//!   that was last heard as the outage began counts from the end of the outage. The host returns within moments of the
//!   first. An agent that is heard rarely prolongs no wait twice: its next pause began long after the host fell silent.
//! - C3 A worker that has lost a peer on a host that is away knows more than the driver. Its report ends the wait
//!   ([`Job::leave_behind`]), and so does the drain of a host. A report that names other hosts only does not.
//! - C4 Others that go on without one host go on without all that are away: their round is formed anew in any case.
//!
//! Not promised: that a host of which only the driver does not hear is waited for while others are heard. That holds for
//! an outage of the driver's network, too, if an agent runs on its own machine, since that agent is always heard.

use std::time::Duration;

use elasticrun_protocol::HostId;

use super::Job;
use crate::{
    Time,
    mutant::{Mutant, planted},
};

/// When the driver has heard of any agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Contact {
    /// When it last heard of one.
    last: Time,
}

impl Contact {
    fn is_lost(&self, now: Time, pause: Duration) -> bool {
        now.since(self.last) > pause
    }
}

impl Job {
    /// Records that the agent of a host was heard.
    pub(super) fn heard(&mut self, now: Time, host: &HostId) {
        let pause = self.longest_pause();
        if self.contact.is_lost(now, pause) {
            self.fleet.outage_ended(now, self.contact.last, pause);
        }
        self.contact.last = now;
        self.fleet.set_heard(now, host);
    }

    /// The longest time without a message of any agent while the network is well. Heartbeats follow each other faster. A
    /// network that is down lasts longer before the first of its hosts counts as silent.
    fn longest_pause(&self) -> Duration {
        self.settings.silence / 2
    }

    /// Whether the members on hosts that are away may return in time, so that others do not go on without them yet.
    pub(super) fn awaits_return(&self, now: Time) -> bool {
        let is_lost = self.contact.is_lost(now, self.longest_pause());
        let is_lost = is_lost && !planted(Mutant::OutageIsSilence);
        let in_time = |host| is_lost || self.patience_end(host).is_some_and(|end| now < end);
        let goes = |host| self.hosts.is_draining(host) || self.hosts.is_left_out(host);
        let mut awaited = self.away.iter().filter(|host| self.waits_for(host));
        awaited.all(|host| in_time(host) && !goes(host)) && !self.members_drain()
    }

    /// Whether members of the round or group that runs are on a draining host.
    fn members_drain(&self) -> bool {
        self.hosts.draining().any(|host| {
            let state = self.fleet.host(host);
            let mut lives = state.into_iter().flat_map(|state| state.live());
            lives.any(|live| self.is_in_play(&live))
        })
    }

    /// When others may go on without a host that is away.
    fn patience_end(&self, host: &HostId) -> Option<Time> {
        let away = self.fleet.host(host)?.away()?;
        let since = match () {
            () if planted(Mutant::OutageIsSilence) => away.up.heard,
            () => away.up.silent_since,
        };
        Some(since + self.settings.silence)
    }

    /// When others may go on without the next host that is away.
    pub(super) fn next_patience_end(&self) -> Option<Time> {
        let awaited = self.away.iter().filter(|host| self.waits_for(host));
        let ends = awaited.filter_map(|host| self.patience_end(host));
        // One that had passed when the job was settled last was considered then.
        ends.filter(|end| *end > self.settled).min()
    }
}
