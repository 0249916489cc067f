//! Any bytes as a structure of Thrift: footers, page headers, page indexes, and others.
//!
//! Must hold: no panic, and no reader passes the end of the bytes.
#![no_main]

use elasticrun_data::any_input::check_thrift;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    check_thrift(input);
});
