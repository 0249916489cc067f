//! Replica groups: how many workers hold one whole state together (`--replica-group-size`).

use super::{
    error::Error,
    kinds::{ReplicaGroupSize, RestartMode},
    table::Config,
};

/// The multiple of workers that rounds have, and the options that ask for it.
pub(super) fn multiple(config: &Config) -> (u32, String) {
    let of_size = config.size_multiple.value.get();
    let name = config.size_multiple.origin.name("size-multiple");
    let group = match config.replica_group_size.value {
        ReplicaGroupSize::Fixed(size) => size.get(),
        ReplicaGroupSize::All => 1,
    };
    let of_group = config.replica_group_size.origin.name("replica-group-size");
    let common = common_multiple(of_size, group);
    let of = match (of_size, group) {
        (_, 1) => name,
        (1, _) => of_group,
        _ => format!("{of_group} and {name}"),
    };
    (common, of)
}

fn common_multiple(one: u32, other: u32) -> u32 {
    let (mut a, mut b) = (one, other);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    (one / a).saturating_mul(other)
}

/// Checks the settings that a state which is divided among workers excludes.
///
/// # Errors
/// A setting that would keep one shard of the state only, or that ends the processes that hold it.
pub(super) fn check(config: &Config) -> Result<(), Error> {
    let size = &config.replica_group_size;
    if size.value == ReplicaGroupSize::ONE {
        return Ok(());
    }
    let excluded = [
        (
            config.replicate_commits.value > 0 && size.value != ReplicaGroupSize::All,
            config.replicate_commits.origin.name("replicate-commits"),
            "since the groups are copies of each other; it is for --replica-group-size all",
        ),
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
