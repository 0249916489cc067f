//! What the connections of an agent to other hosts need.

use std::sync::Arc;

use elasticrun_protocol::{auth::Secret, local::WorkerIdentity};
use elasticrun_tls::{ClientConfig, Credentials, Error, Role, ServerConfig};

use crate::{Access, JoinToken};

/// The keys of an agent in one job.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The job's secret.
    pub(crate) secret: Secret,
    /// Connects to the driver.
    pub(crate) to_driver: ClientConfig,
    /// Connects to agents of other hosts.
    pub(crate) to_agents: ClientConfig,
    /// Accepts agents and workers of other hosts.
    pub(crate) memory_port: ServerConfig,
    /// The identity of the workers of this host.
    pub(crate) worker: WorkerIdentity,
}

impl Keys {
    /// The keys of these credentials.
    ///
    /// # Errors
    /// [`Error::Identity`] for credentials that are damaged.
    pub(crate) fn new(credentials: &Credentials) -> Result<Self, Error> {
        Ok(Self {
            secret: credentials.secret.clone(),
            to_driver: ClientConfig::new(&credentials.agent, Role::Driver)?,
            to_agents: ClientConfig::new(&credentials.agent, Role::Agent)?,
            memory_port: ServerConfig::new(&credentials.agent, &[Role::Agent, Role::Worker])?,
            worker: WorkerIdentity(
                serde_json::to_string(&credentials.worker)
                    .map_err(|error| Error::Identity(error.to_string()))?,
            ),
        })
    }
}

/// The keys that an agent has, and the token by which it gets others.
#[derive(Debug)]
pub(crate) struct Keyring {
    /// The keys of the last job.
    pub(crate) keys: Option<Arc<Keys>>,
    /// The join token of an agent that registers itself.
    pub(crate) token: Option<JoinToken>,
}

impl Keyring {
    /// What an agent begins with.
    ///
    /// # Errors
    /// [`Error::Identity`] for credentials that are damaged.
    pub(crate) fn new(access: &Access) -> Result<Self, Error> {
        Ok(match access {
            Access::Issued(credentials) => Self::issued(Arc::new(Keys::new(credentials)?)),
            Access::Token(token) => Self {
                keys: None,
                token: Some(token.clone()),
            },
        })
    }

    /// The keys of one job alone.
    pub(crate) fn issued(keys: Arc<Keys>) -> Self {
        Self {
            keys: Some(keys),
            token: None,
        }
    }
}
