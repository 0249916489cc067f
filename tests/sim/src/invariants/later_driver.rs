//! Several drivers of one run. What the records of a dead driver say is not lost (S1), each failure counts once, the round
//! that goes on is whole (T1), and nothing begins on a host whose agent may still come back (T2, R4).
//!
//! The other invariants check a later driver by what it can know. Its clock begins anew, so all their times do. Hosts,
//! exclusions, first failure and counts are those of the records that are left. Rounds, commits, processes and the ends of
//! processes are those of the world, so R1, R4, R7, R8, R11 to R15 and W5 hold across all drivers.

use std::collections::BTreeSet;

use elasticrun_core::{
    Command, Decision,
    journal::{MembersEntry, Saved},
    registry::State,
};
use elasticrun_protocol::{
    AgentCommand, HostId, Process, Round,
    control::{AdoptedPhase, Adoption},
};

use super::{ends, groups, r10, success};
use crate::world::{Seat, World};

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Workers that the drivers have named as failed, as far as the records know.
    failed: Vec<(HostId, Process)>,
    /// A driver has died. The newest round that the current one knows of, and rounds that its records do not count.
    later: Option<Option<Round>>,
    pub(super) uncounted: u32,
    /// The newest round that the records or agents name as started.
    started: Option<Round>,
    /// Members of rounds that a later driver knows of; none for the first driver, and once it has started a round itself.
    members: Option<BTreeSet<(Round, HostId, Process)>>,
}

/// How many of the events of a run the records know.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    /// Failures of workers.
    failed: usize,
    /// Processes that were told to stop.
    told: usize,
}

/// What the records know once they are written.
pub(crate) fn known(world: &World) -> Known {
    Known {
        failed: world.invariants.later_driver.failed.len(),
        told: world.invariants.ends.told.len(),
    }
}

/// A later driver begins. The records have `known`, and are `whole` if no write was lost.
pub(crate) fn resumed(world: &mut World, saved: &Saved, whole: bool, known: Known) {
    if whole && let Err(what) = is_complete(world, saved) {
        world.violate("S1", what);
    }
    world.reference.resumed(saved);
    world.blame.resumed(saved);
    let started = world.history.rounds() as u32 + world.invariants.groups.started;
    let memory = &mut world.invariants;
    memory.later_driver.failed.truncate(known.failed);
    memory.ends.told.truncate(known.told);
    // Groups have numbers of their own.
    let round = saved.progress.round.filter(|_| saved.progress.rounds_lead);
    memory.later_driver.later = Some(round);
    let of_host = |entry: &MembersEntry| {
        let (round, host) = (entry.round, entry.host.clone());
        let members = entry.members.clone().into_iter();
        members.map(move |member| (round, host.clone(), member.process))
    };
    memory.later_driver.started = saved.progress.round;
    memory.later_driver.members = Some(saved.members.values().flat_map(of_host).collect());
    memory.later_driver.uncounted = started.saturating_sub(saved.progress.started);
    // The clock begins anew, and nothing is known of agents and of what they were told.
    memory.change = Default::default();
    memory.exit = Default::default();
    memory.filling = Default::default();
    memory.newcomers = Default::default();
    memory.paths = Default::default();
    memory.r3 = Default::default();
    memory.r6 = Default::default();
    memory.r9 = Default::default();
    memory.worker_ended = Default::default();
    memory.r12.resumed();
    memory.survival.resumed();
    memory.r16.resumed();
    memory.r10.resumed(saved);
    groups::resumed(world, saved);
    ends::resumed(world, saved);
    success::resumed(world, saved);
}

/// Forgets a process of a former agent, whose number another one has.
pub(crate) fn forget(world: &mut World, host: usize, process: Process) {
    let named = (world.hosts[host].id.clone(), process);
    let memory = &mut world.invariants;
    memory.later_driver.failed.retain(|other| *other != named);
    memory.ends.told.retain(|other| *other != named);
}

/// An agent comes back, with a round and commits that the records may lack.
pub(crate) fn comes_back(world: &mut World, host: &HostId, adoption: &Adoption) {
    let kept = adoption.kept.iter().flat_map(|kept| &kept.commits);
    let rounds = kept.map(|commit| commit.round);
    let newest = rounds
        .chain(adoption.round.iter().map(|round| round.round))
        .max();
    let memory = &mut world.invariants.later_driver;
    memory.later = memory.later.map(|known| known.max(newest));
    let started = adoption.round.as_ref().map(|round| round.round);
    if started > memory.started {
        // Failures before it are none of its episode. A member that has finished in the round before it ends no job.
        memory.started = started;
        world.invariants.r10.goes_on();
        world.reference.round_began();
        world.blame.round_began();
    }
    let memory = &mut world.invariants.later_driver;
    if let (Some(members), Some(started)) = (&mut memory.members, &adoption.round) {
        let named = started.members.iter().map(|member| member.process);
        members.extend(named.map(|process| (started.round, host.clone(), process)));
    }
    let finished = (adoption.workers.iter()).any(|worker| worker.phase == AdoptedPhase::Finished);
    if finished && adoption.round.is_some() {
        r10::finishes(world);
    }
    groups::comes_back(world, adoption);
    success::came_back(world, host, adoption);
}

