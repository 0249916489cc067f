//! Which host is blamed for a data path that stays cut. The job fails the host that most others report as
//! unreachable, and no healthy one. Of two hosts that cannot reach each other, either may be blamed. So may
//! newcomers that do not reach the only host that trained. A host that is known to work is failed after three
//! rounds in a row without a commit, and not before. It fails no later than that if the job can spare it. A failure
//! explains a broken round only if it comes soon after the round broke, or if it is of a host that all reports name.
//!
//! The world shows which hosts are cut off, and the reports to the driver show which hosts have noticed it. The
//! reason of a failed host shows whether it failed for its data path.

use std::{collections::BTreeSet, time::Duration};

use elasticrun_core::{Decision, Event, Time, rounds::Cause};
use elasticrun_protocol::{AgentReport, HostId, Round};

use crate::world::{RoundSim, World, host::index_of};

/// Rounds in a row without a commit before a host that is known to work is failed.
const PATIENCE: usize = 3;

/// A round that lasts longer may have been useful.
const SHORT: Duration = Duration::from_secs(10);

/// How long the job waits for a failure that explains a broken round, at first and at most. It waits twice as long for
/// each fruitless round after [`PATIENCE`].
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The driver may handle the first report of a broken round this much later.
const SLACK: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The last round when a host was blamed last.
    blamed: Option<Round>,
    /// When the last round began.
    began: Option<Time>,
    /// Something else has failed or changed since then, which explains why the round broke.
    explained: bool,
    /// When the driver learned first that the last round broke.
    broke: Option<Time>,
    /// Pairs of its hosts that cannot reach each other, as reported to the driver before any failure.
    told: BTreeSet<(usize, usize)>,
    /// Hosts that have failed since the last round began.
    failed: BTreeSet<usize>,
    /// Rounds in a row that broke since the same host is cut off and no host was blamed.
    row: usize,
    /// Such pairs of the earlier rounds.
    named: BTreeSet<(usize, usize)>,
}

impl Memory {
    /// Those of `hosts` that have lost their path to this host.
    fn links(&self, host: usize, hosts: &[usize]) -> impl Iterator<Item = usize> {
        let named = |a: usize, b: usize| {
            let link = (a.min(b), a.max(b));
            self.named.contains(&link) || self.told.contains(&link)
        };
        hosts
            .iter()
            .copied()
            .filter(move |other| named(host, *other))
    }

    /// One of the two hosts has failed since the last round began.
    fn is_explained(&self, (one, other): &(usize, usize)) -> bool {
        self.failed.contains(one) || self.failed.contains(other)
    }
}

/// An event of the host's current agent reaches the driver.
pub(super) fn event(world: &mut World, event: &Event) {
    let Event::Reported {
        host,
        report: AgentReport::PeerLost {
            round, unreachable, ..
        },
        ..
    } = event
    else {
        return;
    };
    let Some((_, last)) = world.rounds.last_key_value().filter(|(at, _)| *at == round) else {
        return;
    };
    if world.invariants.paths.explained {
        // That broke the round, and peers of a dead worker lose it as well.
        return;
    }
    let (hosts, from) = (hosts_of(last), index_of(host).unwrap_or(usize::MAX));
    let to = unreachable.iter().filter_map(|i| hosts.get(*i as usize));
    let links = to.map(|to| (from.min(*to), from.max(*to)));
    let now = world.driver_now();
    let memory = &mut world.invariants.paths;
    memory.broke.get_or_insert(now);
    if memory.failed.is_empty() {
        memory.told.extend(links);
    }
}

/// A worker or a host failed: finds out whether that explains why the last round broke.
fn failed(world: &mut World, host: &HostId) {
    let now = world.driver_now();
    let failed = index_of(host).unwrap_or(usize::MAX);
    let doublings = fruitless_rounds(world).saturating_sub(PATIENCE - 1).min(6) as u32;
    let wait = (PAUSE.0 * 2u32.pow(doublings)).min(PAUSE.1) + SLACK;
    let lost = world.hosts.get(failed).is_some_and(|host| host.was_cut);
    let memory = &mut world.invariants.paths;
    let late = memory.broke.is_some_and(|broke| broke + wait < now);
    memory.failed.insert(failed);
    let others = memory.told.iter().any(|link| !memory.is_explained(link));
    memory.explained |= !late || lost || !others;
}

pub(super) fn on_decision(world: &mut World, decision: &Decision) {
    let result = match decision {
        Decision::HostFailed { host, why } if why.contains("cannot reach each other") => {
            let result = is_blamed(world, host);
            let memory = &mut world.invariants.paths;
            memory.blamed = world.history.latest();
            memory.row = 0;
            memory.named.clear();
            memory.told.clear();
            result
        }
        Decision::RoundStarted { round, cause, .. } => {
            let result = nobody_blamed(world, *round, cause);
            let now = world.driver_now();
            let good = left_something(world, *round);
            let memory = &mut world.invariants.paths;
            let told = std::mem::take(&mut memory.told);
            let left = told.into_iter().filter(|link| !memory.is_explained(link));
            let left: Vec<_> = left.collect();
            memory.named.extend(left);
            if good || memory.began.is_some_and(|at| now.since(at) >= SHORT) {
                memory.named.clear();
            }
            memory.failed.clear();
            (memory.began, memory.broke, memory.explained) = (Some(now), None, false);
            result
        }
        Decision::WorkerFailed { host, .. } | Decision::HostFailed { host, .. } => {
            failed(world, host);
            Ok(())
        }
        // It may be lost, so a link that was broken by then says nothing about its other end.
        Decision::HostAway { host, .. } if world.invariants.paths.broke.is_some() => {
            world.invariants.paths.failed.extend(index_of(host));
            Ok(())
        }
        Decision::WentEarly { .. } | Decision::Interrupting { .. } => {
            world.invariants.paths.explained = true;
            Ok(())
        }
        _ => Ok(()),
    };
    if let Err(what) = result {
        world.violate("blame", what);
    }
}

