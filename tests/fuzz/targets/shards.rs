//! Any bytes as a layout of a sharded state, and as the body of a shard.
//!
//! Must hold: no panic, a layout has one form only, the parts of a body are within it, and an error is one line.
#![no_main]

use elasticrun_reshard::any_input;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    any_input::check(input);
});
