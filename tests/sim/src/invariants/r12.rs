//! R12: the base of a started round is the newest complete commit (not void) that reachable agents held. A commit of a
//! divided state is complete if they hold all of its shards, and the members are told its layout. An
//! agent forgets no commit that a later round may need. Before a round goes back to an older commit than a host
//! out of reach holds, the job waits for a tenth of the elastic timeout, and no longer.

use std::collections::BTreeSet;

use elasticrun_core::{Decision, Time, rounds::Phase};
use elasticrun_protocol::{CommitId, CommitKey, HostId, LocalRank, Process, Round};

use super::{SLACK, Started, later_driver};
use crate::{
    completeness,
    world::{Durable, World},
};

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
    // A member does not show that no other is more than a step ahead if parts of that step are lost.
    let heard = heard && !is_newest_incomplete(world, started.round);
    // Nor does it if the base of its round is out of reach: a member may not have read its shard yet.
    let lacks_base = world.plan.is_divided() && started.base < sim.base;
    let heard = heard && !lacks_base;
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
    for index in absent(world) {
        // The start of a round repeats its base.
        let is_newer = |commit: &CommitId| match commit.round == *last {
            true => commit.count > 0,
            false => lacks_base && Some(*commit) >= sim.base,
        };
        let newer = completes(world, index, started.round).filter(is_newer);
        if let Some(newer) = newer {
            let (base, id) = (started.base, &world.hosts[index].id);
            return Err(format!(
                "it goes back to {base:?} and did not wait for {id}, which has {newer:?} (waited since {since:?})"
            ));
        }
    }
    Ok(())
}

/// The job ends since no state is left. It has waited for hosts out of reach with whose shards a commit is complete.
pub(super) fn gave_up(world: &World) -> Result<(), String> {
    let Phase::Forming(forming) = &world.driver.job.rounds().phase else {
        return Ok(());
    };
    let Some((last, _)) = world.rounds.last_key_value() else {
        return Ok(());
    };
    let since = world.invariants.r12.awaited;
    // A later driver that does not know the last round names a later one.
    let since = since.filter(|(round, _)| round >= last || !later_driver::knows_last(world));
    let tenth = world.plan.settings.elastic_timeout / 10;
    let now = world.driver_now();
    if since.is_some_and(|(_, since)| now.since(since) >= tenth) {
        return Ok(());
    }
    for index in absent(world) {
        if let Some(commit) = completes(world, index, forming.round) {
            let id = &world.hosts[index].id;
            return Err(format!(
                "with the shards of {id} {commit:?} is complete (waited since {since:?})"
            ));
        }
    }
    Ok(())
}

/// Hosts that are out of reach, and may come back.
fn absent(world: &World) -> impl Iterator<Item = usize> {
    let itself = world.plan.settings.self_registration;
    (0..world.hosts.len()).filter(move |index| {
        let id = &world.hosts[*index].id;
        let goes = world.reference.drains(id) || world.invariants.r12.went.contains(id);
        let may_come = (itself || world.driver.job.has_host(id)) && !goes;
        may_come && !world.reaches(*index)
    })
}

