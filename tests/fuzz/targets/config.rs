//! Any text as a configuration file, and any words, separated by tabs, as a command line with variables. The first byte
//! selects one of them.
#![no_main]

use std::ffi::OsString;

use elasticrun::{cli::any_input::check_words, config::any_input::check_file};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((kind, rest)) = input.split_first() else {
        return;
    };
    let Ok(text) = str::from_utf8(rest) else {
        return;
    };
    if kind % 2 == 0 {
        check_file(text);
        return;
    }
    // Options name files, and a device or a pipe may have no end.
    if text.contains("dev") || text.contains("proc") {
        return;
    }
    let (mut words, mut variables) = (Vec::new(), Vec::new());
    for word in text.split('\t') {
        match word.split_once('=') {
            Some((name, value)) if name.starts_with("ELASTICRUN_") => {
                variables.push((OsString::from(name), OsString::from(value)));
            }
            _ => words.push(OsString::from(word)),
        }
    }
    check_words(words, variables);
});
