//! Why a store fails.

use std::io;

/// An error of a durable store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error("cannot {what} {path}: {source}")]
    Store {
        /// What was tried.
        what: &'static str,
        /// The path or the key in the store.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The store cannot be used at all.
    #[error("{place} is not a durable store: {why}")]
    Place {
        /// The place as configured.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// Another user could have changed a file.
    #[error(
        "{path} is not used: it is no plain file, others may write to it, or its owner is neither this user nor the owner of the store"
    )]
    Untrusted {
        /// The path.
        path: String,
    },
}

impl Error {
    /// Wraps an error of the store.
    pub fn store(what: &'static str, path: &str) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Store { what, path, source }
    }
}
