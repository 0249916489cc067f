//! Parameter servers beside the workers (`--ps`).

use std::num::NonZeroU32;

use super::{error::Error, settings::ParameterServers, table::Config};

/// The parameter servers of a job, if it has any.
///
/// # Errors
/// Replicas without servers, or as many as there are servers.
pub(super) fn parameter_servers(config: &Config) -> Result<Option<ParameterServers>, Error> {
    let replicas = &config.ps_replicas;
    let Some(servers) = NonZeroU32::new(config.ps.value) else {
        return match replicas.value {
            Some(_) => Err(replicas.contradicts("ps-replicas", "needs --ps N")),
            None => Ok(None),
        };
    };
    if replicas
        .value
        .is_some_and(|replicas| replicas >= servers.get())
    {
        let why = format!("expected less than --ps {servers}: each copy is on another server");
        return Err(replicas.contradicts("ps-replicas", why));
    }
    Ok(Some(ParameterServers {
        servers,
        replicas: (replicas.value).unwrap_or(u32::from(servers.get() > 1)),
    }))
}
