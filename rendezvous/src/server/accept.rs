//! Accepts connections and carries out their opening.

use std::{io, sync::Arc, time::Duration};

use elasticrun_protocol::{
    frame::{self, FrameBuffer},
    opening::{Hello, Purpose, Verdict},
    rendezvous::{Open, Opened},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc, oneshot},
    time::{sleep, timeout},
};

use super::{
    connection::{self, Incoming, Outbox},
    violation,
};
use crate::{connection::Connection, dial};

/// How long a peer may take for its opening.
const OPENING_TIMEOUT: Duration = Duration::from_secs(10);

/// How many peers may be in their opening.
const MAX_OPENING: usize = 4096;

/// How long no connection is accepted when the process has no descriptor left.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Accepts until the server ends.
pub(super) async fn accept(listener: TcpListener, messages: mpsc::Sender<Incoming>) {
    let openings = Arc::new(Semaphore::new(MAX_OPENING));
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "no connection is accepted");
                sleep(EXHAUSTED).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&openings).try_acquire_owned() else {
            tracing::warn!(%peer, "too many peers are in their opening");
            continue;
        };
        let sender = messages.clone();
        let serving = async move {
            let opened = timeout(OPENING_TIMEOUT, open(stream, &sender)).await;
            drop(permit);
            match opened {
                Ok(Ok((connection, outbox))) => connection::serve(connection, outbox, sender).await,
                Ok(Err(error)) => tracing::debug!(%peer, %error, "a peer is not served"),
                Err(_) => tracing::debug!(%peer, "a peer did not finish its opening in time"),
            }
        };
        if (messages.send(Incoming::Serving(Box::pin(serving))).await).is_err() {
            return;
        }
    }
}

async fn open(
    mut stream: TcpStream,
    messages: &mpsc::Sender<Incoming>,
) -> io::Result<(Connection, Outbox)> {
    let mut frames = FrameBuffer::unproven();
    let hello: Hello = receive(&mut stream, &mut frames).await?;
    let opened = match hello.check(&[Purpose::Rendezvous]) {
        Ok(opened) => opened,
        Err(error) => {
            let why = error.to_string();
            send(&mut stream, &Verdict::Refused { why }).await?;
            return Err(violation(error));
        }
    };
    let version = opened.version;
    send(&mut stream, &Verdict::Welcome { version }).await?;
    let open: Open = receive(&mut stream, &mut frames).await?;
    let (serve, served) = oneshot::channel();
    // Both fail at the end of the server.
    let ended = || io::Error::from(io::ErrorKind::ConnectionAborted);
    let opening = Incoming::Opening { open, serve };
    (messages.send(opening).await).map_err(|_| ended())?;
    match served.await.map_err(|_| ended())? {
        Ok(outbox) => {
            send(&mut stream, &Opened::Ready).await?;
            frames.trust();
            let stream = stream.into_std()?;
            dial::prepare(&stream)?;
            let stream = TcpStream::from_std(stream)?;
            Ok((Connection::new(stream, frames), outbox))
        }
        Err(why) => {
            let error = violation(&why);
            send(&mut stream, &Opened::Refused { why }).await?;
            Err(error)
        }
    }
}

async fn send(stream: &mut TcpStream, message: &impl Serialize) -> io::Result<()> {
    let frame = frame::to_frame(message).map_err(io::Error::other)?;
    stream.write_all(&frame).await
}

async fn receive<T: DeserializeOwned>(
    stream: &mut TcpStream,
    frames: &mut FrameBuffer,
) -> io::Result<T> {
    loop {
        if let Some(message) = frames.next_message().map_err(violation)? {
            return Ok(message);
        }
        if stream.read_buf(frames.buffer()).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
