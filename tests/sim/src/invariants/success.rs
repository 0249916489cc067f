//! Rule 5 and R10, in both directions. A job succeeds if, and only if, all members of the round that started last
//! have ended with 0. The outcome "not all have succeeded" requires that all of them have ended.
//!
//! Only the reports to the driver about these members count, as recorded here. Earlier rounds, processes that were
//! in no round, and the failures that the job names do not count.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_core::{
    Command, Decision, Event,
    journal::{MembersEntry, Saved},
    registry::State,
    results::Outcome,
};
use elasticrun_protocol::{AgentReport, HostId, Process, control::Adoption};

use super::{groups, later_driver, later_driver::has_ended};
use crate::world::{World, host::index_of};

/// Why a member is no success whose agent is not back.
const ABSENT: &str = "did not come back";

/// The known ends of members of the round that started last.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Processes that have ended, as their agents reported, and whether with 0.
    ended: BTreeMap<(usize, Process), bool>,
    /// Processes that failed, were ordered to stop, or went with their agents: their ends are no successes.
    out: BTreeMap<(usize, Process), &'static str>,
}

/// Members of the round or group that started last; none if there is none.
fn members(world: &World) -> Option<Vec<(usize, Process)>> {
    if groups::lead(world) {
        return groups::members(world);
    }
    // A later driver may not know of the round.
    let last = world.rounds.last_key_value();
    let (_, round) = last.filter(|_| later_driver::knows_last(world))?;
    let seats = round.seats.iter();
    Some(seats.map(|seat| (seat.host, seat.process)).collect())
}

/// Members of the round of these records that have ended well.
fn successes(saved: &Saved) -> BTreeSet<(usize, Process)> {
    let of_host = |entry: &MembersEntry| {
        let host = index_of(&entry.host);
        let well = (entry.members.clone().into_iter()).filter(|m| m.state == State::Successful);
        well.filter_map(move |member| Some((host?, member.process)))
            .collect::<Vec<_>>()
    };
    saved.members.values().flat_map(of_host).collect()
}

/// Members of the round of these records that have ended in another way.
fn others(saved: &Saved) -> BTreeSet<(usize, Process)> {
    let of_host = |entry: &MembersEntry| {
        let host = index_of(&entry.host);
        // A member that was lost with its host may come back.
        let ended = (entry.members.clone().into_iter()).filter(|m| {
            has_ended(m.state) && !matches!(m.state, State::Successful | State::LostWithHost)
        });
        ended
            .filter_map(move |member| Some((host?, member.process)))
            .collect::<Vec<_>>()
    };
    saved.members.values().flat_map(of_host).collect()
}

/// A later driver begins with these records. What they lack, agents report again.
pub(super) fn resumed(world: &mut World, saved: &Saved) {
    let (well, others) = (successes(saved), others(saved));
    let memory = &mut world.invariants.success;
    memory.ended = well.into_iter().map(|member| (member, true)).collect();
    memory.out = (others.into_iter())
        .map(|member| (member, "ended before"))
        .collect();
}

/// A later driver has decided which round goes on. Members that nobody has brought back are neither successes nor
/// failures from now on.
pub(super) fn took_over(world: &mut World) {
    let fleet = world.driver.job.fleet();
    let is_there = |host: usize, process| {
        let host = &world.hosts[host].id;
        // Another agent than that of the process may be away.
        let away = fleet.host(host).and_then(|state| state.away());
        let mut lives = away.into_iter().flat_map(|away| &away.live);
        lives.any(|live| live.process == process) || fleet.current(host, process).is_some()
    };
    let members = members(world).into_iter().flatten();
    let gone: Vec<_> = members
        .filter(|(host, process)| !is_there(*host, *process))
        .collect();
    let memory = &mut world.invariants.success;
    for member in gone {
        if !memory.ended.contains_key(&member) {
            memory.out.entry(member).or_insert(ABSENT);
        }
    }
}

/// An agent comes back with these processes, perhaps after that decision.
pub(super) fn came_back(world: &mut World, host: &HostId, adoption: &Adoption) {
    let ended = adoption
        .reports
        .iter()
        .filter_map(|kept| match kept.report {
            AgentReport::Exited { process, .. } => Some(process),
            _ => None,
        });
    let there = adoption.workers.iter().map(|worker| worker.process);
    let memory = &mut world.invariants.success;
    for member in there
        .chain(ended)
        .filter_map(|p| Some((index_of(host)?, p)))
    {
        if memory.out.get(&member) == Some(&ABSENT) {
            memory.out.remove(&member);
        }
    }
}

/// Checks that no success is missing in the records.
pub(super) fn is_recorded(world: &World, saved: &Saved) -> Result<(), String> {
    let well = successes(saved);
    for member in members(world).into_iter().flatten() {
        let memory = &world.invariants.success;
        let succeeded =
            memory.ended.get(&member) == Some(&true) && !memory.out.contains_key(&member);
        if succeeded && !well.contains(&member) {
            return Err(format!("the success of {member:?} is not recorded"));
        }
    }
    Ok(())
}

/// Whether the end of a process is known.
pub(super) fn has_heard(world: &World, host: usize, process: Process) -> bool {
    let memory = &world.invariants.success;
    let member = (host, process);
    memory.ended.contains_key(&member) || memory.out.contains_key(&member)
}

