//! Survival: once more hosts than K hold a valid commit, the state is lost only after the loss of more than K of them. Here
//! a host is lost if it dies, drains, leaves the job, or is out of reach, even for a moment.

use std::collections::BTreeMap;

use elasticrun_core::results::Outcome;
use elasticrun_protocol::HostId;

use super::r16;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The hosts that held a valid commit when enough did last, with the numbers of their agents. None is one that is lost.
    holders: BTreeMap<usize, Option<u64>>,
}

impl Memory {
    /// A later driver begins: it has to find the hosts first.
    pub(super) fn resumed(&mut self) {
        self.holders.clear();
    }
}

/// The agent of a host, if it is in the job and in reach.
pub(super) fn agent(world: &World, host: usize) -> Option<u64> {
    let state = &world.hosts[host];
    let job = &world.driver.job;
    let is_up = (job.fleet().host(&state.id)).is_some_and(|known| known.up().is_some());
    let stays = job.has_host(&state.id) && !world.reference.drains(&state.id);
    let agent = state.agent.as_ref()?;
    (is_up && stays && world.reaches(host)).then_some(agent.number)
}

/// The agent of a host is lost to the driver.
pub(super) fn lost(world: &mut World, host: &HostId) {
    let index = world.host_index(host);
    let holders = &mut world.invariants.survival.holders;
    if let Some(holder) = index.and_then(|index| holders.get_mut(&index)) {
        *holder = None;
    }
}

/// Before each step of the job, with each commit, since its host may be gone before the next step, and at times in between.
pub(crate) fn look(world: &mut World) {
    r16::look(world);
    let is_whole = world.plan.replicas.is_some() && !world.plan.is_divided();
    if !is_whole || world.driver.is_taking_over() {
        return;
    }
    let mut known = std::mem::take(&mut world.invariants.survival.holders);
    for (host, holder) in &mut known {
        *holder = holder.filter(|number| agent(world, *host) == Some(*number));
    }
    let is_valid = |commit| world.history.is_valid(commit);
    let holds = |host: &usize| world.hosts[*host].commits().into_iter().any(is_valid);
    let holders: BTreeMap<_, _> = (0..world.hosts.len())
        .filter_map(|host| Some((host, Some(agent(world, host)?))))
        .filter(|(host, _)| holds(host))
        .collect();
    let is_enough = holders.len() > world.plan.settings.replicas as usize;
    world.invariants.survival.holders = if is_enough { holders } else { known };
}

/// The job ends.
pub(super) fn ended(world: &World, outcome: &Outcome) -> Result<(), String> {
    let holders = &world.invariants.survival.holders;
    if *outcome != Outcome::NoStateLeft || holders.is_empty() {
        return Ok(());
    }
    let lost = holders.values().filter(|agent| agent.is_none()).count();
    match lost > world.plan.settings.replicas as usize {
        true => Ok(()),
        false => Err(format!(
            "{holders:?} held a commit, and {lost} of them are lost"
        )),
    }
}
