//! R12: the base of a started round is the newest complete commit (not void) that any reachable agent held. An
//! agent forgets no commit that a later round may need. Before a round goes back to an older commit than a host
//! out of reach holds, the job waits for a tenth of the elastic timeout, and no longer.

use std::collections::BTreeSet;

use elasticrun_core::{Decision, Time, rounds::Phase};
use elasticrun_protocol::{CommitId, HostId, Process, Round};

use super::{SLACK, Started, later_driver};
use crate::world::{Durable, World};

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The round whose commits the job waits for, and since when.
    awaited: Option<(Round, Time)>,
    /// Draining hosts that went away since the last round began.
    went: BTreeSet<HostId>,
    /// When the durable store was listed first since the last round began, and whether something in it was refused.
    listed: Option<Time>,
    refused: bool,
    /// When a host was lost last, which begins a fence.
    lost: Time,
}

impl Memory {
    /// A later driver begins.
    pub(super) fn resumed(&mut self) {
        (self.awaited, self.lost) = (None, Time::ZERO);
    }
}

pub(super) fn on_decision(world: &mut World, decision: &Decision) {
    let now = world.driver_now();
    let memory = &mut world.invariants.r12;
    if matches!(
        decision,
        Decision::HostFailed { .. } | Decision::WentEarly { .. } | Decision::HostAway { .. }
    ) {
        memory.lost = now;
    }
    match decision {
        Decision::AwaitingNewer { newer, .. } => memory.awaited = Some((*newer, now)),
        Decision::RoundStarted { .. } => memory.went.clear(),
        Decision::DurableRefused { .. } => memory.refused = true,
        _ => {}
    }
}

/// The agent of a host is lost. The job does not wait for a host that was draining.
pub(super) fn lost(world: &mut World, host: &HostId) {
    let drains = world.reference.drains(host);
    let went = &mut world.invariants.r12.went;
    if drains {
        went.insert(host.clone());
    } else {
        went.remove(host);
    }
}

/// A round that begins from an older commit has waited for hosts that are out of reach and hold a newer one.
fn waited(world: &World, started: &Started<'_>) -> Result<(), String> {
    let Some((last, sim)) = world.rounds.last_key_value() else {
        return Ok(());
    };
    let answered = |process: Process, host: usize| {
        world.reaches(host) && world.hosts[host].newest(process).is_some()
    };
    let members = started.members();
    let heard = (sim.seats.iter()).any(|seat| {
        members.contains(&(seat.host, seat.process)) || answered(seat.process, seat.host)
    });
    // A later driver may know of an earlier round only.
    let heard = heard || !later_driver::knows_last(world);
    if heard || started.base.is_some_and(|base| base.round >= *last) {
        return Ok(());
    }
    let tenth = world.plan.settings.elastic_timeout / 10;
    let since = (world.invariants.r12.awaited).filter(|(round, _)| round == last);
    if since.is_some_and(|(_, since)| world.driver_now().since(since) >= tenth) {
        return Ok(());
    }
    for (index, host) in world.hosts.iter().enumerate() {
        let itself = world.plan.settings.self_registration;
        let goes = world.reference.drains(&host.id) || world.invariants.r12.went.contains(&host.id);
        let may_come = (itself || world.driver.job.has_host(&host.id)) && !goes;
        if world.reaches(index) || !may_come {
            continue;
        }
        let newer = (host.commits().into_iter())
            // The start of a round repeats its base.
            .filter(|commit| commit.count > 0)
            .find(|commit| commit.round == *last && world.history.is_valid(*commit));
        if let Some(newer) = newer {
            let (base, id) = (started.base, &host.id);
            return Err(format!(
                "it goes back to {base:?} and did not wait for {id}, which has {newer:?} (waited since {since:?})"
            ));
        }
    }
    Ok(())
}

/// The wait for newer commits has an end.
pub(super) fn waits(world: &World) -> Result<(), String> {
    let Phase::Forming(forming) = &world.driver.job.rounds().phase else {
        return Ok(());
    };
    let (settings, memory) = (&world.plan.settings, &world.invariants.r12);
    let Some((newer, since)) = memory.awaited else {
        return Ok(());
    };
    let ends = (since + settings.elastic_timeout / 10).max(memory.lost + settings.fence);
    // The search of the durable store follows.
    let searches = world.plan.durable.is_some();
    let waits = world.history.latest() == Some(newer) && forming.missing.is_empty() && !searches;
    if waits && world.driver_now() > ends + SLACK + world.plan.late {
        return Err(format!("{newer} is waited for since {since:?}"));
    }
    Ok(())
}

/// The newest commit that the driver must have found in the durable store, if its round had no commit of memory.
pub(super) fn in_store(world: &World) -> Option<CommitId> {
    let memory = &world.invariants.r12;
    if world.plan.durable.is_none() || memory.refused {
        return None;
    }
    // A commit that was written after the store was listed is not known.
    let listed = memory.listed.unwrap_or(world.now);
    let usable = |stored: &&Durable| {
        let known = stored.written + SLACK + world.plan.late < listed;
        known && !stored.damaged && world.history.is_valid(stored.commit.id)
    };
    (world.store.iter().rfind(usable)).map(|stored| stored.commit.id)
}

