//! Groups of workers without the SDK (process mode): the same invariants for groups, with separate counts.
//!
//! - R1, R4, R5, R9, R11 of a group that starts: `start`.
//! - What a failure, a loss and a change lead to, and within which time (R6, R9, rule 5): `change`.
//! - The outcome (R10): `ends`.
//!
//! Groups lead from the start of a job until a worker attaches. From then on the job is checked as all others.

mod change;
pub(crate) mod ends;
mod start;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use elasticrun_core::{
    Command, Decision, Event, RestartMode, Time,
    fleet::Life,
    journal::{MemberEntry, Saved},
    registry::State,
};
use elasticrun_protocol::{AgentReport, HostId, LocalRank, Process, Round, control::Adoption};

pub(super) use change::watch;

use crate::world::{World, host::index_of};

/// The group that started last.
#[derive(Clone, Debug)]
struct Current {
    round: Round,
    began: Time,
    members: Vec<(HostId, Process)>,
    /// The group is to end, or has ended.
    over: bool,
    /// Members that failed by themselves, as reported to the driver.
    failed: BTreeSet<(HostId, Process)>,
    /// Members that ended with 0 by themselves.
    done: BTreeSet<(HostId, Process)>,
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// A worker has attached.
    gave_way: bool,
    pub(super) started: u32,
    /// Restarts after a failure, counted here.
    pub(super) restarts: u32,
    coordinators: BTreeSet<SocketAddr>,
    current: Option<Current>,
    /// The current driver knows that a group was started.
    pub(super) named: bool,
    /// A driver has died with the record of the last group, and no agent knows which processes are its members.
    pub(super) unknown: bool,
    /// The current event reports this failed member.
    failure: Option<(HostId, Process)>,
    /// Members that ended with 0, by the same event and after that failure, which has ended the group before.
    too_late: BTreeSet<(HostId, Process)>,
    /// Since when the next group could start.
    ripe: Option<Time>,
    /// Since when a larger group could run.
    grows: Option<Time>,
    /// Until when members that were lost with their hosts may run.
    fenced: Option<Time>,
    /// When each host with an agent that may return went out of reach last.
    away: BTreeMap<HostId, Time>,
    /// When a worker attached.
    pub(super) attached: Option<Time>,
}

/// A later driver begins with these records. Its clock begins anew.
pub(super) fn resumed(world: &mut World, saved: &Saved) {
    let memory = &mut world.invariants.groups;
    // Processes since an attach that is not recorded are in no group, which the driver cannot know.
    let attach_lost = memory.gave_way && !saved.progress.rounds_lead;
    memory.gave_way = saved.progress.rounds_lead;
    memory.restarts = memory.restarts.min(saved.progress.restarts);
    (memory.ripe, memory.grows, memory.fenced) = (None, None, None);
    memory.away.clear();
    memory.failure = None;
    memory.too_late.clear();
    memory.named = saved.progress.started > 0;
    memory.attached = memory.gave_way.then_some(Time::ZERO);
    if let Some(current) = &mut memory.current {
        current.began = Time::ZERO;
        // The end of the group may not be recorded, and is decided anew. Members that were lost with their hosts may come back.
        let lives = |state: State| matches!(state, State::Ready | State::Finished);
        let members = || saved.members.values().flat_map(|entry| &entry.members);
        let is_lost = |member: &MemberEntry| member.state == State::LostWithHost;
        let all_lost = members().next().is_some() && members().all(is_lost);
        current.over &= !members().any(|member| lives(member.state)) && !all_lost;
        let ended = |who: &(HostId, Process), state: State| {
            let entry = saved.members.get(&who.0);
            let mut members = entry.into_iter().flat_map(|entry| &entry.members);
            members.any(|member| member.process == who.1 && member.state == state)
        };
        current.failed.retain(|who| ended(who, State::Failed));
        current.done.retain(|who| ended(who, State::Successful));
        if saved.progress.round != Some(current.round) || attach_lost {
            memory.unknown = true;
            current.over = true;
            current.done.clear();
            current.failed.clear();
        }
    }
}

/// An agent comes back with workers that have attached, or with commits.
pub(crate) fn comes_back(world: &mut World, adoption: &Adoption) {
    let attached = adoption.workers.iter().any(|worker| worker.attached);
    world.invariants.groups.gave_way |= attached || !adoption.kept.is_empty();
}

/// A later driver has decided which group goes on.
fn took_over(world: &mut World, round: Option<Round>) {
    let now = world.driver_now();
    let memory = &mut world.invariants.groups;
    if let Some(current) = &mut memory.current {
        // No other group follows one with a success.
        let done = !current.done.is_empty();
        current.over |= round != Some(current.round) && !done;
        current.began = now;
    }
}

