//! The journal of a job: what a later driver needs to continue it, on the disk of the driver's machine or in etcd (`etcd`).
//!
//! ```text
//! run loop --write, persist--> [entries folded by key] --thread--> file or etcd, values sealed
//!          <----- answer of persist, Notice -------------
//! ```
//! The journal holds entries: a name and a value, where the last value wins. So its size depends on the number of hosts and
//! not on the length of the job. `docs/formats.md` describes the files.
//!
//! # Invariants
//! - J1 One driver at a time has the journal of a run: it holds the lock file as long as it lives, or leads the run in etcd.
//! - J2 A persisted entry is durable before its answer comes. Other entries are written behind, and a killed driver may lose
//!   those of its last 20 ms. A commit has all entries of its batch, or none.
//! - J3 A journal that cannot be written stops no job. The run loop gets a [`Notice`], the entries wait in memory, at most one
//!   for each key, and are written when the journal works again.
//! - J4 A damaged journal is refused, and is never an empty or older one. Each page has a checksum, each value is sealed with
//!   the run and its key, and the lock file has the number of commits.
//! - J5 Nobody reads the values without the key file, which only its user can read.
//!
//! # Not promised
//! Detection of an older copy of all three files. Agents refuse the driver that begins with it, since its epoch is not newer
//! than theirs.

#[cfg(any(test, fuzzing))]
pub mod any_input;
mod configuration;
mod database;
mod epoch;
mod error;
mod etcd;
mod file;
mod lock;
mod outcome;
mod place;
mod quiet;
mod records;
mod seal;
mod store;
mod sweep;
#[cfg(test)]
mod tests;
mod thread;

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use elasticrun_protocol::DriverEpoch;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

pub use configuration::Configuration;
pub use epoch::Epoch;
pub use error::Error;
pub(crate) use etcd::{Meeting, NodeJob, Run as EtcdRun, Seen, Wait};
pub use outcome::Final;
pub use place::in_state_directory;
pub(crate) use place::{Files, state_directory};
pub(crate) use records::entry;
pub use records::saved;
pub(crate) use sweep::sweep;

use self::store::Store;

/// How long the end of a driver waits for the last entries of its journal in a file, and for the removal of any journal.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Notices that the run loop has not taken. They tell only of changes, so there are few.
const NOTICES: usize = 16;

/// A change of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What the value is about: a kind, or a kind and an object such as `hosts/a`.
    pub key: String,
    /// The new value. `None` removes the entry.
    pub value: Option<Vec<u8>>,
}

impl Entry {
    /// An entry with a value.
    pub fn new(key: impl Into<String>, value: Vec<u8>) -> Self {
        Self {
            key: key.into(),
            value: Some(value),
        }
    }
}

/// The values of a journal by key.
pub type Entries = BTreeMap<String, Vec<u8>>;

/// Whether the journal can be written. It comes once for each change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It cannot be written, for this reason. The entries are kept, and written later.
    Failed(String),
    /// It is written again.
    Works,
    /// Another driver has the run, with this address if it is known. It is never written again.
    Replaced(Option<String>),
    /// All standby drivers of the run, by their addresses.
    Standbys(Vec<String>),
}

/// The answer to durable entries: whether they are durable, or why they are not. They are written later in that case.
pub type Persisted = Result<(), String>;

/// The journal of a running driver. Dropping it writes what waits, and releases the journal. Dropping that of a run that has not
/// begun ([`Journal::keep`]) removes its files, and waits at most two seconds for that.
#[derive(Debug)]
pub struct Journal {
    queue: Arc<thread::Queue>,
    /// Ends when the thread has closed the journal.
    closed: oneshot::Receiver<()>,
    is_kept: bool,
    replaced: Option<String>,
    epoch: Option<DriverEpoch>,
    end_timeout: Duration,
}

/// A journal that was read. Dropping it closes the journal.
#[derive(Debug)]
pub struct Stored {
    store: Store,
    /// Its entries.
    pub entries: Entries,
}

impl Stored {
    /// Starts to write the journal.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn start(self) -> Result<(Journal, Entries, mpsc::Receiver<Notice>), Error> {
        let (mut journal, notices) = Journal::start(self.store, None)?;
        journal.is_kept = true;
        Ok((journal, self.entries, notices))
    }

    /// Closes the journal, so that another driver can have it.
    pub(crate) fn release(self) {
        self.store.close();
    }

    /// Closes the journal of a run that has ended.
    pub(crate) fn close_ended(self) {
        self.store.close_ended(&self.entries);
    }
}

impl Journal {
    /// Creates the journal of a new run. A journal at the same path is replaced if no driver has it. Blocks.
    ///
    /// # Errors
    /// The files cannot be created, or there is the journal of a living driver, or another file. Nothing is left behind.
    pub fn create(path: &Path, run_id: &str) -> Result<(Self, mpsc::Receiver<Notice>), Error> {
        let (file, replaced) = file::File::create(path, run_id)?;
        Self::start(Store::File(Box::new(file)), replaced)
    }