/// An agent is to load a commit from the store.
pub(super) fn loads(world: &mut World, id: CommitId) {
    if !world.history.is_valid(id) {
        world.violate("R12", format!("{id:?} is loaded, and is void"));
    }
}

/// An agent lists the store.
pub(crate) fn lists(world: &mut World) {
    let now = world.now;
    world.invariants.r12.listed.get_or_insert(now);
}

pub(super) fn started(world: &mut World, started: &Started<'_>) -> Result<(), String> {
    waited(world, started)?;
    let stored = in_store(world).filter(|_| started.base.is_none());
    (world.invariants.r12.listed, world.invariants.r12.refused) = (None, false);
    if let Some(stored) = stored {
        return Err(format!("it begins anew and the store has {stored:?}"));
    }
    let mut held = false;
    for (index, host) in world.hosts.iter().enumerate() {
        let connects = world.driver.connects.contains(&host.id);
        if !world.reaches(index) || connects {
            continue;
        }
        // The commits of an agent that answered this plan are those of its answer. For others, the current ones
        // count.
        let commits: Vec<CommitId> = match &host.answered {
            Some((round, commits)) if *round == started.round => commits.clone(),
            _ => host.commits(),
        };
        for commit in commits
            .into_iter()
            .filter(|commit| world.history.is_valid(*commit))
        {
            if Some(commit) > started.base {
                return Err(format!(
                    "its base is {:?} and {} has {commit:?}",
                    started.base, host.id
                ));
            }
            held |= Some(commit) == started.base;
        }
    }
    if let Some(base) = started.base {
        if !world.history.is_valid(base) {
            return Err(format!("its base {base:?} is void"));
        }
        let members = started.members();
        let member_holds =
            (members.iter()).any(|(host, p)| world.hosts[*host].newest(*p) == Some(base));
        let keeper = started
            .starts
            .iter()
            .all(|(_, start)| start.keeper.is_some());
        let cut_off = world
            .hosts
            .iter()
            .enumerate()
            .any(|(index, _)| !world.reaches(index));
        if !member_holds && !keeper && !cut_off {
            return Err(format!("nobody is named who has the base {base:?}"));
        }
        if !held && !cut_off {
            return Err(format!("nobody has its base {base:?}"));
        }
    } else if world.history.has_commits() {
        // Nobody is left who knows that a round has trained if its record is lost and the agents of its members are, too
        // (docs/journal.md). The store may still have a commit of it, see above.
        let known = |round| later_driver::knows(world, round);
        if world.history.has_training(known) {
            return Err("it begins anew and there was something to go on from".into());
        }
    }
    Ok(())
}

/// An agent drops the memory of a dead process. What may be needed stays on the host.
pub(crate) fn may_forget(world: &mut World, host: usize, process: Process) {
    if world.hosts[host].workers.contains_key(&process) {
        return;
    }
    let Some(newest) = world.hosts[host].newest(process) else {
        return;
    };
    // An agent that the driver has given up may still carry out older commands.
    if !world.is_reached(&world.hosts[host].id) {
        return;
    }
    // The driver has given up this load, and the store still has the commit.
    let is_stored =
        (world.store.iter()).any(|stored| stored.commit.id == newest && !stored.damaged);
    let is_arriving = world.invariants.last_commit.is_arriving(host, process);
    if is_stored && is_arriving {
        return;
    }
    // A newer one takes its place, unless the agent has answered a plan that names this one.
    let last = world.rounds.last_key_value().map(|(round, _)| *round);
    let heard = last.max(Some(world.hosts[host].planned));
    let answered = world.hosts[host].answered.as_ref().map(|(round, _)| *round);
    let kept = world.hosts[host].newest_kept_beside(process);
    let is_replaced = (answered <= heard || is_arriving)
        && kept.is_some_and(|kept| kept > newest && world.history.is_valid(kept));
    let needed = world.history.is_valid(newest)
        && !is_replaced
        && !world.hosts[host].has_copy_of(process)
        && world
            .rounds
            .last_key_value()
            .is_none_or(|(_, round)| Some(newest) >= round.base);
    if needed {
        world.violate(
            "R12",
            format!("h{host} forgets {newest:?} of {process:?}, which may be needed"),
        );
    }
}

/// The agent of a host is dismissed before the job has ended.
pub(super) fn dismissed(world: &mut World, host: &HostId) {
    let Some(index) = world.host_index(host) else {
        return;
    };
    if !world.reaches(index) {
        return;
    }
    // The host of a member may be dead or cut off without the driver's knowledge.
    let last = world.rounds.last_key_value().map(|(_, round)| &round.seats);
    if last
        .into_iter()
        .flatten()
        .any(|seat| !world.reaches(seat.host))
    {
        return;
    }
    let newest = |index: usize| {
        let commits = world.hosts[index].commits().into_iter();
        commits
            .filter(|commit| world.history.is_valid(*commit))
            .max()
    };
    let own = newest(index);
    // A cut host is not noticed yet, so it counts as connected.
    let connected = |other: &usize| *other != index && world.hosts[*other].agent.is_some();
    let others = (0..world.hosts.len()).filter(connected);
    let best = others.filter_map(newest).max();
    if own > best {
        let what = format!("{host} is sent away with {own:?} and the others have {best:?}");
        world.violate("R12", what);
    }
}
