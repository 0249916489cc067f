//! Hosts whose connection has ended, and whose agents may return with their workers.
//!
//! ```text
//!            the connection ends                  the agent returns with its workers
//!   up -----------------------------> away -------------------------------------------> up
//!                                      |   its process is known to have ended,
//!                                      |   or the fence and the keep timeout are over
//!                                      '------------------------------------------------> lost
//! ```
//! - The slots of an away host take part in nothing: no plan has them, no process is started there.
//! - The round or group is left as it is for a moment ([`super::contact`]). If all its hosts are back by then, it has lost
//!   nothing. Its workers stop at the end of their lease, so it harms nothing either (R11).
//! - Then others go on without the host, if they can. A group is worth more than a round, since its processes begin anew,
//!   so it is left only after the fence.
//! - If they cannot, the round stays as it is until the host is back or lost.
//! - The time limit counts from the end of the connection. By then the agent has ended its workers: it began to count no
//!   later, at the last heartbeat that was answered, and keeps them for no longer ([`crate::lease`]).
//! - The drain of a host that is away goes on: at its deadline the host is lost.

use elasticrun_protocol::HostId;

use super::{Job, Out};
use crate::{
    Command, Decision, Time,
    fleet::{Away, Life, Live},
    mutant::{Mutant, planted},
    registry::State,
    rounds::{Cause, Phase},
    time::earliest,
};

impl Job {
    /// Handles the end of the connection of an agent. The host is lost if the agent cannot return.
    pub(super) fn connection_lost(&mut self, now: Time, host: &HostId, why: String, out: &mut Out) {
        let Some(up) = self.fleet.host(host).and_then(|state| state.up()) else {
            return;
        };
        if let Some(ended) = &up.launch_ended {
            let why = ended.clone();
            return self.agent_lost(now, host, why, out);
        }
        let is_over = self.hosts.drain_due(host).is_some_and(|due| due <= now);
        // A standard job that has not begun, or whose members leave their round, has nothing to keep.
        let begins = match &self.rounds.phase {
            Phase::Idle => false,
            Phase::Training(training) => training.hold.is_some(),
            Phase::Forming(_) => true,
        };
        let fails = !self.settings.elastic && begins;
        if !up.returns || is_over || fails {
            return self.agent_lost(now, host, why, out);
        }
        self.close(host, out);
        let memory_lost = self.set_apart(now, host);
        let planned = self.rounds.last();
        self.fleet.go_away(now, host, planned, memory_lost, &why);
        self.away.insert(host.clone());
        out.push(Command::Announce(Decision::HostAway {
            host: host.clone(),
            why,
            keep: self.settings.fence + self.settings.keep,
        }));
        // What becomes of the members of a former group is decided with the take-over.
        let undecided = self.is_taking_over() && self.groups.leads();
        if !undecided && (!self.waits_for(host) || !self.holds_on(now)) {
            self.go_on_without(now, host, out);
        }
    }

    /// Handles the end of the launch of an agent: its process is gone.
    pub(super) fn launch_ended(&mut self, now: Time, host: &HostId, why: String, out: &mut Out) {
        use crate::fleet::Agent;
        match self.fleet.host(host).map(|state| &state.agent) {
            Some(Agent::Launching { .. } | Agent::Away(_)) => self.agent_lost(now, host, why, out),
            // The end of the connection follows.
            Some(Agent::Up(_)) => {
                if let Some(up) = self.fleet.up_mut(host) {
                    up.launch_ended = Some(why);
                }
            }
            Some(Agent::Absent) | None => {}
        }
    }

    /// Handles the death of an agent, unless it has been replaced by another one since.
    pub(super) fn agent_died(
        &mut self,
        now: Time,
        host: &HostId,
        agent: u64,
        why: String,
        out: &mut Out,
    ) {
        if self.is_agent(host, agent) {
            self.launch_ended(now, host, why, out);
        }
    }

    /// Whether the agent of a host, which may be away, is the process with this number.
    pub(super) fn is_agent(&self, host: &HostId, agent: u64) -> bool {
        let up = self.fleet.host(host).and_then(|state| state.last_up());
        up.is_some_and(|up| up.agent == Some(agent))
    }

