//! Replication: while a round trains on too few hosts and another one could keep its commits, that one does so soon.

use std::{collections::BTreeMap, time::Duration};

use elasticrun_core::{Time, rounds::Phase};
use elasticrun_protocol::Round;

use crate::world::{LONGEST_COPY, World};

/// How often a copy may fail in a row, by chance or since the source has just begun.
const FAILURES: u32 = 4;

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The round that trains, and since when each host could have copied of it.
    since: Option<(Round, BTreeMap<usize, Time>)>,
}

/// The host of rank 0, if its agent and its data path are well.
fn source(world: &World, round: Round) -> Option<usize> {
    let seat = world.rounds.get(&round)?.seats.first()?;
    let is_well = world.reaches(seat.host) && world.hosts[seat.host].cut_data == 0;
    (is_well && world.hosts[seat.host].stalled <= world.now).then_some(seat.host)
}

/// Hosts that could keep a replica now.
fn able(world: &World, round: Round) -> Vec<usize> {
    let Some(sim) = world.rounds.get(&round) else {
        return Vec::new();
    };
    let is_member = |host: usize| sim.seats.iter().any(|seat| seat.host == host);
    let is_able = |host: &usize| {
        let state = &world.hosts[*host];
        let well = world.reaches(*host) && state.cut_data == 0 && state.stalled <= world.now;
        let stays = !world.reference.drains(&state.id) && world.driver.job.has_host(&state.id);
        let up = world.driver.job.fleet().host(&state.id);
        let known = up.is_some_and(|state| state.up().is_some());
        well && stays && known && !is_member(*host)
    };
    (0..world.hosts.len()).filter(is_able).collect()
}

/// The interval of copies, if they are of whole states. [`super::r16`] checks those of shards.
pub(super) fn of_whole_states(world: &World) -> Option<Duration> {
    world.plan.replicas.filter(|_| !world.plan.is_divided())
}

pub(super) fn watch(world: &mut World) -> Result<(), String> {
    let (Some(interval), Phase::Training(training)) =
        (of_whole_states(world), &world.driver.job.rounds().phase)
    else {
        world.invariants.replicas.since = None;
        return Ok(());
    };
    let round = training.round;
    let stays = |host| !world.reference.drains(host);
    let hosts = training.members.keys().filter(|host| stays(host)).count();
    let enough = hosts > world.plan.settings.replicas as usize;
    let over = enough || training.hold.is_some() || world.invariants.r10.finishing;
    if over || source(world, round).is_none() {
        world.invariants.replicas.since = None;
        return Ok(());
    }
    let (able, now) = (able(world, round), world.now);
    let known = world.invariants.replicas.since.take();
    let known = known.filter(|(of, _)| *of == round);
    let known = known.map(|(_, since)| since).unwrap_or_default();
    let since: BTreeMap<_, _> = (able.into_iter())
        .map(|host| (host, known.get(&host).copied().unwrap_or(now)))
        .collect();
    let copy =
        interval.max(Duration::from_millis(LONGEST_COPY)) + Duration::from_millis(LONGEST_COPY);
    let patience = copy * FAILURES + world.plan.late * 4 + Duration::from_secs(10);
    let first = since.values().min().copied();
    world.invariants.replicas.since = Some((round, since));
    let Some(first) = first.filter(|first| now.since(*first) > patience) else {
        return Ok(());
    };
    let of_round = |host: &crate::world::host::Host| {
        (host.commits().into_iter())
            .any(|commit| commit.round == round && world.history.is_valid(commit))
    };
    let hosts = world.hosts.iter().filter(|host| of_round(host)).count();
    let members = world.rounds.get(&round).map_or(0, |sim| {
        let mut hosts: Vec<_> = sim.seats.iter().map(|seat| seat.host).collect();
        hosts.dedup();
        let holds = |host: &&usize| of_round(&world.hosts[**host]);
        hosts.iter().filter(holds).count()
    });
    // Before the first step there may be nothing to copy.
    if members > 0 && hosts <= members {
        return Err(format!(
            "{round:?} is on too few hosts, another one is there since {first:?}, and no commit is replicated"
        ));
    }
    Ok(())
}
