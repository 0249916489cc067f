//! One connection of an agent to the store, from its opening to its end.

use std::{
    io,
    net::TcpStream as StdStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use elasticrun_protocol::{frame::FrameBuffer, store::FromHost};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};

use super::hub::{Said, What};

/// With more than so many bytes unsent, no further request of the agent is read.
const ROOM: usize = 8 << 20;

/// What a connection needs of the hub.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) connection: u64,
    /// Answers as frames; its end closes the connection.
    pub(super) outbox: mpsc::UnboundedReceiver<Vec<u8>>,
    /// Bytes in the outbox.
    pub(super) queued: Arc<AtomicUsize>,
    pub(super) said: mpsc::Sender<Said>,
}

/// Serves a connection until it or the hub ends it. Not cancel-safe; it is a task of the store's runtime.
pub(super) async fn serve(stream: StdStream, frames: FrameBuffer, served: Served) {
    let (connection, said) = (served.connection, served.said.clone());
    if let Err(error) = exchange(stream, frames, served).await {
        tracing::debug!(connection, %error, "a connection to the store ended");
    }
    let what = What::Closed;
    // Fails only at the store's own end.
    let _ = said.send(Said { connection, what }).await;
}

async fn exchange(
    stream: StdStream,
    mut frames: FrameBuffer,
    mut served: Served,
) -> io::Result<()> {
    let (mut reader, mut writer) = TcpStream::from_std(stream)?.into_split();
    let mut unsent: Vec<u8> = Vec::new();
    let mut sent = 0;
    loop {
        while let Some(message) = next(&mut frames)? {
            let connection = served.connection;
            let what = What::Message(message);
            if served.said.send(Said { connection, what }).await.is_err() {
                return Ok(());
            }
        }
        let waiting = unsent.len() - sent;
        tokio::select! {
            frame = served.outbox.recv(), if waiting < ROOM => {
                let Some(frame) = frame else { return Ok(()) };
                served.queued.fetch_sub(frame.len(), Ordering::Relaxed);
                unsent.extend_from_slice(&frame);
            }
            written = writer.write(&unsent[sent..]), if waiting > 0 => {
                sent += written?;
                if sent == unsent.len() {
                    unsent.clear();
                    sent = 0;
                }
            }
            read = reader.read_buf(frames.buffer()), if waiting < ROOM => {
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