    /// Takes the processes and the memory of a host out of all that is planned. Returns whether commits that the job may
    /// need are out of reach from now on.
    pub(super) fn set_apart(&mut self, now: Time, host: &HostId) -> bool {
        let goes = self.hosts.is_draining(host) || self.hosts.is_left_out(host);
        let Some(state) = self.fleet.host(host) else {
            return false;
        };
        let (lives, had_memory): (Vec<Live>, _) = (state.live().collect(), state.has_memory);
        self.probing.forget(host);
        self.counted.forget();
        for live in &lives {
            self.waitlist.leave(host, live.process);
            self.blacklist.went(now, host, live.process.local_rank);
        }
        let memory_lost = had_memory && self.memory_lost.insert(host.clone());
        // It may have a shard of the base, whichever round it was in last.
        let has_shard = had_memory && self.is_divided();
        let has_replica = self.may_have_replica(host) || has_shard;
        if had_memory || has_replica {
            self.going_back.lost(host, goes, has_replica);
        }
        if !lives.is_empty() {
            let parts = 1 + u32::from(planted(Mutant::ShortFence));
            self.fenced_until = Some(now + self.settings.fence / parts);
        }
        self.rounds.forget_answer(host);
        self.store_reader_lost(host);
        self.replication.lost(host);
        self.dirty_hosts.insert(host.clone());
        self.capacity_dirty |= self.settings.self_registration;
        memory_lost
    }

    /// Whether a process is in the round or group that runs, or in the round that is being left.
    pub(super) fn is_in_play(&self, live: &Live) -> bool {
        let Life::Training { round } = live.life else {
            return false;
        };
        if self.groups.leads() {
            return self.groups.running() == Some(round);
        }
        match &self.rounds.phase {
            Phase::Idle => false,
            Phase::Training(training) => training.round == round,
            Phase::Forming(forming) => {
                (forming.leaving.as_ref()).is_some_and(|left| left.round == round)
            }
        }
    }

    /// Whether members of the round or group that runs are on this host, which is away.
    pub(super) fn waits_for(&self, host: &HostId) -> bool {
        let away = self.fleet.host(host).and_then(|state| state.away());
        away.is_some_and(|away| away.live.iter().any(|live| self.is_in_play(live)))
    }

    /// Whether members of the round or group that runs are on hosts that are away.
    pub(super) fn waits_for_away(&self) -> bool {
        self.away.iter().any(|host| self.waits_for(host))
    }

    /// Whether members of the round or group that started last are on hosts that are away, so that their ends may follow.
    pub(super) fn awaits_members(&self) -> bool {
        self.away.iter().any(|host| {
            let away = self.fleet.host(host).and_then(|state| state.away());
            let lives = away.into_iter().flat_map(|away| &away.live);
            let mut members = lives.filter(|live| live.life != Life::Stopping);
            members.any(|live| self.registry.rank(host, live.process).is_some())
        })
    }

    /// Whether the round or group that runs is kept as it is for members on hosts that are away: they may return in time,
    /// or the others could not go on without them.
    fn holds_on(&self, now: Time) -> bool {
        if planted(Mutant::AwayIsLost) {
            return false;
        }
        let never_follows = !self.settings.elastic || self.is_ending();
        if self.groups.leads() {
            let fenced = self.fenced_until.is_some_and(|until| now < until);
            return never_follows
                || fenced
                || self.awaits_return(now)
                || self.group_size() < self.needed() as usize;
        }
        match &self.rounds.phase {
            // The agents have withdrawn a hold with their connection, so its count is void.
            Phase::Training(training) if training.hold.is_none() => {
                // Newcomers cannot be probed by a round that is out of reach.
                never_follows
                    || self.awaits_return(now)
                    || self.choose_of(|_| true).len() < self.needed() as usize
            }
            _ => false,
        }
    }

