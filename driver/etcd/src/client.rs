//! Calls to a cluster: each goes to one endpoint, and to another one where that is safe.

use std::{
    fmt,
    marker::PhantomData,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};
use zeroize::Zeroizing;

use crate::{
    ClearPassword, Compare, Found, Keys, LeaseId, Op, Options, Outcome, Revision, User, Watch,
    WatchError,
    error::{Attempt, Error},
    model::{LeaseAnswer, RangeAnswer, TxnAnswer, range_request, txn_request, watch_request},
    transport::{Answer, Transport},
};

/// How long the renewal of a lease waits for one endpoint before it asks the next one too. The shortest leases of drivers last 2 s, so a
/// member that hangs ends none.
const HEDGE: Duration = Duration::from_millis(300);

/// Whether a request may be sent again after an endpoint may have executed it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Safe,
    Never,
}

/// A client of one cluster. A clone shares connections and the token of the user.
///
/// A call tries the endpoints in turn, beginning with the one that answered last. An endpoint that cannot be reached has
/// executed nothing, so the next one is tried. One that was reached and does not answer within the deadline may have: then
/// the next one is tried only for requests that may be repeated, and [`Client::txn`] is none of them.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoints", &self.0.endpoints)
            .field("user", &self.0.user)
            .finish_non_exhaustive()
    }
}

struct Inner {
    transport: Transport,
    endpoints: Vec<String>,
    deadline: Duration,
    user: Option<User>,
    token: Mutex<Option<Zeroizing<String>>>,
    /// The index of the endpoint to begin with.
    preferred: AtomicUsize,
}

/// How the answer to a request is read.
trait Finish {
    type Output;

    fn finish(answer: Answer) -> impl Future<Output = Result<Self::Output, Error>> + Send;
}

/// One value.
struct Only<T>(PhantomData<T>);

impl<T: DeserializeOwned + Send> Finish for Only<T> {
    type Output = T;

    fn finish(answer: Answer) -> impl Future<Output = Result<T, Error>> + Send {
        answer.only()
    }
}

/// The first value of a stream.
struct First<T>(PhantomData<T>);

impl<T: DeserializeOwned + Send> Finish for First<T> {
    type Output = T;

    fn finish(answer: Answer) -> impl Future<Output = Result<T, Error>> + Send {
        answer.first()
    }
}

/// A watch.
struct Opened;

impl Finish for Opened {
    type Output = Result<Watch, WatchError>;

    fn finish(answer: Answer) -> impl Future<Output = Result<Self::Output, Error>> + Send {
        Watch::open(answer)
    }
}

/// A lease that was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// Its number.
    pub lease: LeaseId,
    /// How long it lives without a keep-alive. It may be longer than what was asked for.
    pub ttl: Duration,
}

impl Client {
    /// A client that has sent nothing yet.
    ///
    /// # Errors
    /// [`ClearPassword`] if it would send the password of a user in clear to another host.
    pub fn new(options: &Options) -> Result<Self, ClearPassword> {
        options.check_password()?;
        Ok(Self(Arc::new(Inner {
            transport: Transport::new(options),
            endpoints: options.endpoints.clone(),
            deadline: options.deadline,
            user: options.user.clone(),
            token: Mutex::new(None),
            preferred: AtomicUsize::new(0),
        })))
    }

