//! Why a standby interpreter is not used.

use std::io;

/// Why a standby interpreter is not used. The ordinary start takes over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A system call fails.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
    /// The process has ended, or did not answer in time.
    #[error("{who} has ended or does not answer")]
    Silent {
        /// The process.
        who: &'static str,
    },
    /// An answer that is not part of the protocol.
    #[error("an unexpected answer: {answer}")]
    Unexpected {
        /// The answer.
        answer: String,
    },
    /// The fork server cannot fork.
    #[error("the fork server cannot fork: {why}")]
    Unfit {
        /// Its reason.
        why: String,
    },
}

impl Error {
    /// Makes [`Error::System`], for `map_err`.
    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
