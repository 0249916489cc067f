//! Any bytes, cut anywhere, into the frame buffer and every message that a peer may send. The first byte says whether the peer
//! is trusted, the second one is the size of parts.
//!
//! Must hold: no panic, no allocation beyond the limit, and what decodes encodes to something that decodes to the same.
#![no_main]

use elasticrun_protocol::any_stream;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    any_stream::check_input(input);
});
