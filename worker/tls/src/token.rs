//! Join tokens, by which hosts that have no identity get one ([`enrol`](crate::enrol)).
//!
//! The text of a token is `er2.ID.SECRET.EXPIRY`:
//!
//! | part | content |
//! |---|---|
//! | `ID` | 8 hexadecimal digits: the hash of secret and expiry, so that a damaged token is noticed before it is used |
//! | `SECRET` | 32 random bytes as base64 for URLs without padding, 43 characters |
//! | `EXPIRY` | seconds since 1970 as a decimal number without leading zeros, of at most 11 digits |
//!
//! A token has one text only. The driver judges the expiry by its own clock and its own copy of the token.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

#[cfg(any(test, fuzzing))]
pub mod any_input;

const PREFIX: &str = "er2.";
const EXPIRY_DIGITS: usize = 11;

/// How many tokens of a job are known: more than are valid at once, so that a host with an expired one learns that.
const MAX_TOKENS: usize = 8;

/// Why a text is no token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    /// It was made by hand or by an earlier release: its secret may be guessed.
    #[error("it does not begin with {PREFIX}; make one: elasticrun token")]
    NotGenerated,
    /// It has another form.
    #[error("it is no join token: {0}")]
    Malformed(&'static str),
    /// Its parts do not belong together.
    #[error("it is damaged: its parts do not belong together")]
    Damaged,
}

/// Why a host gets no identity. The host is not told more than that it is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// No token of this driver has this id.
    #[error("its join token {0} is not one of this job")]
    Unknown(TokenId),
    /// The token has expired.
    #[error("its join token {0} has expired")]
    Expired(TokenId),
    /// The proof does not belong to the token and this connection.
    #[error("it does not know the secret of join token {0}")]
    Forged(TokenId),
}

/// The public name of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenId([u8; 4]);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

impl From<TokenId> for String {
    fn from(id: TokenId) -> Self {
        id.to_string()
    }
}

impl FromStr for TokenId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 8 || !text.bytes().all(is_digit) {
            return Err(ParseError::Malformed("its id has not 8 hexadecimal digits"));
        }
        u32::from_str_radix(text, 16)
            .map(|id| Self(id.to_be_bytes()))
            .map_err(|_| ParseError::Damaged)
    }
}

impl TryFrom<String> for TokenId {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

/// The side that proves a token. A proof of one side is worth nothing as that of the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The driver, which proves first.
    Driver,
    /// The host that wants an identity.
    Host,
}

/// The proof that a side knows the secret of a token, for one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proof(pub [u8; 32]);

/// A join token. Its `Debug` output has the id and the expiry alone, and its memory is overwritten when it is dropped.
#[derive(Clone)]
pub struct Token {
    secret: Zeroizing<[u8; 32]>,
    /// Seconds since 1970.
    expiry: u64,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("id", &self.id())
            .field("expiry", &self.expiry)
            .finish_non_exhaustive()
    }
}

/// Compares in constant time.
impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        // Codes of both under one key: a comparison of codes takes the same time wherever they differ.
        let mut code = mac(&self.secret, &[&*self.secret]);
        code.update(&self.expiry.to_be_bytes());
        let mut expected = mac(&self.secret, &[&*other.secret]);
        expected.update(&other.expiry.to_be_bytes());
        expected.verify_slice(&code.finalize().into_bytes()).is_ok()
    }
}

impl Eq for Token {}

