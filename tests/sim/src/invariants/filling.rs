//! While the job wants more workers, it uses a usable slot at once (R9). That holds also while the job waits for
//! slots (rule 6 of the contract), and for slots that were used before.

use elasticrun_core::{Time, fleet::Agent, rounds::Phase};
use elasticrun_protocol::{HostId, LocalRank};

use super::SLACK;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// A slot that stays empty, the state of the job at that time, and since when.
    idle: Option<(Idle, Time)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Idle {
    host: HostId,
    slot: LocalRank,
    /// Processes that the job had started.
    starts: u64,
    /// Rounds that had started: while one forms, no slot is filled.
    rounds: u64,
    /// When the agent of the host was launched.
    launched: Option<Time>,
}

/// Periodic check of the job.
pub(super) fn watch(world: &mut World) {
    let idle = idle_slot(world);
    let before = world.invariants.filling.idle.take();
    let Some((host, slot)) = idle else { return };
    let fleet = world.driver.job.fleet();
    let idle = Idle {
        starts: fleet.starts(),
        rounds: world.history.rounds() as u64,
        launched: fleet.host(&host).map(|state| state.since),
        host,
        slot,
    };
    let same = before.filter(|(other, _)| *other == idle);
    let since = same.map_or(world.driver_now(), |(_, since)| since);
    if world.driver_now().since(since) > world.plan.late + SLACK {
        let what = format!("{idle:?} may be used, is wanted, and nobody fills it");
        world.violate("R9", what);
    }
    world.invariants.filling.idle = Some((idle, since));
}

fn idle_slot(world: &World) -> Option<(HostId, LocalRank)> {
    let (job, settings) = (&world.driver.job, &world.plan.settings);
    let fleet = job.fleet();
    // In a standard job no other worker takes the place of one that may return.
    if !settings.elastic && !world.reference.away().is_empty() {
        return None;
    }
    let forming = matches!(job.rounds().phase, Phase::Forming(_));
    if forming || world.invariants.r10.finishing || fleet.done() > 0 {
        return None;
    }
    let groups = super::groups::lead(world);
    let target = settings.max_np.map(|max| (max + settings.spares) as usize);
    let launches = !settings.self_registration;
    let full = launches && super::launches::are_full(world);
    // Slots of agents that are being launched, or wait for that, are filled soon.
    // The agent of such a host may come back with workers.
    let absent = |host: &HostId| {
        (world.driver.takeover.as_ref()).is_some_and(|takeover| {
            takeover.absent.contains(host) && world.driver_now() < takeover.until
        })
    };
    let launching = |host: &HostId| match fleet.host(host).map(|state| &state.agent) {
        Some(Agent::Absent) | None if absent(host) => true,
        Some(Agent::Launching { .. }) => true,
        Some(Agent::Absent) | None => full,
        Some(Agent::Up(_) | Agent::Away(_)) => false,
    };
    let usable = world.reference.usable_slots(world.driver_now());
    let coming = usable.filter(|(host, _)| launching(host)).count();
    let connected = |host: &HostId| fleet.host(host).is_some_and(|state| state.up().is_some());
    let there = match groups {
        // Slots of connected agents count for the next group. Spares do not count.
        true => (world.reference.usable_slots(world.now))
            .filter(|(host, _)| connected(host))
            .count(),
        false => fleet.census().staying(),
    };
    let target = target.map(|target| target - if groups { settings.spares as usize } else { 0 });
    if target.is_some_and(|target| there + coming >= target) {
        return None;
    }
    let is_free = |(host, slot): &(HostId, LocalRank)| match fleet.host(host) {
        None => launches && !full && !absent(host),
        Some(state) => match state.agent {
            Agent::Absent => launches && !full && !absent(host),
            Agent::Launching { .. } | Agent::Away(_) => false,
            // Processes of a group start together.
            Agent::Up(_) if groups => false,
            Agent::Up(_) => {
                state.is_free(*slot) || !state.live().any(|l| l.process.local_rank == *slot)
            }
        },
    };
    world
        .reference
        .usable_slots(world.driver_now())
        .find(is_free)
}
