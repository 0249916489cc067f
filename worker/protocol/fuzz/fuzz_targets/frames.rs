//! Any bytes, cut anywhere, into the frame buffer and every message that a peer may send.
//!
//! Run: `cd worker/protocol && cargo +nightly fuzz run frames`. Must hold: no panic, no allocation beyond
//! the limit, and what decodes encodes to something that decodes to the same.
#![no_main]

use elasticrun_protocol::{
    FromAgent, FromWorker, ToAgent, ToWorker,
    auth::{Challenge, Hello, Proof, Verdict},
    control::{MemoryAnswer, MemoryRequest, Output, Register},
    frame::{FrameBuffer, decode, to_frame},
    store::{Answer, FromClient, FromHost, StoreOf, ToHost},
};
use libfuzzer_sys::fuzz_target;

macro_rules! round_trip {
    ($body:expr, $($message:ty),+) => {$(
        if let Ok(message) = decode::<$message>($body) {
            let frame = to_frame(&message).expect("what was read from a frame fits one");
            let again: $message = decode(&frame[4..]).expect("what was written can be read");
            assert_eq!(message, again);
        }
    )+};
}

fuzz_target!(|input: (bool, u8, Vec<u8>)| {
    let (trusted, cut, bytes) = input;
    let mut buffer = FrameBuffer::unproven();
    if trusted {
        buffer.trust();
    }
    for part in bytes.chunks(usize::from(cut).max(1)) {
        buffer.extend(part);
        loop {
            match buffer.next_body() {
                Ok(Some(body)) => round_trip!(
                    &body, Hello, Challenge, Proof, Verdict, Register, ToAgent, FromAgent, Output,
                    MemoryRequest, MemoryAnswer, FromWorker, ToWorker,
                    FromClient, Answer, StoreOf, FromHost, ToHost
                ),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
});
