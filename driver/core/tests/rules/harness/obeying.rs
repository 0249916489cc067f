//! How hosts carry out the commands of the job.

use elasticrun_core::{Command, Event};
use elasticrun_protocol::{
    AgentCommand, AgentReport, Boundary, HostId, Process, Round, Shard,
    control::{Exit, Held, Kept, Seat, StopReason, Waiting},
};

use super::{Harness, Worker, commit as commit_of, made::layout_of, process as process_of};

impl Harness {
    pub(super) fn obey(&mut self) {
        self.record();
        for command in std::mem::take(&mut self.todo) {
            assert!(!self.exited, "nothing follows Exit, and {command:?} does");
            if let Command::Launch { host } = &command {
                self.launched.push(host.clone());
            }
            match command {
                Command::Launch { host } if self.unreachable.contains(&host) => {
                    let why = "no way there".to_owned();
                    self.event(Event::LaunchFailed { host, why });
                }
                Command::Launch { host } if !self.passive.contains(&host) => {
                    let name = host.to_string();
                    self.connects(&name);
                }
                Command::Launch { .. } => {}
                Command::Disconnect { host, instance } => self.disconnected.push((host, instance)),
                Command::Refuse { host, instance } => self.refused.push((host, instance)),
                Command::RefuseName { host, instance, .. } => {
                    self.namesakes.push((host, instance));
                }
                Command::EndLaunch {
                    host,
                    unless_connected,
                } => self.ended_launches.push((host, unless_connected)),
                Command::Admit {
                    host,
                    instance,
                    adopted,
                } => {
                    self.admits(&host, adopted);
                    self.admitted.push((host, instance));
                }
                Command::SendBack { host, instance } => self.sent_back.push((host, instance)),
                Command::Send {
                    command: AgentCommand::Heartbeat { .. },
                    ..
                } => {}
                Command::Send { host, command } => {
                    self.sent.push((host.clone(), command.clone()));
                    self.does(&host, command);
                }
                Command::OpenRound { round } => self.opened = Some(round),
                Command::TellSources { host, state } => self.departures.push((host, state)),
                Command::Answer { id, answer } => {
                    assert_eq!(id, 7, "an answer names its request");
                    self.answers.push(answer);
                }
                Command::Reject { why, .. } => self.rejected.push(why),
                Command::Announce(note) => self.notes.push(note),
                Command::End(outcome) => {
                    assert_eq!(self.outcome, None, "R10: one outcome");
                    self.outcome = Some(outcome);
                }
                Command::Exit => {
                    assert!(
                        self.outcome.is_some(),
                        "a driver exits when its job has ended"
                    );
                    self.exited = true;
                }
            }
        }
    }

