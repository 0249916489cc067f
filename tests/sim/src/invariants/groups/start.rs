//! Invariants of a group that starts. Ranks are 0..n-1, each once, and min_np <= n <= max_np (R1). No process of
//! the group before is left (R4). All slots are usable (R5). The coordinator is new. The restarts are those
//! counted here.

use std::{collections::BTreeMap, collections::BTreeSet};

use elasticrun_core::{Command, Decision, Time};
use elasticrun_protocol::{AgentCommand, HostId, LocalRank, Round, control::Spawn};

use super::{Current, lead, slot};
use crate::{
    reference::Reference,
    world::{World, group::GroupSim},
};

fn spawns(commands: &[Command]) -> Vec<(&HostId, &Spawn)> {
    let spawn = |command| match command {
        &Command::Send {
            ref host,
            command: AgentCommand::Spawn(ref spawn),
        } => Some((host, spawn)),
        _ => None,
    };
    commands.iter().filter_map(spawn).collect()
}

/// Checks that each process starts as a member of a group.
pub(super) fn apart(world: &mut World, commands: &[Command]) {
    let group =
        |command: &Command| matches!(command, Command::Announce(Decision::GroupStarted { .. }));
    if lead(world) && !commands.iter().any(group) && !spawns(commands).is_empty() {
        world.violate("R1", "a process is started apart from its group".into());
    }
}

/// `before` and `behind` are the commands of the step before and after the announcement of the start.
pub(super) fn check(
    world: &mut World,
    round: Round,
    size: u32,
    before: &[Command],
    behind: &[Command],
) {
    let spawns = spawns(before);
    // Due deadlines take effect before an event that undoes their cause.
    let undoes = |command: &Command| {
        matches!(
            command,
            Command::Announce(Decision::GroupEnded { .. } | Decision::Draining { .. })
        )
    };
    let undone = !world.plan.late.is_zero() && behind.iter().any(undoes);
    let checks = [
        ("R1", ranks(world, &spawns, size)),
        ("R4", none_is_left(world)),
        (
            "R5",
            usable(world, &spawns).or_else(|what| undone.then_some(()).ok_or(what)),
        ),
        ("rule 4", coordinator(world, &spawns)),
        ("rule 5", restarts(world, &spawns)),
        ("R11", follows(world, round)),
        ("rule 9", resets(world)),
    ];
    for (name, result) in checks {
        if let Err(what) = result {
            world.violate(name, format!("group {round:?}: {what}"));
        }
    }
    remember(world, round, &spawns);
}

fn remember(world: &mut World, round: Round, spawns: &[(&HostId, &Spawn)]) {
    let now = world.driver_now();
    let members: Vec<_> = (spawns.iter())
        .map(|(host, spawn)| ((*host).clone(), spawn.process))
        .collect();
    let indexed = (members.iter())
        .filter_map(|(host, process)| Some((world.host_index(host)?, *process)))
        .collect();
    world.groups.insert(round, GroupSim::new(indexed));
    let memory = &mut world.invariants.groups;
    memory.started += 1;
    memory.named = true;
    (memory.ripe, memory.grows) = (None, None);
    memory.unknown = false;
    memory
        .coordinators
        .extend(spawns.first().map(|(_, spawn)| spawn.coordinator));
    memory.current = Some(Current {
        round,
        began: now,
        members,
        over: false,
        failed: BTreeSet::new(),
        done: BTreeSet::new(),
    });
}

