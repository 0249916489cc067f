//! The place in etcd where the nodes of a job meet that has no driver yet, or has lost it (`elasticrun torchrun --rdzv etcd://...`).
//!
//! ```text
//! PREFIX/nodes/ID          sealed: the run of the job, and the token by which its agents join
//! PREFIX/RUN/...           the journal of the run
//! ```
//! The first node writes the key and begins the run. All others find the run there. Once the job has ended, the key ends with a
//! lease, so that a node that comes late learns of the end, and a later job may have the same name.

use std::{future::Future, path::PathBuf, time::Duration};

use elasticrun_etcd::{
    Client, Compare, Error as EtcdError, KeyValue, Keys, LeaseId, Op, Options, Revision,
    leader::Holder,
};
use elasticrun_tls::token::Token;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use super::{
    super::{Error, configuration, outcome, place, seal::Key},
    names::Names,
    standbys,
};
use crate::{begin::new_run_id, config::EtcdPlace, join_token};

/// How long etcd may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a job that has ended may take to be closed. That is three calls.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long after a failed call the next one begins.
const RETRY: Duration = Duration::from_millis(200);

/// The run that seals the value of the key. It is no id of a run.
const SEALED_BY: &str = "nodes";

/// The job of the nodes that meet.
#[derive(Clone, Debug)]
pub(crate) struct NodeJob {
    /// Its run.
    pub(crate) run: String,
    /// The token by which the agents of its nodes join.
    pub(crate) token: Token,
    /// This node has begun the job, so it begins the run.
    pub(crate) is_new: bool,
}

/// What the nodes of a run see of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    /// The run has a journal, so a driver can continue it, or has ended.
    pub(crate) has_begun: bool,
    /// The run has an outcome.
    pub(crate) has_ended: bool,
    /// Where agents reach the driver that leads, and those that wait, best first. Empty without a driver that leads.
    pub(crate) endpoints: Vec<String>,
    /// The number of drivers that wait.
    pub(crate) standbys: usize,
    revision: Revision,
}

#[derive(Serialize, Deserialize)]
struct Record {
    run: String,
    token: String,
}

/// Where the nodes of a job meet.
#[derive(Debug)]
pub(crate) struct Meeting {
    client: Client,
    place: EtcdPlace,
    key: Key,
    key_file: PathBuf,
    id: String,
}

impl Meeting {
    /// That of the job with this name. Makes the key of the user's journals in etcd if there is none.
    ///
    /// # Errors
    /// The key cannot be read or written.
    pub(crate) fn new(place: &EtcdPlace, id: &str) -> Result<Self, Error> {
        let shown = PathBuf::from(place.to_string());
        let key_file = place::key_of_etcd(&shown)?;
        let key = Key::read_or_create(&shown, &key_file)?;
        let client = Client::new(&Options::new(place.address.endpoints.clone()));
        let client = client.map_err(|error| Error::Etcd {
            path: shown,
            why: error.to_string(),
        })?;
        Ok(Self {
            client,
            place: place.clone(),
            key,
            key_file,
            id: id.to_owned(),
        })
    }

    /// Finds the job of this name, or begins it. `instead_of` is the run of a job that was begun and then left.
    ///
    /// # Errors
    /// etcd does not answer, or the job was begun with another key.
    pub(crate) async fn join(&self, instead_of: Option<&str>) -> Result<NodeJob, Error> {
        loop {
            let found = self.read(Keys::One(self.name())).await?;
            let found = found.into_iter().next();
            let former = match found {
                None => Revision(0),
                Some(found) => match self.unseal(&found)? {
                    job if Some(job.run.as_str()) != instead_of => return Ok(job),
                    _ => found.mod_revision,
                },
            };
            if let Some(job) = self.begin(former).await? {
                return Ok(job);
            }
            // Another node was faster.
        }
    }

    /// Reads what a run is.
    ///
    /// # Errors
    /// etcd does not answer.
    pub(crate) async fn look(&self, run: &str) -> Result<Seen, Error> {
        let names = Names::new(&self.place.address, run);
        let steps = [
            Keys::One(names.entry(configuration::KEY)),
            Keys::One(names.entry(outcome::KEY)),
            Keys::One(names.leader()),
            names.standbys(),
        ];
        let steps: Vec<_> = steps.into_iter().map(Op::Range).collect();
        let read = self.ask(|| self.client.txn(&[], &steps, &[])).await?;
        let mut found = read.found.into_iter();
        let mut next = || found.next().unwrap_or_default();
        let (begun, ended, leader, waiting) = (next(), next(), next(), next());
        let holder = leader
            .first()
            .and_then(|leader| read_json::<Holder>(&leader.value));
        let endpoints = holder.map(|holder| holder.endpoints).unwrap_or_default();
        let others = match endpoints.is_empty() {
            true => Vec::new(),
            false => standbys::endpoints(&waiting),
        };
        Ok(Seen {
            // Of a run that has ended only the outcome is left.
            has_begun: !(begun.is_empty() && ended.is_empty()),
            has_ended: !ended.is_empty(),
            endpoints: endpoints.into_iter().chain(others).collect(),
            standbys: waiting.len(),
            revision: read.revision,
        })
    }

