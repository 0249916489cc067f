//! How faults are applied to the world, and how they stop.

use std::time::Duration;

use elasticrun_core::{Event as JobEvent, Request, agent::Event as AgentEvent};
use elasticrun_protocol::{Notice, NoticeKind, Process, control::Exit};

use super::{Ev, World, worker::Phase};
use crate::{
    fault::{Fault, Strike},
    rng::Rng,
};

/// Faults that wait for the next process or launch they can apply to.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    fail_starts: u64,
    hang_starts: u64,
    quit_starts: u64,
    refuse_starts: u64,
    fail_launches: u64,
    hang_launches: u64,
    /// For each of the next workers that finish, whether it hangs.
    exits: Vec<bool>,
}

fn take(count: &mut u64) -> bool {
    let taken = *count > 0;
    *count = count.saturating_sub(1);
    taken
}

impl Pending {
    /// The fate of a process that starts: no fault, an early end, or a hang without end.
    pub(super) fn next_start(&mut self, rng: &mut Rng) -> Option<Option<Exit>> {
        if take(&mut self.fail_starts) {
            let exit = if rng.percent(50) {
                Exit::Code(1)
            } else {
                Exit::Signal(11)
            };
            return Some(Some(exit));
        }
        if take(&mut self.quit_starts) {
            return Some(Some(Exit::Code(0)));
        }
        take(&mut self.hang_starts).then_some(None)
    }

    pub(super) fn take_refuse_start(&mut self) -> bool {
        take(&mut self.refuse_starts)
    }

    pub(super) fn take_fail_launch(&mut self) -> bool {
        take(&mut self.fail_launches)
    }

    pub(super) fn take_hang_launch(&mut self) -> bool {
        take(&mut self.hang_launches)
    }

    pub(super) fn next_exit(&mut self) -> Option<bool> {
        self.exits.pop()
    }
}

