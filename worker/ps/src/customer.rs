//! The requests of one user of a node, and waiting for their answers.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use crate::{
    core::{
        node::NodeId,
        tracker::{Outcome, Timestamp, Tracker},
    },
    error::Error,
    net::Wake,
    node::Node,
};

/// Is called once when a request is completed, on a thread of the node or one that waits for another request. It must not wait for other requests.
pub type Callback = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// One user of a node: an app and a number within it. It counts requests, and knows which are answered.
pub struct Customer {
    app: u32,
    id: u32,
    node: Arc<Node>,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    tracker: Tracker<Error>,
    callbacks: BTreeMap<Timestamp, Callback>,
    /// Requests that are completed and whose callback has not returned, with the thread that calls it.
    calling: BTreeMap<Timestamp, ThreadId>,
    waiting: usize,
    /// Who reads connections until a request is completed.
    reading: Vec<(Timestamp, Arc<Wake>)>,
}

impl fmt::Debug for Customer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.lock().tracker.in_flight();
        f.debug_struct("Customer")
            .field("app", &self.app)
            .field("id", &self.id)
            .field("in_flight", &in_flight)
            .finish_non_exhaustive()
    }
}

impl Customer {
    pub(crate) fn new(node: Arc<Node>, app: u32, id: u32) -> Self {
        Self {
            node,
            app,
            id,
            inner: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The app.
    pub fn app(&self) -> u32 {
        self.app
    }

    /// The number within the app.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Begins a request to these nodes. `prepare` is called with its number, before any answer can come.
    pub(crate) fn begin(
        &self,
        to: impl IntoIterator<Item = NodeId>,
        callback: Option<Callback>,
        prepare: impl FnOnce(Timestamp),
    ) -> Timestamp {
        let mut inner = self.lock();
        let timestamp = inner.tracker.begin(to);
        if inner.tracker.result(timestamp).is_none() {
            let others = self.node.in_flight.fetch_add(1, Ordering::SeqCst);
            if others > 0 || callback.is_some() {
                self.node.listen_for(&inner.tracker.missing(timestamp));
            }
            if let Some(callback) = callback {
                inner.callbacks.insert(timestamp, callback);
            }
        }
        prepare(timestamp);
        timestamp
    }

    pub(crate) fn expects(&self, timestamp: Timestamp, from: NodeId) -> bool {
        self.lock().tracker.expects(timestamp, from)
    }

    /// Notes an answer.
    pub(crate) fn answered(&self, timestamp: Timestamp, from: NodeId) {
        let mut inner = self.lock();
        if inner.tracker.answered(timestamp, from) == Outcome::Completed {
            self.complete(inner, timestamp, Ok(()));
        }
    }

    /// Notes that a request is completed, whoever has answered.
    pub(crate) fn completed(&self, timestamp: Timestamp) {
        let mut inner = self.lock();
        if inner.tracker.complete(timestamp) == Outcome::Completed {
            self.complete(inner, timestamp, Ok(()));
        }
    }

    /// Ends a request with an error.
    pub(crate) fn fail(&self, timestamp: Timestamp, error: Error) {
        let mut inner = self.lock();
        if inner.tracker.fail(timestamp, error.clone()) == Outcome::Completed {
            self.complete(inner, timestamp, Err(error));
        }
    }

    fn complete(
        &self,
        inner: MutexGuard<'_, Inner>,
        timestamp: Timestamp,
        result: Result<(), Error>,
    ) {
        let mut inner = inner;
        self.node.in_flight.fetch_sub(1, Ordering::SeqCst);
        let callback = inner.callbacks.remove(&timestamp);
        if callback.is_some() {
            let this = thread::current().id();
            inner.calling.insert(timestamp, this);
        }
        let waiting = inner.waiting > 0;
        for (_, wake) in (inner.reading.iter()).filter(|(of, _)| *of == timestamp) {
            wake.ring();
        }
        drop(inner);
        if let Some(callback) = callback {
            let _calling = Calling {
                customer: self,
                timestamp,
            };
            callback(result);
        } else if waiting {
            self.changed.notify_all();
        }
    }

    /// Ends all requests that wait for the node.
    pub(crate) fn node_lost(&self, node: NodeId, error: &Error) {
        let waiting = self.lock().tracker.waiting_for(node);
        for timestamp in waiting {
            self.fail(timestamp, error.clone());
        }
    }

    /// The requests that are not answered for so long.
    pub(crate) fn overdue(&self, limit: Duration) -> Vec<Timestamp> {
        self.lock().tracker.overdue(self.node.now(), limit)
    }

    /// Whether a request is completed, with an error or not.
    pub fn is_done(&self, timestamp: Timestamp) -> bool {
        self.lock().tracker.result(timestamp).is_some()
    }

    /// Number of requests that are not completed.
    pub fn in_flight(&self) -> usize {
        self.lock().tracker.in_flight()
    }

    /// Waits until all requests that have begun are completed, each at most for the request timeout.
    ///
    /// # Errors
    /// One of them failed meanwhile, or was not answered in time.
    pub fn wait_all(&self) -> Result<(), Error> {
        let limit = self.node.options.request_timeout;
        let end = self.lock().tracker.next();
        loop {
            let oldest = self.lock().tracker.oldest();
            match oldest.filter(|timestamp| *timestamp < end) {
                Some(timestamp) => self.wait(timestamp, limit)?,
                None => break,
            }
        }
        // Callbacks of completed requests may still run.
        let called = self.lock().calling.keys().copied().collect::<Vec<_>>();
        for timestamp in called.into_iter().filter(|timestamp| *timestamp < end) {
            let _ = self.wait_for(timestamp, limit);
        }
        Ok(())
    }

    /// Reads the answers itself where no other thread does, until the request is completed.
    fn read_until(&self, timestamp: Timestamp, deadline: Instant) {
        let Some(wake) = self.node.may_lead() else {
            return;
        };
        let owed = {
            let mut inner = self.lock();
            inner.reading.push((timestamp, Arc::clone(&wake)));
            inner.tracker.missing(timestamp)
        };
        (self.node).lead(&owed, &wake, deadline, || self.is_done(timestamp));
        let mut inner = self.lock();
        let own = |(of, by): &(Timestamp, Arc<Wake>)| *of == timestamp && Arc::ptr_eq(by, &wake);
        if let Some(index) = inner.reading.iter().position(own) {
            inner.reading.swap_remove(index);
        }
        // Nobody rings it any more.
        wake.still();
    }

    /// Waits until a request is completed. The waiting thread reads the answer itself if no other thread reads the connection, so
    /// callbacks of other requests may be called on it. Its own callback has returned when this returns. A request that is not completed
    /// in time is ended with [`Error::TimedOut`].
    ///
    /// # Errors
    /// The request failed, or was not answered in time.
    pub fn wait(&self, timestamp: Timestamp, limit: Duration) -> Result<(), Error> {
        match self.wait_for(timestamp, limit) {
            Some(result) => result,
            None => self.give_up(timestamp, limit),
        }
    }

    /// Waits as [`wait`](Self::wait) does, and leaves a request alone that is not completed in time: it is `None` then.
    pub fn wait_for(&self, timestamp: Timestamp, limit: Duration) -> Option<Result<(), Error>> {
        let start = Instant::now();
        let mut inner = self.lock();
        if !inner.tracker.has_begun(timestamp) {
            return Some(Err(Error::NoSuchRequest(timestamp.0)));
        }
        // With others in flight, the receiving thread is at work anyway.
        if inner.tracker.result(timestamp).is_none() && inner.tracker.in_flight() == 1 {
            drop(inner);
            self.read_until(timestamp, start + limit);
            inner = self.lock();
        }
        loop {
            let caller = inner.calling.get(&timestamp);
            let is_called = caller.is_none_or(|caller| *caller == thread::current().id());
            if is_called && let Some(result) = inner.tracker.result(timestamp) {
                return Some(result);
            }
            let rest = limit.checked_sub(start.elapsed())?;
            inner.waiting += 1;
            let woken = self.changed.wait_timeout(inner, rest);
            inner = woken.unwrap_or_else(PoisonError::into_inner).0;
            inner.waiting -= 1;
        }
    }

    /// Ends a request with [`Error::TimedOut`], unless it is completed.
    ///
    /// # Errors
    /// This error, or that with which the request was completed.
    pub fn give_up(&self, timestamp: Timestamp, limit: Duration) -> Result<(), Error> {
        let missing = self.lock().tracker.missing(timestamp);
        let timestamp_number = timestamp.0;
        self.fail(
            timestamp,
            Error::TimedOut {
                timestamp: timestamp_number,
                missing,
                waited: limit,
            },
        );
        // An answer may have come just now.
        self.lock().tracker.result(timestamp).unwrap_or(Ok(()))
    }
}

/// A callback that is being called.
struct Calling<'a> {
    customer: &'a Customer,
    timestamp: Timestamp,
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        let mut inner = self.customer.lock();
        inner.calling.remove(&self.timestamp);
        if inner.waiting > 0 {
            self.customer.changed.notify_all();
        }
    }
}