    fn does(&mut self, id: &HostId, command: AgentCommand) {
        let Some(host) = self.hosts.get_mut(id) else {
            return;
        };
        let name = id.to_string();
        match command {
            AgentCommand::Spawn(spawn) => {
                let slot = spawn.process.local_rank;
                let others = host.workers.keys().filter(|other| other.local_rank == slot);
                assert_eq!(others.count(), 0, "R4: one process a slot");
                host.workers.insert(spawn.process, Worker::default());
                host.starts.insert(slot, spawn.process.generation);
                if !self.slow && !self.passive.contains(id) {
                    self.joins(&name, slot.0);
                }
            }
            AgentCommand::Plan { round, members } => {
                host.plan = Some((round, members));
                self.answer(id);
            }
            AgentCommand::Start(start) => {
                assert_eq!(self.opened, Some(start.round), "its store is open");
                host.plan = None;
                let (round, base) = (start.round, start.base);
                for member in &start.members {
                    let first = commit_of(round.0, 0);
                    let before = host.workers[&member.process].commit;
                    let is_late = member.seat.is_some() && self.late_to_seal;
                    if let Some(Seat { shard, of, .. }) = member.seat
                        && !is_late
                    {
                        let layout = layout_of(of);
                        let index = shard;
                        let shard = Shard { layout, index, of };
                        host.seals(member.process, before, first, shard);
                    }
                    let is_divided = member.seat.is_some();
                    let commit = base.filter(|_| !is_divided).unwrap_or(first);
                    let commit = if is_late { before } else { Some(commit) };
                    let worker = Worker {
                        left: None,
                        joined: false,
                        round: Some(round),
                        commit,
                        empty: false,
                    };
                    host.workers.insert(member.process, worker);
                }
                if self
                    .starts
                    .first()
                    .is_none_or(|(_, last)| last.round != round)
                {
                    self.starts.clear();
                }
                self.starts.push((id.clone(), *start));
            }
            AgentCommand::Hold { round } if !self.passive.contains(id) => {
                let highest = Boundary(4);
                self.report(&name, AgentReport::BoundaryCounted { round, highest });
            }
            AgentCommand::Leave { round, .. } if !self.passive.contains(id) => {
                let planned = self.hosts[id].plan.clone();
                self.commit_round(id, round);
                let left = self.come_back(id, round);
                let unplanned: Vec<_> = (left.into_iter())
                    .filter(|p| {
                        planned
                            .as_ref()
                            .is_none_or(|(_, members)| !members.contains(p))
                    })
                    .map(|process| Waiting {
                        process,
                        left: Some(round),
                        data_port: 1,
                    })
                    .collect();
                // The agent merges reports: an answer to the plan that follows at once replaces this one.
                if !unplanned.is_empty() {
                    let workers = unplanned;
                    self.report(&name, AgentReport::Waiting { workers });
                }
                self.answer(id);
            }
            AgentCommand::Abort { round } => {
                if host
                    .plan
                    .as_ref()
                    .is_some_and(|(planned, _)| *planned == round)
                {
                    host.plan = None;
                }
                if !self.passive.contains(id) {
                    self.come_back(id, round);
                    self.answer(id);
                }
            }
            AgentCommand::Probe { number, hosts, .. } if !self.mute.contains(&name) => {
                let way = |to: &HostId| (name.clone(), to.to_string());
                let named = hosts.into_iter().map(|probed| probed.host);
                let unreachable = named.filter(|to| self.cut.contains(&way(to))).collect();
                self.report(
                    &name,
                    AgentReport::Probed {
                        number,
                        unreachable,
                    },
                );
            }
            AgentCommand::FindDurable { number, .. } if self.reads_store(id, number) => {
                let found = AgentReport::DurableFound {
                    number,
                    commits: self.store.clone(),
                    refused: self.store_errors.clone(),
                };
                self.report(&name, found);
            }
            AgentCommand::LoadDurable {
                number,
                stored,
                id: commit,
            } if self.reads_store(id, number) => {
                let is_damaged = self.damaged.contains(&stored.commit);
                if !is_damaged {
                    let process = process_of(u32::MAX, number as u32);
                    let state = self.hosts.get_mut(id).expect("it was found above");
                    state.kept.insert(process, commit);
                }
                let refused = is_damaged.then(|| "damaged".to_owned());
                self.report(&name, AgentReport::DurableLoaded { number, refused });
            }
            AgentCommand::Stop { process, why }
                if !self.passive.contains(id) && self.hosts[id].workers.contains_key(&process) =>
            {
                let exit = if why == StopReason::Removed {
                    Exit::Code(0)
                } else {
                    Exit::Signal(15)
                };
                let state = self.hosts.get_mut(id).expect("it was found above");
                if let Some(worker) = state.workers.remove(&process)
                    && let Some(commit) = worker.commit
                {
                    state.kept.insert(process, commit);
                }
                let tail = Vec::new();
                self.report(
                    &name,
                    AgentReport::Exited {
                        process,
                        exit,
                        tail,
                        stopped: false,
                    },
                );
            }
            _ => {}
        }
    }

    /// Whether an agent carries out this command about the store.
    fn reads_store(&mut self, id: &HostId, number: u64) -> bool {
        let state = self.hosts.get_mut(id).expect("the command was sent to it");
        let is_new = number > state.searched;
        state.searched = state.searched.max(number);
        is_new && !self.mute.contains(id.as_str())
    }

    pub(super) fn commit_round(&mut self, id: &HostId, round: Round) {
        let Some(host) = self.hosts.get_mut(id) else {
            return;
        };
        let mut sealed = Vec::new();
        for (process, worker) in &mut host.workers {
            if worker.round != Some(round) {
                continue;
            }
            let of_round = worker.commit.filter(|commit| commit.round == round);
            let next = commit_of(round.0, of_round.map_or(0, |commit| commit.count) + 1);
            sealed.push((*process, worker.commit.replace(next), next));
        }
        for (process, before, next) in sealed {
            host.seals_next(process, before, next);
        }
    }