impl World {
    pub(super) fn strike(&mut self, fault: Fault) {
        if self.healed || self.driver.exited {
            return;
        }
        self.note(format_args!("FAULT {fault:?}"));
        self.strikes.push(Strike {
            at: self.now,
            fault: fault.clone(),
        });
        match fault {
            Fault::KillWorker => {
                if let Some((host, process)) = self.some_worker(|_| true) {
                    self.die(host, process, Exit::Signal(9));
                }
            }
            Fault::KillServer => self.kill_server(),
            Fault::FailWorker => {
                if let Some((host, process)) = self.some_worker(|phase| phase != Phase::Finished) {
                    self.die(host, process, Exit::Code(1));
                }
            }
            Fault::FailAll => {
                for (host, process) in self.workers(|phase| phase != Phase::Finished) {
                    let wait = self.rng.micros(0, 100_000);
                    self.act_after(
                        host,
                        process,
                        wait,
                        super::schedule::Act::Exit(Exit::Code(3)),
                    );
                }
            }
            Fault::FailOneOfEach => {
                for host in 0..self.hosts.len() {
                    let of_host = self.workers(|_| true).into_iter().find(|(h, _)| *h == host);
                    if let Some((host, process)) = of_host {
                        self.die(host, process, Exit::Code(1));
                    }
                }
            }
            Fault::Suspend { resume } => {
                if let Some((host, process)) = self.some_worker(|_| true) {
                    self.suspend(host, process);
                    if let Some(wait) = resume {
                        self.after(wait, Ev::Resume { host, process });
                    }
                }
            }
            Fault::FailStarts(count) => self.pending.fail_starts += count,
            // In a standard job a script may take any time before it joins, or never join.
            Fault::HangStarts(_) if !self.plan.settings.elastic => {}
            Fault::HangStarts(count) => self.pending.hang_starts += count,
            Fault::QuitStarts(count) => self.pending.quit_starts += count,
            Fault::RefuseStarts(count) => self.pending.refuse_starts += count,
            Fault::FailExit { hang } => self.pending.exits.push(hang),
            Fault::Busy(wait) => {
                if let Some((host, process)) = self.some_worker(|_| true)
                    && let Some(worker) = self.worker(host, process)
                {
                    worker.away += wait;
                }
            }
            Fault::FailLaunches(count) => self.pending.fail_launches += count,
            Fault::HangLaunches(count) => self.pending.hang_launches += count,
            Fault::KillAgent => {
                if let Some(host) = self.some_agent() {
                    self.agent_ends(host);
                }
            }
            Fault::LateDeath { after } => self.late_death(after),
            Fault::KillProcess { host, process } => self.die(host, process, Exit::Signal(9)),
            Fault::TermAgent => {
                let host = self.some_agent();
                if let Some(agent) = host.and_then(|host| self.hosts[host].agent.as_mut()) {
                    agent.told = true;
                    let number = agent.number;
                    let event = elasticrun_core::agent::Event::StopRequested;
                    crate::invariants::r9::agent_told(self);
                    self.machine_event(host.unwrap_or(0), number, event);
                }
            }
            Fault::Notice { within } => {
                if let Some(host) = self.some_agent() {
                    // A risk alone does not drain a host.
                    let kind = match self.lateness_rng.percent(20) {
                        true => NoticeKind::RebalanceRecommendation,
                        false => NoticeKind::Operator,
                    };
                    self.host_noticed(host, Notice { kind, within });
                }
            }
            Fault::NoticeAll { within, apart } => {
                for host in 0..self.hosts.len() {
                    let most = apart.as_micros() as u64;
                    let wait = self.lateness_rng.micros(0, most);
                    self.after(wait, Ev::Fault(Fault::NoticeHost { host, within }));
                }
            }
            Fault::NoticeHost { host, within } => {
                if self.hosts[host].agent.is_some() {
                    let (kind, within) = (NoticeKind::Operator, Some(within));
                    self.host_noticed(host, Notice { kind, within });
                }
            }
            Fault::KillHost { back } => {
                if let Some(host) = self.some_agent() {
                    self.kill_host(host, Some(back));
                }
            }
            Fault::Cut {
                up,
                down,
                data,
                heal,
            } => self.cut(up, down, data, heal),
            Fault::Break => {
                if let Some(host) = self.some_agent() {
                    self.break_link(host, false);
                }
            }
            Fault::BreakNetwork {
                all,
                up,
                down,
                closes,
                heard,
                heal,
            } => {
                let one = if all { None } else { self.some_agent() };
                for host in 0..self.hosts.len() {
                    let struck = all && self.hosts[host].agent.is_some() || one == Some(host);
                    if struck {
                        self.cut_host(host, up, down, false, heal);
                        if closes {
                            self.break_link(host, heard);
                        }
                    }
                }
            }
            Fault::HangHost => {
                if let Some(host) = self.some_agent() {
                    self.hosts[host].starts_hang = true;
                }
            }
            Fault::LoseWay => {
                let host = self.lateness_rng.range(0, self.hosts.len() as u64 - 1);
                self.hosts[host as usize].no_way = true;
            }
            Fault::LoseData => {
                let host = self.lateness_rng.range(0, self.hosts.len() as u64 - 1) as usize;
                let state = &mut self.hosts[host];
                state.cut_data += 1;
                (state.was_cut, state.data_lost) = (true, true);
            }
            Fault::StallAgent(_) if self.plan.groups.as_ref().is_some_and(|plan| !plan.attach) => {}
            Fault::StallAgent(wait) => {
                if let Some(host) = self.some_agent() {
                    let until = self.now + wait;
                    (self.hosts[host].stalled, self.hosts[host].awake) = (until, until);
                }
            }
            Fault::StallDriver(wait) => self.stall_driver(wait),
            Fault::KillDriver { lost_writes, down } => self.kill_driver(lost_writes, down),
            Fault::CutHost { host, heal } => self.cut_host(host, true, true, true, heal),
            Fault::CutMember { heal } => {
                let members = self.member_hosts();
                if let Some(host) = self.lateness_rng.pick(&members) {
                    self.cut_host(host, false, false, true, heal);
                }
            }
            Fault::CutMembers { up, down, heal } => self.cut_members(up, down, heal),
            Fault::CrossMembers { after, heal } => {
                self.cut_members(false, true, heal);
                let (up, down, heal) = (true, false, heal + after);
                self.after(after, Ev::Fault(Fault::CutMembers { up, down, heal }));
            }
            Fault::KillMembers { back } => {
                for host in self.member_hosts() {
                    self.kill_host(host, Some(back));
                }
            }
            Fault::Stop => self.job_event(JobEvent::StopRequested { signal: 15 }),
            other => self.change_hosts(other),
        }
    }

    /// A host will go away, or may: its agent gets a notice, or an operator drains it.
    fn host_noticed(&mut self, host: usize, notice: Notice) {
        let agent = self.hosts[host].agent.as_ref().map(|agent| agent.number);
        match agent {
            Some(number) if notice.kind.is_risk_only() || self.lateness_rng.percent(50) => {
                self.machine_event(host, number, AgentEvent::Noticed(notice));
            }
            _ => {
                let host = self.hosts[host].id.clone();
                let within = notice.within;
                let request = Request::Drain { host, within };
                self.job_event(JobEvent::Requested { id: 0, request });
            }
        }
    }