    /// Creates the journal of a new run in etcd, where this driver leads it with a lease of this length. Agents reach it at
    /// `endpoints`. Blocks.
    ///
    /// # Errors
    /// etcd cannot be used, or the run is there already.
    pub(crate) fn create_in_etcd(
        run: EtcdRun,
        lease: Duration,
        endpoints: Vec<String>,
    ) -> Result<(Self, mpsc::Receiver<Notice>), Error> {
        let etcd = run.create(lease, endpoints)?;
        Self::start(Store::Etcd(Box::new(etcd)), None)
    }

    /// Reads the journal of a run in etcd once no other driver leads it. Agents reach this one at `endpoints`. Blocks.
    ///
    /// # Errors
    /// Another driver leads the run for too long, or the journal cannot be read.
    pub(crate) fn take_in_etcd(
        run: &EtcdRun,
        lease: Duration,
        wait: Wait,
        endpoints: Vec<String>,
    ) -> Result<Stored, Error> {
        let (etcd, entries) = run.take(lease, wait, endpoints)?;
        Ok(Stored {
            store: Store::Etcd(Box::new(etcd)),
            entries,
        })
    }

    /// Reads the journal of a run whose driver has ended. Blocks.
    ///
    /// # Errors
    /// There is no such journal, another driver has it, or it cannot be read. It is not changed then.
    pub fn read(path: &Path, run_id: &str) -> Result<Stored, Error> {
        let (file, entries) = file::File::open(path, run_id)?;
        let store = Store::File(Box::new(file));
        Ok(Stored { store, entries })
    }

    fn start(
        store: Store,
        replaced: Option<String>,
    ) -> Result<(Self, mpsc::Receiver<Notice>), Error> {
        let (notify, notices) = mpsc::channel(NOTICES);
        let epoch = store.epoch().map(DriverEpoch);
        let end_timeout = store.end_timeout();
        store.watch(notify.clone());
        let (queue, closed) = thread::start(store, notify)?;
        let journal = Self {
            epoch,
            queue,
            closed,
            is_kept: false,
            replaced,
            end_timeout,
        };
        Ok((journal, notices))
    }

    /// Keeps the files from now on: the run begins.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Closes the journal as the end of its process does, and waits until its lock is free.
    #[cfg(test)]
    async fn close(mut self) {
        self.queue.close();
        let _ = (&mut self.closed).await;
    }

    /// Writes what waits, and lets another driver continue the run. Waits two seconds for that at most.
    pub(crate) async fn release(mut self) {
        self.queue.close();
        let _ = timeout_at(Instant::now() + CLOSE_TIMEOUT, &mut self.closed).await;
    }

    /// The epoch of this driver, if the place of the journal decides it.
    pub(crate) fn epoch(&self) -> Option<DriverEpoch> {
        self.epoch
    }

    /// The run without an outcome whose journal this one has replaced.
    #[must_use]
    pub fn replaced(&self) -> Option<&str> {
        self.replaced.as_deref()
    }

    /// Writes entries behind: soon, and together with later ones. Does not block.
    pub fn write(&self, entries: impl IntoIterator<Item = Entry>) {
        self.queue.fold(entries, None);
    }

    /// The number of the next write.
    #[must_use]
    pub fn next_write(&self) -> u64 {
        self.queue.writes() + 1
    }

    /// The number of the newest write that is durable. So are all before it.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.queue.durable()
    }

    /// Writes entries at once, with all that wait. The answer comes when they are durable, or cannot be written. Does not
    /// block.
    pub fn persist(
        &self,
        entries: impl IntoIterator<Item = Entry>,
    ) -> oneshot::Receiver<Persisted> {
        let (answer, answered) = oneshot::channel();
        self.queue.fold(entries, Some(answer));
        answered
    }

    /// How long the end of a run waits until its outcome is durable: longer in etcd, where a standby driver repeats a run without one.
    #[must_use]
    pub(crate) fn end_timeout(&self) -> Duration {
        self.end_timeout
    }

    /// Lets the end of the run wait no longer than that of a journal in a file.
    pub(crate) fn end_soon(&mut self) {
        self.end_timeout = self.end_timeout.min(CLOSE_TIMEOUT);
    }

    /// Writes the last entries of a run that has ended, marks the journal as ended, and closes it. Gives up after
    /// [`Journal::end_timeout`].
    ///
    /// # Errors
    /// The reason why they are not durable.
    pub async fn end(mut self, entries: impl IntoIterator<Item = Entry>) -> Persisted {
        let (answer, answered) = oneshot::channel();
        self.queue.end(entries, answer);
        let until = Instant::now() + self.end_timeout;
        let answer = match timeout_at(until, answered).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err("its thread has ended".to_owned())),
            Err(_) => Err("it does not answer in time".to_owned()),
        };
        // Entries that are durable stay so, however long it takes to close the file.
        let _ = timeout_at(until, &mut self.closed).await;
        answer
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        match self.is_kept {
            true => self.queue.close(),
            false => self.queue.discard(CLOSE_TIMEOUT),
        }
    }
}
