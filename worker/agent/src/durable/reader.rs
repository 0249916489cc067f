//! The threads that read the store, one for each command. A slow write does not delay them.

use std::{sync::Arc, thread};

use elasticrun_protocol::{
    CommitId, Process,
    control::{ResumeFrom, StoredCommit},
};
use elasticrun_shm::commit::CommitMemory;
use tokio::sync::mpsc::Sender;

use super::{Destination, Error, Found, read};
use crate::inbox::InboxMessage;

/// Reads a store for the loop of an agent.
#[derive(Clone, Debug)]
pub(crate) struct DurableReader {
    destination: Destination,
    inbox: Sender<InboxMessage>,
}

impl DurableReader {
    pub(super) fn new(destination: Destination, inbox: Sender<InboxMessage>) -> Self {
        Self { destination, inbox }
    }

    /// Checks that the store can be written. [`InboxMessage::DurableUnusable`] follows if it cannot.
    pub(super) fn check(&self) {
        let inbox = self.inbox.clone();
        self.start(move |destination| {
            let checked =
                (destination.open()).and_then(|store| store.check_writable().map_err(Error::from));
            if let Err(error) = checked {
                // Fails only at the agent's own end.
                let _ = inbox.blocking_send(InboxMessage::DurableUnusable(error.to_string()));
            }
        });
    }

    /// Lists the store. [`InboxMessage::DurableFound`] follows.
    pub(crate) fn find(&self, number: u64, from: Option<ResumeFrom>) {
        self.on_thread(move |destination| {
            let found = match destination.open() {
                Ok(store) => read::find(store.as_ref(), &destination.run_id, from.as_ref()),
                Err(error) => Found {
                    refused: vec![error.to_string()],
                    ..Found::default()
                },
            };
            InboxMessage::DurableFound { number, found }
        });
    }

    /// Loads a commit into the empty memory of a process. [`InboxMessage::DurableLoaded`] follows.
    pub(crate) fn load(
        &self,
        number: u64,
        process: Process,
        (stored, id): (StoredCommit, CommitId),
        memory: Arc<CommitMemory>,
    ) {
        self.on_thread(move |destination| {
            let loaded = destination
                .open()
                .and_then(|store| read::load(store.as_ref(), &stored, id, &memory));
            let result = loaded.map_err(|error| error.to_string());
            InboxMessage::DurableLoaded {
                number,
                process,
                result,
            }
        });
    }

    fn on_thread(&self, work: impl FnOnce(Destination) -> InboxMessage + Send + 'static) {
        let inbox = self.inbox.clone();
        // Fails only at the agent's own end.
        self.start(move |destination| _ = inbox.blocking_send(work(destination)));
    }

    fn start(&self, work: impl FnOnce(Destination) + Send + 'static) {
        let destination = self.destination.clone();
        let started = thread::Builder::new()
            .name("durable-reader".into())
            .spawn(move || work(destination));
        if let Err(error) = started {
            // The driver waits for an answer, but not without end.
            tracing::error!(%error, "the durable store cannot be read");
        }
    }
}
