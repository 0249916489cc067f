//! The job's key-value store, by which workers exchange values.
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
//! The driver keeps the store and this host's agent forwards requests, so there is no server to start
//! or to lose. The keys of a round disappear when the next one starts ([`crate::Session::store`]), so
//! no worker gets the address of a dead peer. The keys of the job stay while it runs
//! ([`crate::Session::job_store`]).
//!
//! A pending call of a round that is over ends at once, with the interrupt that ends collectives.
//! No connection is made and no thread is started before the first call.
//!
//! A value may be as large as the store ([`Refused::Full`]). One of more than [`MAX_PIECE`] bytes
//! travels in pieces, each of which is a request, so it delays requests of other workers by one
//! piece at most.
//!
//! # Not promised
//! Whether a request that was answered with `Refused::Unreachable` took effect.

mod call;
mod client;
mod connection;
mod dial;
mod exchange;
mod large;
mod standalone;

use std::{fmt, io, sync::Arc, time::Duration};

use elasticrun_protocol::store::Namespace;

use crate::Error;
pub use call::Call;
pub(crate) use client::Client;
pub use dial::DialledStore;
pub use elasticrun_protocol::store::{Blob, MAX_KEY, MAX_MESSAGE, MAX_PIECE, Op, Refused, Value};

/// Timeout of operations that do not wait for keys.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Keys of a round or of the job. Cheap to clone, usable from any thread.
///
/// Errors of all calls: the interrupt if the round is over; [`Error::Removed`], [`Error::Stopped`]
/// and [`Error::AgentLost`] if this process is to end; [`Error::Forked`] in a forked child; else
/// [`Error::Store`] with the refusal.
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

    /// The keys of a store that has no agent, such as that of a rendezvous. `dial` opens a
    /// connection to it, at the first request and after each end of a connection.
    pub fn dialled_by(dial: impl Fn() -> io::Result<DialledStore> + Send + Sync + 'static) -> Self {
        let client = Client::remote(dial::FunctionDialler(dial));
        Self::new(Arc::new(client), Namespace::Job)
    }

    /// Writes a value.
    ///
    /// # Errors
    /// See [`Store`].
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        let (key, value) = (key.to_owned(), value.into());
        self.done(Op::Set { key, value }, ANSWER_TIMEOUT)
    }

    /// Reads a value as soon as it exists.
    ///
    /// # Errors
    /// See [`Store`]; `Refused::TimedOut` if it was not set within `timeout`.
    pub fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, Error> {
        let key = key.to_owned();
        match self.call(Op::Get { key }, timeout)? {
            Value::Bytes(Blob(value)) => Ok(value),
            other => Err(unexpected_answer(&other)),
        }
    }

    /// Adds to a number and returns the sum. A missing key counts as 0. The number is stored as
    /// decimal text.
    ///
    /// # Errors
    /// See [`Store`]; `Refused::NotANumber` and `Refused::Overflow`.
    pub fn add(&self, key: &str, amount: i64) -> Result<i64, Error> {
        let key = key.to_owned();
        self.number(Op::Add { key, amount })
    }

    /// Writes `desired` if the value is `expected`, or if there is none and `expected` is empty.
    /// Returns the value afterwards, if there is one.
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
        match self.call(op, ANSWER_TIMEOUT)? {
            Value::Current(current) => Ok(current.map(|Blob(value)| value)),
            other => Err(unexpected_answer(&other)),
        }
    }

    /// Waits until all keys exist at the same time. A key exists while it has a value, or an element
    /// in its queue.
    ///
    /// # Errors
    /// See [`Store`]; `Refused::TimedOut` names the missing keys after `timeout`.
    pub fn wait<K: AsRef<str>>(&self, keys: &[K], timeout: Duration) -> Result<(), Error> {
        self.done(Op::Wait { keys: owned(keys) }, timeout)
    }

    /// Whether all keys exist.
    ///
    /// # Errors
    /// See [`Store`].
    pub fn check<K: AsRef<str>>(&self, keys: &[K]) -> Result<bool, Error> {
        self.truth(Op::Check { keys: owned(keys) })
    }

    /// Removes a key. Returns whether it existed.
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

    /// Appends to a value.
    ///
    /// # Errors
    /// See [`Store`].
    pub fn append(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        let (key, value) = (key.to_owned(), value.into());
        self.done(Op::Append { key, value }, ANSWER_TIMEOUT)
    }

    /// Reads values as soon as all exist at the same time, in the order of `keys`.
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
            other => Err(unexpected_answer(&other)),
        }
    }

    /// Writes all values or, if they do not fit, none.
    ///
    /// # Errors
    /// See [`Store`].
    pub fn multi_set<K: AsRef<str>, V: AsRef<[u8]>>(
        &self,
        entries: &[(K, V)],
    ) -> Result<(), Error> {
        let owned = |(key, value): &(K, V)| (key.as_ref().to_owned(), value.as_ref().into());
        let entries = entries.iter().map(owned).collect();
        self.done(Op::MultiSet { entries }, ANSWER_TIMEOUT)
    }

    /// Appends an element to a queue. A queue is independent of the value of the same key.
    ///
    /// # Errors
    /// See [`Store`].
    pub fn queue_push(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        let (key, value) = (key.to_owned(), value.into());
        self.done(Op::QueuePush { key, value }, ANSWER_TIMEOUT)
    }

    /// Takes the first element of a queue as soon as there is one. Calls that wait for an element
    /// get one in the order in which they came to the store.
    ///
    /// # Errors
    /// See [`Store`]; `Refused::TimedOut` if there was none within `timeout`.
    pub fn queue_pop(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, Error> {
        let (key, block) = (key.to_owned(), true);
        match self.call(Op::QueuePop { key, block }, timeout)? {
            Value::Bytes(Blob(value)) => Ok(value),
            other => Err(unexpected_answer(&other)),
        }
    }

    /// Takes the first element of a queue, if there is one now.
    ///
    /// # Errors
    /// See [`Store`].
    pub fn queue_try_pop(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let (key, block) = (key.to_owned(), false);
        match self.call(Op::QueuePop { key, block }, ANSWER_TIMEOUT)? {
            Value::Current(element) => Ok(element.map(|Blob(value)| value)),
            other => Err(unexpected_answer(&other)),
        }
    }

    /// The number of elements of a queue.
    ///
    /// # Errors
    /// See [`Store`].
    pub fn queue_len(&self, key: &str) -> Result<u64, Error> {
        let key = key.to_owned();
        Ok(self.number(Op::QueueLen { key })?.unsigned_abs())
    }

    /// The keys that have a value and begin with `prefix`, in order and without the prefix.
    ///
    /// A long list comes in several answers. Keys that are set or deleted meanwhile may or may not
    /// be in it.
    ///
    /// # Errors
    /// See [`Store`].
    pub fn list_keys(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let mut listed: Vec<String> = Vec::new();
        loop {
            let op = Op::ListKeys {
                prefix: prefix.to_owned(),
                after: listed.last().cloned(),
            };
            match self.call(op, ANSWER_TIMEOUT)? {
                Value::Keys { keys, more } => {
                    let is_last = !more || keys.is_empty();
                    listed.extend(keys);
                    if is_last {
                        return Ok(listed);
                    }
                }
                other => return Err(unexpected_answer(&other)),
            }
        }
    }

    /// Starts an operation without waiting for its answer. `timeout` limits the wait for keys of
    /// operations that wait.
    ///
    /// # Errors
    /// See [`Store`]; a refusal of the driver comes with the answer.
    pub fn start(&self, op: Op, timeout: Duration) -> Result<Call, Error> {
        Call::start(&self.client, self.namespace, op, timeout)
    }

    fn call(&self, op: Op, timeout: Duration) -> Result<Value, Error> {
        self.start(op, timeout)?.wait()
    }

    fn done(&self, op: Op, timeout: Duration) -> Result<(), Error> {
        match self.call(op, timeout)? {
            Value::Done => Ok(()),
            other => Err(unexpected_answer(&other)),
        }
    }

    fn number(&self, op: Op) -> Result<i64, Error> {
        match self.call(op, ANSWER_TIMEOUT)? {
            Value::Number(number) => Ok(number),
            other => Err(unexpected_answer(&other)),
        }
    }

    fn truth(&self, op: Op) -> Result<bool, Error> {
        match self.call(op, ANSWER_TIMEOUT)? {
            Value::Truth(truth) => Ok(truth),
            other => Err(unexpected_answer(&other)),
        }
    }
}

fn owned<K: AsRef<str>>(keys: &[K]) -> Vec<String> {
    keys.iter().map(|key| key.as_ref().to_owned()).collect()
}

fn unexpected_answer(value: &Value) -> Error {
    Error::Protocol {
        why: format!("the store answered {value:?} to another question"),
    }
}