/// Whether processes still start in groups.
pub(crate) fn lead(world: &World) -> bool {
    let settings = &world.plan.settings;
    let gave_way = world.invariants.groups.gave_way;
    settings.elastic && settings.restart_mode != RestartMode::InProcess && !gave_way
}

fn is_auto(world: &World) -> bool {
    world.plan.settings.restart_mode == RestartMode::Auto
}

/// The group that runs and is not to end.
fn running(world: &World) -> Option<&Current> {
    let current = world.invariants.groups.current.as_ref();
    current.filter(|current| !current.over && lead(world))
}

/// Members of a group that live, as far as the driver knows.
fn alive<'a>(
    world: &'a World,
    current: &'a Current,
) -> impl Iterator<Item = &'a (HostId, Process)> {
    let fleet = world.driver.job.fleet();
    current.members.iter().filter(move |(host, process)| {
        let live = fleet.current(host, *process);
        live.is_some_and(|live| matches!(live.life, Life::Training { .. }))
    })
}

/// Number of usable slots of connected agents, at most the size of a group. A slot whose process ended with 0 in a group
/// that the driver does not know of is not used again.
fn could_be(world: &World) -> usize {
    let fleet = world.driver.job.fleet();
    let up = |host: &HostId, slot| {
        let state = fleet.host(host);
        state.is_some_and(|state| state.up().is_some() && !state.is_done(slot))
    };
    let slots = world.reference.usable_slots(world.driver_now());
    let count = slots.filter(|(host, slot)| up(host, *slot)).count();
    let max = world.plan.settings.max_np;
    max.map_or(count, |max| count.min(max as usize))
}

/// Number of workers of the group that runs, or of one that could start; none if groups do not lead.
pub(super) fn there(world: &World) -> Option<usize> {
    if !lead(world) {
        return None;
    }
    Some(running(world).map_or_else(|| could_be(world), |current| current.members.len()))
}

/// Whether a group runs.
pub(super) fn is_running(world: &World) -> bool {
    running(world).is_some()
}

/// Members of the group that started last, unless it is to end.
pub(super) fn members(world: &World) -> Option<Vec<(usize, Process)>> {
    let members = running(world)?.members.iter();
    Some(
        members
            .filter_map(|(host, process)| Some((index_of(host)?, *process)))
            .collect(),
    )
}

/// Whether a process is in the group that started last.
pub(super) fn is_member(world: &World, host: &HostId, process: Process) -> bool {
    let current = running(world);
    current.is_some_and(|current| current.members.contains(&(host.clone(), process)))
}

/// A script of this group did a step with all its peers (R11).
pub(crate) fn step_done(world: &mut World, round: Round) {
    let latest = world.last_group().map(|(latest, _)| latest);
    if latest.is_some_and(|latest| latest > round) {
        let what = format!("the group of {round:?} does a step after {latest:?} was started");
        world.violate("R11", what);
    }
}

/// An event reaches the driver, before the job receives it.
pub(crate) fn event(world: &mut World, event: &Event) {
    // During a take-over, failures wait for the decision which group goes on.
    if !world.driver.is_taking_over() {
        world.invariants.groups.failure = None;
        world.invariants.groups.too_late.clear();
    }
    if !lead(world) || world.driver.ended.is_some() {
        return;
    }
    let Event::Reported {
        host,
        instance,
        report,
        ..
    } = event
    else {
        return;
    };
    let fleet = world.driver.job.fleet();
    let up = fleet.host(host).and_then(|state| state.up());
    if up.is_none_or(|up| up.instance != *instance) {
        return;
    }
    heard(world, host, report);
}

/// A report reaches the driver that the job applies.
pub(crate) fn heard(world: &mut World, host: &HostId, report: &AgentReport) {
    let (process, well) = match report {
        // A former driver has told it to stop. The record of that, and of the end of its group, may be lost.
        AgentReport::Exited {
            exit,
            stopped: true,
            ..
        } if !exit.is_success() => return,
        AgentReport::Exited { process, exit, .. } => (*process, exit.is_success()),
        AgentReport::WorkerLost { process, .. } => (*process, false),
        _ => return,
    };
    let who = (host.clone(), process);
    let memory = &mut world.invariants.groups;
    let Some(current) = memory.current.as_mut().filter(|current| !current.over) else {
        return;
    };
    if !current.members.contains(&who) {
        return;
    }
    if well {
        if memory.failure.is_some() {
            memory.too_late.insert(who.clone());
        }
        current.done.insert(who);
    } else if current.failed.insert(who.clone()) {
        memory.failure = Some(who);
    }
}

