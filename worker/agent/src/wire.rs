//! Both sides of the handshake over a TCP stream, and single messages for connections without a loop.

use std::time::Duration;

use elasticrun_protocol::{
    auth::{self, Challenge, Dialler, Hello, Listener, Opened, Proof, Purpose, Secret, Verdict},
    frame::{self, FrameBuffer},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::error::PeerError;

/// The time limit of a whole handshake.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Authenticates both sides, as the side that dialled. The buffer holds bytes that came after the handshake. Also gives what
/// the handshake has agreed on.
pub(crate) async fn dial(
    stream: &mut TcpStream,
    secret: &Secret,
    purpose: Purpose,
) -> Result<(FrameBuffer, Opened), PeerError> {
    stream.set_nodelay(true)?;
    let handshake = async {
        let mut frames = FrameBuffer::unproven();
        let dialler = Dialler::new(secret.clone(), purpose, auth::nonce()?);
        write(stream, dialler.hello()).await?;
        let body = body(stream, &mut frames).await?;
        let (proof, opened) = match frame::decode::<Challenge>(&body) {
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
                Ok((frames, opened))
            }
            Verdict::Refused { why } => Err(auth::Error::Refused(why).into()),
        }
    };
    match timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Err(_) => Err(PeerError::TimedOut),
        // The listener does not speak our protocol.
        Ok(Err(PeerError::Frame(_))) => Err(auth::Error::Stranger.into()),
        Ok(result) => result,
    }
}

/// Authenticates both sides, as the side that listened, for one purpose.
pub(crate) async fn accept(
    stream: &mut TcpStream,
    secret: &Secret,
    purpose: Purpose,
) -> Result<FrameBuffer, PeerError> {
    stream.set_nodelay(true)?;
    let handshake = async {
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
    timeout(HANDSHAKE_TIMEOUT, handshake)
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
            return Err(PeerError::Closed);
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
