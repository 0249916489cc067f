//! Starting: the base of a round, its ranks, and the commands that begin it.

use std::{net::SocketAddr, time::Duration};

use elasticrun_protocol::{
    AgentCommand, CommitId, HostId, LocalRank, Rank, Round,
    control::{Held, Keeper, Member, Seat, ShardHolder, Start},
    topology,
};

use super::{
    Job, Out,
    going_back::GoingBack,
    replica_groups::{by_seat_within_hosts, order_of},
};
use crate::{
    Command, Decision, Time,
    assignment::{self, Candidate},
    completeness::Base,
    fleet::Life,
    mutant::{Mutant, planted},
    results::Outcome,
    rounds::{Cause, Forming, Phase},
};

/// How long survivors of a failure have the processor to themselves: enough to sync and to commit a step.
const NEWCOMER_PAUSE: Duration = Duration::from_millis(20);

/// The former rank of a candidate that counts as a survivor but had no rank in the previous round.
const NO_RANK: Rank = Rank(u32::MAX);

impl Job {
    /// Starts the planned round once all hosts have answered: chooses the base and the ranks.
    pub(super) fn start_round(&mut self, now: Time, out: &mut Out) {
        let Phase::Forming(forming) = &self.rounds.phase else {
            return;
        };
        let held = self.held_commits(forming);
        let whole = held.newest_complete();
        let base = whole.map(|base| base.id);
        if self.has_come_back() {
            return self.abort_rounds(out);
        }
        let back = self.goes_back(forming, base);
        if back.is_some_and(|newer| self.awaits_newer(now, base, newer, out)) {
            return;
        }
        if self.awaits_stored(now, base, back.is_some(), out) {
            return;
        }
        let Phase::Forming(forming) = &self.rounds.phase else {
            return;
        };
        let unnoticed = planted(Mutant::LossUnnoticed);
        if base.is_none() && self.has_lost_state(forming) && !unnoticed {
            if self.awaits_a_state(now, forming.round, out) {
                return;
            }
            self.announce_lost_shards(&held, out);
            return self.end(Outcome::NoStateLeft, out);
        }
        let fenced = self.fenced_until.is_some_and(|until| now < until);
        let fenced = fenced && self.registry.may_train_unseen();
        if fenced && !planted(Mutant::NoFence) {
            // Lost members of the previous round may still train (R11). The round starts when their time is over.
            return;
        }
        self.fenced_until = None;
        if self.is_last_unseen(forming) && !planted(Mutant::UnknownIsFruitless) {
            self.suspicion.unknown();
        }
        if self.judge_last_round(now, (base, held.newest()), out) {
            return;
        }
        let Phase::Forming(forming) = &self.rounds.phase else {
            return;
        };
        let (ordered, holders) = self.ranks_of(forming, base);
        let is_divided = whole.is_some_and(|base| base.shards().is_some());
        // Each member needs shards of others.
        let needs_others = is_divided && !planted(Mutant::ShardDismissed);
        let holders = if needs_others { 0 } else { holders };
        let keeper = self.keeper_of(forming, whole, &ordered[0]);
        let seats = self.seats_of(forming, &ordered, whole);
        let (ordered, seats) = by_seat_within_hosts(ordered, seats);
        let returned = |c: &&Candidate| self.registry.rank(&c.host, c.process).is_some();
        let survivors = ordered.iter().filter(returned).count() as u32;
        let elsewhere = self.holders_without_members(forming, whole);
        let Some((forming, since)) = self.rounds.start(holders, is_divided) else {
            return;
        };
        self.announce_lost_shards(&held, out);
        if let Some(newer) = back {
            out.push(Command::Announce(Decision::WentBack { base, newer }));
        }
        self.going_back = GoingBack::started(forming.round, forming.members.clone());
        self.lineage.started(forming.round, base);
        self.answered_with(&forming.ready);
        self.stored.round_started();
        let mut order: Vec<_> = ordered.iter().map(|c| c.host.clone()).collect();
        order.dedup();
        self.suspicion.started(now, forming.round, base, order);
        self.blacklist.round_started();
        self.results.went_on();
        self.registry.round_started(
            forming.round,
            (ordered.iter().zip(0..)).map(|(c, rank)| (c.host.clone(), c.process, Rank(rank))),
        );
        out.push(Command::OpenRound {
            round: forming.round,
        });
        let from = (whole, keeper, elsewhere);
        self.send_starts(&forming, (&ordered, &seats), from, out);
        self.note_seats(&ordered, &seats);
        let life = Life::Training {
            round: forming.round,
        };
        for members in ordered.chunk_by(|a, b| a.host == b.host) {
            let host = &members[0].host;
            let processes = members.iter().map(|member| member.process);
            self.waitlist.leave_all(host, processes.clone());
            self.fleet.set_lives(host, processes, life);
            self.fleet.set_memory(host);
        }
        out.push(Command::Announce(Decision::RoundStarted {
            round: forming.round,
            resets: self.budgets.started(),
            size: forming.size,
            survivors,
            base,
            cause: forming.cause.clone(),
            took: now.since(since),
        }));
        let failed = matches!(
            forming.cause,
            Cause::WorkerFailed { .. } | Cause::HostFailed { .. } | Cause::PeerLost { .. }
        );
        self.newcomers_paused_until = (failed && survivors > 0).then_some(now + NEWCOMER_PAUSE);
        if failed || self.budgets.started() == 0 || !planted(Mutant::ResetsOfFailures) {
            self.budgets.round_started();
        }
        if planted(Mutant::ResetAtLast) && !self.budgets.allows_round() {
            let limit = self.settings.reset_limit.unwrap_or(0);
            return self.end(Outcome::ResetLimit { limit }, out);
        }
        self.shortage = Default::default();
        let waiting = self.waitlist.iter().map(|(host, _)| host);
        self.probing.round_started(waiting);
        let round = forming.round;
        self.return_left_out(round, out);
        self.capacity_dirty = true;
        self.cut_from(now, round);
        self.replication.changed();
    }

