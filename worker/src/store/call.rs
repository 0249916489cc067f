//! A pending call: one request, or several if values are too large for one message.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use elasticrun_protocol::store::{Namespace, Op, Refused, Value};

use super::{
    ANSWER_TIMEOUT, Client,
    exchange::Exchange,
    large::{Download, Upload},
};
use crate::Error;

/// How often a call begins anew because its staged values were lost with a connection.
const MAX_RESTARTS: u32 = 16;

/// A pending call. Dropping it before its answer cancels it.
#[derive(Debug)]
pub struct Call {
    client: Arc<Client>,
    namespace: Namespace,
    /// For operations that wait for keys.
    timeout: Duration,
    began: Instant,
    restarts: u32,
    /// Repeats the operation, if it only reads and so may begin anew.
    again: Option<Op>,
    upload: Option<Upload>,
    download: Option<Download>,
    /// The request on its way.
    exchange: Exchange,
}

impl Call {
    /// Sends the first request.
    pub(super) fn start(
        client: &Arc<Client>,
        namespace: Namespace,
        op: Op,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let again = match &op {
            Op::Get { .. } | Op::MultiGet { .. } => Some(op.clone()),
            _ => None,
        };
        let (first, upload, first_timeout) = match Upload::new(op, || client.next_staged()) {
            Ok(mut upload) => (upload.next(), Some(upload), ANSWER_TIMEOUT),
            Err(op) => (op, None, timeout),
        };
        let exchange = client.start(namespace, first, first_timeout)?;
        Ok(Self {
            client: Arc::clone(client),
            namespace,
            timeout,
            began: Instant::now(),
            restarts: 0,
            again,
            upload,
            download: None,
            exchange,
        })
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

    /// Waits for the answer, at most for `timeout`. `None` if it has not come: call again.
    ///
    /// For callers that check for something else in between, such as a signal of the user. After
    /// the answer there is no other.
    pub fn poll(&mut self, timeout: Duration) -> Option<Result<Value, Error>> {
        let until = Instant::now().checked_add(timeout);
        loop {
            let left = until.map_or(Duration::MAX, |until| {
                until.saturating_duration_since(Instant::now())
            });
            let answer = self.exchange.poll(left)?;
            match self.advance(answer) {
                Ok(Next::Send(op, timeout)) => match self.send(op, timeout) {
                    Ok(()) => {}
                    Err(error) => return Some(Err(error)),
                },
                Ok(Next::Done(value)) => return Some(Ok(value)),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn send(&mut self, op: Op, timeout: Duration) -> Result<(), Error> {
        self.exchange = self.client.start(self.namespace, op, timeout)?;
        Ok(())
    }

    /// What follows an answer.
    fn advance(&mut self, answer: Result<Value, Error>) -> Result<Next, Error> {
        let value = match answer {
            Ok(value) => value,
            Err(Error::Store(Refused::NotStaged { .. })) => return self.restart(),
            Err(error) => return Err(error),
        };
        if let Some(upload) = self.upload.as_mut().filter(|upload| !upload.is_sent()) {
            let op = upload.next();
            let is_last = upload.is_sent();
            return Ok(Next::Send(
                op,
                if is_last {
                    self.timeout
                } else {
                    ANSWER_TIMEOUT
                },
            ));
        }
        self.upload = None;
        if self.download.is_none() {
            match Download::new(value) {
                Ok(download) => self.download = Some(download),
                Err(value) => return Ok(Next::Done(value)),
            }
        } else if !self
            .download
            .as_mut()
            .is_some_and(|download| download.add(value))
        {
            return Err(Error::Protocol {
                why: "the store sent a wrong piece of a value".to_owned(),
            });
        }
        match self.download.as_ref().and_then(Download::next) {
            Some(op) => Ok(Next::Send(op, ANSWER_TIMEOUT)),
            None => {
                let whole = self.download.take().map(Download::into_answer);
                whole.map(Next::Done).ok_or_else(lost)
            }
        }
    }

    /// Begins anew after staged values were lost. A refused operation has changed nothing.
    fn restart(&mut self) -> Result<Next, Error> {
        self.restarts += 1;
        if self.restarts > MAX_RESTARTS {
            return Err(lost());
        }
        if let Some(upload) = &mut self.upload {
            upload.restart();
            return Ok(Next::Send(upload.next(), ANSWER_TIMEOUT));
        }
        self.download = None;
        let op = self.again.clone().ok_or_else(lost)?;
        let left = self.timeout.saturating_sub(self.began.elapsed());
        Ok(Next::Send(op, left))
    }
}

/// What a call does after an answer.
enum Next {
    Send(Op, Duration),
    Done(Value),
}

fn lost() -> Error {
    let why = "a value was lost with the connection".to_owned();
    Error::Store(Refused::Unreachable { why })
}

impl Drop for Call {
    fn drop(&mut self) {
        let uploads = self.upload.as_ref().map(Upload::numbers);
        let downloads = self.download.as_ref().map(Download::numbers);
        (self.client).discard(uploads.unwrap_or_default(), downloads.unwrap_or_default());
    }
}
