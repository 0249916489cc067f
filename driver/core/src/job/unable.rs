//! A host that lacks the resources to begin a round, most likely memory or descriptors.
//!
//! The host has failed and gets a cooldown like any other. Its agent is well and keeps its commits, so the job loses
//! none of them.

use elasticrun_protocol::{HostId, Round, control::StopReason};

use super::{Job, Out, reject};
use crate::{Rejected, Time, blacklist::Domain, fleet::Life, rounds::Cause};

impl Job {
    pub(super) fn host_unable(
        &mut self,
        now: Time,
        host: &HostId,
        round: Round,
        why: String,
        out: &mut Out,
    ) {
        let Some(state) = self.fleet.host(host) else {
            return reject(out, host, Rejected::StaleRound(round));
        };
        let begun = state.since;
        let member = |life| life == Life::Training { round };
        let members: Vec<_> = (state.live().filter(|live| member(live.life)))
            .map(|live| live.process)
            .collect();
        if members.is_empty() {
            return reject(out, host, Rejected::StaleRound(round));
        }
        self.note_host_failure(host, why, out);
        if self.is_ending() {
            // The members are back at `run()`, and no further round is formed.
            for process in members {
                self.stop(host, process, StopReason::JobEnded, out);
            }
            return;
        }
        self.suspicion.unable(round);
        self.domain_failed(now, Domain::Host(host.clone()), begun, out);
        self.loss_grace_until = None;
        self.rounds
            .disturb(now, Cause::HostFailed { host: host.clone() });
        self.after_failure(now, out);
    }
}
