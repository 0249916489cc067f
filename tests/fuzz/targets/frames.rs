//! Any bytes, cut anywhere, into the frame buffer and every message that a peer may send.
//!
//! Must hold: no panic, no allocation beyond the limit, and what decodes encodes to something that decodes to the same.
#![no_main]

use elasticrun_protocol::any_stream;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, u8, Vec<u8>)| {
    let (trusted, cut, bytes) = input;
    any_stream::check(trusted, cut.into(), &bytes);
});
