//! Replicas of commits on other hosts (`--replicate-commits`).

use std::num::NonZeroU32;

use super::{
    error::Error,
    settings::{Mode, Replication},
    size::Size,
    table::Config,
};

const NEEDS: &str = "needs --replicate-commits K";

/// How commits are replicated, if they are.
///
/// # Errors
/// A setting that has no effect without replicas, or replicas for a job that no worker continues after a failure.
pub(super) fn replication(config: &Config, mode: Mode) -> Result<Option<Replication>, Error> {
    let Some(hosts) = NonZeroU32::new(config.replicate_commits.value) else {
        let (interval, bandwidth) = (&config.replicate_interval, &config.replicate_bandwidth);
        return match (interval.is_given(), bandwidth.is_given()) {
            (true, _) => Err(interval.contradicts("replicate-interval", NEEDS)),
            (_, true) => Err(bandwidth.contradicts("replicate-bandwidth", NEEDS)),
            _ => Ok(None),
        };
    };
    if mode == Mode::Standard {
        let why = "needs an elastic job: a failed worker ends this one; give --min-np or --max-np";
        return Err(config
            .replicate_commits
            .contradicts("replicate-commits", why));
    }
    Ok(Some(Replication {
        hosts,
        interval: config.replicate_interval.value.get(),
        bandwidth: config.replicate_bandwidth.value.map(Size::bytes),
    }))
}
