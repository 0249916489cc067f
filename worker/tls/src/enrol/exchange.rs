//! The messages of an enrolment, and both sides of it.

use std::time::Duration;

use elasticrun_protocol::frame::FrameBuffer;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};

use super::CHANNEL;
use crate::{
    ClientConfig, Credentials, Error as TlsError, Session, TlsStream, opening,
    token::{Proof, Refusal, Side, Token, TokenId},
};

/// What a host that is refused learns, whatever the reason: the driver's log has the reason.
const REFUSED: &str =
    "the driver does not take this join token; is it of another job, or has it expired?";

/// The first message of a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Request {
    /// The public name of its token.
    token: TokenId,
    /// The name of the host, which its certificate will have.
    host: String,
}

/// A message of the driver.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// The proof of the driver.
    Proof(Proof),
    /// The host has proved its token.
    Granted(Box<Credentials>),
    /// The connection ends.
    Refused {
        /// A message for the user.
        why: String,
    },
}

/// Why a host got no credentials.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection failed.
    #[error(transparent)]
    Opening(#[from] opening::Error),
    /// The driver refuses the host, in its words.
    #[error("{0}")]
    Refused(String),
    /// The other side does not know the token.
    #[error(transparent)]
    Token(#[from] Refusal),
    /// The driver sent another message than the one that was due.
    #[error("the driver breaks the protocol of enrolment")]
    Unexpected,
}

impl From<TlsError> for Error {
    fn from(error: TlsError) -> Self {
        opening::Error::from(error).into()
    }
}

impl Error {
    /// Whether another attempt may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Opening(error) if error.is_transient())
    }
}

/// Enrols a host by its token, as the side that dialled.
///
/// # Errors
/// One side does not know the token, or the exchange takes longer than `limit`.
pub async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    token: &Token,
    host: &str,
    limit: Duration,
) -> Result<Credentials, Error> {
    let asked = async {
        let session = Session::client(&ClientConfig::enrolling()?)?;
        let handshake = TlsStream::handshake(session, stream).await;
        let mut stream = handshake.map_err(opening::Error::of_dial)?;
        let channel = stream.session().exporter(CHANNEL)?;
        let mut frames = FrameBuffer::unproven();
        let request = Request {
            token: token.id(),
            host: host.to_owned(),
        };
        opening::write(&mut stream, &request).await?;
        match opening::read(&mut stream, &mut frames).await? {
            Answer::Proof(proof) => token.verify(Side::Driver, &channel, &proof)?,
            Answer::Refused { why } => return Err(Error::Refused(why)),
            Answer::Granted(_) => return Err(Error::Unexpected),
        }
        frames.trust();
        opening::write(&mut stream, &token.prove(Side::Host, &channel)).await?;
        match opening::read(&mut stream, &mut frames).await? {
            Answer::Granted(credentials) => Ok(*credentials),
            Answer::Refused { why } => Err(Error::Refused(why)),
            Answer::Proof(_) => Err(Error::Unexpected),
        }
    };
    timeout(limit, asked)
        .await
        .unwrap_or(Err(opening::Error::TimedOut.into()))
}

/// Enrols a host, as the side that listened. `find` gives the token that the host names, and `issue` makes the credentials of
/// a host with this name. Gives the name.
///
/// # Errors
/// The host does not prove a valid token, or the exchange takes longer than `limit`.
pub async fn grant<S, F, I>(
    mut stream: TlsStream<S>,
    limit: Duration,
    find: impl FnOnce(TokenId) -> F,
    issue: impl FnOnce(String) -> I,
) -> Result<String, Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Result<Token, Refusal>>,
    I: Future<Output = Result<Credentials, TlsError>>,
{
    let granted = async {
        let channel = stream.session().exporter(CHANNEL)?;
        let mut frames = FrameBuffer::unproven();
        let request: Request = opening::read(&mut stream, &mut frames).await?;
        let token = match find(request.token).await {
            Ok(token) => token,
            Err(refusal) => return Err(refuse(&mut stream, refusal).await),
        };
        let proof = Answer::Proof(token.prove(Side::Driver, &channel));
        opening::write(&mut stream, &proof).await?;
        let proof: Proof = opening::read(&mut stream, &mut frames).await?;
        if let Err(refusal) = token.verify(Side::Host, &channel, &proof) {
            return Err(refuse(&mut stream, refusal).await);
        }
        let credentials = Answer::Granted(Box::new(issue(request.host.clone()).await?));
        opening::write(&mut stream, &credentials).await?;
        Ok(request.host)
    };
    timeout(limit, granted)
        .await
        .unwrap_or(Err(opening::Error::TimedOut.into()))
}

/// Tells a host that it is refused.
async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut TlsStream<S>,
    refusal: Refusal,
) -> Error {
    let why = REFUSED.to_owned();
    // The host may be gone. The refusal counts either way.
    let _ = opening::write(stream, &Answer::Refused { why }).await;
    refusal.into()
}
