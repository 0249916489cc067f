//! Turns the answers of sources and the findings of agents into the hosts of the job.

use elasticrun_protocol::{Notice, NoticeKind};

use super::{Job, Out};
use crate::{
    AgentConnected, Command, Decision, Time,
    mutant::{Mutant, planted},
    results::Outcome,
};

impl Job {
    /// Updates the hosts of the job, since the list may have changed.
    pub(super) fn discovered(&mut self, now: Time, out: &mut Out) {
        let early = self.discovered && !self.sdk_seen;
        if !self.sources.have_listed() || early && planted(Mutant::EarlyChange) {
            return;
        }
        self.discovered = true;
        self.tell_doubts(out);
        let list = self.sources.records();
        for (host, within) in self.hosts.update(now, &list).draining {
            let kind = NoticeKind::Discovery;
            self.drain_begins(&host, Notice { kind, within }, out);
        }
        self.recall_notices(out);
        self.capacity_dirty = true;
        self.going_back.changed = true;
    }

    /// A source that fails for good at its first answer ends the job, even if other sources answer: the user asked for it.
    pub(super) fn source_failed(&mut self, source: usize, fatal: bool, why: String, out: &mut Out) {
        let unheard = self.sources.failed(source);
        let first = (unheard || !self.discovered) && !planted(Mutant::FirstPollRetried);
        if fatal && (first || planted(Mutant::LaterPollFatal)) {
            self.end(Outcome::DiscoveryFailed { why }, out);
        } else {
            out.push(Command::Announce(Decision::DiscoveryFailed { why }));
        }
    }

    /// Handles the slots that an agent found on its host.
    pub(super) fn slots_found(&mut self, now: Time, agent: &AgentConnected, out: &mut Out) {
        let changed = (self.sources).found(&agent.host, agent.slots, agent.detected_slots);
        if changed {
            self.discovered(now, out);
            self.count_anew(out);
        } else {
            self.tell_doubts(out);
        }
    }

    fn tell_doubts(&mut self, out: &mut Out) {
        let doubts = self.sources.take_doubts().into_iter();
        out.extend(doubts.map(|doubt| Command::Announce(Decision::SlotsDoubted(doubt))));
        let without = self.sources.take_without_slots().into_iter();
        out.extend(without.map(|host| Command::Announce(Decision::NoSlots { host })));
    }
}
