//! The listener's side of the handshake.

use elasticrun_protocol::{
    auth::{self, Hello, Listener, Opened, Proof, Purpose, Secret, Verdict},
    frame::{self, FrameBuffer},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Why a peer was refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Its message is wrong.
    #[error(transparent)]
    Auth(#[from] auth::Error),
    /// Its bytes are no valid frame.
    #[error(transparent)]
    Frame(#[from] frame::Error),
    /// The stream failed.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    /// It closed the stream.
    #[error("it hung up before it had proved itself")]
    Closed,
    /// It took too long.
    #[error("it did not prove itself in time")]
    TimedOut,
    /// The system has no randomness.
    #[error("no randomness for a nonce: {0}")]
    Random(#[from] getrandom::Error),
}

/// Authenticates both sides. Returns the purpose of the connection, and the version to speak.
pub(super) async fn accept(
    stream: &mut TcpStream,
    frames: &mut FrameBuffer,
    secret: &Secret,
) -> Result<Opened, Error> {
    let hello: Hello = match read(stream, frames).await {
        Err(Error::Frame(error)) => {
            tracing::debug!(%error, "not a frame of ours");
            return Err(auth::Error::Stranger.into());
        }
        other => other?,
    };
    let serves = [Purpose::Control, Purpose::Output, Purpose::Store];
    let listener = match Listener::new(secret.clone(), &serves, hello, auth::nonce()?) {
        Ok(listener) => listener,
        Err(error) => return refuse(stream, error).await,
    };
    write(stream, &listener.challenge()).await?;
    let proof: Proof = read(stream, frames).await?;
    match listener.verify(&proof) {
        Ok(opened) => {
            write(stream, &Verdict::Welcome).await?;
            frames.trust();
            Ok(opened)
        }
        Err(error) => refuse(stream, error).await,
    }
}

async fn refuse<T>(stream: &mut TcpStream, error: auth::Error) -> Result<T, Error> {
    write(
        stream,
        &Verdict::Refused {
            why: error.to_string(),
        },
    )
    .await?;
    Err(error.into())
}

/// Reads one message.
pub(super) async fn read<T: DeserializeOwned>(
    stream: &mut TcpStream,
    frames: &mut FrameBuffer,
) -> Result<T, Error> {
    loop {
        if let Some(message) = frames.next_message()? {
            return Ok(message);
        }
        if stream.read_buf(frames.buffer()).await? == 0 {
            return Err(Error::Closed);
        }
    }
}

async fn write(stream: &mut TcpStream, message: &impl Serialize) -> Result<(), Error> {
    Ok(stream.write_all(&frame::to_frame(message)?).await?)
}
