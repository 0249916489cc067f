//! R5: a round that starts has no worker on a host (or slot) that was blacklisted, draining or removed when
//! start was sent.

use super::Started;
use crate::world::World;

pub(super) fn started(world: &mut World, started: &Started<'_>) -> Result<(), String> {
    for (host, process) in started.members() {
        let id = &world.hosts[host].id;
        if !world
            .reference
            .is_usable(world.driver_now(), id, process.local_rank)
        {
            return Err(format!(
                "slot {} of {id} may not be used",
                process.local_rank
            ));
        }
    }
    Ok(())
}
