//! Why a journal cannot be created or opened, each as one line.

use std::{io, path::PathBuf};

/// Why there is no journal to write or to read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such file.
    #[error("run {run} is unknown: there is no journal at {}", path.display())]
    Unknown {
        /// The run.
        run: String,
        /// Where its journal would be.
        path: PathBuf,
    },
    /// A living driver holds the journal.
    #[error("run {run} has a driver{}", process(pid))]
    Locked {
        /// The run.
        run: String,
        /// The process of the driver, if it is known.
        pid: Option<u32>,
    },
    /// A driver leads the run in etcd.
    #[error("run {run} has a driver{}", by.as_ref().map_or(String::new(), |by| format!(" at {by}")))]
    Led {
        /// The run.
        run: String,
        /// Where agents reach it, if it is known.
        by: Option<String>,
    },
    /// etcd cannot be used.
    #[error("{}: {why}", path.display())]
    Etcd {
        /// The address of the journal.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The journal belongs to another run.
    #[error("the journal {} is of run {found}, not of run {run}", path.display())]
    OtherRun {
        /// The file.
        path: PathBuf,
        /// The run that the user named.
        run: String,
        /// The run of the journal.
        found: String,
    },
    /// A living driver holds the journal at the path of a new one.
    #[error("{} is the journal of a run that has a driver{}: choose another path", path.display(), process(pid))]
    InUse {
        /// The file.
        path: PathBuf,
        /// The process of the driver, if it is known.
        pid: Option<u32>,
    },
    /// A file that is no journal, or one that cannot be read, is at the path of a new one.
    #[error("{} is no journal that can be read, and is not replaced: choose another path, or remove the file ({why})", path.display())]
    Occupied {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        why: String,
    },
    /// The journal was written by a release that older ones must not read.
    #[error("the journal {} was written by elasticrun {software} in format {needs}; this is elasticrun {}, which reads format {reads}: run the newer release", path.display(), env!("CARGO_PKG_VERSION"))]
    Newer {
        /// The file.
        path: PathBuf,
        /// The oldest reader that may read it.
        needs: u32,
        /// What this release reads.
        reads: u32,
        /// The release that wrote it.
        software: String,
    },
    /// The key file is missing.
    #[error("the journal {} cannot be read without its key {}: no such file", path.display(), key.display())]
    NoKey {
        /// The journal.
        path: PathBuf,
        /// The key file.
        key: PathBuf,
    },
    /// The key file is not the one with which the journal was written.
    #[error("{} is not the key of the journal {}", key.display(), path.display())]
    WrongKey {
        /// The journal.
        path: PathBuf,
        /// The key file.
        key: PathBuf,
    },
    /// The nodes of a job have another key.
    #[error("job {id:?} at {} was begun with another key than {}: copy that file of its first node here, with mode 600", path.display(), key.display())]
    OtherNodes {
        /// The name of the job.
        id: String,
        /// Where the nodes meet.
        path: PathBuf,
        /// The key file of this node.
        key: PathBuf,
    },
    /// Other users may read the key file.
    #[error("{}: others may read it (mode {mode:03o}); chmod 600 it", key.display())]
    OpenKey {
        /// The key file.
        key: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file is torn, or its bytes have changed.
    #[error("the journal {} is damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The system refuses an operation.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The message of the system.
        source: io::Error,
    },
}

impl Error {
    /// Wraps an error of the system about a path.
    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |source| Self::Io { path, source }
    }
}

fn process(pid: &Option<u32>) -> String {
    pid.map_or(String::new(), |pid| format!(" (process {pid})"))
}
