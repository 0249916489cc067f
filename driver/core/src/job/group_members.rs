//! Members of a group: failure, loss with the host, attach.

use elasticrun_protocol::{
    AgentCommand, HostId, LocalRank, Process,
    control::{Exit, Spawn},
};

use super::{Job, Out, reject};
use crate::{
    Command, Decision, Rejected, Time,
    blacklist::Domain,
    fleet::{Life, Live},
    mutant::{Mutant, planted},
    registry::State,
    results::{Outcome, Reason},
    rounds::Cause,
};

impl Job {
    /// Handles a member that failed by itself: the group is restarted, or the job fails.
    pub(super) fn group_member_failed(
        &mut self,
        now: Time,
        host: &HostId,
        live: Live,
        exit: Option<Exit>,
        tail: &[String],
        out: &mut Out,
    ) {
        let process = live.process;
        self.registry.record(host, process, State::Failed);
        self.note_failure(host, process, exit, tail, out);
        if planted(Mutant::GroupFailureIgnored) {
            return;
        }
        if self.is_ending() && !planted(Mutant::GroupRestartsAtEnd) {
            // No group follows this one. The other members end by themselves or at the exit timeout.
            return;
        }
        let allowed = self.budgets.max_restarts();
        let used = match planted(Mutant::GroupRestartUncounted) {
            true => Some(allowed),
            false => self.budgets.restart(),
        };
        let Some(used) = used else {
            if self.registry.alive() > 0 && self.groups.defer_verdict(now) {
                // For workers with the SDK this is the failure of one slot.
                self.startup.failures += 1;
                let domain = Domain::Slot(host.clone(), process.local_rank);
                return self.domain_failed(now, domain, live.since, out);
            }
            return self.end_for_failure(out);
        };
        if !self.settings.nothing_is_blacklisted() {
            let domain = self.failure_domain(host, process);
            self.domain_failed(now, domain, live.since, out);
        }
        if planted(Mutant::GroupMemberAlone) {
            self.fleet.end(host, process);
            let process = self.fleet.start(now, host, process.local_rank);
            let round = self.groups.newest();
            let life = Life::Training { round };
            self.fleet.set_life(host, process, life);
            return self.start_alone(host, process, out);
        }
        let host = host.clone();
        self.end_group(now, Cause::WorkerFailed { host, process }, out);
        out.push(Command::Announce(Decision::GroupRestarts { used, allowed }));
    }

    /// A planted mistake: a process is started in the place of one that failed.
    fn start_alone(&mut self, host: &HostId, process: Process, out: &mut Out) {
        let mut slots = self.capacity.slots(host);
        let up = self.fleet.host(host).and_then(|state| state.up());
        if let (Some((_, place)), Some(up)) = (slots.next(), up) {
            let spawn = Spawn {
                process,
                place,
                coordinator: (up.address, up.free_port).into(),
                restarts: None,
            };
            self.send(host, AgentCommand::Spawn(spawn), out);
        }
    }

    /// Ends the job: a worker failed and no restart is left.
    pub(super) fn end_for_failure(&mut self, out: &mut Out) {
        let allowed = self.budgets.max_restarts();
        let reason = Reason::NoRestartLeft { allowed };
        self.end(Outcome::WorkerFailed(reason), out);
    }

    /// The domain that the failure of a worker takes out.
    pub(super) fn failure_domain(&self, host: &HostId, process: Process) -> Domain {
        use crate::FailureDomain;
        match self.settings.failure_domain {
            _ if planted(Mutant::SlotForHost) => Domain::Slot(host.clone(), process.local_rank),
            FailureDomain::Slot => Domain::Slot(host.clone(), process.local_rank),
            // The other workers of a host have shards that nobody else may have. Its agent lives, and a host without one is lost
            // as a whole.
            FailureDomain::Auto if self.hosts.len() <= 1 || self.is_divided() => {
                Domain::Slot(host.clone(), process.local_rank)
            }
            FailureDomain::Auto | FailureDomain::Host => Domain::Host(host.clone()),
        }
    }

    /// Handles the end of a process. The others of its group cannot continue without it. A process of an earlier group says
    /// nothing of the last one, which may run where the job does not see it (R11).
    pub(super) fn reaped(&mut self, host: &HostId, process: Process) {
        if self.registry.rank(host, process).is_some() {
            self.groups.member_reaped();
        }
    }

    /// Handles members that were lost with their host. This is a change of the members, so it uses no restart.
    pub(super) fn group_lost_host(&mut self, now: Time, host: &HostId, out: &mut Out) {
        if !self.is_ending() {
            if planted(Mutant::GroupLossCounts) {
                self.budgets.restart();
            }
            let host = host.clone();
            self.end_group(now, Cause::HostFailed { host }, out);
        }
    }

    /// Handles a worker that has attached: the running processes are on their way to `run()`, and rounds lead from now on.
    pub(super) fn worker_attached(
        &mut self,
        now: Time,
        host: &HostId,
        process: Process,
        out: &mut Out,
    ) {
        if self.fleet.current(host, process).is_none() {
            return reject(out, host, Rejected::StaleProcess(process));
        }
        if planted(Mutant::GroupAttachIgnored) && self.groups.leads() || !self.groups.give_way() {
            return;
        }
        out.push(Command::Announce(Decision::Attached));
        self.hand_over(now);
    }

    /// Rounds lead from now on, and the members of a group are processes in no round.
    pub(super) fn hand_over(&mut self, now: Time) {
        let mut members: Vec<(HostId, Live)> = Vec::new();
        for (host, state) in self.fleet.hosts() {
            let live = state.live().filter(|live| live.life != Life::Stopping);
            members.extend(live.map(|live| (host.clone(), live)));
        }
        for (host, live) in members {
            self.blacklist.went(now, &host, live.process.local_rank);
            // The start timeout of the processes begins now.
            self.fleet
                .set_life(&host, live.process, Life::Starting { since: now });
            self.starts.push_back((now, host, Some(live.process)));
        }
        for host in &self.away {
            let starting = |_: &Live| Life::Starting { since: now };
            self.fleet.set_lives_away(host, starting);
        }
        let successful = self.registry.successful();
        let done: Vec<(HostId, LocalRank)> = successful.map(|(h, s)| (h.clone(), s)).collect();
        for (host, slot) in done {
            self.fleet.set_done(&host, slot);
        }
        self.registry.clear();
        self.exits_since = None;
        if !planted(Mutant::GroupsAreRounds) {
            self.budgets.forget_rounds();
        }
        self.capacity_dirty = true;
    }
}
