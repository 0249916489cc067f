//! Frames: a big-endian `u32` length, then a JSON body of that many bytes.
//!
//! JSON describes itself, tolerates mixed versions (unknown fields are ignored) and is readable in an incident.
//! [`FrameBuffer`] does no I/O: bytes in, bodies out. It never allocates more than [`MAX_FRAME`] for one frame,
//! whatever length a peer claims, and never panics on any input (fuzzed).

use bytes::{Buf, Bytes, BytesMut};
use serde::{Serialize, de::DeserializeOwned};

/// The maximum size of a body, in bytes.
pub const MAX_FRAME: usize = 4 << 20;

/// The maximum size of a body from a peer that has not proved yet that it is of the job, in bytes.
pub const MAX_UNPROVEN_FRAME: usize = 4 << 10;

const HEADER: usize = 4;

/// An error in a frame.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The body is larger than the limit.
    #[error("a frame of {length} bytes, over the limit of {limit}; is the peer an elasticrun?")]
    TooLarge {
        /// The length of the body in bytes.
        length: usize,
        /// The limit that applied.
        limit: usize,
    },
    /// The body is not the expected JSON.
    #[error("a frame that cannot be read: {0}")]
    Body(#[from] serde_json::Error),
}

/// Appends one frame with `message` to `out`.
///
/// # Errors
/// [`Error::TooLarge`] or [`Error::Body`]; `out` is unchanged.
pub fn encode(message: &impl Serialize, out: &mut Vec<u8>) -> Result<(), Error> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    let written = serde_json::to_writer(&mut *out, message).map_err(Error::Body);
    let length = out.len() - start - HEADER;
    let fits = written.and_then(|()| match u32::try_from(length) {
        Ok(header) if length <= MAX_FRAME => Ok(header),
        _ => Err(Error::TooLarge {
            length,
            limit: MAX_FRAME,
        }),
    });
    match fits {
        Ok(header) => {
            out[start..start + HEADER].copy_from_slice(&header.to_be_bytes());
            Ok(())
        }
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

/// One frame with `message`.
///
/// # Errors
/// [`Error::TooLarge`] if the body is larger than [`MAX_FRAME`].
pub fn to_frame(message: &impl Serialize) -> Result<Vec<u8>, Error> {
    let mut out = Vec::with_capacity(128);
    encode(message, &mut out)?;
    Ok(out)
}

/// Parses a body as a message.
///
/// # Errors
/// [`Error::Body`] with the line and column of the mismatch.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    Ok(serde_json::from_slice(body)?)
}

/// Collects received bytes and splits them into bodies.
#[derive(Debug)]
pub struct FrameBuffer {
    bytes: BytesMut,
    limit: usize,
}

impl Default for FrameBuffer {
    fn default() -> Self {
        Self {
            bytes: BytesMut::new(),
            limit: MAX_FRAME,
        }
    }
}

impl FrameBuffer {
    /// A buffer for a peer that is not trusted yet: bodies up to [`MAX_UNPROVEN_FRAME`].
    pub fn unproven() -> Self {
        Self {
            bytes: BytesMut::new(),
            limit: MAX_UNPROVEN_FRAME,
        }
    }

    /// Trusts the peer, which has proved itself: from now on bodies up to [`MAX_FRAME`].
    pub fn trust(&mut self) {
        self.limit = MAX_FRAME;
    }

    /// The buffer for the next bytes, with room for at least 4,096 of them.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.bytes.reserve(4096);
        &mut self.bytes
    }

    /// Adds received bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole body, if it has arrived.
    ///
    /// # Errors
    /// [`Error::TooLarge`]. After it the stream is unusable and must be closed.
    pub fn next_body(&mut self) -> Result<Option<Bytes>, Error> {
        let Some(header) = self.bytes.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*header) as usize;
        if length > self.limit {
            return Err(Error::TooLarge {
                length,
                limit: self.limit,
            });
        }
        if self.bytes.len() < HEADER + length {
            self.bytes.reserve(HEADER + length - self.bytes.len());
            return Ok(None);
        }
        self.bytes.advance(HEADER);
        Ok(Some(self.bytes.split_to(length).freeze()))
    }

    /// The next whole message, if it has arrived.
    ///
    /// # Errors
    /// As [`FrameBuffer::next_body`] and [`decode`].
    pub fn next_message<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Error> {
        self.next_body()?.map(|body| decode(&body)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_split_of_the_stream_gives_the_same_messages(
            messages in prop::collection::vec(".{0,40}", 0..8),
            cut in 1usize..7,
        ) {
            let mut stream = Vec::new();
            for message in &messages {
                encode(message, &mut stream).unwrap();
            }
            let mut buffer = FrameBuffer::default();
            let mut read = Vec::new();
            for part in stream.chunks(cut) {
                buffer.extend(part);
                while let Some(message) = buffer.next_message::<String>().unwrap() {
                    read.push(message);
                }
            }
            prop_assert_eq!(read, messages);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut buffer = FrameBuffer::unproven();
            buffer.extend(&bytes);
            while let Ok(Some(_)) = buffer.next_message::<crate::FromAgent>() {}
        }
    }

    #[test]
    fn a_huge_claim_is_refused_before_anything_is_allocated() {
        let mut buffer = FrameBuffer::unproven();
        buffer.extend(b"GET / HTTP/1.1\r\n");
        assert!(matches!(
            buffer.next_body(),
            Err(Error::TooLarge {
                limit: MAX_UNPROVEN_FRAME,
                ..
            })
        ));
    }
}
