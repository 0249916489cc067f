//! R12: the base of a started round is the newest complete commit (not void) that any reachable agent held.
//! Nor does an agent forget a commit that a later round may need.

use elasticrun_protocol::{CommitId, HostId, Process};

use super::Started;
use crate::world::World;

pub(super) fn started(world: &mut World, started: &Started<'_>) -> Result<(), String> {
    let mut held = false;
    for (index, host) in world.hosts.iter().enumerate() {
        if !world.reaches(index) {
            continue;
        }
        // An agent's answer counts as it was given; whom nobody asked counts as it is.
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
            .orders
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
        let real = world.history.has_training();
        if real {
            return Err("it begins anew and there was something to go on from".into());
        }
    }
    Ok(())
}

/// An agent drops the memory of a dead process.
pub(crate) fn may_forget(world: &mut World, host: usize, process: Process) {
    if world.hosts[host].workers.contains_key(&process) {
        return;
    }
    let Some(newest) = world.hosts[host].newest(process) else {
        return;
    };
    let needed = world.history.is_valid(newest)
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

/// The agent of a host is sent away before the job has ended.
pub(super) fn dismissed(world: &mut World, host: &HostId) {
    let Some(index) = world.host_index(host) else {
        return;
    };
    if !world.reaches(index) {
        return;
    }
    // A member's host may be dead or cut off without anybody knowing.
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
    // Of one that is cut off nobody knows yet.
    let connected = |other: &usize| *other != index && world.hosts[*other].agent.is_some();
    let others = (0..world.hosts.len()).filter(connected);
    let best = others.filter_map(newest).max();
    if own > best {
        let what = format!("{host} is sent away with {own:?} and the others have {best:?}");
        world.violate("R12", what);
    }
}
