//! R16: once the shards of a cut are known to be complete on other machines too, the loss of K machines leaves all of them. The
//! job then does not end without a state, and goes on from this cut or a newer commit. Here a host is lost if it dies, drains,
//! leaves the job, or is out of reach, even for a moment. A host is a machine.

use std::collections::BTreeMap;

use elasticrun_core::results::Outcome;
use elasticrun_protocol::{CommitId, HostId};

use super::{Started, survival::agent};
use crate::{completeness, world::World};

#[derive(Debug, Default)]
pub(super) struct Memory {
    cut: Option<CommitId>,
    /// The hosts that held shards of the cut when the job knew that it was complete, with the numbers of their agents. None is one
    /// that is lost.
    holders: BTreeMap<usize, Option<u64>>,
    /// The agents since then. Those that are lost before the next cut is complete may have had shards of it.
    agents: BTreeMap<usize, Option<u64>>,
}

impl Memory {
    /// A later driver begins: it has to find the hosts first.
    pub(super) fn resumed(&mut self) {
        *self = Self::default();
    }
}

/// The agent of a host is lost to the driver.
pub(super) fn lost(world: &mut World, host: &HostId) {
    let index = world.host_index(host);
    let memory = &mut world.invariants.r16;
    for holders in [&mut memory.holders, &mut memory.agents] {
        if let Some(holder) = index.and_then(|index| holders.get_mut(&index)) {
            *holder = None;
        }
    }
}

/// Looks at the same times as [`super::survival::look`].
pub(super) fn look(world: &mut World) {
    if world.plan.replicas.is_none() || !world.plan.is_divided() || world.driver.is_taking_over() {
        return;
    }
    let mut holders = std::mem::take(&mut world.invariants.r16.holders);
    let mut agents = std::mem::take(&mut world.invariants.r16.agents);
    for host in 0..world.hosts.len() {
        if let Some(number) = agent(world, host) {
            agents.entry(host).or_insert(Some(number));
        }
    }
    for (host, holder) in &mut agents {
        *holder = holder.filter(|number| agent(world, *host) == Some(*number));
    }
    let before = world.invariants.r16.cut;
    let cut = match world.driver.job.complete_cut() {
        Some((cut, is_safe)) => Some(cut).filter(|_| is_safe),
        // A start that makes the cut void may follow.
        None => before,
    };
    let is_new = cut != before;
    if is_new {
        let holds = |host: &usize| {
            let commits = world.hosts[*host].commits();
            commits.into_iter().any(|commit| Some(commit) == cut)
        };
        holders = (0..world.hosts.len())
            .filter(holds)
            .map(|host| (host, agent(world, host)))
            .collect();
        let lost = agents.extract_if(.., |_, agent| agent.is_none());
        holders.extend(lost);
    }
    for (host, holder) in &mut holders {
        *holder = holder.filter(|number| agent(world, *host) == Some(*number));
    }
    world.invariants.r16.cut = cut;
    (world.invariants.r16.holders, world.invariants.r16.agents) = (holders, agents);
    if let Err(what) = is_whole(world) {
        world.violate("R16", what);
    }
}

/// The cut, unless more hosts are lost than may be.
fn promised(world: &World) -> Option<CommitId> {
    let memory = &world.invariants.r16;
    let lost = memory
        .holders
        .values()
        .filter(|agent| agent.is_none())
        .count();
    let cut = memory.cut.filter(|cut| world.history.is_valid(*cut))?;
    (lost <= world.plan.settings.replicas as usize).then_some(cut)
}

fn is_whole(world: &World) -> Result<(), String> {
    let Some(cut) = promised(world) else {
        return Ok(());
    };
    let holders = &world.invariants.r16.holders;
    let left = holders.iter().filter(|(_, agent)| agent.is_some());
    let keys: Vec<_> = left
        .flat_map(|(host, _)| world.hosts[*host].keys())
        .collect();
    let of_cut = keys.iter().copied().filter(|key| key.commit == cut);
    match completeness::newest(of_cut.clone()) {
        Some(_) => Ok(()),
        None => Err(format!(
            "of the shards of {cut:?} these are left: {:?}, on {holders:?}",
            of_cut.map(|key| key.shard).collect::<Vec<_>>()
        )),
    }
}

/// A round starts.
pub(super) fn started(world: &mut World, started: &Started<'_>) -> Result<(), String> {
    match promised(world) {
        Some(cut) if started.base < Some(cut) => Err(format!(
            "it begins from {:?}, and all shards of {cut:?} were complete on {:?}",
            started.base, world.invariants.r16.holders
        )),
        _ => Ok(()),
    }
}

/// The job ends.
pub(super) fn ended(world: &World, outcome: &Outcome) -> Result<(), String> {
    match promised(world) {
        Some(cut) if *outcome == Outcome::NoStateLeft => Err(format!(
            "all shards of {cut:?} were complete on {:?}",
            world.invariants.r16.holders
        )),
        _ => Ok(()),
    }
}
