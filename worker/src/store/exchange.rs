//! A request on its way, and its answer.

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

/// How much later than its timeout an answer may come, since the driver applies the timeout and
/// names the missing keys.
const ANSWER_GRACE: Duration = Duration::from_secs(10);

/// A pending request. Dropping it before its answer cancels it.
#[derive(Debug)]
pub(super) struct Exchange {
    client: Arc<Client>,
    number: u64,
    answer: Receiver<Result<Value, Error>>,
    /// `None` without a deadline.
    deadline: Option<Instant>,
}

impl Exchange {
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
            deadline: Instant::now().checked_add(timeout.saturating_add(ANSWER_GRACE)),
        }
    }

    /// Waits for the answer, at most for `timeout`. `None` if it has not come. After the answer there
    /// is no other.
    pub(super) fn poll(&mut self, timeout: Duration) -> Option<Result<Value, Error>> {
        let now = Instant::now();
        let left = (self.deadline).map_or(Duration::MAX, |deadline| {
            deadline.saturating_duration_since(now)
        });
        let timeout = timeout.min(left);
        let next_tick = self.client.next_deadline();
        let wait = next_tick.map_or(timeout, |due| timeout.min(due));
        match self.answer.recv_timeout(wait) {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Disconnected) => return Some(Err(no_answer())),
            Err(RecvTimeoutError::Timeout) => {}
        }
        self.client.tick();
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(_) => (wait == left).then(|| Err(no_answer())),
        }
    }
}

fn no_answer() -> Error {
    let why = "no answer came in time".to_owned();
    Error::Store(Refused::Unreachable { why })
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.client.forget(self.number);
        // An answer that came meanwhile may refer to values that nobody reads.
        if let Ok(Ok(value)) = self.answer.try_recv() {
            self.client.discard_answer(&value);
        }
    }
}