    /// Waits until a run may have changed since it was seen, at most this long. Cancel-safe.
    pub(crate) async fn changed(&self, run: &str, seen: &Seen, limit: Duration) {
        let names = Names::new(&self.place.address, run);
        let next = async {
            // The journal changes with each round. The leadership and the standby drivers change rarely.
            let leader = self.next_change(Keys::One(names.leader()), seen);
            let standbys = self.next_change(names.standbys(), seen);
            let outcome = self.next_change(Keys::One(names.entry(outcome::KEY)), seen);
            let begun = async {
                match seen.has_begun {
                    true => std::future::pending().await,
                    false => {
                        let begun = Keys::One(names.entry(configuration::KEY));
                        self.next_change(begun, seen).await;
                    }
                }
            };
            tokio::select! {
                () = leader => {}
                () = standbys => {}
                () = outcome => {}
                () = begun => {}
            }
        };
        // A watch may be silent for ever.
        let _ = timeout(limit, next).await;
    }

    async fn next_change(&self, keys: Keys, seen: &Seen) {
        standbys::next_change(&self.client, &keys, Revision(seen.revision.0 + 1)).await;
    }

    /// Lets the job be known for this long, since its run has ended. Another job of the same name is left as it is.
    ///
    /// A cluster that does not answer keeps nobody: the next job of this name finds out by itself that this one has ended.
    pub(crate) async fn close(&self, run: &str, after: Duration) {
        if timeout(CLOSE_TIMEOUT, self.expire(run, after))
            .await
            .is_err()
        {
            tracing::debug!(run, "etcd does not answer, so the job stays known");
        }
    }

    async fn expire(&self, run: &str, after: Duration) {
        let Ok(found) = self.read(Keys::One(self.name())).await else {
            return;
        };
        let Some(found) = found.into_iter().next() else {
            return;
        };
        let is_closed = found.lease != LeaseId::default();
        if is_closed || self.unseal(&found).is_ok_and(|job| job.run != run) {
            return;
        }
        let unchanged = Compare::Modified(self.name(), found.mod_revision);
        let step = match after.is_zero() {
            true => Op::Delete(Keys::One(self.name())),
            false => match self.client.grant(after).await {
                Ok(granted) => Op::Put {
                    key: self.name(),
                    value: found.value,
                    lease: granted.lease,
                },
                Err(_) => return,
            },
        };
        // Another node may be faster.
        let _ = self.client.txn(&[unchanged], &[step], &[]).await;
    }

    fn name(&self) -> Vec<u8> {
        Names::of_nodes(&self.place.address, &self.id)
    }

    /// Begins a job, unless another node has changed the key. `former` is its last change.
    async fn begin(&self, former: Revision) -> Result<Option<NodeJob>, Error> {
        let no_randomness = |error: anyhow::Error| self.unusable(format!("{error:#}"));
        let run = new_run_id().map_err(no_randomness)?;
        let token = join_token::unlimited().map_err(no_randomness)?;
        let record = Record {
            run: run.clone(),
            token: token.expose().to_string(),
        };
        let record = serde_json::to_vec(&record).expect("text is JSON");
        let sealed = (self.key.seal(SEALED_BY, &self.id, &record))
            .map_err(|error| self.unusable(error.to_string()))?;
        let unchanged = Compare::Modified(self.name(), former);
        let put = Op::Put {
            key: self.name(),
            value: sealed,
            lease: LeaseId::default(),
        };
        let (conditions, steps) = ([unchanged], [put]);
        let begun = self.client.txn(&conditions, &steps, &[]);
        match timeout(ANSWER_TIMEOUT, begun).await {
            Ok(Ok(outcome)) if outcome.succeeded => Ok(Some(NodeJob {
                run,
                token,
                is_new: true,
            })),
            Ok(Ok(_)) => Ok(None),
            Ok(Err(error)) if !error.is_temporary() => Err(self.unusable(error.to_string())),
            // It may have been written. Then this node finds its own job, and another one that begins the run is awaited: this one,
            // after a while.
            _ => Ok(None),
        }
    }

    fn unseal(&self, found: &KeyValue) -> Result<NodeJob, Error> {
        let value = self.key.unseal(SEALED_BY, &self.id, &found.value);
        let record = value.and_then(|value| read_json::<Record>(&value));
        let token = record.as_ref().and_then(|record| record.token.parse().ok());
        match (record, token) {
            (Some(record), Some(token)) => Ok(NodeJob {
                run: record.run,
                token,
                is_new: false,
            }),
            _ => Err(Error::OtherNodes {
                id: self.id.clone(),
                path: self.place.to_string().into(),
                key: self.key_file.clone(),
            }),
        }
    }

    async fn read(&self, keys: Keys) -> Result<Vec<KeyValue>, Error> {
        let found = self.ask(|| self.client.range(&keys, 0, Revision(0)));
        Ok(found.await?.keys)
    }

    /// Asks etcd something that changes nothing, until it answers.
    async fn ask<T, F>(&self, ask: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let until = Instant::now() + ANSWER_TIMEOUT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let why = match timeout(left, ask()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) if !error.is_temporary() => {
                    return Err(self.unusable(error.to_string()));
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("it has not answered for {ANSWER_TIMEOUT:?}"),
            };
            if Instant::now() + RETRY >= until {
                return Err(self.unusable(why));
            }
            sleep(RETRY).await;
        }
    }

    fn unusable(&self, why: String) -> Error {
        Error::Etcd {
            path: self.place.to_string().into(),
            why,
        }
    }
}

fn read_json<T: for<'a> Deserialize<'a>>(value: &[u8]) -> Option<T> {
    serde_json::from_slice(value).ok()
}
