//! The stream of JSON values that the gateway answers with: values that are cut anywhere, and newlines between them.

use serde_json::{Deserializer, Value};

/// The longest value in bytes. etcd limits a request to 1.5 MiB by default, and base64 makes it longer by a third; a batch
/// of events can have several.
pub(crate) const MAX_VALUE: usize = 16 << 20;

/// Why a stream cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Error {
    /// It is not JSON.
    #[error("its answer is not JSON (at byte {0} of a value)")]
    NotJson(usize),
    /// A value is too long.
    #[error("its answer has a value of more than {MAX_VALUE} bytes")]
    TooLong,
    /// It ends within a value.
    #[error("its answer ends within a value")]
    Cut,
}

/// Splits a stream into its values.
#[derive(Debug, Default)]
pub(crate) struct Values {
    buffer: Vec<u8>,
    /// Where the first value that was not given begins.
    begin: usize,
    /// Whether bytes have come that may complete a value.
    is_fresh: bool,
}

impl Values {
    /// Appends bytes of the stream.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.begin);
        self.begin = 0;
        self.buffer.extend_from_slice(bytes);
        // The bytes of a long text complete nothing: a value of a megabyte is parsed once, not with each of its parts.
        self.is_fresh |= bytes.iter().any(|byte| matches!(byte, b'}' | b'\n'));
    }

    /// The next complete value, if there is one.
    ///
    /// # Errors
    /// [`Error::NotJson`] or [`Error::TooLong`]. The stream is of no more use.
    pub(crate) fn next(&mut self) -> Result<Option<Value>, Error> {
        if !self.is_fresh {
            return self.check_length();
        }
        let rest = &self.buffer[self.begin..];
        let mut values = Deserializer::from_slice(rest).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) if value.is_object() => {
                self.begin += values.byte_offset();
                Ok(Some(value))
            }
            Some(Ok(_)) => Err(Error::NotJson(0)),
            Some(Err(error)) if !error.is_eof() => Err(Error::NotJson(values.byte_offset())),
            Some(Err(_)) | None => {
                self.is_fresh = false;
                self.check_length()
            }
        }
    }

    fn check_length(&self) -> Result<Option<Value>, Error> {
        if self.buffer.len() - self.begin > MAX_VALUE {
            return Err(Error::TooLong);
        }
        Ok(None)
    }

    /// Checks that the stream may end here.
    ///
    /// # Errors
    /// [`Error::Cut`].
    pub(crate) fn end(&self) -> Result<(), Error> {
        let rest = &self.buffer[self.begin..];
        if rest.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        Err(Error::Cut)
    }
}

/// The values of a stream that comes in these parts, and whether the stream is sound.
#[cfg(any(test, fuzzing))]
pub(crate) fn values_of<'a>(
    parts: impl Iterator<Item = &'a [u8]>,
) -> (Vec<Value>, Result<(), Error>) {
    let (mut values, mut found) = (Values::default(), Vec::new());
    for part in parts {
        values.extend(part);
        loop {
            match values.next() {
                Ok(Some(value)) => found.push(value),
                Ok(None) => break,
                Err(error) => return (found, Err(error)),
            }
        }
    }
    (found, values.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(parts: &[&[u8]]) -> (Vec<Value>, Result<(), Error>) {
        values_of(parts.iter().copied())
    }

    #[test]
    fn values_are_found_however_the_stream_is_cut() {
        let stream = b"{\"a\":\"}\\n\"}\n\n{\"b\":{\"c\":[1]}}{}\n";
        let (whole, end) = all(&[stream]);
        assert_eq!((whole.len(), end), (3, Ok(())));
        for first in 0..stream.len() {
            for second in first..stream.len() {
                let parts = [&stream[..first], &stream[first..second], &stream[second..]];
                assert_eq!(all(&parts), (whole.clone(), Ok(())), "{first} {second}");
            }
        }
        let bytes: Vec<_> = stream.chunks(1).collect();
        assert_eq!(all(&bytes), (whole, Ok(())));
    }

    #[test]
    fn a_value_is_given_before_its_newline_has_come() {
        assert_eq!(all(&[b"{\"a\":1}"]).0.len(), 1);
    }

    #[test]
    fn a_stream_that_ends_within_a_value_is_cut() {
        assert_eq!(all(&[b"{}\n{\"a\":"]).1, Err(Error::Cut));
        assert_eq!(all(&[b"{\"a\""]).1, Err(Error::Cut));
        assert_eq!(all(&[b""]).1, Ok(()));
    }

    #[test]
    fn other_content_is_refused() {
        for stream in [
            &b"Not Found\n"[..],
            b"<html>\n",
            b"[1]\n",
            b"1 \n",
            b"{\"a\":1}}\n",
            b"{\"a\":tru}\n",
            b"\xff\n",
        ] {
            let error = all(&[stream]).1;
            assert!(matches!(error, Err(Error::NotJson(_))), "{error:?}");
        }
    }

    #[test]
    fn a_value_without_end_is_refused() {
        let mut values = Values::default();
        values.extend(b"{\"a\":\"");
        let part = vec![b'x'; 1 << 20];
        for _ in 0..16 {
            assert_eq!(values.next(), Ok(None));
            values.extend(&part);
        }
        assert_eq!(values.next(), Err(Error::TooLong));
        values.extend(b"\"}\n");
        assert!(
            values.next().is_ok(),
            "only the part that is incomplete counts"
        );
    }
}