    fn workers(&self, which: impl Fn(Phase) -> bool) -> Vec<(usize, Process)> {
        let mut found = Vec::new();
        for (index, host) in self.hosts.iter().enumerate() {
            let alive = host
                .workers
                .iter()
                .filter(|(_, w)| w.phase != Phase::Dead && which(w.phase));
            found.extend(alive.map(|(process, _)| (index, *process)));
        }
        found
    }

    fn some_worker(&mut self, which: impl Fn(Phase) -> bool) -> Option<(usize, Process)> {
        let all = self.workers(which);
        self.rng.pick(&all)
    }

    fn some_agent(&mut self) -> Option<usize> {
        let all: Vec<_> = (0..self.hosts.len())
            .filter(|host| self.hosts[*host].agent.is_some())
            .collect();
        self.rng.pick(&all)
    }

    /// A host loses its power. The driver notices it only by silence.
    pub(super) fn kill_host(&mut self, host: usize, back: Option<Duration>) {
        self.note(format_args!("h{host} is dead"));
        self.hosts[host].alive = false;
        self.hosts[host].launch_waits = false;
        if let Some(agent) = &self.hosts[host].agent {
            // No packet closes the connection.
            let link = agent.link;
            self.links[link].agent_open = false;
        }
        self.agent_ends(host);
        let dead: Vec<_> = self.hosts[host].workers.keys().copied().collect();
        for process in dead {
            self.die(host, process, Exit::Signal(9));
        }
        if let Some(wait) = back {
            self.after(wait, Ev::Revive(host));
        }
    }

    pub(super) fn revive(&mut self, host: usize) {
        if std::mem::replace(&mut self.hosts[host].alive, true) {
            return;
        }
        self.note(format_args!("h{host} is back"));
        if self.plan.settings.self_registration {
            self.after(Duration::from_millis(500), Ev::Register(host));
        }
    }

    /// Hosts of the members of the last round that have an agent.
    fn member_hosts(&self) -> Vec<usize> {
        let seats = self.rounds.values().next_back().map(|round| &round.seats);
        let seats = seats.into_iter().flatten().map(|seat| seat.host);
        let group = self.last_group().filter(|_| self.rounds.is_empty());
        let members = group.into_iter().flat_map(|(_, group)| &group.members);
        let hosts = seats.chain(members.map(|(host, _)| *host));
        let mut hosts: Vec<_> = hosts
            .filter(|host| self.hosts[*host].agent.is_some())
            .collect();
        hosts.dedup();
        hosts
    }

    fn cut_members(&mut self, up: bool, down: bool, heal: Duration) {
        for host in self.member_hosts() {
            self.cut_host(host, up, down, false, heal);
        }
    }

    fn cut(&mut self, up: bool, down: bool, data: bool, heal: Duration) {
        if let Some(host) = self.some_agent() {
            self.cut_host(host, up, down, data, heal);
        }
    }

    fn cut_host(&mut self, host: usize, up: bool, down: bool, data: bool, heal: Duration) {
        self.note(format_args!("h{host} is cut"));
        self.hosts[host].cut_up += u32::from(up);
        self.hosts[host].cut_down += u32::from(down);
        self.hosts[host].cut_data += u32::from(data);
        self.hosts[host].was_cut |= data;
        self.hosts[host].disturbed = self.now;
        self.after(
            heal,
            Ev::Uncut {
                host,
                up,
                down,
                data,
            },
        );
    }

    pub(super) fn uncut(&mut self, host: usize, up: bool, down: bool, data: bool) {
        self.note(format_args!("h{host} is reached again"));
        let state = &mut self.hosts[host];
        state.cut_up -= u32::from(up);
        state.cut_down -= u32::from(down);
        state.cut_data -= u32::from(data);
        state.disturbed = self.now;
        // Held messages arrive now, in order.
        for link in 0..self.links.len() {
            if self.links[link].host == host {
                let now = self.now;
                for _ in 0..self.links[link].up.len() {
                    self.at(now, Ev::Up(link));
                }
                for _ in 0..self.links[link].down.len() {
                    self.at(now, Ev::Down(link));
                }
            }
        }
        self.retry_collectives();
        self.retry_groups();
    }

    /// From now on nothing fails any more.
    pub(super) fn heal(&mut self) {
        self.note(format_args!("HEAL: nothing fails any more"));
        self.healed = true;
        self.pending = Pending::default();
        for host in 0..self.hosts.len() {
            if !self.hosts[host].alive {
                self.revive(host);
            }
        }
        for (host, process) in self.workers(|_| true) {
            self.resume(host, process);
        }
        self.heal_discovery();
        self.after(self.plan.patience(), Ev::Patience);
    }
}
