//! R5: a round that starts has no worker on a host (or slot) that was blacklisted, draining or removed when start
//! was sent.

use super::Started;
use crate::world::World;

pub(super) fn started(world: &mut World, started: &Started<'_>) -> Result<(), String> {
    for (host, process) in started.members() {
        let (id, now) = (&world.hosts[host].id, world.driver_now());
        // A deadline that had passed when an event came took effect before the event.
        let references = [Some(&world.reference), world.before_event.as_ref()];
        let mut references = references.into_iter().flatten();
        if !references.any(|reference| reference.is_usable(now, id, process.local_rank)) {
            return Err(format!(
                "slot {} of {id} may not be used",
                process.local_rank
            ));
        }
    }
    Ok(())
}
