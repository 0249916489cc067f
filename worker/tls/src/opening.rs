//! The opening of a connection between two hosts: mutual TLS, and then one message each way about purpose and version.
//!
//! ```text
//! dialler                                   listener
//!   TLS 1.3, both with a certificate of the job
//!   Hello { versions, purpose }         ->
//!                                       <-  Verdict::Welcome { version } | Verdict::Refused { why }
//! ```
//! A peer of an earlier release sends its hello in clear. It gets a refusal that names both releases, in clear as well.

use std::{io, time::Duration};

use bytes::BytesMut;
use elasticrun_protocol::{
    frame::{self, FrameBuffer},
    opening::{Error as Disagreement, Hello, Opened, Purpose, Verdict},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

use crate::{ClientConfig, Error as TlsError, Failed, Peer, ServerConfig, Session, TlsStream};

/// How long a listener waits for a peer that it has refused to read why.
const LINGER: Duration = Duration::from_secs(1);

/// Why a connection was not opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The peer is not trusted.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The peers do not agree on what the connection is.
    #[error(transparent)]
    Disagreement(#[from] Disagreement),
    /// The peer sent an invalid frame.
    #[error(transparent)]
    Frame(#[from] frame::Error),
    /// The stream failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
    /// The peer closed the stream.
    #[error("it hung up before the connection was opened")]
    Closed,
    /// The peer closed the stream without an answer, as one does that does not speak TLS.
    #[error(
        "it closed the connection without an answer; if it runs an earlier release of elasticrun, install the same one on both"
    )]
    Unanswered,
    /// The peer took too long.
    #[error("it did not open the connection in time")]
    TimedOut,
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Self::Closed;
        }
        match error.downcast::<TlsError>() {
            Ok(error) => Self::Tls(error),
            Err(error) => Self::Io(error),
        }
    }
}

impl Error {
    /// The error of a handshake, as the side that dialled.
    pub(crate) fn of_dial<S>(failed: Failed<S>) -> Self {
        match failed.is_unanswered() {
            true => Self::Unanswered,
            false => failed.error.into(),
        }
    }

    /// Whether the peer has gone away, as a process does that ends while it dials.
    pub fn is_reset(&self) -> bool {
        let kind = match self {
            Self::Io(error) => error.kind(),
            _ => return false,
        };
        matches!(
            kind,
            io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
        )
    }

    /// Whether another attempt may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Io(_) | Self::Closed | Self::Unanswered | Self::TimedOut
        )
    }
}

/// An open connection.
#[derive(Debug)]
pub struct Connection<S> {
    /// The stream.
    pub stream: TlsStream<S>,
    /// Bytes that came after the opening.
    pub frames: FrameBuffer,
    /// What the opening has agreed on.
    pub opened: Opened,
}

/// A peer that a listener has accepted.
#[derive(Debug)]
pub enum Accepted<S> {
    /// It has proved a role that is accepted, and asked for a purpose that is served.
    Opened(Connection<S>),
    /// It has proved nothing and wants an identity ([`enrol::grant`](crate::enrol::grant)).
    Enrolling(TlsStream<S>),
}

/// Opens a connection, as the side that dialled.
///
/// # Errors
/// One side does not trust the other, or the opening takes longer than `limit`.
pub async fn dial<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    config: &ClientConfig,
    purpose: Purpose,
    limit: Duration,
) -> Result<Connection<S>, Error> {
    let opening = async {
        let session = Session::client(config)?;
        let handshake = TlsStream::handshake(session, stream).await;
        let mut stream = handshake.map_err(Error::of_dial)?;
        let hello = Hello::new(purpose);
        write(&mut stream, &hello).await?;
        let mut frames = FrameBuffer::default();
        let verdict: Verdict = read(&mut stream, &mut frames).await?;
        Ok(Connection {
            stream,
            frames,
            opened: hello.answered(verdict)?,
        })
    };
    timeout(limit, opening)
        .await
        .unwrap_or(Err(Error::TimedOut))
}

/// Opens a connection, as the side that listened. `serves` lists the purposes of the port.
///
/// # Errors
/// The peer is not trusted, or the opening takes longer than `limit`. The peer has been told why.
pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    config: &ServerConfig,
    serves: &[Purpose],
    limit: Duration,
) -> Result<Accepted<S>, Error> {
    let opening = async {
        let mut stream = match TlsStream::handshake(Session::server(config), stream).await {
            Ok(stream) => stream,
            Err(failed) => {
                let (mut stream, received) = (failed.stream, failed.received);
                return Err(match failed.error.into() {
                    Error::Tls(TlsError::NotTls(_)) => refuse_in_clear(stream, received).await,
                    error => {
                        drain(&mut stream).await;
                        error
                    }
                });
            }
        };
        if stream.session().peer() == Some(Peer::Enrolling) {
            return Ok(Accepted::Enrolling(stream));
        }
        let mut frames = FrameBuffer::default();
        let hello: Hello = read(&mut stream, &mut frames).await?;
        let (verdict, result) = judge(&hello, serves);
        write(&mut stream, &verdict).await?;
        Ok(Accepted::Opened(Connection {
            opened: result?,
            stream,
            frames,
        }))
    };
    timeout(limit, opening)
        .await
        .unwrap_or(Err(Error::TimedOut))
}

fn judge(hello: &Hello, serves: &[Purpose]) -> (Verdict, Result<Opened, Disagreement>) {
    let result = hello.check(serves);
    let verdict = match &result {
        Ok(opened) => Verdict::Welcome {
            version: opened.version,
        },
        Err(error) => Verdict::Refused {
            why: error.to_string(),
        },
    };
    (verdict, result)
}

/// Answers a peer that does not speak TLS, if it is one of an earlier release. Gives the reason of the refusal.
async fn refuse_in_clear<S>(mut stream: S, received: BytesMut) -> Error
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut frames = FrameBuffer::unproven();
    frames.extend(&received);
    let hello: Hello = match read(&mut stream, &mut frames).await {
        Ok(hello) => hello,
        Err(Error::Frame(_)) => return Disagreement::Stranger.into(),
        Err(error) => return error,
    };
    // No purpose is served in clear, whatever version the peer claims.
    let error = hello.check(&[]).err().unwrap_or(Disagreement::Stranger);
    let why = error.to_string();
    if let Err(error) = write(&mut stream, &Verdict::Refused { why }).await {
        return error;
    }
    error.into()
}

/// Reads what a refused peer still sends. Without that the kernel resets the connection, and the peer may lose the alert.
async fn drain(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let drained = async {
        stream.shutdown().await?;
        let mut bytes = [0; 1 << 10];
        // A peer that sends on and on is cut off.
        for _ in 0..64 {
            if stream.read(&mut bytes).await? == 0 {
                break;
            }
        }
        io::Result::Ok(())
    };
    // The peer may be gone.
    let _ = timeout(LINGER, drained).await;
}

/// Reads one message.
///
/// # Errors
/// The stream ends or fails, or the message is not a valid one.
pub async fn read<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
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

/// Sends one message.
///
/// # Errors
/// The stream fails, or the message is too large for a frame.
pub async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
) -> Result<(), Error> {
    stream.write_all(&frame::to_frame(message)?).await?;
    Ok(stream.flush().await?)
}
