//! Any bytes as an answer of etcd's JSON gateway. The first byte is the size of parts.
//!
//! Must hold: no panic, and the parts give the same values as the whole.
#![no_main]

use elasticrun_etcd::any_input;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    any_input::check(input);
});
