//! Any text as a configuration file, and any words, separated by tabs, as a command line with variables. The first byte
//! selects one of them.
#![no_main]

use elasticrun::cli::any_input;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    any_input::check_input(input);
});
