//! Rounds that end repeatedly without a commit: a host is failed for them, or they end the job. The same holds for
//! rounds whose members fail by themselves wherever they run.

use elasticrun_protocol::{CommitId, HostId};

use super::{Job, Out};
use crate::{
    Command, Decision, Time,
    blacklist::Domain,
    results::{Outcome, Reason},
    rounds::{Cause, Phase},
    suspicion::Blame,
};

impl Job {
    /// Judges the previous round when the next one is about to start from `base`; `newest` is held, perhaps not by all that is needed.
    /// Returns whether the start is cancelled.
    pub(super) fn judge_last_round(
        &mut self,
        now: Time,
        (base, newest): (Option<CommitId>, Option<CommitId>),
        out: &mut Out,
    ) -> bool {
        let long = self.elastic_timeout();
        // A shorter round may have spent its time on a path that is cut.
        let former = self.lineage.newest();
        let verdict = (self.suspicion).judge(base, newest, former, long.max(self.answer_timeout()));
        if verdict.fruitful {
            self.relapses = Default::default();
        } else if let Phase::Forming(forming) = &self.rounds.phase
            && self.relapses.include(forming.slots())
        {
            self.abort_rounds(out);
            self.restart_or_fail(now, Reason::FailsEverywhere, out);
            return true;
        }
        if !verdict.fruitless {
            return false;
        }
        if let Some(since) = self.suspicion.churns_since().filter(|t| *t + long <= now) {
            self.end_too_few(now, since, out);
            return true;
        }
        let spared = |blame: &Blame| !blame.replaceable || self.can_spare(&blame.host);
        // A draining host leaves anyway, and its loss is no failure.
        let stays = |blame: &Blame| !self.hosts.is_draining(&blame.host);
        let blamed = verdict.blamed.into_iter().filter(stays);
        let (fail, keep): (Vec<_>, Vec<_>) = blamed.partition(spared);
        for Blame { host, others, .. } in keep {
            if self.suspicion.tells() {
                out.push(Command::Announce(Decision::Fruitless { host, others }));
            }
        }
        if fail.is_empty() {
            return false;
        }
        self.suspicion.blame_done();
        for Blame { host, others, .. } in &fail {
            let begun = self.fleet.host(host).map_or(now, |state| state.since);
            self.note_host_failure(host, unreachable(others), out);
            self.domain_failed(now, Domain::Host(host.clone()), begun, out);
            let host = host.clone();
            self.rounds.disturb(now, Cause::HostFailed { host });
        }
        if self.settings.elastic {
            self.abort_rounds(out);
        } else {
            self.end(Outcome::WorkerFailed(Reason::Standard), out);
        }
        true
    }

    /// Whether enough slots are left without this host. A standard job ends in any case.
    fn can_spare(&self, host: &HostId) -> bool {
        let own = self.capacity.slots(host).count() as u32;
        !self.settings.elastic || self.capacity.total() - own >= self.needed()
    }
}

/// The message for a host that is failed.
fn unreachable(others: &[HostId]) -> String {
    let names: Vec<_> = others.iter().map(HostId::as_str).collect();
    match names[..] {
        [] => "its workers lose their peers in each round".to_owned(),
        _ => format!(
            "its workers and those of {} cannot reach each other; check the network and --network-interface",
            names.join(", ")
        ),
    }
}
