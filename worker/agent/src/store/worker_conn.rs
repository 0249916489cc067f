//! One worker's connection for requests.

use std::{cell::Cell, os::unix::net::UnixStream as StdUnixStream, rc::Rc};

use elasticrun_protocol::{
    Process, ToWorker,
    frame::{self, FrameBuffer},
    store::{Answer, FromClient},
};
use tokio::{net::UnixStream, sync::mpsc};

use super::duplex::Duplex;
use crate::error::PeerError;

/// Bytes of answers that may wait for a worker that does not read; beyond that its connection is closed.
const MOST_QUEUED: usize = 64 << 20;

/// What a worker says over its connection.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) process: Process,
    /// Which connection of it.
    pub(super) number: u64,
    pub(super) message: FromClient,
}

/// The way to a worker. Its end closes the connection.
#[derive(Debug)]
pub(super) struct Guest {
    /// Which connection of the worker.
    pub(super) number: u64,
    answers: mpsc::UnboundedSender<Vec<u8>>,
    queued: Rc<Cell<usize>>,
}

impl Guest {
    /// Serves a connection by a task of the current set.
    pub(super) fn serve(
        process: Process,
        number: u64,
        stream: StdUnixStream,
        said: mpsc::Sender<Said>,
    ) -> std::io::Result<Self> {
        let stream = UnixStream::from_std(stream)?;
        let (answers, outbox) = mpsc::unbounded_channel();
        let queued = Rc::new(Cell::new(0));
        let guest = Self {
            number,
            answers,
            queued: Rc::clone(&queued),
        };
        tokio::task::spawn_local(async move {
            let Err(error) = exchange(process, number, stream, outbox, &queued, &said).await;
            tracing::debug!(%process, %error, "a worker's connection for requests ended");
            let message = FromClient::Left;
            // Fails only at the agent's own end.
            let _ = said
                .send(Said {
                    process,
                    number,
                    message,
                })
                .await;
        });
        Ok(guest)
    }

    /// Gives whether the worker still takes any.
    pub(super) fn answer(&self, answer: &Answer) -> bool {
        let Ok(frame) = frame::to_frame(answer) else {
            return false;
        };
        let queued = self.queued.get() + frame.len();
        self.queued.set(queued);
        queued <= MOST_QUEUED && self.answers.send(frame).is_ok()
    }
}

async fn exchange(
    process: Process,
    number: u64,
    stream: UnixStream,
    mut outbox: mpsc::UnboundedReceiver<Vec<u8>>,
    queued: &Cell<usize>,
    said: &mpsc::Sender<Said>,
) -> Result<std::convert::Infallible, PeerError> {
    let mut worker = Duplex::new(stream, FrameBuffer::default());
    worker.queue(&ToWorker::StoreOpened)?;
    loop {
        tokio::select! {
            frame = outbox.recv(), if worker.has_room() => {
                let frame = frame.ok_or(PeerError::HungUp)?;
                queued.set(queued.get() - frame.len());
                worker.queue_frame(&frame);
            }
            message = worker.next() => {
                let said = said.send(Said { process, number, message: message? });
                said.await.map_err(|_| PeerError::HungUp)?;
            }
        }
    }
}