/// An event of the host's current agent reaches the driver.
pub(super) fn event(world: &mut World, event: &Event) {
    let Event::Reported { host, report, .. } = event else {
        return;
    };
    let (AgentReport::Exited { process, .. } | AgentReport::WorkerLost { process, .. }) = report
    else {
        return;
    };
    let Some(member) = index_of(host).map(|index| (index, *process)) else {
        return;
    };
    let memory = &mut world.invariants.success;
    match report {
        AgentReport::Exited { stopped: true, .. } if !memory.ended.contains_key(&member) => {
            memory.out.entry(member).or_insert("was told to stop");
        }
        AgentReport::Exited { exit, .. } => {
            memory.ended.entry(member).or_insert(exit.is_success());
        }
        _ if memory.ended.contains_key(&member) => {}
        _ => {
            memory.out.entry(member).or_insert("was lost");
        }
    }
}

pub(super) fn on_command(world: &mut World, command: &Command) {
    match command {
        Command::Announce(
            Decision::RoundStarted { .. } | Decision::GroupStarted { .. } | Decision::Attached,
        ) => {
            world.invariants.success = Memory::default();
        }
        Command::Announce(Decision::Stopped { host, process, .. }) => {
            leaves(
                world,
                index_of(host),
                |member| member == process,
                "was told to stop",
            );
        }
        Command::Announce(Decision::HostFailed { host, .. } | Decision::WentEarly { host, .. })
            if !is_connected(world, host) =>
        {
            leaves(world, index_of(host), |_| true, "went with its agent");
        }
        Command::Disconnect { host, .. } | Command::EndLaunch { host, .. } => {
            leaves(world, index_of(host), |_| true, "went with its agent");
        }
        _ => {}
    }
}

fn is_connected(world: &World, host: &HostId) -> bool {
    let state = world.driver.job.fleet().host(host);
    state.is_some_and(|state| state.up().is_some()) && !world.driver.connects.contains(host)
}

/// Members that have not ended yet are neither successes nor failures from now on.
fn leaves(
    world: &mut World,
    host: Option<usize>,
    which: impl Fn(&Process) -> bool,
    why: &'static str,
) {
    for member in members(world).into_iter().flatten() {
        let memory = &mut world.invariants.success;
        let open = !memory.ended.contains_key(&member);
        if open && Some(member.0) == host && which(&member.1) {
            memory.out.entry(member).or_insert(why);
        }
    }
}

/// The ends of the members of the last round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// All have ended with 0.
    AllWell,
    /// Some have ended with 0, and all others have ended or left in other ways.
    Divided,
    /// None has ended with 0, and all are gone.
    NoneWell,
    /// Some may still end.
    Open,
}

fn standing(world: &World) -> Option<Standing> {
    let memory = &world.invariants.success;
    let members = members(world).filter(|members| !members.is_empty())?;
    let (mut well, mut open) = (0, 0);
    for member in &members {
        match (memory.out.get(member), memory.ended.get(member)) {
            (None, Some(true)) => well += 1,
            (None, None) => open += 1,
            _ => {}
        }
    }
    Some(match (well, open) {
        (_, 1..) => Standing::Open,
        (0, 0) => Standing::NoneWell,
        (well, 0) if well == members.len() => Standing::AllWell,
        _ => Standing::Divided,
    })
}

/// After a step of a job that has not ended.
pub(super) fn must_end(world: &World) -> Result<(), &'static str> {
    match standing(world) {
        Some(Standing::AllWell) => Err("all members of the last round have ended with 0"),
        Some(Standing::Divided) => Err("all members of the last round have ended, some with 0"),
        _ => Ok(()),
    }
}

/// Checks that all members have succeeded.
pub(super) fn all_succeeded(world: &World) -> Result<(), String> {
    match standing(world) {
        None | Some(Standing::AllWell) => Ok(()),
        Some(other) => Err(describe(world, other)),
    }
}

/// Checks that some members have succeeded and others have not.
pub(super) fn divided(world: &World, finishing: bool) -> Result<(), String> {
    match standing(world) {
        // A member that had finished may have failed since.
        Some(Standing::NoneWell) if finishing => Ok(()),
        Some(Standing::Divided) => Ok(()),
        // Agents of members that no record names may be lost.
        Some(Standing::Open) if !later_driver::knows_members(world) => Ok(()),
        Some(other) => Err(describe(world, other)),
        None if world.invariants.groups.unknown => Ok(()),
        None if later_driver::knows_last(world) => Err("no round has started".into()),
        None => Ok(()),
    }
}

/// The job ends with another outcome: checks that its members have not all succeeded.
pub(super) fn not_all(world: &World, outcome: &Outcome) -> Result<(), String> {
    let stopped = matches!(outcome, Outcome::Stopped { .. });
    // A deadline that had passed takes effect before the event with which it is noticed.
    let late = world.before_event.is_some();
    match standing(world) {
        Some(Standing::AllWell) if !stopped && !late => Err(describe(world, Standing::AllWell)),
        _ => Ok(()),
    }
}

fn describe(world: &World, standing: Standing) -> String {
    let memory = &world.invariants.success;
    format!(
        "of the last round {standing:?}: ended {:?}, out {:?}",
        memory.ended, memory.out
    )
}
