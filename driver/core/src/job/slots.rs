//! Agents and processes: which are launched, started and stopped.

use elasticrun_protocol::{
    AgentCommand, HostId, LocalRank, Process,
    control::{Spawn, StopReason},
};

use super::{Job, Out, capacity::Capacity};
use crate::{
    Command, Decision, Time,
    blacklist::Domain,
    fleet::{Agent, Life},
    mutant::{Mutant, planted},
    rounds::{Cause, Phase},
};

impl Job {
    /// Counts the usable slots again, marks their hosts as dirty, and announces a changed number of slots.
    pub(super) fn count_capacity(&mut self, out: &mut Out) {
        let before = self.capacity.total();
        // A host that registers itself can be used once its agent has connected.
        let waits = self.settings.self_registration;
        let may_use =
            |host: &HostId| !waits || self.fleet.host(host).is_some_and(|h| h.up().is_some());
        let max = self.settings.max_np;
        self.expected.forget();
        self.counted.forget();
        self.replication.changed();
        let reserve = self.reserve();
        self.capacity = Capacity::count(&self.hosts, &self.blacklist, max, reserve, may_use);
        self.dirty_hosts
            .extend(self.capacity.order().iter().cloned());
        if self.capacity.total() != before {
            if planted(Mutant::ShortageRestarts) {
                self.shortage = Default::default();
            }
            self.note_capacity(out);
        }
    }

    /// Whether a host has a usable slot; also valid while the capacity is dirty.
    pub(super) fn has_usable_slot(&self, host: &HostId) -> bool {
        if !self.capacity_dirty {
            return self.capacity.has(host);
        }
        let mut slots = (0..self.hosts.slots(host)).map(LocalRank);
        slots.any(|slot| !self.blacklist.is_out(host, slot))
    }

    pub(super) fn note_capacity(&self, out: &mut Out) {
        let (hosts, slots) = (self.capacity.order().len(), self.capacity.total());
        out.push(Command::Announce(Decision::HostsChanged { hosts, slots }));
    }

    /// Stops processes whose slot is not usable. Members of a round that trains stay in it.
    pub(super) fn stop_unusable(&mut self, out: &mut Out) {
        let mut stop = Vec::new();
        for (host, state) in self.fleet.hosts() {
            let usable = self.capacity.of_host(host);
            for live in state.live() {
                let in_no_round = matches!(
                    live.life,
                    Life::Starting { .. } | Life::Waiting | Life::Returning { .. }
                );
                if in_no_round && !usable.has(live.process.local_rank) {
                    stop.push((host.clone(), live.process));
                }
            }
        }
        for (host, process) in stop {
            self.stop_outsider(&host, process, out);
        }
        self.dismiss_agents(out);
    }

    /// Stops a process whose slot is not usable.
    pub(super) fn stop_outsider(&mut self, host: &HostId, process: Process, out: &mut Out) {
        let failed = self.blacklist.is_out(host, process.local_rank);
        let why = if failed {
            StopReason::DomainFailed
        } else {
            StopReason::Removed
        };
        self.stop(host, process, why, out);
    }

    /// Stops a process; its end counts neither as success nor as failure.
    pub(super) fn stop(&mut self, host: &HostId, process: Process, why: StopReason, out: &mut Out) {
        use crate::registry::State;
        self.fleet.set_life(host, process, Life::Stopping);
        self.waitlist.leave(host, process);
        self.blacklist.went(self.now, host, process.local_rank);
        let state = match why {
            StopReason::DomainFailed if planted(Mutant::StoppedIsFailed) => State::Failed,
            StopReason::DomainFailed => State::StoppedWithDomain,
            _ => State::Stopped,
        };
        self.registry.record(host, process, state);
        out.push(Command::Announce(Decision::Stopped {
            host: host.clone(),
            process,
            why,
        }));
        self.send(host, AgentCommand::Stop { process, why }, out);
    }

