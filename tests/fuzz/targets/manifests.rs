//! Any bytes as the manifest of a durable commit.
//!
//! Must hold: no panic, what is accepted is written in a form that reads the same, and an error is one short line.
#![no_main]

use elasticrun_agent::any_manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    any_manifest::check(input);
});
