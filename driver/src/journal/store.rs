//! Where a journal is kept: in a file, or in etcd.

use std::time::Duration;

use tokio::sync::mpsc;

use super::{
    CLOSE_TIMEOUT, Entries, Notice,
    etcd::{self, Etcd},
    file::File,
    outcome,
    thread::Dirty,
};

/// Why entries are not durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// They may be later. The reason, as one line.
    #[error("{0}")]
    Now(String),
    /// They never will: another driver has the run, with this address if it is known.
    #[error("another driver continues the run")]
    Replaced(Option<String>),
}

/// An open journal, which one driver at a time has (J1).
#[derive(Debug)]
pub(super) enum Store {
    /// In a file, with a lock.
    File(Box<File>),
    /// In etcd, with a leadership.
    Etcd(Box<Etcd>),
}

impl Store {
    /// Writes entries durably. With `ended`, marks the run as ended.
    ///
    /// # Errors
    /// See [`Failure`].
    pub(super) fn commit(&mut self, entries: &Dirty, ended: bool) -> Result<(), Failure> {
        match self {
            Self::File(file) => file.commit(entries, ended).map_err(Failure::Now),
            Self::Etcd(etcd) => etcd.commit(entries, ended),
        }
    }

    /// Reports it when another driver has the run, as far as that can happen.
    pub(super) fn watch(&self, notices: mpsc::Sender<Notice>) {
        match self {
            Self::File(_) => {}
            Self::Etcd(etcd) => etcd.watch(notices),
        }
    }

    /// The epoch of this driver, if the store decides it.
    pub(super) fn epoch(&self) -> Option<u64> {
        match self {
            Self::File(_) => None,
            Self::Etcd(etcd) => Some(etcd.epoch()),
        }
    }

    /// How long the end of a run waits until its outcome is durable.
    pub(super) fn end_timeout(&self) -> Duration {
        match self {
            Self::File(_) => CLOSE_TIMEOUT,
            Self::Etcd(_) => etcd::END_TIMEOUT,
        }
    }

    /// Closes the journal, so that another driver can have it.
    pub(super) fn close(self) {
        match self {
            Self::File(file) => drop(file),
            Self::Etcd(etcd) => etcd.close(),
        }
    }

    /// Closes the journal of a run that has ended, whose last driver may have been killed.
    pub(super) fn close_ended(self, entries: &Entries) {
        match self {
            Self::File(file) => drop(file),
            Self::Etcd(mut etcd) => {
                let last = entries.get_key_value(outcome::KEY);
                let last = last.map(|(key, value)| (key.clone(), Some(value.clone())));
                // All that is left is for a person to read.
                if let Err(error) = etcd.commit(&last.into_iter().collect(), true) {
                    tracing::debug!(%error, "the journal of a run that has ended stays as it is");
                }
                etcd.close();
            }
        }
    }

    /// Removes the journal of a run that has not begun.
    pub(super) fn discard(self) {
        match self {
            Self::File(file) => file.discard(),
            Self::Etcd(etcd) => etcd.discard(),
        }
    }
}
