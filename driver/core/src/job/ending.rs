//! The end of a job: what ends it, and with which outcome.

use elasticrun_protocol::HostId;

use super::{Job, Out};
use crate::{
    Command, Decision, Time,
    fleet::Host,
    mutant::{Mutant, planted},
    results::{Outcome, Reason},
    rounds::{Cause, Phase},
    time::earliest,
};

/// Processes before the first round, since the last beginning of the job.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Startup {
    pub(super) starts: u32,
    /// The number of processes that failed by themselves.
    pub(super) failures: u32,
}

impl Startup {
    /// A group has started with this number of processes.
    pub(super) fn of_group(starts: u32) -> Self {
        Self {
            starts,
            failures: 0,
        }
    }

    /// Whether the program is at fault: as many processes as a round needs were started, and each failed by itself.
    fn all_failed(self, min_np: u32) -> bool {
        self.failures > 0 && self.failures >= self.starts && self.starts >= min_np
    }
}

impl Job {
    /// Ends the job if its state calls for it.
    pub(super) fn conclude(&mut self, now: Time, out: &mut Out) {
        let census = self.fleet.census();
        if self.registry.all_successful() {
            return match self.success_is_spoilt() {
                true => self.end(Outcome::WorkerFailed(Reason::NotAllSucceeded), out),
                false => self.end(Outcome::Succeeded, out),
            };
        }
        if self.is_ending() {
            if self.registry.all_ended() && self.awaits_members() {
                return;
            }
            if self.registry.all_ended()
                && planted(Mutant::ResetForFailure)
                && !self.budgets.allows_round()
            {
                let limit = self.settings.reset_limit.unwrap_or(0);
                return self.end(Outcome::ResetLimit { limit }, out);
            }
            let hasty = planted(Mutant::NotAllHasty) && self.registry.successes() > 0;
            if self.registry.is_well_or_lost() && planted(Mutant::LostIsSuccess) {
                self.end(Outcome::Succeeded, out);
            } else if self.registry.all_ended()
                && !self.awaits_members()
                && !planted(Mutant::NotAllNever)
                || hasty
            {
                self.end(Outcome::WorkerFailed(Reason::NotAllSucceeded), out);
            }
            return;
        }
        let rounds_lead = !self.groups.leads();
        if rounds_lead
            && self.registry.all_failed_by_themselves()
            && matches!(self.rounds.phase, Phase::Idle)
        {
            self.restart_or_fail(now, Reason::AllFailed, out);
            if self.results.outcome().is_some() {
                return;
            }
        }
        let none_left = census.staying() == 0;
        if self.budgets.started() == 0 && none_left && self.fleet.starts() > 0 {
            if self.scripts_have_succeeded() {
                return self.end(Outcome::Succeeded, out);
            } else if census.stopping == 0 && self.startup.all_failed(self.settings.min_np) {
                return self.restart_or_fail(now, Reason::AllFailed, out);
            }
        }
        // A worker that is being stopped with its host may still show that the program failed, and not the host.
        let known = census.stopping == 0;
        let lost = self.capacity.all_lost() && !planted(Mutant::AllOutWaits);
        if known && self.discovered && lost {
            self.end(Outcome::WorkerFailed(Reason::AllHostsOut), out);
        }
    }

    /// Planted mistakes that count another event as a failure of the last round.
    fn success_is_spoilt(&self) -> bool {
        let failures = self.results.failures();
        let size = self.registry.successes();
        planted(Mutant::PastFailureCounts) && failures > 0
            || planted(Mutant::OutsiderFailureCounts) && self.startup.failures > 0
            || planted(Mutant::FewerIsNotAll) && size < self.settings.np
            || planted(Mutant::GroupPastFailureCounts)
                && self.groups.leads()
                && self.budgets.restarts() > 0
    }

    /// Scripts without the SDK: whether enough have ended with code 0. Enough are the needed ones; after a failure, all
    /// that can run. In process mode the slot of the failure counts as well: these are processes of a group that the records
    /// do not name, and a group has not succeeded with a member that failed. Scripts on hosts that have left since do not stand
    /// for it.
    fn scripts_have_succeeded(&self) -> bool {
        let total = self.capacity.total();
        let all = match self.groups.leads() {
            true => self.capacity.known(),
            false => total,
        };
        let enough = match self.results.failures() {
            0 => self.settings.np.min(total),
            _ => all.min(self.target().try_into().unwrap_or(u32::MAX)),
        };
        let known = |(host, _): &(&HostId, &Host)| self.hosts.contains(host);
        let done = match self.groups.leads() && self.results.failures() > 0 {
            true => {
                let done = self.fleet.hosts().filter(known);
                done.map(|(_, state)| state.done() as u64).sum()
            }
            false => self.done_scripts() as u64,
        };
        done > 0 && done >= u64::from(enough.max(self.settings.min_np))
    }

    /// All workers ended by themselves: restarts from the last commit, if a restart is left.
    pub(super) fn restart_or_fail(&mut self, now: Time, why: Reason, out: &mut Out) {
        let Some(used) = self.budgets.restart() else {
            return self.end(Outcome::WorkerFailed(why), out);
        };
        let allowed = self.budgets.max_restarts();
        out.push(Command::Announce(Decision::Restarting { used, allowed }));
        // The program failed, not the hosts.
        self.blacklist.forgive_episode();
        self.results.went_on();
        if self.registry.all_failed_by_themselves() {
            self.registry.clear();
        }
        self.relapses = Default::default();
        self.startup = Default::default();
        self.rounds.disturb(now, Cause::Restart);
        self.count_capacity(out);
    }

    /// The number of workers that the next round needs.
    pub(super) fn needed(&self) -> u32 {
        if self.budgets.started() == 0 && !self.accept_min_np {
            self.settings.np
        } else if planted(Mutant::MinIgnored) {
            1
        } else {
            self.settings.min_np
        }
    }

    /// Applies the elastic timeout and the exit timeout.
    pub(super) fn end_waits(&mut self, now: Time, out: &mut Out) {
        self.end_shortage(now, out);
        if let Some(first) = self.exits_since
            && first + self.exit_timeout() <= now
        {
            self.end(Outcome::WorkerFailed(Reason::ExitTimeout), out);
        }
    }

    pub(super) fn next_wait_deadline(&self) -> Option<Time> {
        earliest([
            self.next_shortage_deadline(),
            self.exits_since.map(|first| first + self.exit_timeout()),
        ])
    }

    fn exit_timeout(&self) -> std::time::Duration {
        match self.settings.exit_timeout {
            timeout if planted(Mutant::ExitTimeoutNever) => timeout * 1000,
            timeout if planted(Mutant::ExitTimeoutEarly) => timeout / 2,
            timeout => timeout,
        }
    }

    pub(super) fn stop_requested(&mut self, signal: i32, out: &mut Out) {
        self.end(Outcome::Stopped { signal }, out);
    }

    /// Ends the job and everything on its hosts; has an effect only once (R10).
    pub(super) fn end(&mut self, outcome: Outcome, out: &mut Out) {
        if !self.results.end(outcome.clone()) {
            return;
        }
        if outcome == Outcome::Succeeded {
            self.tell_unused_store(out);
        }
        self.begin_shutdown(out);
        out.push(Command::End(outcome));
        self.finish_drains_after_end(out);
    }
}