fn ranks(world: &World, spawns: &[(&HostId, &Spawn)], size: u32) -> Result<(), String> {
    if !lead(world) {
        return Err("a worker has attached".into());
    }
    let settings = &world.plan.settings;
    let ranks: Vec<_> = spawns.iter().map(|(_, spawn)| spawn.place.rank.0).collect();
    if ranks != (0..size).collect::<Vec<_>>() {
        return Err(format!("ranks are {ranks:?}, size {size}"));
    }
    let most = settings.max_np.unwrap_or(u32::MAX);
    if size < settings.min_np || size > most {
        return Err(format!(
            "size {size} is not in {}..={most}",
            settings.min_np
        ));
    }
    let waited = world.driver_now().since(Time::ZERO) >= settings.elastic_timeout;
    if !world.invariants.groups.named && size < settings.np && !waited {
        return Err(format!(
            "{size} are too few for the first, and there is time"
        ));
    }
    let mut locals: BTreeMap<&HostId, u32> = BTreeMap::new();
    let mut crosses: BTreeMap<LocalRank, u32> = BTreeMap::new();
    for (host, spawn) in spawns {
        *locals.entry(*host).or_default() += 1;
        *crosses.entry(spawn.process.local_rank).or_default() += 1;
    }
    let mut seen: BTreeMap<LocalRank, u32> = BTreeMap::new();
    for (host, spawn) in spawns {
        let (place, local) = (spawn.place, spawn.process.local_rank);
        let cross = seen.entry(local).or_default();
        let is = (
            place.size,
            place.local_size,
            place.cross_rank,
            place.cross_size,
        );
        let should = (size, locals[*host], *cross, crosses[&local]);
        if is != should {
            return Err(format!(
                "place of {:?} is {is:?}, not {should:?}",
                place.rank
            ));
        }
        *cross += 1;
    }
    Ok(())
}

/// Checks that no process of the group before is left on a connected host.
fn none_is_left(world: &World) -> Result<(), String> {
    for (index, host) in world.hosts.iter().enumerate() {
        let left = (host.workers.iter()).find(|(_, worker)| world.is_connected(index, worker));
        if let Some((process, _)) = left {
            return Err(format!("h{index} {process:?} is left of the one before"));
        }
    }
    Ok(())
}

fn usable(world: &World, spawns: &[(&HostId, &Spawn)]) -> Result<(), String> {
    let mut slots = BTreeSet::new();
    for (host, spawn) in spawns {
        let local = spawn.process.local_rank;
        let usable = |known: &Reference| known.is_usable(world.driver_now(), host, local);
        if !world.references().any(usable) {
            return Err(format!("slot {local} of {host} may not be used"));
        }
        if !slots.insert(slot(&((*host).clone(), spawn.process))) {
            return Err(format!("slot {local} of {host} is used twice"));
        }
    }
    Ok(())
}

fn coordinator(world: &World, spawns: &[(&HostId, &Spawn)]) -> Result<(), String> {
    let all: BTreeSet<_> = spawns.iter().map(|(_, spawn)| spawn.coordinator).collect();
    if all.len() != 1 {
        return Err(format!("its members look for each other at {all:?}"));
    }
    let before = &world.invariants.groups.coordinators;
    match all.intersection(before).next() {
        Some(coordinator) => Err(format!("{coordinator} was that of another one")),
        None => Ok(()),
    }
}

fn restarts(world: &World, spawns: &[(&HostId, &Spawn)]) -> Result<(), String> {
    let expected = (
        world.invariants.groups.restarts,
        world.plan.settings.max_restarts,
    );
    for (_, spawn) in spawns {
        let told = spawn
            .restarts
            .map(|restarts| (restarts.used, restarts.allowed));
        if told != Some(expected) {
            return Err(format!(
                "a member is told of restarts {told:?}, not {expected:?}"
            ));
        }
    }
    Ok(())
}

/// Checks that the group before is over, and that numbers grow.
fn follows(world: &World, round: Round) -> Result<(), String> {
    match &world.invariants.groups.current {
        Some(before) if before.round >= round => Err(format!("it follows {:?}", before.round)),
        Some(before) if !before.done.is_empty() => Err("a member of the one before is done".into()),
        _ => Ok(()),
    }
}

fn resets(world: &World) -> Result<(), String> {
    let uncounted = world.invariants.later_driver.uncounted;
    let started = world.invariants.groups.started.saturating_sub(uncounted) + 1;
    let most = world.plan.settings.reset_limit.map(|limit| limit + 1);
    match most {
        Some(most) if started > most => Err(format!("it is number {started}")),
        _ => Ok(()),
    }
}
