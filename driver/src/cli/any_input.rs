//! Properties of a command line for any input: for the fuzzer, and for a test of some thousand lines in the test suite.

#[cfg(test)]
mod tests;

use std::ffi::OsString;

use super::{Invocation, parse};
use crate::config::any_input::{check_error, check_file};

/// Checks an input of the fuzzer: the first byte selects a configuration file, or words that are separated by tabs. A word
/// with the name of a variable and a value sets it. Returns whether it is accepted.
///
/// # Panics
/// As [`check_words`] and [`check_file`].
pub fn check_input(input: &[u8]) -> bool {
    let Some((kind, rest)) = input.split_first() else {
        return false;
    };
    let Ok(text) = str::from_utf8(rest) else {
        return false;
    };
    if kind % 2 == 0 {
        return check_file(text);
    }
    // Options name files, and a device or a pipe may have no end.
    if text.contains("/dev") || text.contains("/proc") {
        return false;
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
    check_words(words, variables)
}

/// Parses words and variables. Returns whether they are accepted.
///
/// # Panics
/// If a job has contradicting numbers of workers, no command or no hosts, if `config show` prints no file with the same
/// values, or if an error is not one line of limited length.
pub fn check_words(
    words: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> bool {
    match parse(words, environment) {
        Err(error) => {
            check_error(&error);
            false
        }
        Ok(Invocation::Run(request)) => {
            let workers = request.settings.workers;
            assert!(workers.min_np <= workers.np);
            assert!(workers.max_np.is_none_or(|max_np| workers.np <= max_np));
            assert!(!request.settings.command.is_empty());
            assert!(!request.settings.hosts.sources.is_empty());
            assert!(check_file(&request.config.show()));
            true
        }
        Ok(_) => true,
    }
}
