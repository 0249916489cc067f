//! What makes a process one of the job: the job's certificate authority, its secret, and the tokens by which hosts join.

use std::sync::Arc;

use elasticrun_protocol::auth::Secret;
use elasticrun_tls::{
    Authority, Credentials, Error, Identity, Role, ServerConfig, StoredAuthority,
    token::{Refusal, Token, TokenId},
};
use tokio::task::spawn_blocking;

use crate::join_tokens::JoinTokens;

/// The trust of one job. Cheap to clone. Its private key never leaves the driver, except into the journal.
#[derive(Clone, Debug)]
pub struct Trust(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    authority: Authority,
    secret: Secret,
    tokens: Option<Arc<JoinTokens>>,
}

impl Trust {
    /// The trust of a new run, with a fresh authority and a fresh secret.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(crate) fn new(run_id: &str, tokens: Option<JoinTokens>) -> anyhow::Result<Self> {
        let secret = Secret::random().map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
        Ok(Self(Arc::new(Inner {
            authority: Authority::new(run_id)?,
            secret,
            tokens: tokens.map(Arc::new),
        })))
    }

    /// The trust of an earlier driver of the same run.
    ///
    /// # Errors
    /// The authority is damaged.
    pub(crate) fn restore(
        stored: &StoredAuthority,
        secret: Secret,
        tokens: Option<JoinTokens>,
    ) -> Result<Self, Error> {
        Ok(Self(Arc::new(Inner {
            authority: Authority::restore(stored)?,
            secret,
            tokens: tokens.map(Arc::new),
        })))
    }

    /// What [`Trust::restore`] needs of the authority.
    #[must_use]
    pub fn authority(&self) -> StoredAuthority {
        self.0.authority.stored()
    }

    /// Issues certificates of the run.
    pub(crate) fn certificate_authority(&self) -> &Authority {
        &self.0.authority
    }

    /// The job's secret, from which the keys of the data plane, of calls and of the parameter server are derived.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        &self.0.secret
    }

    /// The tokens by which hosts join, if they may.
    pub(crate) fn tokens(&self) -> Option<&Arc<JoinTokens>> {
        self.0.tokens.as_ref()
    }

    /// The newest token by which hosts join, if they may.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.tokens().map(|tokens| tokens.newest())
    }

    /// The token that a host names.
    ///
    /// # Errors
    /// It is not one of this job, or has expired.
    pub(crate) async fn find_token(&self, id: TokenId) -> Result<Token, Refusal> {
        let Some(tokens) = self.tokens().cloned() else {
            return Err(Refusal::Unknown(id));
        };
        tokens.find(id).await
    }

    /// Issues the credentials of a host. That takes a part of a millisecond.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(crate) fn issue(&self, host: &str) -> Result<Credentials, Error> {
        Credentials::issue(&self.0.authority, &self.0.secret, host)
    }

    /// The same on another thread: the credentials of thousands of hosts take seconds.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(crate) async fn issue_elsewhere(&self, host: String) -> Result<Credentials, Error> {
        let trust = self.clone();
        let issued = spawn_blocking(move || trust.issue(&host));
        issued
            .await
            .map_err(|error| Error::Issue(error.to_string()))?
    }

    /// The identity of the program whose function the workers call.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(crate) fn caller(&self) -> Result<Identity, Error> {
        self.0.authority.issue(Role::Caller, "caller")
    }

    /// What the control port accepts: agents of the job, and hosts that enrol if the job has tokens.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(crate) fn control_port(&self) -> Result<ServerConfig, Error> {
        let driver = self.0.authority.issue(Role::Driver, "driver")?;
        let config = ServerConfig::new(&driver, &[Role::Agent])?;
        match self.tokens() {
            Some(_) => config.with_enrolment(&driver),
            None => Ok(config),
        }
    }
}
