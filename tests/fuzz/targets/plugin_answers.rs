//! Any bytes as what a plugin library answers, what a plugin process sends, what a discovery script prints; any text as the
//! name and the options of a plugin. The first byte selects the reader, and the second one the code or the size of parts.
#![no_main]

use elasticrun_plugin_loader::any_input;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    any_input::check_input(input);
});
