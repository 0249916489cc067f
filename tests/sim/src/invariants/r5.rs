//! R5: a round that starts has no worker on a host (or slot) that was blacklisted or removed when start was sent. It has
//! none on a draining host either, unless too few others are there and the host has time left.

use super::{Started, reserve};
use crate::{reference::Reference, world::World};

pub(super) fn started(world: &mut World, started: &Started<'_>) -> Result<(), String> {
    for (host, process) in started.members() {
        let (id, now) = (&world.hosts[host].id, world.driver_now());
        let slot = process.local_rank;
        let usable = |reference: &Reference| {
            reference.is_usable(now, id, slot) || reserve::is_needed(world, reference, id, slot)
        };
        if !world.references().any(usable) {
            return Err(format!(
                "slot {} of {id} may not be used",
                process.local_rank
            ));
        }
    }
    Ok(())
}