/// Whether the driver can know of the round that started last. A dead one may have lost its record, and its members.
pub(super) fn knows_last(world: &World) -> bool {
    let last = world.rounds.last_key_value();
    last.is_none_or(|(round, _)| knows(world, *round))
}

/// Whether the driver can know of all members of the round that started last.
pub(super) fn knows_members(world: &World) -> bool {
    let last = world.rounds.last_key_value();
    last.is_none_or(|(round, sim)| (sim.seats.iter()).all(|seat| knows_member(world, *round, seat)))
}

/// Whether the driver can know that a process was a member of a round. The records may lack it, and its agent names only the
/// round that its workers train in.
pub(super) fn knows_member(world: &World, round: Round, seat: &Seat) -> bool {
    let known = world.invariants.later_driver.members.as_ref();
    let named = (round, world.hosts[seat.host].id.clone(), seat.process);
    known.is_none_or(|known| known.contains(&named))
}

/// Whether the driver can know that a round has started.
pub(super) fn knows(world: &World, round: Round) -> bool {
    let known = world.invariants.later_driver.later;
    known.is_none_or(|known| known >= Some(round))
}

/// A round starts: those before it that its driver cannot know of are forgotten.
pub(super) fn forget_unknown(world: &mut World) {
    if let Some(known) = world.invariants.later_driver.later {
        world.history.forget_unknown(|round| Some(round) <= known);
    }
}

/// Checks that the records know of all failures and ends.
fn is_complete(world: &World, saved: &Saved) -> Result<(), String> {
    let named = (saved.failures.first.as_ref()).map(|first| (first.host.clone(), first.process));
    ends::is_first(world, named)?;
    world.reference.is_recorded(saved)?;
    success::is_recorded(world, saved)
}

pub(super) fn on_command(world: &mut World, command: &Command) {
    match command {
        Command::Announce(Decision::WorkerFailed { host, process, .. }) => {
            let failed = (host.clone(), *process);
            if world.invariants.later_driver.failed.contains(&failed) {
                let what = format!("the failure of {host} {process:?} counts twice");
                world.violate("R3", what);
            }
            world.invariants.later_driver.failed.push(failed);
        }
        Command::Announce(Decision::TookOver { round, .. }) => took_over(world, *round),
        Command::Announce(Decision::RoundStarted { round, .. }) => {
            let memory = &mut world.invariants.later_driver;
            memory.later = memory.later.map(|_| Some(*round));
            memory.members = None;
        }
        Command::Admit { host, adopted, .. } => {
            let Some(takeover) = &mut world.driver.takeover else {
                return;
            };
            let was_absent = takeover.absent.remove(host);
            if *adopted {
                takeover.back.insert(host.clone());
            } else if was_absent {
                // Its workers have ended with its former agent.
                r10::host_lost(world, host);
            }
        }
        Command::Launch { host }
        | Command::Send {
            host,
            command: AgentCommand::Spawn(_),
        } => begins_on(world, host),
        Command::Announce(Decision::RoundPlanned { .. } | Decision::GroupStarted { .. })
            if world.driver.is_taking_over() =>
        {
            world.violate(
                "T1",
                format!("the take-over goes on, and the job decides {command:?}"),
            );
        }
        _ => {}
    }
}

/// Something begins on a host.
fn begins_on(world: &mut World, host: &HostId) {
    let now = world.driver_now();
    let waits = (world.driver.takeover.as_ref())
        .is_some_and(|takeover| now < takeover.until && takeover.absent.contains(host));
    if waits || world.driver.is_taking_over() {
        let what = format!("something begins on {host}, whose agent may come back");
        world.violate("T2", what);
    }
}

/// The job has decided which round goes on.
fn took_over(world: &mut World, round: Option<Round>) {
    if let Some(takeover) = &mut world.driver.takeover {
        takeover.decided = true;
    }
    world.take_over_ends();
    if let Some(round) = round
        && let Err(what) = is_whole(world, round)
    {
        world.violate("T1", format!("{round:?} goes on, and {what}"));
    }
    let absent = world
        .driver
        .takeover
        .as_ref()
        .map(|takeover| takeover.absent.clone());
    for host in absent.into_iter().flatten() {
        r10::host_lost(world, &host);
    }
    success::took_over(world);
    ends::took_over(world);
    // The shortage counts from here.
    world.invariants.r9 = Default::default();
    world.invariants.reasons.took_over(round);
}

/// Checks that the agents of all members are back, and that no member has left the round.
fn is_whole(world: &World, round: Round) -> Result<(), String> {
    if groups::lead(world) {
        return Ok(());
    }
    if world.history.latest() != Some(round) {
        return Err(format!("the last one is {:?}", world.history.latest()));
    }
    let seats = world
        .rounds
        .get(&round)
        .into_iter()
        .flat_map(|round| &round.seats);
    for seat in seats {
        let host = &world.hosts[seat.host].id;
        let ended = success::has_heard(world, seat.host, seat.process);
        let back = (world.driver.takeover.as_ref()).is_some_and(|t| t.back.contains(host));
        if !ended && !back {
            return Err(format!("the agent of {host} is not back"));
        }
    }
    Ok(())
}

/// Whether a member has ended, as the records say.
pub(super) fn has_ended(state: State) -> bool {
    !matches!(state, State::Ready | State::Finished)
}