/// Whether hosts that answered a plan have a part of a newer commit than the newest complete one.
fn is_newest_incomplete(world: &World, round: Round) -> bool {
    let valid = answers(world, round).map(|(_, key)| key);
    let valid: Vec<_> = valid
        .filter(|key| world.history.is_valid(key.commit))
        .collect();
    let newest = valid.iter().map(|key| key.commit).max();
    newest > completeness::newest(valid)
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

/// Whether the answers to the plan of a round name all shards of a commit.
fn was_told(world: &World, round: Round, id: CommitId) -> bool {
    let answers = world.hosts.iter().filter_map(|host| host.told.as_ref());
    let answers = answers.filter(|(answered, _)| *answered == round);
    let keys = answers.flat_map(|(_, keys)| keys.iter().copied());
    completeness::newest(keys.filter(|key| key.commit == id)).is_some()
}

/// The newest complete commit of what hosts have answered, and of the memory of one that is out of reach.
fn completes(world: &World, host: usize, round: Round) -> Option<CommitId> {
    let answers = answers(world, round).map(|(_, key)| key);
    let all = answers.chain(world.hosts[host].keys());
    completeness::newest(all.filter(|key| world.history.is_valid(key.commit)))
}

/// What hosts hold that the driver can ask: those that answered the plan of this round as they answered, others as they are.
pub(super) fn answers(world: &World, round: Round) -> impl Iterator<Item = (usize, CommitKey)> {
    let hosts = world.hosts.iter().enumerate();
    let reached = hosts
        .filter(|(index, host)| world.reaches(*index) && !world.driver.connects.contains(&host.id));
    reached.flat_map(move |(index, host)| {
        let keys = match &host.answered {
            Some((answered, keys)) if *answered == round => keys.clone(),
            _ => host.keys(),
        };
        keys.into_iter().map(move |key| (index, key))
    })
}

pub(super) fn started(world: &mut World, started: &Started<'_>) -> Result<(), String> {
    waited(world, started)?;
    let stored = in_store(world).filter(|_| started.base.is_none());
    (world.invariants.r12.listed, world.invariants.r12.refused) = (None, false);
    if let Some(stored) = stored {
        return Err(format!("it begins anew and the store has {stored:?}"));
    }
    let copies = || {
        let copies = answers(world, started.round);
        copies.filter(|(_, key)| world.history.is_valid(key.commit))
    };
    let newest = completeness::newest_divided(copies().map(|(_, key)| key));
    if let Some((commit, _)) = newest.filter(|(commit, _)| Some(*commit) > started.base) {
        let has = |(host, key): (usize, CommitKey)| (key.commit == commit).then_some(host);
        let hosts: BTreeSet<_> = copies().filter_map(has).collect();
        return Err(format!(
            "its base is {:?} and the hosts {hosts:?} have {commit:?}",
            started.base
        ));
    }
    let held = newest.map(|(commit, _)| commit) == started.base;
    if let Some(base) = started.base {
        if world.plan.is_divided() && !was_told(world, started.round, base) {
            return Err(format!(
                "its base {base:?} is not complete in what hosts have answered"
            ));
        }
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
        let shards = newest.map(|(_, shards)| shards);
        let shards = shards.filter(|_| world.plan.is_divided());
        let told = started.starts.iter().map(|(_, start)| start.base_shards);
        let cut_off = world
            .hosts
            .iter()
            .enumerate()
            .any(|(index, _)| !world.reaches(index));
        if !cut_off && told.into_iter().any(|told| told != shards) {
            return Err(format!("the shards of its base {base:?} are {shards:?}"));
        }
        if !member_holds && !keeper && shards.is_none() && !cut_off {
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
    if world.plan.is_divided() {
        return may_forget_shards(world, host, process);
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

/// An agent drops the memory of a dead process of a divided state. It may have the only copy of a shard of the base. Copies from
/// other hosts are given up for those of a later cut ([`super::r16`]), but not while a plan may count on them.
fn may_forget_shards(world: &mut World, host: usize, process: Process) {
    let last = world.rounds.last_key_value();
    let base = last.and_then(|(_, round)| round.base);
    let state = &world.hosts[host];
    let heard = last.map(|(round, _)| *round).max(Some(state.planned));
    let answered = state.answered.as_ref();
    let answered = answered.filter(|(round, _)| Some(*round) > heard);
    let is_told = |key: &CommitKey| answered.is_some_and(|(_, keys)| keys.contains(key));
    let is_copy = process.local_rank == LocalRank(u32::MAX);
    let is_needed = |key: &CommitKey| {
        let is_base = Some(key.commit) >= base && world.history.is_valid(key.commit);
        let may_count = !is_copy || is_told(key);
        is_base && may_count && !state.kept_beside(process).any(|other| other == *key)
    };
    let needed = state.keys_of(process).into_iter().find(is_needed);
    if let Some(needed) = needed {
        world.violate(
            "R12",
            format!("h{host} forgets {needed:?} of {process:?}, which may be needed"),
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
    // A cut host is not noticed yet, so it counts as connected.
    let connected = |other: &usize| *other != index && world.hosts[*other].agent.is_some();
    let others: Vec<_> = (0..world.hosts.len()).filter(connected).collect();
    let newest = |hosts: &[usize]| {
        let keys = hosts.iter().flat_map(|host| world.hosts[*host].keys());
        completeness::newest(keys.filter(|key| world.history.is_valid(key.commit)))
    };
    let best = newest(&others);
    let all = newest(&[others, vec![index]].concat());
    if all > best {
        let what =
            format!("{host} is sent away: with it {all:?} is complete, and without it {best:?}");
        world.violate("R12", what);
    }
}
