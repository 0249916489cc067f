//! The variables by which an agent reaches a bucket: credentials, region and endpoint.
//!
//! They come from the environment variables of the cloud's own tools (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`,
//! `GOOGLE_SERVICE_ACCOUNT`, ...), else from the metadata service of the host. Variables that the user sends to the workers
//! (`--env`) come before those of the agent. A key of one and the token or the endpoint of the other do not belong together:
//! if the user sends credentials, the agent's own variables count for the region alone.

use std::{collections::BTreeMap, fmt};

/// Variables of the job that concern buckets.
#[derive(Clone, Default)]
pub struct Access(BTreeMap<String, String>);

impl Access {
    /// Those of all variables that the driver sends for the workers.
    pub fn new(variables: &BTreeMap<String, String>) -> Self {
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
        self.after(own, prefix)
    }

    /// The variables with this prefix: those of `own` that count, then those of the job.
    #[cfg(feature = "object-store")]
    fn after(
        &self,
        own: impl Iterator<Item = (String, String)>,
        prefix: &str,
    ) -> Vec<(String, String)> {
        let of_job = self.0.iter().filter(|(name, _)| name.starts_with(prefix));
        let has_credentials = of_job.clone().any(|(name, _)| is_credential(name));
        own.filter(|(name, _)| name.starts_with(prefix))
            .filter(|(name, _)| !has_credentials || name.contains("REGION"))
            .chain(of_job.map(|(name, value)| (name.clone(), value.clone())))
            .collect()
    }
}

/// Whether a variable says who one is, by its name.
#[cfg(feature = "object-store")]
fn is_credential(name: &str) -> bool {
    ["KEY", "SECRET", "TOKEN", "CREDENTIALS", "ROLE", "ACCOUNT"]
        .iter()
        .any(|word| name.contains(word))
}

/// Only the names: the values are secrets.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

#[cfg(all(test, feature = "object-store"))]
mod tests {
    use super::*;

    fn variables(names: &[&str], value: &str) -> BTreeMap<String, String> {
        let pairs = names.iter().map(|name| ((*name).into(), value.into()));
        pairs.collect()
    }

    /// Name and origin of what counts, if the host has all of these variables.
    fn merged(job: &[&str]) -> Vec<(String, String)> {
        let own = [
            "AWS_ACCESS_KEY_ID",
            "AWS_ENDPOINT_URL",
            "AWS_REGION",
            "AWS_SESSION_TOKEN",
            "GOOGLE_X",
            "PATH",
        ];
        let own = variables(&own, "host");
        Access::new(&variables(job, "job")).after(own.into_iter(), "AWS_")
    }

    #[test]
    fn credentials_of_the_job_do_not_meet_those_of_the_host() {
        let of = |name: &str, origin: &str| (name.to_owned(), origin.to_owned());
        assert_eq!(
            merged(&["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "PATH"]),
            [
                of("AWS_REGION", "host"),
                of("AWS_ACCESS_KEY_ID", "job"),
                of("AWS_SECRET_ACCESS_KEY", "job"),
            ]
        );
        let more = merged(&["AWS_REGION", "GOOGLE_Y"]);
        assert_eq!(more.len(), 5);
        assert_eq!(more.last(), Some(&of("AWS_REGION", "job")));
    }
}
