//! One request that is on its way.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use elasticrun_protocol::store::{Refused, Value};

use super::Client;
use crate::Error;

/// How much later than its timeout an answer may come: the driver says what is missing, and is believed.
const LATE: Duration = Duration::from_secs(10);

/// A request that is on its way. Dropped before its answer, it is forgotten.
#[derive(Debug)]
pub struct Call {
    client: Arc<Client>,
    number: u64,
    answer: Receiver<Result<Value, Error>>,
    /// None if it never comes.
    until: Option<Instant>,
}

impl Call {
    pub(super) fn new(
        client: Arc<Client>,
        number: u64,
        answer: Receiver<Result<Value, Error>>,
        timeout: Duration,
    ) -> Self {
        Self {
            client,
            number,
            answer,
            until: Instant::now().checked_add(timeout.saturating_add(LATE)),
        }
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// See [`super::Store`].
    pub fn wait(mut self) -> Result<Value, Error> {
        loop {
            if let Some(answer) = self.poll(Duration::MAX) {
                return answer;
            }
        }
    }

    /// Waits for the answer, at most so long. `None` if it has not come: call again.
    ///
    /// For callers that look after something else between, as a signal of the user. After an answer there is
    /// none more.
    pub fn poll(&mut self, patience: Duration) -> Option<Result<Value, Error>> {
        let now = Instant::now();
        let left = (self.until).map_or(Duration::MAX, |until| until.saturating_duration_since(now));
        let patience = patience.min(left);
        let alone = self.client.next_deadline();
        let nap = alone.map_or(patience, |due| patience.min(due));
        match self.answer.recv_timeout(nap) {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Disconnected) => return Some(Err(self.no_answer())),
            Err(RecvTimeoutError::Timeout) => {}
        }
        self.client.tick();
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(_) => (nap == left).then(|| Err(self.no_answer())),
        }
    }

    fn no_answer(&self) -> Error {
        let why = "no answer came in time".to_owned();
        Error::Store(Refused::Unreachable { why })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.client.forget(self.number);
    }
}