    /// Dismisses agents of hosts that are no longer known, run nothing and keep nothing that could be needed. While
    /// members of the round that trains hold its base and none leaves, no commit of such a host is needed.
    pub(super) fn dismiss_agents(&mut self, out: &mut Out) {
        if !self.base_is_held() && !planted(Mutant::KeeperDismissed) {
            return;
        }
        let idle: Vec<_> = (self.fleet.hosts())
            .filter(|(id, host)| {
                host.up().is_some()
                    && host.live().next().is_none()
                    && !self.hosts.contains(id)
                    && !self.servers.runs_on(id)
            })
            .map(|(id, _)| id.clone())
            .collect();
        for host in idle {
            self.send(&host, AgentCommand::Shutdown, out);
            self.disconnect(&host, out);
            self.lose_agent(&host);
        }
    }

    /// Launches agents and starts processes until all slots that the job may use are filled.
    pub(super) fn fill_slots(&mut self, now: Time, out: &mut Out) {
        // While survivors form a round and sync it, they need the processor more than a newcomer does.
        let busy = match self.rounds.phase {
            Phase::Forming(_) => !self.going_back.waits(),
            Phase::Training(_) => self.newcomers_paused_until.is_some_and(|until| now < until),
            Phase::Idle => false,
        };
        // In a standard job no other worker can take the place of one that may return.
        if busy || !self.settings.elastic && !self.away.is_empty() {
            return;
        }
        let target = self.target();
        let staying = self.fleet.census().staying() - self.leaving();
        let mut wanted = target.saturating_sub(staying + self.done_scripts());
        if wanted == 0 {
            return;
        }
        let all = target >= self.capacity.total() as usize;
        self.recall_launches(now, all);
        if self.dirty_hosts.is_empty() {
            return;
        }
        let hosts: Vec<_> = if all {
            // All slots are wanted, so only hosts with a change since the last call can have a gap.
            std::mem::take(&mut self.dirty_hosts).into_iter().collect()
        } else {
            self.capacity.order().to_vec()
        };
        let (mut launch, mut start) = (Vec::new(), Vec::new());
        for host in &hosts {
            let state = self.fleet.host(host);
            if self.away.contains(host) {
                continue;
            }
            for (slot, place) in self.capacity.slots(host) {
                if wanted == 0 || state.is_some_and(|state| !state.is_free(slot)) {
                    continue;
                }
                // A slot whose agent is not connected yet counts as well: no later host takes its place.
                wanted -= 1;
                match state.map_or(&Agent::Absent, |state| &state.agent) {
                    // Its agent may come back with workers (R4).
                    Agent::Absent if self.may_come_back_with_workers(host) => {}
                    Agent::Absent => launch.push(host.clone()),
                    Agent::Launching { .. } => {}
                    Agent::Up(_) => start.push((host.clone(), slot, place)),
                    Agent::Away(_) => {}
                }
            }
            if wanted == 0 {
                break;
            }
        }
        if wanted == 0 {
            // There may be a gap on one of these hosts that is wanted later.
            self.dirty_hosts.extend(hosts);
        }
        launch.dedup();
        self.launch(now, launch, out);
        if self.groups.leads() {
            // These processes start together ([`Job::lead_group`]).
            return;
        }
        if !start.is_empty() {
            self.expected.update(&self.capacity, &self.registry);
        }
        let Some(coordinator) = self.first_coordinator() else {
            return;
        };
        for of_host in start.chunk_by(|a, b| a.0 == b.0) {
            let host = &of_host[0].0;
            let slots = of_host.iter().map(|(_, slot, _)| *slot);
            let processes = self.fleet.start_all(now, host, slots);
            for ((_, slot, counted), process) in of_host.iter().zip(processes) {
                let place = (self.expected).place(&self.capacity, host, *slot, *counted);
                let place = self.placement.expected(host, place);
                self.startup.starts += 1;
                self.starts.push_back((now, host.clone(), Some(process)));
                self.send(
                    host,
                    AgentCommand::Spawn(Spawn {
                        process,
                        place,
                        coordinator,
                        restarts: None,
                    }),
                    out,
                );
            }
        }
    }

