//! Any bytes as the footer of a file.
//!
//! Must hold: no panic outside of the Parquet library, and what passes the check needs little memory to decode.
#![no_main]

use elasticrun_data::any_input::check_footer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    check_footer(input);
});
