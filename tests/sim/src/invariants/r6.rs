//! R6: a change that concerns workers reaches them however late they register, however often it is sent:
//! while a round trains, no member stays on a slot that is gone, and nobody waits for whom there is room,
//! for longer than the time-outs of an interrupt allow. All who leave by a hold leave at one boundary
//! (checked in the model of collectives).

use elasticrun_core::{Time, fleet::Life, rounds::Phase};
use elasticrun_protocol::Round;

use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// A round that should be interrupted, and since when.
    since: Option<(Round, Time)>,
}

/// Looks at the job from time to time.
pub(crate) fn watch(world: &mut World) {
    let Some(round) = wants_change(world) else {
        world.invariants.r6.since = None;
        return;
    };
    let now = world.now;
    let (since_round, since) = *world.invariants.r6.since.get_or_insert((round, now));
    if since_round != round {
        world.invariants.r6.since = Some((round, now));
        return;
    }
    let settings = &world.plan.settings;
    let bound = settings.last_call
        + settings.interrupt_timeout
        + settings.abort_timeout
        + settings.start_timeout
        + world.plan.heartbeat_timeout * 2
        + std::time::Duration::from_secs(15);
    if now.since(since) > bound {
        let what = format!("{round:?} should have been interrupted since {since:?}");
        world.violate("R6", what);
    }
}

fn wants_change(world: &World) -> Option<Round> {
    let job = &world.driver.job;
    let Phase::Training(training) = &job.rounds().phase else {
        return None;
    };
    if world.driver.ended.is_some() || world.invariants.r10.finishing {
        return None;
    }
    let gone = (training.members.iter()).any(|(host, members)| {
        members
            .iter()
            .any(|p| !world.reference.is_usable(world.now, host, p.local_rank))
    });
    let room = world
        .plan
        .settings
        .max_np
        .is_none_or(|max| training.size < max);
    let waits = room
        && job
            .fleet()
            .hosts()
            .any(|(_, host)| host.live().any(|live| live.life == Life::Waiting));
    (gone || waits).then_some(training.round)
}
