//! Parameter servers beside the workers (`--ps`).

use std::num::NonZeroU32;

use super::{
    error::Error,
    settings::{Mode, ParameterServers, PsSnapshots},
    table::Config,
};

/// The parameter servers of a job, if it has any.
///
/// # Errors
/// Replicas without servers, or as many as there are servers; servers that cannot be replaced, in a job whose workers are; or snapshots of
/// servers that are not elastic.
pub(super) fn parameter_servers(
    config: &Config,
    mode: Mode,
) -> Result<Option<ParameterServers>, Error> {
    let replicas = &config.ps_replicas;
    let Some(servers) = NonZeroU32::new(config.ps.value) else {
        return match replicas.value {
            Some(_) => Err(replicas.contradicts("ps-replicas", "needs --ps N")),
            None => snapshots(config).map(|_| None),
        };
    };
    if replicas.value.is_some_and(|count| count >= servers.get()) {
        let why = format!("expected less than --ps {servers}: each copy is on another server");
        return Err(replicas.contradicts("ps-replicas", why));
    }
    if mode == Mode::Elastic && replicas.value.is_none() {
        let why = "needs --ps-replicas K in an elastic job: workers that are replaced need elastic servers";
        return Err(config.ps.contradicts("ps", why));
    }
    Ok(Some(ParameterServers {
        servers,
        replicas: replicas.value,
        snapshots: snapshots(config)?,
    }))
}

fn snapshots(config: &Config) -> Result<Option<PsSnapshots>, Error> {
    let (snapshots, interval) = (&config.ps_snapshots, &config.ps_snapshot_interval);
    let Some(place) = &snapshots.value else {
        return match interval.is_given() {
            true => Err(interval.contradicts("ps-snapshot-interval", "needs --ps-snapshots PLACE")),
            false => Ok(None),
        };
    };
    if config.ps_replicas.value.is_none() {
        let why = "needs --ps N --ps-replicas K: elastic servers save their values, others do not";
        return Err(snapshots.contradicts("ps-snapshots", why));
    }
    let place = place
        .sent()
        .map_err(|why| snapshots.contradicts("ps-snapshots", why))?;
    Ok(Some(PsSnapshots {
        place,
        interval: interval.value.get(),
    }))
}
