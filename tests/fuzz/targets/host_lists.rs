//! Any text as a host file, as the value of `--hosts`, as a host list of Slurm; any JSON as snapshots of sources, which are
//! merged. The first byte selects the reader.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    elasticrun_hosts::any_input::check_input(input);
    elasticrun_plugin_slurm::any_input::check_input(input);
});
