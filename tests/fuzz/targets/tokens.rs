//! Any bytes as the text of a join token.
//!
//! Must hold: no panic, a token has one text only, and an error is one short line.
#![no_main]

use elasticrun_tls::token::any_input;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    any_input::check(input);
});