/// The commands of one step of the job.
pub(super) fn on_commands(world: &mut World, commands: &[Command]) {
    for (index, command) in commands.iter().enumerate() {
        match command {
            Command::Announce(Decision::Attached) => attached(world),
            Command::Announce(Decision::GroupStarted { round, size, .. }) => {
                let (before, behind) = commands.split_at(index);
                start::check(world, *round, *size, before, behind);
            }
            Command::End(outcome) => ends::check(world, outcome, commands),
            Command::Announce(Decision::GroupEnded { round, cause }) => {
                change::ended(world, *round, cause, commands);
            }
            Command::Announce(Decision::TookOver { round, .. }) => took_over(world, *round),
            Command::Announce(Decision::GroupRestarts { used, allowed }) => {
                change::restarted(world, *used, *allowed);
            }
            _ => {}
        }
    }
    start::apart(world, commands);
    if !world.driver.is_taking_over() {
        change::failed(world, commands);
    }
    change::note_clocks(world);
}

fn attached(world: &mut World) {
    let attach = world
        .plan
        .groups
        .as_ref()
        .is_some_and(|groups| groups.attach);
    let now = world.driver_now();
    let memory = &mut world.invariants.groups;
    (memory.gave_way, memory.attached) = (true, Some(now));
    if !attach {
        world.violate("R3", "no worker has attached".into());
    }
}

/// A decision of the job, in the order of the decisions.
pub(super) fn on_decision(world: &mut World, decision: &Decision) {
    let now = world.driver_now();
    let fence = world.plan.settings.fence;
    let memory = &mut world.invariants.groups;
    if matches!(
        decision,
        Decision::HostFailed { .. } | Decision::WentEarly { .. } | Decision::HostAway { .. }
    ) {
        memory.fenced = Some(now + fence);
    }
    // Members of a group that does not go on may run where no agent is back.
    if let Decision::TookOver { round, .. } = decision {
        let fenced = memory.fenced.max(Some(Time::ZERO + fence));
        memory.fenced = fenced.filter(|_| round.is_none());
    }
    if let Decision::HostAway { host, .. } = decision {
        memory.away.insert(host.clone(), now);
    }
}

/// Whether the others may go on without a member whose host is out of reach: it cannot run any more.
fn is_left_behind(world: &World, current: &Current) -> bool {
    let fence = world.plan.settings.fence;
    let away = world.reference.away();
    let over = |host: &HostId| {
        let since = world.invariants.groups.away.get(host);
        since.is_some_and(|since| *since + fence <= world.driver_now())
    };
    let mut hosts = current.members.iter().map(|(host, _)| host);
    hosts.any(|host| away.contains(host) && over(host))
        && could_be(world) >= world.plan.settings.min_np as usize
}

/// Whether processes of a former group may still run where the job does not see them, so that no group starts.
pub(super) fn is_fenced(world: &World, slack: Duration) -> bool {
    let fenced = world.invariants.groups.fenced;
    lead(world) && fenced.is_some_and(|until| world.driver_now() <= until + slack)
}

/// The domain that a failure excludes, if it differs from other jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakesOut {
    Usual,
    /// The process is a member, although the records may not name it.
    Member,
    Slot,
    Nothing,
}

/// The domain that the failure of a worker excludes.
pub(super) fn takes_out(world: &World, commands: &[Command], index: usize) -> TakesOut {
    let Command::Announce(Decision::WorkerFailed { host, process, .. }) = &commands[index] else {
        return TakesOut::Usual;
    };
    if !lead(world) {
        return TakesOut::Usual;
    }
    let (memory, settings) = (&world.invariants.groups, &world.plan.settings);
    if world.invariants.r10.finishing {
        return TakesOut::Nothing;
    }
    if memory.restarts < settings.max_restarts {
        return match settings.nothing_is_blacklisted() {
            true => TakesOut::Nothing,
            false => TakesOut::Member,
        };
    }
    let later = &commands[index + 1..];
    if let Some(Command::Announce(Decision::Blacklisted { .. })) = later.first()
        && later
            .iter()
            .any(|command| matches!(command, Command::Announce(Decision::TookOver { .. })))
    {
        // Whether others may attach was seen before the group was found to be over.
        return TakesOut::Slot;
    }
    match change::verdict_waits(world, Some((host, *process)), later) {
        true => TakesOut::Slot,
        false => TakesOut::Nothing,
    }
}

/// A slot of a member, by the index of its host.
fn slot(member: &(HostId, Process)) -> (Option<usize>, LocalRank) {
    (index_of(&member.0), member.1.local_rank)
}