    /// Workers that trained in the round before and are not in this one have left it by now. Those without a usable slot
    /// are stopped. One with a usable slot reports that it waits, or has answered a plan before; it is stopped when its
    /// slot is no longer usable.
    fn return_left_out(&mut self, started: Round, out: &mut Out) {
        if self.fleet.census().training == self.registry.alive() as usize {
            return;
        }
        let mut left_out = Vec::new();
        for (host, state) in self.fleet.hosts() {
            left_out.extend(state.live().filter_map(|live| match live.life {
                Life::Training { round } if round != started => {
                    Some((host.clone(), live.process, round))
                }
                _ => None,
            }));
        }
        for (host, process, round) in left_out {
            self.fleet
                .set_life(&host, process, Life::Returning { round });
            if !self.capacity.is_usable(&host, process.local_rank) {
                self.stop_outsider(&host, process, out);
            }
        }
    }

    /// Members in the order of their ranks, and the number of those that hold the base.
    ///
    /// Survivors come first (R2): members that trained in the previous round, even if others have committed once more.
    /// Among them the former rank 0 is first. So rank 0 stays the same as long as it lives: many scripts keep data for
    /// it, and its reset callbacks are those that count. The exception is a newest commit that no other process can
    /// fetch: then its owner is first.
    fn ranks_of(&self, forming: &Forming, base: Option<CommitId>) -> (Vec<Candidate>, u32) {
        let holds = |_: &HostId, held: &Held| base.is_some() && held.commit == base;
        let returned = |host: &HostId, held: &Held| {
            base.is_some() && self.registry.rank(host, held.process).is_some()
        };
        let trained = |host: &HostId, held: &Held| {
            let valid = |commit| self.lineage.is_valid(commit);
            held.commit.is_some_and(valid) && returned(host, held)
        };
        let members = || {
            (forming.ready.iter())
                .flat_map(|(host, answer)| answer.members.iter().map(move |held| (host, held)))
        };
        let holders = members().filter(|(host, held)| holds(host, held)).count() as u32;
        let bound = members().any(|(host, held)| held.empty && holds(host, held));
        let survivor: &dyn Fn(&HostId, &Held) -> bool = match holders {
            _ if !bound && members().any(|(host, held)| trained(host, held)) => &trained,
            0 => &returned,
            _ => &holds,
        };
        // A worker that holds the base but was no member of the previous round is placed among the survivors, without a
        // former rank.
        let former = |host: &HostId, held: &Held| {
            let rank = self.registry.rank(host, held.process);
            let former = survivor(host, held).then(|| rank.map_or(NO_RANK, |(rank, _)| rank));
            former.xor(planted(Mutant::NewcomerFirst).then_some(NO_RANK))
        };
        let mut candidates = Vec::with_capacity(forming.size as usize);
        for (host, answer) in &forming.ready {
            let arrival = self.hosts.arrival(host);
            candidates.extend(answer.members.iter().map(|held| Candidate {
                arrival,
                host: host.clone(),
                process: held.process,
                former: former(host, held),
            }));
        }
        let holders = if base.is_some() {
            holders
        } else {
            forming.size
        };
        (assignment::choose(candidates, None), holders)
    }

