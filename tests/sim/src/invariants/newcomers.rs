//! A host that was not in the round that trains joins it only after a probe has shown that it reaches the hosts of
//! the round. Hosts whose agents do not support probes join without. The job probes at once, and waits no longer
//! than twice the probe timeout.

use std::{collections::BTreeMap, time::Duration};

use elasticrun_core::{Command, Decision, Event, Time, fleet::Life, rounds::Phase};
use elasticrun_protocol::{AgentCommand, AgentReport, HostId};

use super::{SLACK, Started};
use crate::world::World;

/// A host that was probed.
#[derive(Debug)]
struct Asked {
    number: u64,
    since: Time,
    /// Whether the host reaches all others, once it has answered.
    reaches: Option<bool>,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Probes since the last round began.
    asked: BTreeMap<HostId, Asked>,
    /// A host whose agent connects, so that its probe is void once the job admits the agent.
    connecting: Option<HostId>,
    /// Other workers trained when the next round was planned.
    others_train: bool,
    /// A host whose workers wait and that is not probed, and since when.
    unasked: Option<(HostId, Time)>,
}

/// An event reaches the job.
pub(crate) fn event(world: &mut World, event: &Event) {
    match event {
        Event::AgentConnected(agent) => {
            // A host that returns while its round is formed stays in the plan.
            let stays = agent.adoption.is_some() && is_planned(world, &agent.host);
            world.invariants.newcomers.connecting = (!stays).then(|| agent.host.clone());
        }
        Event::Reported {
            host,
            instance,
            report:
                AgentReport::Probed {
                    number,
                    unreachable,
                },
            ..
        } => {
            let up = world
                .driver
                .job
                .fleet()
                .host(host)
                .and_then(|host| host.up());
            let current = up.is_some_and(|up| up.instance == *instance);
            let asked = world.invariants.newcomers.asked.get_mut(host);
            if let Some(asked) = asked.filter(|asked| current && asked.number == *number) {
                asked.reaches.get_or_insert(unreachable.is_empty());
            }
        }
        _ => {}
    }
}

fn is_planned(world: &World, host: &HostId) -> bool {
    let Phase::Forming(forming) = &world.driver.job.rounds().phase else {
        return false;
    };
    forming.members.contains_key(host)
}

pub(super) fn on_command(world: &mut World, command: &Command) {
    let now = world.driver_now();
    match command {
        Command::Admit { host, .. } => {
            let memory = &mut world.invariants.newcomers;
            if memory.connecting.as_ref() == Some(host) {
                memory.asked.remove(host);
            }
        }
        Command::Send {
            host,
            command: AgentCommand::Probe { number, .. },
        } => {
            let asked = Asked {
                number: *number,
                since: now,
                reaches: None,
            };
            world.invariants.newcomers.asked.insert(host.clone(), asked);
        }
        Command::Announce(Decision::RoundPlanned { .. }) => {
            // Of an earlier round a worker may be left that has not been heard of.
            let last = world.rounds.last_key_value().map(|(round, _)| *round);
            let trains = |life| matches!(life, Life::Training { round } if Some(round) >= last);
            let mut hosts = world.driver.job.fleet().hosts();
            let others_train = hosts.any(|(_, host)| host.live().any(|live| trains(live.life)));
            world.invariants.newcomers.others_train = others_train;
        }
        Command::Announce(Decision::RoundStarted { .. }) => {
            world.invariants.newcomers.asked.clear()
        }
        _ => {}
    }
}

/// Whether a host was in the round that trains, does not support probes, or has reported that it reaches the
/// round.
pub(super) fn is_admitted(world: &World, host: &HostId) -> bool {
    let Phase::Training(training) = &world.driver.job.rounds().phase else {
        return true;
    };
    let asked = world.invariants.newcomers.asked.get(host);
    let reaches = asked.is_some_and(|asked| asked.reaches == Some(true));
    let able = world.host_index(host).is_none_or(World::knows_probes);
    training.members.contains_key(host) || !able || reaches
}

/// Whether a host has not answered a probe.
pub(super) fn is_asked(world: &World, host: &HostId) -> bool {
    let asked = world.invariants.newcomers.asked.get(host);
    asked.is_some_and(|asked| asked.reaches.is_none())
}

pub(super) fn started(world: &mut World, started: &Started<'_>) -> Result<(), String> {
    let Some((_, last)) = world.rounds.last_key_value() else {
        return Ok(());
    };
    if !world.invariants.newcomers.others_train {
        return Ok(());
    }
    for (index, _) in &started.starts {
        let known = last.seats.iter().any(|seat| seat.host == *index);
        if known || !World::knows_probes(*index) {
            continue;
        }
        let host = &world.hosts[*index].id;
        let asked = world.invariants.newcomers.asked.get(host);
        if asked.and_then(|asked| asked.reaches) != Some(true) {
            return Err(format!("{host} joins others that train: {asked:?}"));
        }
    }
    Ok(())
}

/// Periodic check of the job.
pub(super) fn watch(world: &mut World) -> Result<(), String> {
    let slack = SLACK + world.plan.late;
    let (asked, unasked, now) = (late(world, slack), unasked(world), world.driver_now());
    let memory = &mut world.invariants.newcomers;
    let before = memory.unasked.take();
    memory.unasked = unasked.map(|host| match before {
        Some((other, since)) if other == host => (host, since),
        _ => (host, now),
    });
    if let Some((host, since)) = &memory.unasked
        && now.since(*since) > slack
    {
        return Err(format!(
            "workers of {host} wait since {since:?} and nobody asks"
        ));
    }
    asked.map_or(Ok(()), Err)
}

/// A host whose answer is overdue and whose workers wait all the same.
fn late(world: &World, slack: Duration) -> Option<String> {
    let bound = world.plan.settings.probe_timeout * 2 + slack;
    let late = |(host, asked): &(&HostId, &Asked)| {
        let waits = waiting(world).any(|waiting| waiting == *host);
        asked.reaches.is_none() && world.driver_now().since(asked.since) > bound && waits
    };
    let (host, asked) = world.invariants.newcomers.asked.iter().find(late)?;
    Some(format!("{host} is waited for: {asked:?}"))
}

fn unasked(world: &World) -> Option<HostId> {
    let asked = &world.invariants.newcomers.asked;
    let unasked = |host: &&HostId| !is_admitted(world, host) && !asked.contains_key(*host);
    waiting(world).find(unasked).cloned()
}

/// Hosts of workers that wait while others train.
fn waiting(world: &World) -> impl Iterator<Item = &HostId> {
    let trains = matches!(world.driver.job.rounds().phase, Phase::Training(_));
    let trains = trains && !super::waits_for_away(world);
    let hosts = world.driver.job.fleet().hosts().filter(move |_| trains);
    // The worker of a draining host stays for a round that is formed for another reason. It does not join others.
    let stays = |host: &HostId| !world.reference.drains(host);
    hosts
        .filter(move |(host, _)| stays(host))
        .filter(|(_, state)| state.live().any(|live| live.life == Life::Waiting))
        .map(|(host, _)| host)
}
