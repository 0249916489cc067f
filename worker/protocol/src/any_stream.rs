//! Properties that hold for any bytes of a peer: for the fuzzer, and for a test of some thousand streams in the test suite.

#[cfg(test)]
mod tests;

use crate::{
    FromAgent, FromWorker, ToAgent, ToWorker,
    control::{MemoryAnswer, MemoryRequest, Output, Register},
    frame::{FrameBuffer, decode, to_frame},
    opening::{Hello, Verdict},
    store::{Answer, FromClient, FromHost, StoreOf, ToHost},
};

macro_rules! round_trip {
    ($body:expr, $($message:ty),+) => {{
        let mut understood = 0;
        $(if let Ok(message) = decode::<$message>($body) {
            let frame = to_frame(&message).expect("what was read from a frame fits one");
            let again: $message = decode(&frame[4..]).expect("what was written can be read");
            assert_eq!(message, again);
            understood += 1;
        })+
        understood
    }};
}

/// Checks an input of the fuzzer: whether the peer is trusted, the size of parts, and the stream. Gives the number of
/// successful reads.
///
/// # Panics
/// As [`check`].
pub fn check_input(input: &[u8]) -> usize {
    match input {
        [trusted, cut, stream @ ..] => check(trusted & 1 == 1, usize::from(*cut), stream),
        _ => 0,
    }
}

/// Feeds a stream to a frame buffer in parts of `cut` bytes, and reads each body as every message that a peer may send.
/// Gives the number of successful reads.
///
/// # Panics
/// If a message cannot be written, or differs after it is written and read again.
pub fn check(trusted: bool, cut: usize, bytes: &[u8]) -> usize {
    let mut buffer = FrameBuffer::unproven();
    if trusted {
        buffer.trust();
    }
    let mut understood = 0;
    for part in bytes.chunks(cut.max(1)) {
        buffer.extend(part);
        loop {
            match buffer.next_body() {
                Ok(Some(body)) => {
                    understood += round_trip!(
                        &body,
                        Hello,
                        Verdict,
                        Register,
                        ToAgent,
                        FromAgent,
                        Output,
                        MemoryRequest,
                        MemoryAnswer,
                        FromWorker,
                        ToWorker,
                        FromClient,
                        Answer,
                        StoreOf,
                        FromHost,
                        ToHost
                    );
                }
                Ok(None) => break,
                // A stream with an invalid frame is closed.
                Err(_) => return understood,
            }
        }
    }
    understood
}