/// Hosts of a round, in the order of ranks.
fn hosts_of(round: &RoundSim) -> Vec<usize> {
    let mut hosts: Vec<_> = round.seats.iter().map(|seat| seat.host).collect();
    hosts.dedup();
    hosts
}

/// Whether a round left no commit, as the next one shows.
fn is_fruitless(round: &RoundSim, next: &RoundSim) -> bool {
    next.base <= round.base || next.base.is_none_or(|base| base.count == 0)
}

/// Whether the round before this one left a commit.
fn left_something(world: &World, round: Round) -> bool {
    let before = world.rounds.range(..round).next_back();
    let next = world.rounds.get(&round);
    (before.zip(next)).is_some_and(|((_, last), next)| !is_fruitless(last, next))
}

/// The last rounds in a row without a commit since a host was blamed.
fn fruitless_rounds(world: &World) -> usize {
    let all: Vec<_> = world.rounds.iter().rev().collect();
    let fruitful = (all.windows(2)).position(|two| !is_fruitless(two[1].1, two[0].1));
    let since = world.invariants.paths.blamed;
    let row = all[..fruitful.map_or(all.len(), |at| at + 1)].iter();
    row.filter(|(round, _)| Some(**round) > since).count()
}

/// Checks the blame of a host that others cannot reach.
fn is_blamed(world: &World, host: &HostId) -> Result<(), String> {
    let Some((_, last)) = world.rounds.last_key_value() else {
        return Err(format!("{host} is blamed before the first round"));
    };
    let (hosts, blamed) = (hosts_of(last), index_of(host).unwrap_or(usize::MAX));
    let all: Vec<_> = world.rounds.iter().rev().collect();
    let fruitful = all
        .windows(2)
        .position(|two| !is_fruitless(two[1].1, two[0].1));
    let proven = fruitful.map(|at| hosts_of(all[at + 1].1));
    let is_newcomer = |host: &usize| proven.as_ref().is_some_and(|p| !p.contains(host));
    let cut = |host: &&usize| world.hosts[**host].was_cut;
    let cut: Vec<_> = hosts.iter().filter(cut).copied().collect();
    let links = |host: usize| world.invariants.paths.links(host, &hosts);
    match cut[..] {
        [] => return Err(format!("{host} is blamed, and all are connected")),
        [cut] if cut != blamed => {
            let more = links(cut).count() > links(blamed).count();
            // If no other proven host has lost it, the side of the cut at fault is unknown.
            let at_fault = !is_newcomer(&blamed) || links(cut).any(|other| !is_newcomer(&other));
            if more && at_fault {
                return Err(format!(
                    "h{cut} is cut off from most of {hosts:?}, as they say, and {host} is blamed"
                ));
            }
        }
        _ => {}
    }
    let is_newcomer = is_newcomer(&blamed);
    let row = fruitless_rounds(world);
    if !is_newcomer && row < PATIENCE {
        return Err(format!(
            "{host} is known to work and is blamed after {row} rounds"
        ));
    }
    Ok(())
}

/// A round starts: checks whether a host should have been blamed for the rounds before it.
fn nobody_blamed(world: &mut World, round: Round, cause: &Cause) -> Result<(), String> {
    let memory = &world.invariants.paths;
    let lost = match (
        world.rounds.range(..round).next_back(),
        world.rounds.get(&round),
    ) {
        (Some((_, last)), Some(next)) => {
            let short = (memory.began).is_some_and(|at| world.driver_now().since(at) < SHORT);
            let broke = matches!(cause, Cause::PeerLost { .. }) && !memory.explained && short;
            let fruitless = broke && is_fruitless(last, next);
            lost_in(world, last).filter(|lost| fruitless && lost_in(world, next) == Some(*lost))
        }
        _ => None,
    };
    let Some(lost) = lost else {
        world.invariants.paths.row = 0;
        return Ok(());
    };
    let now = world.driver_now();
    let host = world.hosts[lost].id.clone();
    let usable = world.reference.usable_slots(now);
    let others = usable.filter(|(other, _)| *other != host).count();
    let spared = others >= world.plan.settings.min_np as usize && !world.reference.drains(&host);
    let row = if spared {
        world.invariants.paths.row + 1
    } else {
        0
    };
    world.invariants.paths.row = row;
    if row > PATIENCE {
        return Err(format!(
            "{host} is cut off for good, {row} rounds have come to nothing, and nobody is blamed"
        ));
    }
    Ok(())
}

/// The only host of this round that is cut off from all others for good; none if the round has fewer than three
/// hosts.
fn lost_in(world: &World, round: &RoundSim) -> Option<usize> {
    let hosts = hosts_of(round);
    let cut = |host: &&usize| world.hosts[**host].was_cut;
    let mut cut = hosts.iter().filter(cut);
    let (lost, none) = (*cut.next()?, cut.next().is_none());
    (none && hosts.len() > 2 && world.hosts[lost].data_lost).then_some(lost)
}