    /// The maximum number of processes: members and spares.
    pub(super) fn target(&self) -> usize {
        let most = |max: u32| (max + self.settings.spares) as usize;
        self.settings.max_np.map_or(usize::MAX, most)
    }

    /// Usable slots whose process ended with code 0 without joining. Those of hosts that have left take no slot of others.
    pub(super) fn done_slots(&self) -> u32 {
        if self.fleet.done() == 0 {
            return 0;
        }
        let done = self.capacity.order().iter().map(|host| {
            let state = self.fleet.host(host);
            let is_done = |slot: &LocalRank| state.is_some_and(|state| state.is_done(*slot));
            self.capacity.local_ranks(host).filter(is_done).count()
        });
        done.sum::<usize>() as u32
    }

    /// Scripts without the SDK that have ended with code 0; they are not replaced.
    pub(super) fn done_scripts(&self) -> usize {
        if self.sdk_seen {
            0
        } else {
            self.fleet.done() as usize
        }
    }

    /// The coordinator if all slots were filled, as far as agents are connected: the first such host.
    fn first_coordinator(&self) -> Option<std::net::SocketAddr> {
        let mut hosts = self.capacity.order().iter();
        let up = hosts.find_map(|host| self.fleet.host(host)?.up())?;
        Some((up.address, up.free_port).into())
    }

    /// Fails processes and agents that take too long to start.
    pub(super) fn end_slow_starts(&mut self, now: Time, out: &mut Out) {
        while let Some((since, host, process)) = self.starts.front().cloned() {
            if since + self.settings.start_timeout > now {
                return;
            }
            self.starts.pop_front();
            match process {
                None => {
                    let agent = self.fleet.host(&host).map(|state| state.agent.clone());
                    let waits = agent == Some(Agent::Launching { since });
                    if waits && !self.settings.self_registration {
                        self.agent_lost(
                            now,
                            &host,
                            "its agent did not connect in time".into(),
                            out,
                        );
                    }
                }
                // A script without the SDK never waits; in a standard job it may run without a limit.
                Some(process) if self.settings.elastic && !planted(Mutant::HungStartKept) => {
                    let live = self.fleet.current(&host, process);
                    let hung = |live: &crate::fleet::Live| match live.life {
                        Life::Starting { .. } => true,
                        Life::Training { .. } => {
                            self.groups.leads() && planted(Mutant::GroupStartTimeout)
                        }
                        _ => false,
                    };
                    let slow = live.filter(hung);
                    if let Some(live) = slow {
                        self.stop(&host, process, StopReason::TimedOut, out);
                        self.slot_failed(now, &host, live, None, &[], out);
                    }
                }
                Some(_) => {}
            }
        }
    }

    pub(super) fn next_slow_start(&self) -> Option<Time> {
        self.starts
            .front()
            .map(|(since, ..)| *since + self.settings.start_timeout)
    }

    /// Ends the cooldowns that are over: their slots can be used again, at once if the job waits for slots. The end of that of
    /// a host that is gone says nothing to an operator and is not announced.
    pub(super) fn end_cooldowns(&mut self, now: Time, out: &mut Out) {
        for domain in self.blacklist.expire(now) {
            if let Domain::Host(host) = &domain
                && !planted(Mutant::PlaceKept)
            {
                self.hosts.move_to_end(host);
            }
            if self.hosts.contains(domain.host()) {
                out.push(Command::Announce(Decision::CooldownOver { domain }));
            }
            let waits = matches!(self.rounds.phase, Phase::Idle);
            self.capacity_dirty |= !(waits && planted(Mutant::CooldownWhileWaiting));
        }
    }

    /// The cause of a change of the hosts.
    pub(super) fn change(added: bool, removed: bool) -> Cause {
        match (added, removed) {
            _ if planted(Mutant::AlwaysMixed) => Cause::Mixed,
            (true, true) => Cause::Mixed,
            (_, true) => Cause::Removed,
            _ => Cause::Added,
        }
    }
}
