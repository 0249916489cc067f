//! What makes a process one of the job: the job's certificate authority, its secret, and the token by which hosts join.

use std::{sync::Arc, time::SystemTime};

use elasticrun_protocol::auth::Secret;
use elasticrun_tls::{
    Authority, Credentials, Error, Role, ServerConfig, StoredAuthority,
    token::{Token, Tokens},
};

/// The trust of one job. Cheap to clone. Its private key never leaves the driver, except into the journal.
#[derive(Clone, Debug)]
pub struct Trust(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    authority: Authority,
    secret: Secret,
    token: Option<Token>,
}

impl Trust {
    /// The trust of a new run, with a fresh authority and a fresh secret.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn new(run_id: &str, token: Option<Token>) -> anyhow::Result<Self> {
        let secret = Secret::random().map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
        Ok(Self(Arc::new(Inner {
            authority: Authority::new(run_id)?,
            secret,
            token,
        })))
    }

    /// The trust of an earlier driver of the same run.
    ///
    /// # Errors
    /// The authority is damaged.
    pub fn restore(
        stored: &StoredAuthority,
        secret: Secret,
        token: Option<Token>,
    ) -> Result<Self, Error> {
        Ok(Self(Arc::new(Inner {
            authority: Authority::restore(stored)?,
            secret,
            token,
        })))
    }

    /// What [`Trust::restore`] needs of the authority.
    #[must_use]
    pub fn authority(&self) -> StoredAuthority {
        self.0.authority.stored()
    }

    /// The job's secret, from which the keys of the data plane and of calls are derived.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        &self.0.secret
    }

    /// The token by which hosts join, if they may.
    #[must_use]
    pub fn token(&self) -> Option<&Token> {
        self.0.token.as_ref()
    }

    /// The tokens by which hosts may join.
    pub(crate) fn tokens(&self) -> Tokens {
        Tokens::new(self.token().into_iter().cloned().collect())
    }

    /// Issues the credentials of a host.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(crate) fn credentials(&self, host: &str) -> Result<Credentials, Error> {
        Credentials::issue(&self.0.authority, &self.0.secret, host)
    }

    /// What the control port accepts: agents of the job, and hosts with a token that has not expired by now.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(crate) fn control_port(&self) -> Result<ServerConfig, Error> {
        let driver = self.0.authority.issue(Role::Driver, "driver")?;
        let config = ServerConfig::new(&driver, &[Role::Agent])?;
        match self.token() {
            Some(token) if !token.is_expired(SystemTime::now()) => config.with_enrolment(&driver),
            _ => Ok(config),
        }
    }
}
