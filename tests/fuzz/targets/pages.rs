//! Any bytes as the pages of a column of any type and codec, decoded by the page path and with Arrow's reader.
//!
//! Must hold: no panic outside of the Parquet library, no loop without end, and the same values if both take the pages.
#![no_main]

use elasticrun_data::any_input::check_pages;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    check_pages(input);
});