    /// Goes on without the hosts that are away, if the others can do so by now. Returns whether they do.
    pub(super) fn leave_the_away(&mut self, now: Time, out: &mut Out) -> bool {
        if self.away.is_empty() || !self.waits_for_away() || self.holds_on(now) {
            return false;
        }
        self.leave_behind(now, out);
        true
    }

    /// Goes on without the hosts that are away. Returns whether there are any with members of what runs.
    pub(super) fn leave_behind(&mut self, now: Time, out: &mut Out) -> bool {
        let mut left = self.away.clone();
        left.retain(|host| self.waits_for(host));
        for host in &left {
            self.go_on_without(now, host, out);
        }
        !left.is_empty()
    }

    /// Counts the members of an away host as lost with it, and ends the round that needs them.
    fn go_on_without(&mut self, now: Time, host: &HostId, out: &mut Out) {
        let Some(away) = self.fleet.host(host).and_then(|state| state.away()) else {
            return;
        };
        let lives = away.live.clone();
        let needed: Vec<_> = lives.iter().map(|live| self.is_in_play(live)).collect();
        self.record_lost(now, host, &lives);
        self.break_off(now, host, needed.contains(&true), out);
    }

    /// Records that members were lost with their host.
    pub(super) fn record_lost(&mut self, now: Time, host: &HostId, lives: &[Live]) {
        let state = match () {
            () if planted(Mutant::LostIsFailed) => State::Failed,
            () => State::LostWithHost,
        };
        let mut any = false;
        for live in lives {
            any |= self.registry.rank(host, live.process).is_some();
            self.registry.record(host, live.process, state);
        }
        if any {
            self.suspicion.failed(now, host);
        }
    }

    /// Records that all members on away hosts are lost: their round is over.
    pub(super) fn forsake_away(&mut self) {
        for host in self.away.clone() {
            let away = self.fleet.host(&host).and_then(|state| state.away());
            let lives = away.map(|away| away.live.clone()).unwrap_or_default();
            for live in lives {
                self.registry
                    .record(&host, live.process, State::LostWithHost);
            }
        }
    }

    /// Ends the round or group that cannot go on without a host, and that had members there if `trained`. Returns whether
    /// there was one.
    pub(super) fn break_off(
        &mut self,
        now: Time,
        host: &HostId,
        trained: bool,
        out: &mut Out,
    ) -> bool {
        if trained && self.groups.leads() {
            self.group_lost_host(now, host, out);
            return true;
        }
        let concerned = match &self.rounds.phase {
            Phase::Idle => false,
            Phase::Training(_) => trained,
            Phase::Forming(forming) => {
                forming.members.contains_key(host)
                    || forming.missing.contains(host)
                    || forming.leaving.is_some() && trained
            }
        };
        self.loss_grace_until = None;
        if concerned {
            self.rounds
                .disturb(now, Cause::HostFailed { host: host.clone() });
            self.after_failure(now, out);
        }
        concerned
    }

    /// Loses hosts that were away for too long.
    pub(super) fn end_absences(&mut self, now: Time, out: &mut Out) {
        let over = |host: &&HostId| self.absence_ends(host).is_some_and(|end| end <= now);
        let over: Vec<_> = self.away.iter().filter(over).cloned().collect();
        for host in over {
            let away = self.fleet.host(&host).and_then(|state| state.away());
            let why = away.map(|away| away.why.clone()).unwrap_or_default();
            self.agent_lost(now, &host, why, out);
        }
    }

    /// When a host that is away is lost.
    fn absence_ends(&self, host: &HostId) -> Option<Time> {
        let Away { since, .. } = self.fleet.host(host)?.away()?;
        let end = *since + self.settings.fence + self.settings.keep;
        earliest([Some(end), self.hosts.drain_due(host)])
    }

    /// When the next host that is away is lost, or others may go on without one.
    pub(super) fn next_absence_deadline(&self) -> Option<Time> {
        let ends = self.away.iter().map(|host| self.absence_ends(host));
        let waits = self.groups.leads() && !self.away.is_empty() && self.waits_for_away();
        let fence = (self.fenced_until).filter(|until| waits && *until > self.settled);
        earliest(ends.chain([fence, self.next_patience_end()]))
    }
}