impl Token {
    /// Makes a token that is valid until `expiry`, to the second before.
    ///
    /// # Errors
    /// If the system provides no randomness.
    pub fn random(expiry: SystemTime) -> Result<Self, getrandom::Error> {
        let mut secret = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *secret)?;
        let expiry = since_1970(expiry).min(10_u64.pow(EXPIRY_DIGITS as u32) - 1);
        Ok(Self { secret, expiry })
    }

    /// The public name.
    pub fn id(&self) -> TokenId {
        let mut hash = Sha256::new();
        hash.update(b"elasticrun token id\0");
        hash.update(*self.secret);
        hash.update(self.expiry.to_be_bytes());
        let hash = hash.finalize();
        TokenId([hash[0], hash[1], hash[2], hash[3]])
    }

    /// The text, for a file that only its user may read. It must not be logged.
    pub fn expose(&self) -> Zeroizing<String> {
        let secret = Zeroizing::new(URL_SAFE_NO_PAD.encode(*self.secret));
        Zeroizing::new(format!("{PREFIX}{}.{}.{}", self.id(), *secret, self.expiry))
    }

    /// The time from which the token is worth nothing.
    pub fn expiry(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.expiry)
    }

    /// Whether the token is worth nothing at `now`.
    pub fn is_expired(&self, now: SystemTime) -> bool {
        since_1970(now) >= self.expiry
    }

    /// Proves that `side` knows the secret, for the connection whose exporter with the label
    /// [`CHANNEL`](crate::enrol::CHANNEL) is `channel`.
    pub fn prove(&self, side: Side, channel: &[u8; 32]) -> Proof {
        Proof(self.proof(side, channel).finalize().into_bytes().into())
    }

    /// Checks a proof of the other side in constant time.
    ///
    /// # Errors
    /// [`Refusal::Forged`].
    pub fn verify(&self, side: Side, channel: &[u8; 32], proof: &Proof) -> Result<(), Refusal> {
        self.proof(side, channel)
            .verify_slice(&proof.0)
            .map_err(|_| Refusal::Forged(self.id()))
    }

    fn proof(&self, side: Side, channel: &[u8; 32]) -> Hmac<Sha256> {
        let side: &[u8] = match side {
            Side::Driver => b"driver",
            Side::Host => b"host",
        };
        mac(&self.secret, &[b"elasticrun enrol", side, channel])
    }
}

fn mac(secret: &[u8; 32], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac
}

fn since_1970(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Reads the text of a token. White space around it is ignored.
impl FromStr for Token {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let text = text.trim();
        let rest = text.strip_prefix(PREFIX).ok_or(ParseError::NotGenerated)?;
        let mut parts = rest.split('.');
        let (Some(id), Some(secret), Some(expiry), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(ParseError::Malformed("it has not four parts"));
        };
        let id: TokenId = id.parse()?;
        let token = Self {
            secret: parse_secret(secret)?,
            expiry: parse_expiry(expiry)?,
        };
        if token.id() != id {
            return Err(ParseError::Damaged);
        }
        Ok(token)
    }
}

fn parse_secret(text: &str) -> Result<Zeroizing<[u8; 32]>, ParseError> {
    let malformed = ParseError::Malformed("its secret is not 43 characters of base64 for URLs");
    if text.len() != 43 {
        return Err(malformed);
    }
    let mut bytes = Zeroizing::new([0; 33]);
    let count = URL_SAFE_NO_PAD
        .decode_slice(text, &mut *bytes)
        .map_err(|_| malformed)?;
    let mut secret = Zeroizing::new([0; 32]);
    if count != secret.len() {
        return Err(malformed);
    }
    secret.copy_from_slice(&bytes[..count]);
    Ok(secret)
}

fn parse_expiry(text: &str) -> Result<u64, ParseError> {
    let is_number = (1..=EXPIRY_DIGITS).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && (text.len() == 1 || !text.starts_with('0'));
    if !is_number {
        return Err(ParseError::Malformed(
            "its expiry is no number of at most 11 digits",
        ));
    }
    text.parse().map_err(|_| ParseError::Damaged)
}

/// The tokens by which hosts may join a job.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Vec<Token>);

impl Tokens {
    /// These tokens.
    pub fn new(tokens: Vec<Token>) -> Self {
        Self(tokens)
    }

    /// Adds a token, which becomes the newest one. Only the newest ones are kept.
    pub fn add(&mut self, token: Token) {
        self.0.retain(|known| *known != token);
        self.0.push(token);
        let excess = self.0.len().saturating_sub(MAX_TOKENS);
        self.0.drain(..excess);
    }

    /// The token that was added last.
    pub fn newest(&self) -> Option<&Token> {
        self.0.last()
    }

    /// The token that a host names, if it is valid at `now` by the driver's clock.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] or [`Refusal::Expired`].
    pub fn find(&self, id: TokenId, now: SystemTime) -> Result<&Token, Refusal> {
        let token = self
            .0
            .iter()
            .find(|token| token.id() == id)
            .ok_or(Refusal::Unknown(id))?;
        if token.is_expired(now) {
            return Err(Refusal::Expired(id));
        }
        Ok(token)
    }
}
