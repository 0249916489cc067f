//! The processes of an agent that comes back: what its last reports say, and the state of each process.

use elasticrun_protocol::{
    AgentReport, FromAgent, HostId, Process,
    control::{AdoptedPhase, AdoptedWorker, Adoption, StopReason},
};

use super::{Job, Out, takeover::TakeOver};
use crate::{
    Time,
    fleet::Life,
    mutant::{Mutant, planted},
    registry::State,
};

impl Job {
    /// Applies the reports that no driver has applied, and then the state of each process, which includes them.
    pub(super) fn adopt_processes(
        &mut self,
        now: Time,
        host: &HostId,
        adoption: &Adoption,
        reports: &[&FromAgent],
        out: &mut Out,
    ) {
        for worker in &adoption.workers {
            let lost = |report: &FromAgent| process_of(&report.report) == Some(worker.process);
            let is_lost = reports.iter().copied().any(lost);
            let life = match is_lost {
                // What its loss means follows from what it was before.
                true => self.life_before(now, host, worker.process),
                false => self.life_of(now, host, worker),
            };
            self.adopt_process(now, host, worker, life, out);
            if is_lost {
                self.blacklist.went(now, host, worker.process.local_rank);
            }
        }
        for report in reports {
            if let Some(process) = process_of(&report.report)
                && adoption.starts.iter().any(|last| is_later(last, process))
            {
                // A driver has started the next process of the slot, so it knew of this end. Its record is lost.
                if let AgentReport::Exited { exit, tail, .. } = &report.report {
                    self.results.exited(host, process, exit, tail);
                }
                continue;
            }
            if let AgentReport::Exited {
                process, stopped, ..
            } = report.report
                && !adoption
                    .workers
                    .iter()
                    .any(|worker| worker.process == process)
            {
                // Reaped since, and so not among the processes.
                let life = match stopped {
                    true => Life::Stopping,
                    false => {
                        let life = self.life_before(now, host, process);
                        let state = match life {
                            Life::Stopping => State::Stopped,
                            _ => State::Ready,
                        };
                        self.registry.returned(host, process, state);
                        life
                    }
                };
                self.fleet.adopt(now, host, process, life, 0);
            }
            if is_failure(&report.report) && self.is_taking_over() {
                self.hold_back(host, report.number, report.report.clone());
            } else if is_news(&report.report) {
                self.reported(now, host, report.report.clone(), out);
            }
        }
    }

    /// Applies a report. During a take-over, a failure waits while an earlier one of the same agent does: the records name the
    /// newest report that is applied, so they must not have the effects of a later one. What it means to a group depends on
    /// the members of all hosts, so there it always waits.
    pub(super) fn reported_in_turn(
        &mut self,
        now: Time,
        host: &HostId,
        number: u64,
        report: AgentReport,
        out: &mut Out,
    ) {
        let up = self.fleet.host(host).and_then(|state| state.up());
        let waits = self.groups.leads() || up.is_some_and(|up| up.recorded.is_some());
        if waits && self.is_taking_over() && is_failure(&report) {
            if let Some(process) = process_of(&report) {
                self.blacklist.went(now, host, process.local_rank);
            }
            self.hold_back(host, number, report);
        } else {
            self.reported(now, host, report, out);
        }
    }

    /// Keeps a failure until it is decided which round goes on. How a process ended that has failed before is known at once,
    /// since the job may end meanwhile.
    fn hold_back(&mut self, host: &HostId, number: u64, report: AgentReport) {
        if let AgentReport::Exited {
            process,
            exit,
            tail,
            ..
        } = &report
        {
            self.results.exited(host, *process, exit, tail);
        }
        if let Some(takeover) = &mut self.takeover {
            takeover.failures.push((host.clone(), report));
        }
        self.fleet.hold_back_applied(host, number.saturating_sub(1));
    }

    /// Applies the failures that agents have reported before it was decided whether their round goes on. The first failure of a
    /// group ends it, and uses a restart. The others are of the same group, also if the records do not name its members.
    /// Returns whether the job goes on.
    pub(super) fn apply_failures(&mut self, now: Time, out: &mut Out) -> bool {
        let of_group = self.groups.leads() && !planted(Mutant::GroupFailuresCount);
        // No later group has started beside a living member of the one that the records name. So a process that is not among its
        // members was in an earlier one, of which the records may lack everything.
        let is_last = of_group && self.has_living_member();
        let mut is_over = false;
        let failures = self
            .takeover
            .as_mut()
            .map(|takeover| std::mem::take(&mut takeover.failures));
        for (host, report) in failures.into_iter().flatten() {
            if self.is_up(&host) {
                if let Some(process) = process_of(&report)
                    && (is_over || is_last && self.registry.rank(&host, process).is_none())
                {
                    self.fleet.set_life(&host, process, Life::Stopping);
                }
                let known = self.results.failures();
                self.repeated(now, &host, report, out);
                // A process of an earlier group has no part in this one.
                is_over |= of_group && self.results.failures() > known;
            } else if let AgentReport::Exited {
                process,
                exit,
                tail,
                ..
            } = &report
            {
                // The others of its group cannot go on without it, so no fence is needed.
                self.reaped(&host, *process);
                self.exit_known(&host, *process, exit, tail, out);
                // What the end means to a group is decided when the agent returns, or with the loss of its host.
                let ended = (!self.groups.leads()).then(|| self.fleet.end_away(&host, *process));
                if let Some(live) = ended.flatten() {
                    if live.life != Life::Stopping {
                        self.registry.returned(&host, *process, State::Ready);
                    }
                    let (exit, tail) = (exit.clone(), tail.clone());
                    self.fleet_exit(now, &host, live, exit, &tail, out);
                }
            }
            self.fleet.release_applied(&host);
        }
        self.results.outcome().is_none()
    }

