//! Both halves of the handshake over a real stream, and single messages before a connection has a loop of
//! its own.

use std::time::Duration;

use elasticrun_protocol::{
    auth::{self, Challenge, Dialler, Hello, Listener, Proof, Purpose, Secret, Verdict},
    frame::{self, FrameBuffer},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::error::PeerError;

/// How long a peer may take for the whole handshake.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(5);

/// Proves both sides to each other as the one that dialled. What came after is in the buffer.
pub(crate) async fn dial(
    stream: &mut TcpStream,
    secret: &Secret,
    purpose: Purpose,
) -> Result<FrameBuffer, PeerError> {
    stream.set_nodelay(true)?;
    let shaken = async {
        let mut frames = FrameBuffer::unproven();
        let dialler = Dialler::new(secret.clone(), purpose, auth::nonce()?);
        write(stream, dialler.hello()).await?;
        let body = body(stream, &mut frames).await?;
        let proof = match frame::decode::<Challenge>(&body) {
            Ok(challenge) => dialler.answer(&challenge)?,
            Err(_) => {
                return match frame::decode::<Verdict>(&body) {
                    Ok(Verdict::Refused { why }) => Err(auth::Error::Refused(why).into()),
                    _ => Err(auth::Error::Stranger.into()),
                };
            }
        };
        write(stream, &proof).await?;
        match frame::decode::<Verdict>(&self::body(stream, &mut frames).await?)? {
            Verdict::Welcome => {
                frames.trust();
                Ok(frames)
            }
            Verdict::Refused { why } => Err(auth::Error::Refused(why).into()),
        }
    };
    match timeout(HANDSHAKE, shaken).await {
        Err(_) => Err(PeerError::TimedOut),
        // Whatever listens there, it is not one of us.
        Ok(Err(PeerError::Frame(_))) => Err(auth::Error::Stranger.into()),
        Ok(shaken) => shaken,
    }
}

/// Proves both sides to each other as the one that listened, for one purpose.
pub(crate) async fn accept(
    stream: &mut TcpStream,
    secret: &Secret,
    purpose: Purpose,
) -> Result<FrameBuffer, PeerError> {
    stream.set_nodelay(true)?;
    let shaken = async {
        let mut frames = FrameBuffer::unproven();
        let hello: Hello = match read(stream, &mut frames).await {
            Err(PeerError::Frame(_)) => return Err(auth::Error::Stranger.into()),
            other => other?,
        };
        let listener = match Listener::new(secret.clone(), &[purpose], hello, auth::nonce()?) {
            Ok(listener) => listener,
            Err(error) => return refuse(stream, error).await,
        };
        write(stream, &listener.challenge()).await?;
        let proof: Proof = read(stream, &mut frames).await?;
        if let Err(error) = listener.verify(&proof) {
            return refuse(stream, error).await;
        }
        write(stream, &Verdict::Welcome).await?;
        frames.trust();
        Ok(frames)
    };
    timeout(HANDSHAKE, shaken)
        .await
        .unwrap_or(Err(PeerError::TimedOut))
}

async fn refuse<T>(stream: &mut TcpStream, error: auth::Error) -> Result<T, PeerError> {
    let why = error.to_string();
    write(stream, &Verdict::Refused { why }).await?;
    Err(error.into())
}

/// Reads one message.
pub(crate) async fn read<T: DeserializeOwned>(
    stream: &mut TcpStream,
    frames: &mut FrameBuffer,
) -> Result<T, PeerError> {
    Ok(frame::decode(&body(stream, frames).await?)?)
}

async fn body(
    stream: &mut TcpStream,
    frames: &mut FrameBuffer,
) -> Result<impl std::ops::Deref<Target = [u8]> + use<>, PeerError> {
    loop {
        if let Some(body) = frames.next_body()? {
            return Ok(body);
        }
        if stream.read_buf(frames.buffer()).await? == 0 {
            return Err(PeerError::HungUp);
        }
    }
}

/// Sends one message.
pub(crate) async fn write(
    stream: &mut TcpStream,
    message: &impl Serialize,
) -> Result<(), PeerError> {
    Ok(stream.write_all(&frame::to_frame(message)?).await?)
}
