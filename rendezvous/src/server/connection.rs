//! One connection, from its opening to its end.

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use elasticrun_protocol::{
    rendezvous::{Channel, FromNode, Open},
    store::FromClient,
};
use tokio::sync::{mpsc, oneshot};

use super::violation;
use crate::connection::Connection;

/// Backpressure: with this many bytes unsent, nothing more is read.
const MAX_UNSENT: usize = 8 << 20;

/// What tasks of connections send to the loop.
pub(super) enum Incoming {
    /// A peer has said what it wants.
    Opening {
        open: Open,
        serve: oneshot::Sender<Result<Outbox, String>>,
    },
    /// A connection to serve.
    Serving(Pin<Box<dyn Future<Output = ()> + Send>>),
    Event(ConnectionEvent),
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opening { open, .. } => f.debug_tuple("Opening").field(open).finish(),
            Self::Serving(_) => f.write_str("Serving"),
            Self::Event(event) => event.fmt(f),
        }
    }
}

/// An event of a connection, by its number.
#[derive(Debug)]
pub(super) enum ConnectionEvent {
    Node(u64, FromNode),
    Client(u64, FromClient),
    Closed(u64),
}

/// What the loop sends to a connection.
#[derive(Debug)]
pub(super) struct Outbox {
    pub(super) connection: u64,
    pub(super) channel: Channel,
    /// Frames. Their end closes the connection once they are sent.
    pub(super) frames: mpsc::UnboundedReceiver<Bytes>,
    /// Bytes of the frames that are not taken yet.
    pub(super) queued: Arc<AtomicUsize>,
}

/// Serves until the peer or the loop ends the connection.
pub(super) async fn serve(
    mut connection: Connection,
    mut outbox: Outbox,
    events: mpsc::Sender<Incoming>,
) {
    let number = outbox.connection;
    if let Err(error) = exchange(&mut connection, &mut outbox, &events).await {
        tracing::debug!(connection = number, %error, "a connection of the rendezvous ended");
    }
    let closed = Incoming::Event(ConnectionEvent::Closed(number));
    // Fails only at the end of the server.
    let _ = events.send(closed).await;
}

async fn exchange(
    connection: &mut Connection,
    outbox: &mut Outbox,
    events: &mpsc::Sender<Incoming>,
) -> io::Result<()> {
    loop {
        while let Some(event) = next(connection, outbox)? {
            if events.send(Incoming::Event(event)).await.is_err() {
                break;
            }
        }
        let keeps_up = connection.unsent() < MAX_UNSENT;
        tokio::select! {
            frame = outbox.frames.recv(), if keeps_up => {
                let Some(frame) = frame else { break };
                outbox.queued.fetch_sub(frame.len(), Ordering::Relaxed);
                connection.send(&frame);
            }
            progress = connection.progress(keeps_up) => progress?,
        }
    }
    while connection.unsent() > 0 {
        connection.progress(false).await?;
    }
    Ok(())
}

fn next(connection: &mut Connection, outbox: &Outbox) -> io::Result<Option<ConnectionEvent>> {
    let (number, frames) = (outbox.connection, connection.frames());
    Ok(if outbox.is_state() {
        let message = frames.next_message().map_err(violation)?;
        message.map(|message| ConnectionEvent::Node(number, message))
    } else {
        let message = frames.next_message().map_err(violation)?;
        message.map(|message| ConnectionEvent::Client(number, message))
    })
}
