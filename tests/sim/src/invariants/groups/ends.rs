//! How a job of groups ends (R10). It succeeds only if all members of one group ended with 0. It fails only if no
//! restart is left. It does not end before members that may have the SDK had their time to attach.

use elasticrun_core::{
    Command, Decision,
    groups::UNDECIDED,
    results::{Outcome, Reason},
};
use elasticrun_protocol::control::Exit;

use super::{Current, alive, is_auto, is_left_behind, lead};
use crate::world::{World, host::index_of};

/// The job ends, by a step with these commands.
pub(super) fn check(world: &mut World, outcome: &Outcome, commands: &[Command]) {
    if lead(world)
        && let Err(what) = is_true(world, outcome, commands)
    {
        world.violate("R10", format!("{outcome:?}: {what}"));
    }
}

fn is_true(world: &World, outcome: &Outcome, commands: &[Command]) -> Result<(), String> {
    let memory = &world.invariants.groups;
    let current = memory.current.as_ref();
    match outcome {
        Outcome::Succeeded => succeeded(world, current),
        Outcome::WorkerFailed(Reason::NoRestartLeft { allowed }) => {
            let most = world.plan.settings.max_restarts;
            let failed = current.is_some_and(|current| !current.failed.is_empty());
            let failed = failed || memory.unknown;
            if !failed || memory.restarts != most || *allowed != most {
                let restarts = memory.restarts;
                return Err(format!(
                    "{restarts} restarts are used, a member failed: {failed}"
                ));
            }
            too_early(world, current, commands)
        }
        Outcome::WorkerFailed(Reason::AllFailed) => Err("a group was started".into()),
        Outcome::WorkerFailed(Reason::ExitTimeout) => {
            match current.is_some_and(|current| !current.done.is_empty()) {
                true => Ok(()),
                false => Err("no member has succeeded".into()),
            }
        }
        _ => Ok(()),
    }
}

fn succeeded(world: &World, current: Option<&Current>) -> Result<(), String> {
    let Some(current) = current else {
        return Err("no group was started".into());
    };
    for (host, process) in &current.members {
        let index = index_of(host).unwrap_or(usize::MAX);
        let end = world.fate(index, *process).end;
        let told = current.over && !world.invariants.groups.unknown;
        if end != Some(Exit::Code(0)) || told {
            return Err(format!("{host} {process:?}: {end:?}, told to end: {told}"));
        }
    }
    Ok(())
}

/// Checks that no other member might still have attached, unless something else has ended the group.
fn too_early(world: &World, current: Option<&Current>, commands: &[Command]) -> Result<(), String> {
    let Some(current) = current.filter(|_| is_auto(world)) else {
        return Ok(());
    };
    let changed = commands.iter().any(|command| {
        matches!(
            command,
            Command::Announce(Decision::HostFailed { .. } | Decision::WentEarly { .. })
        )
    });
    let mut alive = alive(world, current);
    let removed = current.members.iter().any(|(host, process)| {
        !(world.reference).is_usable(world.driver_now(), host, process.local_rank)
    });
    let early = world.driver_now().since(current.began) < UNDECIDED;
    let changed =
        changed || removed || is_left_behind(world, current) || lacks_member(world, current);
    if early && !changed && alive.next().is_some() {
        return Err("others may still attach".into());
    }
    Ok(())
}

/// Whether the order to start a member was lost with the connection of its agent, which has returned. The group cannot run
/// without that member.
fn lacks_member(world: &World, current: &Current) -> bool {
    let fleet = world.driver.job.fleet();
    current.members.iter().any(|(host, process)| {
        let up = fleet.host(host).is_some_and(|state| state.up().is_some());
        up && index_of(host).is_some_and(|index| !world.has_begun(index, *process))
    })
}
