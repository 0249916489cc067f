//! What a host needs to take part in a job.

use elasticrun_protocol::auth::{Secret, hex};
use serde::{Deserialize, Serialize};

use crate::Identity;

/// The identities of a host, and the job's secret. The driver issues them.
///
/// Serialized, they contain private keys: see [`PrivateKey`](crate::PrivateKey).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Credentials {
    /// The identity of the agent.
    pub agent: Identity,
    /// The identity that the workers of the host share.
    pub worker: Identity,
    /// The job's secret, from which the keys of the data plane and of calls are derived.
    #[serde(with = "hex")]
    pub secret: Secret,
}

#[cfg(feature = "issue")]
impl Credentials {
    /// Issues credentials for a host.
    ///
    /// # Errors
    /// [`Error::Issue`](crate::Error::Issue) without randomness.
    pub fn issue(
        authority: &crate::Authority,
        secret: &Secret,
        host: &str,
    ) -> Result<Self, crate::Error> {
        Ok(Self {
            agent: authority.issue(crate::Role::Agent, host)?,
            worker: authority.issue(crate::Role::Worker, host)?,
            secret: secret.clone(),
        })
    }
}
