//! The requests of a worker that are not answered, and the answers.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use elasticrun_collectives::Element;

use crate::{
    core::{
        frame::{FAILURE, Header},
        node::NodeId,
        tracker::Timestamp,
    },
    customer::Customer,
    error::{Error, Refusal},
    net::{ReceiveError, Receiver, Scratch},
    node::{AnswerSink, Node},
    pull::{Destination, Pulled},
};

/// The requests in flight of one customer, and where the values of pulls go.
pub(crate) struct InFlight<T: Element> {
    pub(crate) node: Arc<Node>,
    pub(crate) customer: Customer,
    pub(crate) pulls: Mutex<BTreeMap<Timestamp, Arc<Destination<T>>>>,
}

/// A pull in flight. Dropping it forgets its result.
#[derive(Debug)]
pub struct Pull<T: Element> {
    pub(crate) timestamp: Timestamp,
    pub(crate) destination: Option<Arc<Destination<T>>>,
    pub(crate) worker: Arc<InFlight<T>>,
}

impl<T: Element> fmt::Debug for InFlight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.customer.fmt(f)
    }
}

impl<T: Element> Pull<T> {
    /// The number of the request.
    pub fn timestamp(&self) -> Timestamp {
        self.timestamp
    }

    /// Waits for the result, for the request timeout.
    ///
    /// # Errors
    /// The request failed, or was not answered in time.
    pub fn wait(self) -> Result<Pulled<T>, Error> {
        let limit = self.worker.node.options.request_timeout;
        self.wait_for(limit)
    }

    /// Waits for the result, for so long.
    ///
    /// # Errors
    /// The request failed, or was not answered in time.
    pub fn wait_for(mut self, limit: Duration) -> Result<Pulled<T>, Error> {
        self.worker.customer.wait(self.timestamp, limit)?;
        self.worker.forget(self.timestamp);
        let destination = self.destination.take().and_then(Arc::into_inner);
        // The receiving thread gives its share back before it completes the request.
        Ok(destination.expect("a completed pull has one owner").take())
    }
}

impl<T: Element> Drop for Pull<T> {
    fn drop(&mut self) {
        if self.destination.is_some() {
            self.worker.forget(self.timestamp);
        }
    }
}

impl<T: Element> InFlight<T> {
    /// Forgets where the values of a pull go: nobody waits for them.
    pub(crate) fn forget(&self, timestamp: Timestamp) {
        self.pulls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&timestamp);
    }
}

impl<T: Element> AnswerSink for InFlight<T> {
    fn answer(
        &self,
        header: &Header,
        receiver: &mut Receiver,
        scratch: &mut Scratch,
    ) -> Result<(), ReceiveError> {
        let (timestamp, from) = (Timestamp(header.timestamp), header.sender);
        if !self.customer.expects(timestamp, from) {
            return Ok(receiver.skip(header.payload())?);
        }
        if header.has(FAILURE) {
            let payload = receiver.payload(header, scratch)?;
            let refusal = serde_json::from_slice(payload.values).unwrap_or_else(|_| {
                Refusal::Handler(String::from_utf8_lossy(payload.values).into_owned())
            });
            let node = from;
            self.forget(timestamp);
            self.customer
                .fail(timestamp, Error::Refused { node, refusal });
            return Ok(());
        }
        let pulls = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
        let destination = pulls.get(&timestamp).cloned();
        drop(pulls);
        let fits = match &destination {
            Some(destination) => destination.receive(from, header, receiver, scratch)?,
            None => {
                receiver.skip(header.payload())?;
                Ok(())
            }
        };
        drop(destination);
        match fits {
            Ok(()) => self.customer.answered(timestamp, from),
            Err(reason) => {
                self.forget(timestamp);
                self.customer
                    .fail(timestamp, Error::BadAnswer { node: from, reason });
            }
        }
        Ok(())
    }

    fn node_lost(&self, node: NodeId, error: &Error) {
        self.customer.node_lost(node, error);
    }
}
