//! R19: a survivor keeps its shard if it can. A replica group that all of its workers survive goes on as it is. A spare takes a
//! free seat before a survivor of another shard does.

use std::collections::BTreeMap;

use elasticrun_core::{Decision, ReplicaGroupSize, fleet::Life};
use elasticrun_protocol::{DriverEpoch, Process, control::Seat};

use super::{Started, later_driver, newcomers};
use crate::world::{World, host::index_of};

type Member = (usize, Process);

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The driver that started the last round.
    epoch: DriverEpoch,
    /// The seats of the members of the last round.
    seats: BTreeMap<Member, Seat>,
    /// How often slots of each of their hosts were away.
    absences: BTreeMap<usize, u32>,
    /// Workers that waited after the last step of the job.
    waiting: Vec<Member>,
    /// Workers beside those that could join the round when it was planned.
    spares: Vec<Member>,
}

/// A round is planned. A deadline may have passed just before an event, and then the round was planned without the worker that waits
/// since that event.
pub(super) fn on_decision(world: &mut World, decision: &Decision) {
    if !matches!(decision, Decision::RoundPlanned { .. }) || !is_grouped(world) {
        return;
    }
    let before = std::mem::take(&mut world.invariants.r19.waiting);
    let mut spares = waiting(world);
    spares.retain(|spare| before.contains(spare));
    world.invariants.r19.spares = spares;
}

/// A step of the job is over.
pub(super) fn on_step(world: &mut World) {
    if is_grouped(world) {
        world.invariants.r19.waiting = waiting(world);
    }
}

/// The workers that wait and may be members.
fn waiting(world: &World) -> Vec<Member> {
    let mut waiting = Vec::new();
    for (host, state) in world.driver.job.fleet().hosts() {
        let Some(index) = index_of(host).filter(|_| state.up().is_some()) else {
            continue;
        };
        let now = world.driver_now();
        let waits = state.live().filter(|live| {
            live.life == Life::Waiting
                && newcomers::is_admitted(world, host)
                && !newcomers::is_asked(world, host)
                && world
                    .reference
                    .is_usable(now, host, live.process.local_rank)
        });
        waiting.extend(waits.map(|live| (index, live.process)));
    }
    waiting
}

fn is_grouped(world: &World) -> bool {
    let size = world.plan.settings.replica_group_size;
    matches!(size, ReplicaGroupSize::Fixed(_))
}

pub(super) fn started(world: &mut World, started: &Started<'_>) -> Result<(), String> {
    let ReplicaGroupSize::Fixed(size) = world.plan.settings.replica_group_size else {
        return Ok(());
    };
    let is_known = later_driver::knows_last(world) && later_driver::knows_members(world);
    let epoch = started
        .starts
        .first()
        .map_or(DriverEpoch(0), |first| first.1.epoch);
    let memory = std::mem::take(&mut world.invariants.r19);
    // A later driver learns seats from agents whose workers still train.
    let former = match is_known && memory.epoch == epoch {
        true => memory.seats,
        false => BTreeMap::new(),
    };
    let members = started.members();
    let seats: BTreeMap<Member, Seat> = (members.iter().zip(started.seats()))
        .filter_map(|(member, seat)| Some((*member, seat?)))
        .collect();
    let absences = members
        .iter()
        .map(|(host, _)| (*host, world.reference.absences(&world.hosts[*host].id)));
    world.invariants.r19 = Memory {
        epoch,
        seats: seats.clone(),
        absences: absences.collect(),
        waiting: memory.waiting,
        spares: Vec::new(),
    };
    let round = Round {
        world,
        started,
        size,
        groups: started.size / size,
        seats,
        former,
        absences: memory.absences,
    };
    round.shards_are_kept()?;
    round.groups_are_kept()?;
    round.spares_are_used(&memory.spares)
}

struct Round<'a> {
    world: &'a World,
    started: &'a Started<'a>,
    size: u32,
    groups: u32,
    seats: BTreeMap<Member, Seat>,
    former: BTreeMap<Member, Seat>,
    absences: BTreeMap<usize, u32>,
}