    /// Whether a member of the group of the records is known to live.
    fn has_living_member(&self) -> bool {
        let lives = |host: &HostId, process: Process| {
            let live = self.fleet.current(host, process);
            live.is_some_and(|live| live.life != Life::Stopping)
                && self.is_up(host)
                && !self.failure_waits(host, process)
        };
        let members = self.registry.processes();
        (members.iter()).any(|(host, members)| members.iter().any(|member| lives(host, *member)))
    }

    fn adopt_process(
        &mut self,
        now: Time,
        host: &HostId,
        worker: &AdoptedWorker,
        life: Life,
        out: &mut Out,
    ) {
        let AdoptedWorker {
            process, data_port, ..
        } = *worker;
        self.fleet.adopt(now, host, process, life, data_port);
        let lives = worker.phase != AdoptedPhase::Dying;
        let again = lives && !worker.stopping && self.was_stopping(host, process);
        if again {
            // The order of the former driver was lost with its connection.
            self.send_stop(host, process, StopReason::Removed, out);
        }
        // It may still fail by itself before it acts on that.
        let told = lives && worker.stopping || again;
        let state = match life {
            Life::Stopping if !told => State::Stopped,
            _ => State::Ready,
        };
        // The former driver may have given it up with its host.
        self.registry.returned(host, process, state);
        if self.budgets.started() == 0 {
            self.startup.starts += 1;
        }
        match life {
            // A script runs for as long as it needs, also one whose group is not recorded.
            Life::Starting { .. } if self.groups.leads() => {}
            Life::Starting { .. } => {
                self.starts.push_back((now, host.clone(), Some(process)));
            }
            Life::Waiting => {
                self.sdk_seen = true;
                self.waitlist.join(now, host, process);
                self.blacklist.came(now, host, process.local_rank);
                self.probing.look(host);
            }
            Life::Training { .. } | Life::Returning { .. } => {
                self.blacklist.came(now, host, process.local_rank);
            }
            Life::Stopping => {}
        }
        if told {
            self.registry
                .record(host, process, State::StoppedWithDomain);
        }
        if worker.phase == AdoptedPhase::Finished {
            self.registry.record(host, process, State::Finished);
        }
    }

    fn life_of(&self, now: Time, host: &HostId, worker: &AdoptedWorker) -> Life {
        match worker.phase {
            _ if worker.stopping || self.was_stopping(host, worker.process) => Life::Stopping,
            AdoptedPhase::Dying => Life::Stopping,
            // A member of a group trains from its start.
            AdoptedPhase::Starting if self.groups.leads() => {
                self.life_before(now, host, worker.process)
            }
            AdoptedPhase::Starting => Life::Starting { since: now },
            AdoptedPhase::Joined => Life::Waiting,
            AdoptedPhase::Training { round } => Life::Training { round },
            AdoptedPhase::Returning { round } => Life::Returning { round },
            AdoptedPhase::Finished => self.life_before(now, host, worker.process),
        }
    }

    /// Whether a former driver has asked a process to stop, or has counted its failure.
    fn was_stopping(&self, host: &HostId, process: Process) -> bool {
        let stopping = |takeover: &TakeOver| takeover.was_stopping(host, process);
        self.takeover.as_ref().is_some_and(stopping)
    }

    /// The state of a process before its last reports: a member of the last round was in it.
    fn life_before(&self, now: Time, host: &HostId, process: Process) -> Life {
        if self.was_stopping(host, process) {
            return Life::Stopping;
        }
        // A group that goes on had all its members at the decision. What comes later is of another one, which is over.
        if self.groups.leads() && !self.is_taking_over() {
            return Life::Stopping;
        }
        // The former driver has dealt with its end already, or has asked for it.
        if let Some(State::Failed | State::Stopped | State::StoppedWithDomain) =
            self.registry.state(host, process)
        {
            return Life::Stopping;
        }
        match self.registry.rank(host, process) {
            Some((_, round)) => Life::Training { round },
            None => Life::Starting { since: now },
        }
    }
}

/// Whether `last` is a later start of the slot of a process.
fn is_later(last: &Process, process: Process) -> bool {
    last.local_rank == process.local_rank && last.generation > process.generation
}

/// The process that has ended, as a report says.
pub(super) fn process_of(report: &AgentReport) -> Option<Process> {
    match report {
        AgentReport::WorkerLost { process, .. } | AgentReport::Exited { process, .. } => {
            Some(*process)
        }
        _ => None,
    }
}

/// Whether a report is about a failure.
fn is_failure(report: &AgentReport) -> bool {
    match report {
        AgentReport::WorkerLost { .. } => true,
        AgentReport::Exited { exit, stopped, .. } => !exit.is_success() && !stopped,
        _ => false,
    }
}

/// Whether a report to the former driver is news to this one. Answers to commands of the former driver are not, and the
/// states of the processes say which workers wait.
fn is_news(report: &AgentReport) -> bool {
    matches!(
        report,
        AgentReport::WorkerLost { .. }
            | AgentReport::Finished { .. }
            | AgentReport::Exited { .. }
            | AgentReport::Noticed { .. }
            | AgentReport::FreePort { .. }
    )
}
