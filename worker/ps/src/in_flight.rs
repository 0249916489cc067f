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
        elastic::map::ChainMap,
        frame::{FAILURE, Header},
        node::{NodeId, SCHEDULER},
        tracker::Timestamp,
    },
    customer::Customer,
    error::{Error, Refusal},
    net::{ReceiveError, Receiver, Scratch},
    node::{AnswerSink, Node},
    pull::{Destination, Pulled},
    requests::{Failures, Replayed, Sends},
};

/// The requests in flight of one customer, and where the values of pulls go.
pub(crate) struct InFlight<T: Element> {
    pub(crate) node: Arc<Node>,
    pub(crate) customer: Customer,
    pub(crate) pulls: Mutex<BTreeMap<Timestamp, Arc<Destination<T>>>>,
    /// In an elastic job.
    pub(crate) replayed: Option<Replayed<T>>,
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
        if let Err(error) = self.worker.customer.wait(self.timestamp, limit) {
            self.worker.give_up(self.timestamp);
            return Err(error);
        }
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

    /// Forgets a request that nobody waits for: it is not sent again.
    pub(crate) fn give_up(&self, timestamp: Timestamp) {
        if let Some(replayed) = &self.replayed {
            replayed.forget(timestamp.0);
        }
    }

    /// Ends a request with an error.
    pub(crate) fn fail(&self, timestamp: Timestamp, error: Error) {
        self.give_up(timestamp);
        self.forget(timestamp);
        self.customer.fail(timestamp, error);
    }

    /// Sends parts of requests again, and ends those that cannot be served.
    fn send_again(&self, (parts, failures): (Sends<T>, Failures)) {
        self.send_parts(parts);
        for (timestamp, error) in failures {
            self.fail(Timestamp(timestamp), error);
        }
    }

    pub(crate) fn send_parts(&self, parts: Sends<T>) {
        let Some(replayed) = &self.replayed else {
            return;
        };
        for (part, kept) in parts {
            let customer = (self.customer.app(), self.customer.id());
            let frame = replayed.frame(&self.node, customer, &part, &kept);
            self.node.send_part(part.to, frame);
        }
    }

    /// An answer in an elastic job: it may come from any server, and more than once.
    fn elastic_answer(
        &self,
        replayed: &Replayed<T>,
        header: &Header,
        receiver: &mut Receiver,
        scratch: &mut Scratch,
    ) -> Result<(), ReceiveError> {
        let timestamp = Timestamp(header.timestamp);
        if header.has(FAILURE) {
            let payload = receiver.payload(header, scratch)?;
            if header.session != replayed.session() {
                return Ok(());
            }
            match refusal_of(payload.values) {
                Refusal::Moved { asked, version } => {
                    self.send_parts(replayed.moved(header, asked, version));
                }
                refusal => {
                    let node = header.sender;
                    self.fail(timestamp, Error::Refused { node, refusal });
                }
            }
            return Ok(());
        }
        let Some(slice) = replayed.claim(header) else {
            return Ok(receiver.skip(header.payload())?);
        };
        let pulls = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
        let destination = pulls.get(&timestamp).cloned();
        drop(pulls);
        let received = match &destination {
            Some(destination) => destination.receive_slice(slice, header, receiver, scratch),
            None => match receiver.skip(header.payload()) {
                Ok(()) => Ok(Ok(())),
                Err(error) => Err(error.into()),
            },
        };
        drop(destination);
        match received {
            Ok(Ok(())) => {
                if replayed.answered(header) {
                    self.customer.completed(timestamp);
                }
                Ok(())
            }
            Ok(Err(reason)) => {
                let node = header.sender;
                self.fail(timestamp, Error::BadAnswer { node, reason });
                Ok(())
            }
            Err(error) => {
                self.send_parts(replayed.unclaim(header));
                Err(error)
            }
        }
    }
}

fn refusal_of(body: &[u8]) -> Refusal {
    serde_json::from_slice(body)
        .unwrap_or_else(|_| Refusal::Handler(String::from_utf8_lossy(body).into_owned()))
}

impl<T: Element> AnswerSink for InFlight<T> {
    fn answer(
        &self,
        header: &Header,
        receiver: &mut Receiver,
        scratch: &mut Scratch,
    ) -> Result<(), ReceiveError> {
        if let Some(replayed) = &self.replayed {
            return self.elastic_answer(replayed, header, receiver, scratch);
        }
        let (timestamp, from) = (Timestamp(header.timestamp), header.sender);
        if !self.customer.expects(timestamp, from) {
            return Ok(receiver.skip(header.payload())?);
        }
        if header.has(FAILURE) {
            let payload = receiver.payload(header, scratch)?;
            let refusal = refusal_of(payload.values);
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
        let Some(replayed) = &self.replayed else {
            return self.customer.node_lost(node, error);
        };
        // Without a scheduler, nobody says who serves what. Other nodes are replaced.
        if node == SCHEDULER || self.node.is_stopped() {
            for timestamp in replayed.forget_all() {
                self.fail(Timestamp(timestamp), error.clone());
            }
        }
    }

    fn end_overdue(&self, limit: Duration, error: &Error) {
        for timestamp in self.customer.overdue(limit) {
            self.fail(timestamp, error.clone());
        }
    }

    fn map_changed(&self, map: &ChainMap) {
        if let Some(replayed) = &self.replayed {
            self.send_again(replayed.map(map));
        }
    }

    fn link_reset(&self, peer: NodeId) {
        if let Some(replayed) = &self.replayed {
            self.send_again(replayed.link_reset(peer));
        }
    }
}
