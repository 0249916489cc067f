//! How a job ends.

use elasticrun_protocol::Order;

use super::{Job, Out};
use crate::{
    Command, Note, Time,
    results::{Outcome, Reason},
    rounds::{Cause, Phase},
    time::earliest,
};

impl Job {
    /// Ends the job if what has happened ends it.
    pub(super) fn conclude(&mut self, now: Time, out: &mut Out) {
        let census = self.fleet.census();
        if self.registry.all_successful() {
            return self.end(Outcome::Succeeded, out);
        }
        if self.is_ending() {
            if self.registry.all_ended() {
                self.end(Outcome::WorkerFailed(Reason::NotAllSucceeded), out);
            }
            return;
        }
        if self.registry.all_failed_by_themselves() && matches!(self.rounds.phase, Phase::Idle) {
            return self.restart_or_fail(now, out);
        }
        let none_left = census.staying() == 0;
        if self.budgets.started() == 0 && none_left && self.fleet.starts() > 0 {
            if self.fleet.done() > 0 && self.results.failures() == 0 {
                // Scripts without the SDK: all ended with 0.
                if self.fleet.done() >= u64::from(self.settings.min_np.min(self.capacity.total())) {
                    return self.end(Outcome::Succeeded, out);
                }
            } else if self.results.failures() > 0 && census.stopping == 0 {
                let spawned_all_failed = u64::from(self.results.failures()) >= self.fleet.starts();
                if spawned_all_failed && self.fleet.starts() >= u64::from(self.settings.min_np) {
                    return self.restart_or_fail(now, out);
                }
            }
        }
        if self.discovered && self.capacity.all_lost() {
            return self.end(Outcome::WorkerFailed(Reason::AllHostsOut), out);
        }
        self.watch_shortage(now, out);
    }

    /// All workers ended by themselves: begin again from the last commit, if that is allowed.
    fn restart_or_fail(&mut self, now: Time, out: &mut Out) {
        let Some(used) = self.budgets.restart() else {
            // Some were well, and were stopped since the last of their hosts was out.
            let spared = self.registry.stopped_with_domain() > 0 && self.capacity.all_lost();
            let reason = if spared {
                Reason::AllHostsOut
            } else {
                Reason::AllFailed
            };
            return self.end(Outcome::WorkerFailed(reason), out);
        };
        let allowed = self.budgets.max_restarts();
        out.push(Command::Note(Note::Restarting { used, allowed }));
        // It was the program, not the hosts.
        self.blacklist.forgive_episode();
        self.registry = Default::default();
        self.rounds.disturb(now, Cause::Restart);
        self.count_capacity(out);
    }

    /// Starts or stops the clock of the elastic time-out.
    fn watch_shortage(&mut self, now: Time, out: &mut Out) {
        let needed = self.needed();
        // A process that ended well without ever waiting is no worker for those that wait.
        let done = if self.fleet.census().waiting > 0 {
            self.fleet.done() as u32
        } else {
            0
        };
        let usable = self.capacity.total().saturating_sub(done);
        if usable >= needed || matches!(self.rounds.phase, Phase::Training(_)) {
            self.short_since = None;
            self.short_told = false;
            return;
        }
        self.short_since.get_or_insert(now);
        if !self.short_told && self.discovered {
            self.short_told = true;
            out.push(Command::Note(Note::WaitingForSlots { usable, needed }));
        }
    }

    /// Workers needed for the next round.
    pub(super) fn needed(&self) -> u32 {
        if self.budgets.started() == 0 && !self.settle_for_less {
            self.settings.np
        } else {
            self.settings.min_np
        }
    }

    /// The elastic time-out and the exit time-out.
    pub(super) fn end_waits(&mut self, now: Time, out: &mut Out) {
        if let Some(since) = self.short_since
            && since + self.settings.elastic_timeout <= now
        {
            if self.budgets.started() == 0
                && !self.settle_for_less
                && self.capacity.total() >= self.settings.min_np
            {
                self.settle_for_less = true;
                self.short_since = None;
            } else {
                let (usable, needed) = (self.capacity.total(), self.needed());
                let waited = now.since(since);
                self.end(
                    Outcome::TimedOut {
                        usable,
                        needed,
                        waited,
                    },
                    out,
                );
            }
        }
        if let Some(first) = self.first_success
            && first + self.settings.exit_timeout <= now
        {
            self.end(Outcome::WorkerFailed(Reason::ExitTimeout), out);
        }
    }

    pub(super) fn next_wait_deadline(&self) -> Option<Time> {
        earliest([
            self.short_since
                .map(|since| since + self.settings.elastic_timeout),
            self.first_success
                .map(|first| first + self.settings.exit_timeout),
        ])
    }

    pub(super) fn stop_requested(&mut self, signal: i32, out: &mut Out) {
        self.end(Outcome::Stopped { signal }, out);
    }

    /// Ends the job (R10: once) and everything on its hosts.
    pub(super) fn end(&mut self, outcome: Outcome, out: &mut Out) {
        if !self.results.end(outcome.clone()) {
            return;
        }
        for (host, state) in self.fleet.hosts() {
            if state.up().is_some() {
                out.push(Command::Send {
                    host: host.clone(),
                    order: Order::Shutdown,
                });
            }
        }
        out.push(Command::End(outcome));
    }
}
