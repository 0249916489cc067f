//! The job's key-value store: where workers leave each other what they have to know.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use elasticrun_worker::{Error, Session};
//! # fn exchange(session: &Session<'_>) -> Result<(), Error> {
//! let store = session.store();
//! store.set(&format!("address/{}", session.rank()), b"10.0.0.7:4000")?;
//! let first = store.get("address/0", Duration::from_secs(60))?;
//! # Ok(())
//! # }
//! ```
//! The driver keeps it and this host's agent passes requests on, so there is no server to start or to lose.
//! The keys of a round are gone when the next one starts ([`crate::Session::store`]): nobody gets the address of a
//! dead peer. Those of the job stay while it runs ([`crate::Session::job_store`]).
//!
//! A call of a round that is over ends at once with the interrupt that ends collectives, wherever it waits.
//! Nothing is connected and no thread started before the first call.
//!
//! # Not promised
//! Whether a request took effect that was answered with `Refused::Unreachable`.

mod alone;
mod call;
mod client;
mod line;

use std::{fmt, sync::Arc, time::Duration};

use elasticrun_protocol::store::Namespace;

use crate::Error;
pub use call::Call;
pub(crate) use client::Client;
pub use elasticrun_protocol::store::{Blob, MAX_KEY, MAX_MESSAGE, MAX_VALUE, Op, Refused, Value};

/// How long the driver may take for what needs no waiting.
const ANSWER: Duration = Duration::from_secs(60);

/// Keys of a round or of the job. Cheap to clone, usable from any thread.
///
/// Errors of all calls: the interrupt if the round is over, [`Error::Removed`], [`Error::Stopped`] and
/// [`Error::AgentLost`] if this process is to end, [`Error::Forked`] in a child of it, else [`Error::Store`] with
/// what was refused.
#[derive(Clone)]
pub struct Store {
    client: Arc<Client>,
    namespace: Namespace,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.namespace).finish()
    }
}

impl Store {
    pub(crate) fn new(client: Arc<Client>, namespace: Namespace) -> Self {
        Self { client, namespace }
    }

    /// Writes a value.
    ///
    /// # Errors
    /// See [`Store`].
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        let (key, value) = (key.to_owned(), value.into());
        self.done(Op::Set { key, value }, ANSWER)
    }

    /// Reads a value, as soon as it is there.
    ///
    /// # Errors
    /// See [`Store`]; `Refused::TimedOut` if nobody has set it within `timeout`.
    pub fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, Error> {
        let key = key.to_owned();
        match self.call(Op::Get { key }, timeout)? {
            Value::Bytes(Blob(value)) => Ok(value),
            other => Err(strange(&other)),
        }
    }

    /// Adds to a number and gives the sum. What is not there counts as 0; it is kept as decimal text.
    ///
    /// # Errors
    /// See [`Store`]; `Refused::NotANumber` and `Refused::Overflow`.
    pub fn add(&self, key: &str, amount: i64) -> Result<i64, Error> {
        let key = key.to_owned();
        self.number(Op::Add { key, amount })
    }

    /// Writes `desired` if the value is `expected`, or if there is none and `expected` is empty. Gives what is there
    /// after it, if anything is.
    ///
    /// # Errors
    /// See [`Store`].
    pub fn compare_set(
        &self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Option<Vec<u8>>, Error> {
        let op = Op::CompareSet {
            key: key.to_owned(),
            expected: expected.into(),
            desired: desired.into(),
        };
        match self.call(op, ANSWER)? {
            Value::Current(current) => Ok(current.map(|Blob(value)| value)),
            other => Err(strange(&other)),
        }
    }

    /// Waits until all keys are there at once.
    ///
    /// # Errors
    /// See [`Store`]; `Refused::TimedOut` names what is missing after `timeout`.
    pub fn wait<K: AsRef<str>>(&self, keys: &[K], timeout: Duration) -> Result<(), Error> {
        self.done(Op::Wait { keys: owned(keys) }, timeout)
    }

    /// Whether all keys are there.
    ///
    /// # Errors
    /// See [`Store`].
    pub fn check<K: AsRef<str>>(&self, keys: &[K]) -> Result<bool, Error> {
        self.truth(Op::Check { keys: owned(keys) })
    }

    /// Removes a key. Gives whether it was there.
    ///
    /// # Errors
    /// See [`Store`].
    pub fn delete(&self, key: &str) -> Result<bool, Error> {
        let key = key.to_owned();
        self.truth(Op::Delete { key })
    }

    /// Counts the keys that begin with `prefix`.
    ///
    /// # Errors
    /// See [`Store`].
    pub fn num_keys(&self, prefix: &str) -> Result<u64, Error> {
        let prefix = prefix.to_owned();
        Ok(self.number(Op::NumKeys { prefix })?.unsigned_abs())
    }

    /// Writes behind what is there.
    ///
    /// # Errors
    /// See [`Store`].
    pub fn append(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        let (key, value) = (key.to_owned(), value.into());
        self.done(Op::Append { key, value }, ANSWER)
    }

    /// Reads values, as soon as all are there at once; in the order of `keys`.
    ///
    /// # Errors
    /// As [`Store::wait`].
    pub fn multi_get<K: AsRef<str>>(
        &self,
        keys: &[K],
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>, Error> {
        match self.call(Op::MultiGet { keys: owned(keys) }, timeout)? {
            Value::Many(values) => Ok(values.into_iter().map(|Blob(value)| value).collect()),
            other => Err(strange(&other)),
        }
    }

    /// Writes all values or, if there is no room for them, none.
    ///
    /// # Errors
    /// See [`Store`].
    pub fn multi_set<K: AsRef<str>, V: AsRef<[u8]>>(
        &self,
        entries: &[(K, V)],
    ) -> Result<(), Error> {
        let owned = |(key, value): &(K, V)| (key.as_ref().to_owned(), value.as_ref().into());
        let entries = entries.iter().map(owned).collect();
        self.done(Op::MultiSet { entries }, ANSWER)
    }

    /// Begins an operation without waiting for its answer; `timeout` is for the keys that it waits for, if it does.
    ///
    /// # Errors
    /// See [`Store`]; what the driver refuses comes with the answer.
    pub fn start(&self, op: Op, timeout: Duration) -> Result<Call, Error> {
        Client::start(&self.client, self.namespace, op, timeout)
    }

    fn call(&self, op: Op, timeout: Duration) -> Result<Value, Error> {
        self.start(op, timeout)?.wait()
    }

    fn done(&self, op: Op, timeout: Duration) -> Result<(), Error> {
        match self.call(op, timeout)? {
            Value::Done => Ok(()),
            other => Err(strange(&other)),
        }
    }

    fn number(&self, op: Op) -> Result<i64, Error> {
        match self.call(op, ANSWER)? {
            Value::Number(number) => Ok(number),
            other => Err(strange(&other)),
        }
    }

    fn truth(&self, op: Op) -> Result<bool, Error> {
        match self.call(op, ANSWER)? {
            Value::Truth(truth) => Ok(truth),
            other => Err(strange(&other)),
        }
    }
}

fn owned<K: AsRef<str>>(keys: &[K]) -> Vec<String> {
    keys.iter().map(|key| key.as_ref().to_owned()).collect()
}

fn strange(value: &Value) -> Error {
    Error::Protocol {
        why: format!("the store answered {value:?} to another question"),
    }
}
