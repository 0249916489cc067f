//! The connection of one worker for store requests.

use std::{cell::Cell, rc::Rc};

use elasticrun_protocol::{
    Process, ToWorker,
    frame::{self, FrameBuffer},
    opening::MAX_VERSION,
    store::{Answer, FromClient},
};
use tokio::{net::UnixStream, sync::mpsc};

use super::WorkerOpening;
use crate::{duplex::Duplex, error::PeerError, spans};

/// Bytes of answers that may wait for a worker. The connection of a worker that leaves more unread is closed.
const MAX_QUEUED: usize = 64 << 20;

/// A message of a worker.
#[derive(Debug)]
pub(super) struct WorkerMessage {
    pub(super) process: Process,
    /// The number of the worker's connection.
    pub(super) number: u64,
    pub(super) message: FromClient,
}

/// The handle of a worker's connection. Dropping it closes the connection.
#[derive(Debug)]
pub(super) struct WorkerConn {
    /// The number of the connection.
    pub(super) number: u64,
    answers: mpsc::UnboundedSender<Vec<u8>>,
    queued: Rc<Cell<usize>>,
}

impl WorkerConn {
    /// Serves a connection by a task of the current local set.
    pub(super) fn serve(
        opening: WorkerOpening,
        number: u64,
        messages: mpsc::Sender<WorkerMessage>,
    ) -> std::io::Result<Self> {
        let WorkerOpening {
            process,
            stream,
            version,
        } = opening;
        let stream = UnixStream::from_std(stream)?;
        let mut worker = Duplex::new(stream, FrameBuffer::default());
        worker
            .queue(&accepted(version))
            .map_err(std::io::Error::other)?;
        let (answers, outbox) = mpsc::unbounded_channel();
        let queued = Rc::new(Cell::new(0));
        let handle = Self {
            number,
            answers,
            queued: Rc::clone(&queued),
        };
        tokio::task::spawn_local(async move {
            let Err(error) = exchange(process, number, worker, outbox, &queued, &messages).await;
            spans::worker(process)
                .in_scope(|| tracing::debug!(%error, "a worker's connection for requests ended"));
            let message = FromClient::Left;
            // Fails only at the agent's own end.
            let _ = messages
                .send(WorkerMessage {
                    process,
                    number,
                    message,
                })
                .await;
        });
        Ok(handle)
    }

    /// Queues an answer. Returns `false` if the worker leaves too much unread, or its connection has ended.
    pub(super) fn answer(&self, answer: &Answer) -> bool {
        let Ok(frame) = frame::to_frame(answer) else {
            return false;
        };
        let queued = self.queued.get() + frame.len();
        self.queued.set(queued);
        queued <= MAX_QUEUED && self.answers.send(frame).is_ok()
    }
}

/// The answer to a worker that speaks this version at most.
fn accepted(version: u16) -> ToWorker {
    match version.min(MAX_VERSION) {
        ..=3 => ToWorker::StoreOpened,
        version => ToWorker::StoreReady { version },
    }
}

async fn exchange(
    process: Process,
    number: u64,
    mut worker: Duplex<UnixStream>,
    mut outbox: mpsc::UnboundedReceiver<Vec<u8>>,
    queued: &Cell<usize>,
    messages: &mpsc::Sender<WorkerMessage>,
) -> Result<std::convert::Infallible, PeerError> {
    loop {
        tokio::select! {
            frame = outbox.recv(), if worker.has_capacity() => {
                let frame = frame.ok_or(PeerError::Closed)?;
                queued.set(queued.get() - frame.len());
                worker.queue_frame(&frame);
            }
            message = worker.next() => {
                let sent = messages.send(WorkerMessage { process, number, message: message? });
                sent.await.map_err(|_| PeerError::Closed)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_of_an_earlier_release_gets_the_answer_that_it_knows() {
        assert_eq!(accepted(3), ToWorker::StoreOpened);
        assert_eq!(accepted(4), ToWorker::StoreReady { version: 4 });
        let version = MAX_VERSION;
        assert_eq!(accepted(u16::MAX), ToWorker::StoreReady { version });
    }
}
