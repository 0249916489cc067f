//! Properties of a command line for any input: for the fuzzer, and for a test of some thousand lines in the test suite.

#[cfg(test)]
mod tests;

use std::ffi::OsString;

use super::{Invocation, parse};
use crate::config::any_input::{check_error, check_file};

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
