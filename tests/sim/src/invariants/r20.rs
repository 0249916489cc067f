//! R20: a parameter server runs at most once, as many run as the job wants, soon after faults, and none outlives its agent.

use std::time::Duration;

use elasticrun_core::{Time, rounds::Phase};
use elasticrun_protocol::Process;

use crate::world::World;

/// The longest pause of the job after the failure of a server.
const PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Since when servers are missing though hosts could run them.
    missing_since: Option<Time>,
}

/// An agent starts a server.
pub(crate) fn started(world: &mut World, host: usize, agent: u64, process: Process) {
    if world.hosts[host].has_started(agent, process) {
        world.violate("R20", format!("h{host} starts {process} again"));
    }
}

/// An agent ends, as it was told.
pub(crate) fn agent_exits(world: &mut World, host: usize) {
    let left = world.hosts[host].servers.len();
    if left > 0 {
        world.violate("R20", format!("the agent of h{host} leaves {left} servers"));
    }
}

pub(super) fn watch(world: &mut World) -> Result<(), String> {
    let wanted = world.plan.settings.servers as usize;
    let is_able = |host: usize| {
        let id = &world.hosts[host].id;
        let job = &world.driver.job;
        let is_up = (job.fleet().host(id)).is_some_and(|state| state.up().is_some());
        let stays = !world.reference.drains(id) && job.has_host(id);
        is_up && stays && world.reaches(host) && world.hosts[host].stalled <= world.now
    };
    let able: Vec<_> = (0..world.hosts.len())
        .filter(|host| is_able(*host))
        .collect();
    let running: usize = (able.iter())
        .map(|host| world.hosts[*host].servers.len())
        .sum();
    // Members of a round that trains show that their hosts have usable slots.
    let trains = matches!(&world.driver.job.rounds().phase, Phase::Training(training)
        if able.iter().any(|host| training.members.contains_key(&world.hosts[*host].id)));
    // The driver waits for such a host, and for its servers with it.
    let awaits = (world.driver.job.fleet().hosts()).any(|(_, state)| state.away().is_some());
    let is_over = world.driver.job.results().outcome().is_some();
    if running >= wanted || !trains || awaits || is_over {
        world.invariants.r20.missing_since = None;
        return Ok(());
    }
    let now = world.now;
    let since = *world.invariants.r20.missing_since.get_or_insert(now);
    let patience = PAUSE + world.plan.late * 4 + Duration::from_secs(20);
    match now.since(since) > patience {
        true => Err(format!("{running} of {wanted} servers run since {since:?}")),
        false => Ok(()),
    }
}
