//! R2: a survivor (a worker that trained in the round before) keeps its (host, local_rank). Hosts keep their order
//! of arrival, and a host that was away returns at the end. Rank 0 stays rank 0 as long as it is a member, and its host
//! is first. Otherwise rank 0 is a survivor whenever there is one. A worker that holds the round's base is not
//! left out for a newcomer.

use std::collections::BTreeMap;

use elasticrun_core::ReplicaGroupSize;
use elasticrun_protocol::Process;

use super::{Started, later_driver};
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Hosts of the last round that had a survivor, in order, each with its number of moves by then.
    order: Vec<(usize, u32)>,
    /// Members by rank.
    members: Vec<(usize, Process)>,
    /// How often slots of each host were away.
    absences: BTreeMap<usize, u32>,
}

pub(super) fn started(world: &mut World, started: &Started<'_>) -> Result<(), String> {
    let members = started.members();
    let is_unknown = !later_driver::knows_last(world) || !later_driver::knows_members(world);
    if is_unknown {
        // The round before, or one of its members, is unknown to this driver.
        world.invariants.r2 = Memory::default();
    }
    let trained = |member: &(usize, Process)| {
        let (host, process) = *member;
        let newest = world.hosts[host].newest(process);
        world.invariants.r2.members.contains(member)
            && started.base.is_some()
            && newest.is_some_and(|commit| world.history.is_valid(commit))
    };
    let survivors: Vec<bool> = members.iter().map(trained).collect();
    // The commits of a host that is gone are unknown.
    let known = members
        .first()
        .is_some_and(|(host, _)| world.reaches(*host));
    if known && survivors.contains(&true) && !survivors[0] {
        return Err("rank 0 is none that trained in the round before and another member is".into());
    }
    let former = world.invariants.r2.members.first();
    let leader = former.filter(|former| members.contains(former) && trained(former));
    if let Some(leader) = leader
        && world.reaches(leader.0)
        && members[0] != *leader
    {
        return Err(format!(
            "{leader:?} was rank 0 and lives, and {:?} is",
            members[0]
        ));
    }
    // The host of rank 0 is first, whenever it arrived. Agents may have named it to a driver that does not know all members.
    let former = former.or(members.first().filter(|_| is_unknown));
    let first = former.map(|(host, _)| *host);
    in_order_of_arrival(world, &members, &survivors, first)?;
    let mut order: Vec<(usize, u32)> = Vec::new();
    for (host, _) in members
        .iter()
        .zip(&survivors)
        .filter(|(_, s)| **s)
        .map(|(m, _)| m)
    {
        if !order.iter().any(|(seen, _)| seen == host) {
            order.push((*host, world.reference.moves(&world.hosts[*host].id)));
        }
    }
    let memory = &world.invariants.r2;
    let place = |entry: &(usize, u32)| memory.order.iter().position(|before| before == entry);
    let places: Vec<usize> = (order.iter())
        .filter(|(host, _)| Some(*host) != first)
        .filter_map(place)
        .collect();
    if !places.is_sorted() {
        return Err(format!("hosts were {:?} and are {order:?}", memory.order));
    }
    let left_out: Vec<_> = (memory.members.iter())
        .filter(|member| !members.contains(member))
        .filter(|(host, process)| {
            let id = &world.hosts[*host].id;
            // A host that was away while the round was planned comes too late for it.
            let away = memory.absences.get(host)
                != Some(&world.reference.absences(&world.hosts[*host].id));
            let fate = world.fate(*host, *process);
            // A process that its agent has given up dies, whatever it does meanwhile.
            !away
                && !fate.told
                && !fate.given_up
                && world.reaches(*host)
                && world
                    .reference
                    .is_usable(world.driver_now(), id, process.local_rank)
                && world.waits_well(*host, *process)
                && world.hosts[*host].newest(*process) == started.base
                && started.base.is_some()
        })
        .collect();
    let newcomers = members
        .iter()
        .any(|member| !memory.members.contains(member));
    // In groups of a fixed size, a survivor waits if the others of its group are gone (R19).
    let is_grouped = matches!(
        world.plan.settings.replica_group_size,
        ReplicaGroupSize::Fixed(_)
    );
    if newcomers && !left_out.is_empty() && !is_grouped {
        return Err(format!(
            "{left_out:?} hold the base and were left out for newcomers"
        ));
    }
    let absences = (members.iter())
        .map(|(host, _)| (*host, world.reference.absences(&world.hosts[*host].id)))
        .collect();
    world.invariants.r2 = Memory {
        order,
        members,
        absences,
    };
    Ok(())
}

/// Checks that hosts with a survivor come first, in their order of arrival, and then the others in theirs.
fn in_order_of_arrival(
    world: &World,
    members: &[(usize, Process)],
    survivors: &[bool],
    first: Option<usize>,
) -> Result<(), String> {
    let mut hosts: Vec<(usize, bool)> = Vec::new();
    for ((host, _), survives) in members.iter().zip(survivors) {
        match hosts.last_mut() {
            Some((last, any)) if last == host => *any |= *survives,
            _ => hosts.push((*host, *survives)),
        }
    }
    // The host of the former rank 0 is first, whenever it arrived.
    if hosts.first().is_some_and(|(host, _)| Some(*host) == first) {
        hosts.remove(0);
    }
    let arrivals: Vec<u64> = (hosts.iter())
        .map(|(host, _)| world.reference.arrival(&world.hosts[*host].id))
        .collect();
    let turns = arrivals.windows(2).filter(|pair| pair[0] > pair[1]).count();
    // Which workers survived is up to the job to find out. If all or none did, only one order is right.
    let alike = hosts.iter().all(|(_, any)| *any) || world.history.rounds() == 0;
    if turns > usize::from(!alike) {
        return Err(format!("hosts {hosts:?} came in the order {arrivals:?}"));
    }
    Ok(())
}
