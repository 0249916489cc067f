//! Commits in a durable store, written behind the training.
//!
//! ```text
//! PLACE/RUN/COMMIT/shard-0-of-1-CHECKSUM    the bytes of the state
//! PLACE/RUN/COMMIT/manifest.json            written last: the commit is complete
//! ```
//! The place is a directory or a prefix of a bucket ([`elasticrun_durable`]).
//! [`elasticrun_core::agent`] decides when a commit is written. This module does the I/O, on a thread of the lowest
//! priority. The thread copies a pinned commit, so that workers commit on meanwhile.
//!
//! # Invariants
//! - S1 A commit is complete if and only if its manifest exists. The manifest is published atomically, after all bytes that
//!   it names have reached the store.
//!   Two hosts that write the same commit write two files of different names, or the same bytes.
//! - S2 The manifest has the length and the checksum of each shard, computed of the bytes in memory. A reader checks both.
//! - S3 The two newest complete commits of a run are never removed. A removal begins with the manifest.
//! - S4 No call of this module is on the path of the agent's loop.
//!
//! # Not promised
//! A store that hangs blocks the thread, and no further commit is written. The agent reports it and ends without it.

#[cfg(any(test, fuzzing))]
pub mod any_manifest;
mod error;
mod layout;
mod manifest;
mod read;
mod reader;
mod write;
mod writer;

use elasticrun_durable::{Access, Store};
use error::Error;

use elasticrun_protocol::control::Setup;
use reader::DurableReader;
use tokio::sync::mpsc::Sender;
use writer::DurableWriter;

pub(crate) use read::Found;
pub(crate) use writer::Written;

use crate::{inbox::InboxMessage, memory::CommitRegistry};

/// A store, and the name of a run below it.
#[derive(Clone, Debug)]
struct Destination {
    /// A directory, or the URL of a bucket and a prefix.
    place: String,
    run_id: String,
    /// How to reach a bucket.
    access: Access,
}

impl Destination {
    fn open(&self) -> Result<Box<dyn Store>, Error> {
        Ok(elasticrun_durable::open(&self.place, &self.access)?)
    }
}

/// The durable store of a run, for the loop of its agent.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(crate) writer: DurableWriter,
    pub(crate) reader: DurableReader,
}

impl Durable {
    /// Starts the thread that writes, and checks the store.
    pub(crate) fn start(
        place: &str,
        setup: &Setup,
        registry: CommitRegistry,
        inbox: Sender<InboxMessage>,
    ) -> Result<Self, crate::Error> {
        let destination = Destination {
            place: place.to_owned(),
            run_id: setup.run_id.clone(),
            access: Access::new(&setup.env),
        };
        let reader = DurableReader::new(destination.clone(), inbox.clone());
        reader.check();
        Ok(Self {
            reader,
            writer: DurableWriter::start(destination, registry, inbox)?,
        })
    }
}
