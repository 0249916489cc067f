//! Last commits: with replication, the agent of a host gives up the last valid commit there only after the driver has
//! told it to stop, at a moment when more than K other hosts held a newer one.
//!
//! [`super::survival`] sees the consequence of such a loss, but only if the other holders are lost in that moment.

use std::collections::BTreeMap;

use elasticrun_core::Command;
use elasticrun_protocol::{AgentCommand, CommitId, HostId, Process};

use super::replicas::of_whole_states;
use crate::world::World;

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Hosts that the driver has told to stop, with the newest base that enough others held at that moment.
    released: BTreeMap<usize, CommitId>,
    /// The process whose memory has just been filled by a copy or a load.
    arriving: Option<(usize, Process)>,
    /// Hosts that were out of reach as a round started, with the numbers of their agents.
    missed: BTreeMap<usize, u64>,
}

impl Memory {
    /// A copy or a load has ended. Its commit is none of the host before the agent has kept it.
    pub(crate) fn arrives(&mut self, arriving: Option<(usize, Process)>) {
        self.arriving = arriving;
    }

    /// Whether the agent has not decided yet whether it keeps this.
    pub(super) fn is_arriving(&self, host: usize, process: Process) -> bool {
        self.arriving == Some((host, process))
    }
}

/// A round starts.
pub(super) fn started(world: &mut World) {
    let missed = |host: &usize| !world.is_reached(&world.hosts[*host].id);
    let missed = (0..world.hosts.len()).filter(missed);
    let missed: Vec<_> = missed
        .filter_map(|host| Some((host, world.hosts[host].agent.as_ref()?.number)))
        .collect();
    world.invariants.last_commit.missed.extend(missed);
}

/// The job sends its commands.
pub(super) fn on_command(world: &mut World, command: &Command, commands: &[Command]) {
    let Command::Send {
        host,
        command:
            AgentCommand::Replicate {
                base: Some(base),
                source: None,
                ..
            },
    } = command
    else {
        return;
    };
    let Some(host) = world.host_index(host) else {
        return;
    };
    // Deadlines come before the event of a step, so the job has decided without the hosts that this step loses.
    let is_lost = |other: &HostId| {
        let lost = |command: &Command| matches!(command, Command::Disconnect { host, .. } if host == other);
        commands.iter().any(lost)
    };
    let holds = |other: &usize| {
        *other != host && (may_hold(world, *other, *base) || is_lost(&world.hosts[*other].id))
    };
    let holders = (0..world.hosts.len()).filter(holds);
    if holders.count() > world.plan.settings.replicas as usize {
        let released = &mut world.invariants.last_commit.released;
        let newest = released.entry(host).or_insert(*base);
        *newest = (*newest).max(*base);
    }
}

/// Whether a host that stays in the job has this commit or a newer one, as far as the driver can know. The driver does
/// not know yet of a host that has just been lost.
fn may_hold(world: &World, host: usize, base: CommitId) -> bool {
    let id = &world.hosts[host].id;
    let known = world.driver.job.fleet().host(id);
    let stays = known.is_some_and(|known| known.up().is_some()) && !world.reference.drains(id);
    let holds = (world.hosts[host].commits().into_iter())
        .any(|commit| commit >= base && world.history.is_valid(commit));
    stays && (holds || !world.reaches(host))
}

/// An agent frees the memory of a dead process.
pub(crate) fn forgets(world: &mut World, host: usize, process: Process) {
    let state = &world.hosts[host];
    let is_dead = !state.workers.contains_key(&process);
    let is_kept = !world.invariants.last_commit.is_arriving(host, process);
    // An agent that the driver has given up knows nothing of later rounds.
    if of_whole_states(world).is_none() || !is_dead || !is_kept || !world.is_reached(&state.id) {
        return;
    }
    let memory = &world.invariants.last_commit;
    let is_valid = |commit: &CommitId| world.history.is_valid(*commit);
    let newest = |commits: Vec<CommitId>| commits.into_iter().filter(is_valid).max();
    let Some(given_up) = newest(state.commits_of(process)) else {
        return;
    };
    // A host that has missed a round may take a void commit for a valid one.
    let agent = state.agent.as_ref().map(|agent| agent.number);
    let has_missed = memory.missed.get(&host).copied() == agent;
    let beside = state.commits_beside(process);
    let stays = beside
        .iter()
        .any(|commit| is_valid(commit) || (has_missed && *commit > given_up));
    let released = memory.released.get(&host).copied();
    let released = released.filter(|base| world.history.is_valid(*base));
    if !stays && released <= Some(given_up) {
        let what = format!(
            "h{host} gives up {given_up:?}, its last commit, and too few others hold a newer one"
        );
        world.violate("replicas", what);
    }
}
