//! One connection of an agent to the store, until its end.

use std::{
    io,
    net::TcpStream as StdStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use elasticrun_protocol::{frame::FrameBuffer, store::FromHost};
use elasticrun_tls::{TlsStream, write_or_flush};
use tokio::{
    io::{AsyncReadExt, split},
    net::TcpStream,
    sync::mpsc,
};

/// Backpressure: with this many bytes unsent, no further request of the agent is read.
const MAX_UNSENT: usize = 8 << 20;

/// An event of a connection.
#[derive(Debug)]
pub(super) struct ConnectionEvent {
    pub(super) connection: u64,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Message(FromHost),
    Closed,
}

/// The channels between a connection and the server.
#[derive(Debug)]
pub(super) struct Channels {
    /// Number of the connection.
    pub(super) connection: u64,
    /// Answers, as frames. Its end closes the connection.
    pub(super) outbox: mpsc::UnboundedReceiver<Vec<u8>>,
    /// Bytes in the outbox.
    pub(super) queued: Arc<AtomicUsize>,
    /// Takes the messages of the agent, and the end of the connection.
    pub(super) events: mpsc::Sender<ConnectionEvent>,
}

/// Serves a connection until the agent or the server ends it. Not cancel-safe: it is a task of the store's runtime.
pub(super) async fn serve(stream: TlsStream<StdStream>, frames: FrameBuffer, channels: Channels) {
    let (connection, events) = (channels.connection, channels.events.clone());
    if let Err(error) = exchange(stream, frames, channels).await {
        tracing::debug!(connection, %error, "a connection to the store ended");
    }
    let kind = Kind::Closed;
    // Fails only at the end of the store.
    let _ = events.send(ConnectionEvent { connection, kind }).await;
}

async fn exchange(
    stream: TlsStream<StdStream>,
    mut frames: FrameBuffer,
    mut channels: Channels,
) -> io::Result<()> {
    let (session, stream, unread) = stream.into_parts();
    let stream = TlsStream::new(session, TcpStream::from_std(stream)?, unread);
    let (mut reader, mut writer) = split(stream);
    let mut unsent: Vec<u8> = Vec::new();
    let mut sent = 0;
    // Written bytes may wait within the stream.
    let mut unflushed = false;
    loop {
        while let Some(message) = next(&mut frames)? {
            let connection = channels.connection;
            let kind = Kind::Message(message);
            let event = ConnectionEvent { connection, kind };
            if channels.events.send(event).await.is_err() {
                return Ok(());
            }
        }
        let waiting = unsent.len() - sent;
        tokio::select! {
            frame = channels.outbox.recv(), if waiting < MAX_UNSENT => {
                let Some(frame) = frame else { return Ok(()) };
                channels.queued.fetch_sub(frame.len(), Ordering::Relaxed);
                unsent.extend_from_slice(&frame);
            }
            written = write_or_flush(&mut writer, &unsent[sent..]), if waiting > 0 || unflushed => {
                sent += written?;
                unflushed = waiting > 0;
                if sent == unsent.len() {
                    unsent.clear();
                    sent = 0;
                }
            }
            read = reader.read_buf(frames.buffer()), if waiting < MAX_UNSENT => {
                if read? == 0 {
                    return Ok(());
                }
            }
        }
    }
}

fn next(frames: &mut FrameBuffer) -> io::Result<Option<FromHost>> {
    frames.next_message().map_err(io::Error::other)
}
