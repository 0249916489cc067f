//! The variables by which an agent reaches a bucket: credentials, region and endpoint.
//!
//! They come from the environment variables of the cloud's own tools (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`,
//! `GOOGLE_SERVICE_ACCOUNT`, ...), else from the metadata service of the host. Variables that the user sends to the workers
//! (`--env`) come before those of the agent.

use std::{collections::BTreeMap, fmt};

/// Variables of the job that concern buckets.
#[derive(Clone, Default)]
pub(crate) struct Access(BTreeMap<String, String>);

impl Access {
    /// Those of all variables that the driver sends for the workers.
    pub(crate) fn new(variables: &BTreeMap<String, String>) -> Self {
        let is_cloud = |name: &str| name.starts_with("AWS_") || name.starts_with("GOOGLE_");
        let variables = variables.iter().filter(|(name, _)| is_cloud(name));
        Self(variables.map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    /// The variables with this prefix: those of the agent, then those of the job.
    #[cfg(feature = "object-store")]
    pub(super) fn with_prefix(&self, prefix: &str) -> Vec<(String, String)> {
        let own = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let all = own.chain(self.0.clone());
        all.filter(|(name, _)| name.starts_with(prefix)).collect()
    }
}

/// Only the names: the values are secrets.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}
