//! Any bytes as a sealed value of a journal, and as the value of each of its entries.
#![no_main]

use elasticrun::journal::any_input;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    any_input::check(input);
});