impl Round<'_> {
    /// The shard of the base that a worker holds. Without a base, that of its seat.
    fn held(&self, member: Member) -> Option<u32> {
        let (Some(base), Some((_, first))) = (self.started.base, self.started.starts.first())
        else {
            return self.former.get(&member).map(|seat| seat.shard);
        };
        let shards = first.base_shards?;
        let (host, process) = member;
        let mut keys = self.world.hosts[host].keys_of(process).into_iter();
        let key = keys.find(|key| {
            key.commit == base && (key.shard.layout, key.shard.of) == (shards.layout, shards.of)
        })?;
        Some(key.shard.index)
    }

    /// As many workers of each shard as there are groups keep it.
    fn shards_are_kept(&self) -> Result<(), String> {
        for shard in 0..self.size {
            let holds = |(member, _): &(&Member, &Seat)| self.held(**member) == Some(shard);
            let holders = self.seats.iter().filter(holds);
            let keep = holders
                .clone()
                .filter(|(_, seat)| seat.shard == shard)
                .count();
            if keep < holders.clone().count().min(self.groups as usize) {
                let holders: Vec<_> = holders.collect();
                return Err(format!(
                    "{holders:?} hold shard {shard}, and {keep} keep it"
                ));
            }
        }
        Ok(())
    }

    /// Whether a worker that is no member could be one.
    fn could_join(&self, (host, process): Member) -> bool {
        let (world, id) = (self.world, &self.world.hosts[host].id);
        let fate = world.fate(host, process);
        // A host that was away while the round was planned comes too late for it.
        let before = self.absences.get(&host);
        let away = before.is_some_and(|before| *before != world.reference.absences(id));
        !away
            && !fate.told
            && !fate.given_up
            && world.reaches(host)
            && (world.reference).is_usable(world.driver_now(), id, process.local_rank)
            && world.waits_well(host, process)
    }

    /// Groups of the last round that are whole are whole again, or none of their workers is a member.
    fn groups_are_kept(&self) -> Result<(), String> {
        let mut former: BTreeMap<u32, Vec<(Member, u32)>> = BTreeMap::new();
        for (member, seat) in &self.former {
            let group = former.entry(seat.group).or_default();
            group.push((*member, seat.shard));
        }
        let (mut kept, mut dropped) = (0, None);
        for (group, members) in &former {
            let is_well = |(member, shard): &(Member, u32)| {
                let is_there = self.seats.contains_key(member) || self.could_join(*member);
                is_there && self.held(*member) == Some(*shard)
            };
            if members.len() < self.size as usize {
                continue;
            }
            // A plan does not know yet what they hold.
            let is_in = |(member, _): &(Member, u32)| self.seats.contains_key(member);
            kept += u32::from(members.iter().all(is_in));
            if !members.iter().all(is_well) {
                continue;
            }
            let now: Vec<_> = (members.iter())
                .filter_map(|(member, _)| Some(self.seats.get(member)?.group))
                .collect();
            if now.is_empty() {
                dropped = Some(group);
            } else if now.len() < members.len() || now.iter().any(|other| *other != now[0]) {
                return Err(format!("group {group} was whole, and is now {now:?}"));
            }
        }
        match dropped.filter(|_| kept < self.groups) {
            Some(group) => Err(format!(
                "group {group} was whole, and another one was refilled"
            )),
            None => Ok(()),
        }
    }

    /// No survivor takes another shard while a spare waits. Who is a member was decided by the seats of the last round.
    fn spares_are_used(&self, spares: &[Member]) -> Result<(), String> {
        let stays = |(member, seat): (&Member, &Seat)| {
            self.held(*member).is_none_or(|held| held == seat.shard)
        };
        let is_expected = |(member, _): (&Member, &Seat)| {
            let seat = self.former.get(member);
            self.held(*member) == seat.map(|seat| seat.shard)
        };
        if self.seats.iter().all(stays) || !self.seats.iter().all(is_expected) {
            return Ok(());
        }
        let is_idle = |member: &&Member| {
            !self.former.contains_key(member)
                && !self.seats.contains_key(member)
                && self.could_join(**member)
        };
        match spares.iter().find(is_idle) {
            Some(spare) => Err(format!(
                "{spare:?} waits, and survivors have changed their shards"
            )),
            None => Ok(()),
        }
    }
}