    /// Grants a lease of about `ttl`, at least a second. If the answer is lost, a lease may be left that ends by itself.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn grant(&self, ttl: Duration) -> Result<Granted, Error> {
        let request = json!({ "TTL": ttl.as_millis().div_ceil(1000).max(1).to_string() });
        let answer: LeaseAnswer = self.call("lease/grant", &request, Repeat::Safe).await?;
        Ok(Granted {
            lease: answer.id,
            ttl: seconds(answer.ttl),
        })
    }

    /// Renews a lease. Gives how long it lives from when the request was sent, or `None` if it is gone. Endpoints that hang cost a
    /// moment each, since the next one is asked as well.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn keep_alive(&self, lease: LeaseId) -> Result<Option<Duration>, Error> {
        let request = json!({ "ID": lease.0.to_string() });
        let answer = (self.race::<First<LeaseAnswer>>("lease/keepalive", request)).await?;
        Ok((answer.ttl > 0).then(|| seconds(answer.ttl)))
    }

    /// Ends a lease and deletes its keys. Gives whether it was there.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn revoke(&self, lease: LeaseId) -> Result<bool, Error> {
        let request = json!({ "ID": lease.0.to_string() });
        match self
            .call::<Value>("lease/revoke", &request, Repeat::Safe)
            .await
        {
            Ok(_) => Ok(true),
            Err(Error::Etcd { code, .. }) if code == crate::Code::NOT_FOUND => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads keys: at most `limit`, 0 for all; at a revision, or the newest state for the default one. The read is
    /// linearizable.
    ///
    /// # Errors
    /// See [`Error`]. A compacted revision is [`Code::OUT_OF_RANGE`](crate::Code::OUT_OF_RANGE).
    pub async fn range(&self, keys: &Keys, limit: u32, revision: Revision) -> Result<Found, Error> {
        let request = range_request(keys, limit, revision);
        let answer: RangeAnswer = self.call("kv/range", &request, Repeat::Safe).await?;
        Ok(answer.into())
    }

    /// Takes the steps `success` if all conditions hold, else `failure`. It is never repeated: after an error with
    /// [`Error::may_have_happened`] the caller reads what is there.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn txn(
        &self,
        compares: &[Compare],
        success: &[Op],
        failure: &[Op],
    ) -> Result<Outcome, Error> {
        let request = txn_request(compares, success, failure);
        let answer: TxnAnswer = self.call("kv/txn", &request, Repeat::Never).await?;
        Ok(answer.into())
    }

    /// Watches keys for all changes from a revision on, which the default revision begins now.
    ///
    /// # Errors
    /// [`WatchError::Compacted`] if changes from `from` on are gone, else [`WatchError::Broken`].
    pub async fn watch(&self, keys: &Keys, from: Revision) -> Result<Watch, WatchError> {
        let request = watch_request(keys, from);
        self.try_endpoints::<Opened>("watch", &request, Repeat::Safe)
            .await
            .map_err(WatchError::Broken)?
    }

    /// A request with one value as its answer.
    async fn call<T: DeserializeOwned + Send>(
        &self,
        path: &str,
        request: &Value,
        repeat: Repeat,
    ) -> Result<T, Error> {
        self.try_endpoints::<Only<T>>(path, request, repeat).await
    }

    /// Tries a request at the endpoints in turn, each with its deadline.
    async fn try_endpoints<F: Finish>(
        &self,
        path: &str,
        request: &Value,
        repeat: Repeat,
    ) -> Result<F::Output, Error> {
        let first = self.0.preferred.load(Ordering::Relaxed);
        let count = self.0.endpoints.len();
        let mut unreachable = Vec::new();
        let mut last = None;
        for index in (first..first + count).map(|index| index % count) {
            let result = self.try_endpoint::<F>(index, path, request).await;
            let error = match result {
                Ok(result) => {
                    self.0.preferred.store(index, Ordering::Relaxed);
                    return Ok(result);
                }
                Err(error) => error,
            };
            if !error.may_have_happened() && !matches!(error, Error::Unreachable(_)) {
                return Err(error);
            }
            self.0
                .preferred
                .store((index + 1) % count, Ordering::Relaxed);
            match error {
                Error::Unreachable(attempts) => unreachable.extend(attempts),
                error if repeat == Repeat::Never => return Err(error),
                error => last = Some(error),
            }
        }
        Err(last.unwrap_or(Error::Unreachable(unreachable)))
    }

    /// Tries a request that may be repeated at the endpoints, and takes the first answer. The next endpoint is tried when one has failed,
    /// or none has answered for [`HEDGE`].
    async fn race<F>(&self, path: &'static str, request: Value) -> Result<F::Output, Error>
    where
        F: Finish + 'static,
        F::Output: Send + 'static,
    {
        let first = self.0.preferred.load(Ordering::Relaxed);
        let count = self.0.endpoints.len();
        let mut order = (first..first + count).map(|index| index % count);
        let request = Arc::new(request);
        let mut tries = JoinSet::new();
        let (mut unreachable, mut last) = (Vec::new(), None);
        loop {
            if let Some(index) = order.next() {
                let (client, request) = (self.clone(), Arc::clone(&request));
                let tried = async move { client.try_endpoint::<F>(index, path, &request).await };
                tries.spawn(async move { (index, tried.await) });
            }
            let Ok(answer) = timeout(HEDGE, tries.join_next()).await else {
                continue;
            };
            let (index, result) = match answer {
                Some(Ok(answer)) => answer,
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => return Err(last.unwrap_or(Error::Unreachable(unreachable))),
            };
            match result {
                Ok(result) => {
                    self.0.preferred.store(index, Ordering::Relaxed);
                    return Ok(result);
                }
                Err(Error::Unreachable(attempts)) => unreachable.extend(attempts),
                Err(error) if !error.may_have_happened() => return Err(error),
                Err(error) => last = Some(error),
            }
        }
    }

    /// Tries a request at one endpoint, until its deadline.
    async fn try_endpoint<F: Finish>(
        &self,
        index: usize,
        path: &str,
        request: &Value,
    ) -> Result<F::Output, Error> {
        let endpoint = &self.0.endpoints[index];
        let tried = self.try_with_token::<F>(endpoint, path, request);
        timeout(self.0.deadline, tried).await.unwrap_or_else(|_| {
            Err(Error::NoAnswer(Attempt {
                endpoint: endpoint.clone(),
                why: format!("it does not answer within {:?}", self.0.deadline),
            }))
        })
    }

    /// Tries a request at an endpoint, once more with a new token if etcd does not take the old one.
    async fn try_with_token<F: Finish>(
        &self,
        endpoint: &str,
        path: &str,
        request: &Value,
    ) -> Result<F::Output, Error> {
        for is_last in [false, true] {
            let token = self.token(endpoint).await?;
            let token = token.as_deref().map(String::as_str);
            let answer = self.0.transport.post(endpoint, path, token, request);
            let result = match answer.await {
                Ok(answer) => F::finish(answer).await,
                Err(error) => Err(error),
            };
            match result {
                Err(error) if error.wants_new_token() && !is_last => self.set_token(None),
                result => return result,
            }
        }
        unreachable!("the last try returns");
    }

    /// The token of the user, if etcd wants one.
    async fn token(&self, endpoint: &str) -> Result<Option<Zeroizing<String>>, Error> {
        #[derive(Deserialize)]
        struct Token {
            token: String,
        }
        let Some(user) = &self.0.user else {
            return Ok(None);
        };
        let known = self
            .0
            .token
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if known.is_some() {
            return Ok(known);
        }
        let request = json!({ "name": user.name, "password": *user.password });
        let answer = self
            .0
            .transport
            .post(endpoint, "auth/authenticate", None, &request)
            .await?;
        let token = answer.only::<Token>().await?.token;
        self.set_token(Some(Zeroizing::new(token)));
        Ok(self
            .0
            .token
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone())
    }

    fn set_token(&self, token: Option<Zeroizing<String>>) {
        *self.0.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }
}

/// The seconds of an answer, which is never negative.
fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}