    fn send_starts(
        &self,
        forming: &Forming,
        (ordered, seats): (&[Candidate], &[Option<Seat>]),
        (base, keeper, holders): (Option<Base>, Option<Keeper>, Vec<ShardHolder>),
        out: &mut Out,
    ) {
        let base_shards = base.and_then(|base| base.shards());
        let order = order_of(seats);
        let slots: Vec<(&HostId, LocalRank)> = ordered
            .iter()
            .map(|c| (&c.host, c.process.local_rank))
            .collect();
        let places = self.placement.places(&slots);
        let hosts: Vec<&[Candidate]> = ordered.chunk_by(|a, b| a.host == b.host).collect();
        let leaders: Vec<SocketAddr> = hosts
            .iter()
            .map(|members| self.data_address(&members[0]))
            .collect();
        let coordinator = (hosts.first())
            .and_then(|members| self.fleet.host(&members[0].host)?.up())
            .map_or_else(|| leaders[0], |up| (up.address, up.free_port).into());
        let prefix = format!("{}/{}/{}", self.run_id, self.epoch, forming.round);
        let mut rank = 0;
        for (index, members) in hosts.iter().enumerate() {
            let neighbours = topology::neighbours(index as u32, hosts.len() as u32);
            let peers = neighbours
                .into_iter()
                .map(|host| (host, leaders[host as usize]))
                .collect();
            let start = Start {
                epoch: self.epoch,
                round: forming.round,
                base: base.map(|base| base.id),
                base_shards,
                memory: base_shards.and_then(|_| self.memory_address(&members[0].host)),
                holders: holders.clone(),
                keeper: keeper.clone(),
                size: forming.size,
                members: (members.iter().zip(&places[rank..]).zip(&seats[rank..]))
                    .map(|((candidate, place), seat)| Member {
                        process: candidate.process,
                        place: *place,
                        seat: *seat,
                    })
                    .collect(),
                replica_group_size: self.replica_group_size(),
                order: order.clone(),
                host_index: index as u32,
                host_count: hosts.len() as u32,
                peers,
                coordinator,
                prefix: prefix.clone(),
            };
            rank += members.len();
            self.send(&members[0].host, AgentCommand::Start(Box::new(start)), out);
        }
    }

    fn data_address(&self, candidate: &Candidate) -> SocketAddr {
        let port = self
            .fleet
            .current(&candidate.host, candidate.process)
            .map_or(0, |live| live.data_port);
        let up = self
            .fleet
            .host(&candidate.host)
            .and_then(|state| state.up());
        SocketAddr::new(
            up.map_or(std::net::Ipv4Addr::UNSPECIFIED.into(), |up| up.address),
            port,
        )
    }
}
