//! Replica groups: how many workers hold one whole state together (`--replica-group-size`).

use super::{
    error::Error,
    kinds::{ReplicaGroupSize, RestartMode},
    table::Config,
};

/// Checks the settings that a state which is divided among workers excludes.
///
/// # Errors
/// A setting that would keep one shard of the state only, or that ends the processes that hold it.
pub(super) fn check(config: &Config) -> Result<(), Error> {
    let size = &config.replica_group_size;
    if size.value == ReplicaGroupSize::One {
        return Ok(());
    }
    let excluded = [
        (
            config.durable_commits.value.is_some(),
            config.durable_commits.origin.name("durable-commits"),
            "which writes the shard of rank 0 only",
        ),
        (
            config.restart_mode.value == RestartMode::Process,
            config.restart_mode.origin.name("restart-mode"),
            "whose workers keep no commits",
        ),
    ];
    match excluded.iter().find(|(is_set, ..)| *is_set) {
        Some((_, name, why)) => {
            let why = format!("not together with {name}, {why}");
            Err(size.contradicts("replica-group-size", why))
        }
        None => Ok(()),
    }
}
