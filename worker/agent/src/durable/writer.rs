//! The thread that writes commits.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use elasticrun_protocol::{CommitId, Process};
use tokio::sync::mpsc::Sender;

use super::{
    Destination, Error,
    write::{prune, write},
};
use crate::{
    inbox::InboxMessage,
    memory::{CommitCopy, CommitRegistry},
    scheduling,
};

/// How often the newest commit is looked up again that is overwritten before it can be pinned.
const MAX_PINS: usize = 100;

/// A complete commit in the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    pub(crate) commit: CommitId,
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
}

/// Writes commits one after the other, on a thread of its own. The thread ends with this value, unless the store hangs.
#[derive(Debug)]
pub(crate) struct DurableWriter(mpsc::Sender<(Process, u32)>);

impl DurableWriter {
    /// Starts the thread. It sends [`InboxMessage::DurableEnded`] for each write.
    pub(super) fn start(
        destination: Destination,
        registry: CommitRegistry,
        inbox: Sender<InboxMessage>,
    ) -> Result<Self, crate::Error> {
        let (sender, jobs) = mpsc::channel::<(Process, u32)>();
        thread::Builder::new()
            .name("durable-writer".into())
            .spawn(move || {
                scheduling::run_at_lowest_priority();
                for (process, world_size) in jobs {
                    let result = write_newest(&destination, &registry, process, world_size);
                    let ended = InboxMessage::DurableEnded(result.map_err(|e| e.to_string()));
                    // Fails only at the agent's own end.
                    if inbox.blocking_send(ended).is_err() {
                        return;
                    }
                }
            })
            .map_err(crate::Error::system("start a thread"))?;
        Ok(Self(sender))
    }

    /// Writes the newest commit of a process of a round with so many workers.
    pub(crate) fn write(&self, process: Process, world_size: u32) {
        // The thread is gone only at the agent's own end.
        let _ = self.0.send((process, world_size));
    }
}

/// Writes the newest commit of a process and removes older ones. None if it has no bytes: the process keeps its state itself.
fn write_newest(
    destination: &Destination,
    registry: &CommitRegistry,
    process: Process,
    world_size: u32,
) -> Result<Option<Written>, Error> {
    let begun = Instant::now();
    let store = destination.open()?;
    let commit = pin_newest(registry, process)?;
    let info = commit.info();
    if info.len == 0 {
        return Ok(None);
    }
    write(store.as_ref(), &destination.run_id, &commit, world_size)?;
    drop(commit);
    if let Err(error) = prune(store.as_ref(), &destination.run_id) {
        tracing::warn!(%error, "older durable commits stay in the store");
    }
    Ok(Some(Written {
        commit: info.id,
        bytes: info.len,
        took: begun.elapsed(),
    }))
}

/// Pins the newest commit. The worker may commit on meanwhile, so that another one is the newest.
fn pin_newest(registry: &CommitRegistry, process: Process) -> Result<CommitCopy, Error> {
    for _ in 0..MAX_PINS {
        let newest = registry.newest(process).ok_or(Error::Gone)?;
        if let Some(commit) = registry.copy(process, newest) {
            return Ok(commit);
        }
    }
    Err(Error::Gone)
}

#[cfg(test)]
mod tests;
