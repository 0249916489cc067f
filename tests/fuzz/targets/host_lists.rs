//! Any text as a host file, as the value of `--hosts`, as a host list of Slurm; any JSON as snapshots of sources, which are
//! merged. The first byte selects the reader.
#![no_main]

use elasticrun_hosts::any_input;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((kind, rest)) = input.split_first() else {
        return;
    };
    match kind % 4 {
        0 => drop(any_input::check_lists(rest)),
        1 => drop(any_input::check_snapshots(rest)),
        _ => {
            if let Ok(text) = str::from_utf8(rest) {
                elasticrun_plugin_slurm::any_input::check(text);
            }
        }
    }
});
