//! Parameter servers beside the workers (`--ps`).

use std::num::NonZeroU32;

use super::{
    error::Error,
    settings::{Mode, ParameterServers},
    table::Config,
};

/// The parameter servers of a job, if it has any.
///
/// # Errors
/// Replicas without servers, or as many as there are servers; or servers that cannot be replaced, in a job whose workers are.
pub(super) fn parameter_servers(
    config: &Config,
    mode: Mode,
) -> Result<Option<ParameterServers>, Error> {
    let replicas = &config.ps_replicas;
    let Some(servers) = NonZeroU32::new(config.ps.value) else {
        return match replicas.value {
            Some(_) => Err(replicas.contradicts("ps-replicas", "needs --ps N")),
            None => Ok(None),
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
    }))
}