    /// Workers of a round come back to `run()`.
    fn come_back(&mut self, id: &HostId, round: Round) -> Vec<Process> {
        let mut back = Vec::new();
        let Some(host) = self.hosts.get_mut(id) else {
            return back;
        };
        for (process, worker) in &mut host.workers {
            if worker.round == Some(round) {
                (worker.round, worker.left, worker.joined) = (None, Some(round), true);
                back.push(*process);
            }
        }
        back
    }

    /// Workers at the ends of these links lose each other, if all are in the round; the first end of a link
    /// reports first. Gives the number of reports.
    pub(crate) fn breaks(&mut self, links: &[(&str, &str)]) -> usize {
        let (round, hosts) = (self.round(), self.hosts_by_rank());
        let index = |name: &str| hosts.iter().position(|(host, _)| host == name);
        let mut said = Vec::new();
        for (one, other) in links {
            if let (Some(i), Some(j)) = (index(one), index(other)) {
                said.push((i, j as u32));
                said.extend((i != j).then_some((j, i as u32)));
            }
        }
        let trains = |host: &String| {
            let workers = self
                .hosts
                .get(host.as_str())
                .into_iter()
                .flat_map(|host| &host.workers);
            workers
                .into_iter()
                .any(|(_, worker)| worker.round == Some(round))
        };
        if !hosts.iter().all(|(host, _)| trains(host)) {
            return 0;
        }
        for (reporter, unreachable) in &said {
            let (host, process) = hosts[*reporter].clone();
            let unreachable = vec![*unreachable];
            let broken = AgentReport::PeerLost {
                round,
                process,
                unreachable,
            };
            self.report(&host, broken);
        }
        said.len()
    }

    /// A worker of this host reports that it lost a peer, without naming it.
    pub(crate) fn breaks_away(&mut self, name: &str) {
        let (round, hosts) = (self.round(), self.hosts_by_rank());
        let Some((host, process)) = hosts.into_iter().find(|(host, _)| host == name) else {
            return;
        };
        let unreachable = Vec::new();
        self.report(
            &host,
            AgentReport::PeerLost {
                round,
                process,
                unreachable,
            },
        );
    }

    /// Hosts of the round that started last, by rank, each with its first member.
    fn hosts_by_rank(&self) -> Vec<(String, Process)> {
        (self.starts.iter())
            .map(|(host, start)| (host.to_string(), start.members[0].process))
            .collect()
    }

    /// The members of the round on a passive host come back.
    pub(crate) fn comes_back(&mut self, name: &str) {
        let round = self.round();
        let id = HostId::new(name);
        self.come_back(&id, round);
        self.answer(&id);
    }

    /// Answers a plan once all its members are at `run()`.
    pub(super) fn answer(&mut self, id: &HostId) {
        let Some(host) = self.hosts.get_mut(id) else {
            return;
        };
        let Some((round, members)) = host.plan.clone() else {
            return;
        };
        let there = |p: &Process| host.workers.get(p).is_some_and(|worker| worker.joined);
        if !members.iter().all(there) {
            return;
        }
        host.plan = None;
        let held = |process: &Process| Held {
            process: *process,
            commit: host.workers[process].commit,
            shard: (host.workers[process].commit)
                .map_or_else(Default::default, |commit| host.key(*process, commit).shard),
            empty: host.workers[process].empty,
            data_port: 1,
        };
        let living = (host.workers.iter())
            .filter(|(process, _)| !members.contains(process))
            .filter_map(|(process, worker)| Some((*process, worker.commit?)));
        let dead = host
            .kept
            .iter()
            .map(|(process, commit)| (*process, *commit));
        let report = AgentReport::Ready {
            round,
            members: members.iter().map(held).collect(),
            kept: (living.chain(dead))
                .map(|(process, commit)| {
                    let newest = host.key(process, commit);
                    let keys: Vec<_> = [newest].into_iter().chain(host.older(process)).collect();
                    Kept::new(process, &keys)
                })
                .chain(members.iter().filter_map(|process| {
                    let older = host.older(*process)?;
                    Some(Kept::new(*process, &[older]))
                }))
                .collect(),
            free_port: 2,
        };
        let name = id.to_string();
        self.report(&name, report);
    }
}
