//! Frees memory outside of the recovery path. The kernel takes 20 ms for each GiB, and occupies a processor meanwhile.

use std::{sync::mpsc, thread, time::Duration};

use crate::{Error, scheduling};

/// The delay before a value is dropped. Memory becomes free when a round starts; after the delay the survivors have
/// synced and committed a step.
const DELAY: Duration = Duration::from_millis(200);

/// Drops values later, on a thread of its own. Cheap to clone; the thread ends with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct DeferredFree(mpsc::Sender<Box<dyn Send>>);

impl DeferredFree {
    pub(crate) fn start() -> Result<Self, Error> {
        let (sender, values) = mpsc::channel();
        thread::Builder::new()
            .name("deferred-free".into())
            .spawn(move || {
                scheduling::run_at_lowest_priority();
                for value in values {
                    thread::sleep(DELAY);
                    drop(value);
                }
            })
            .map_err(Error::system("start a thread"))?;
        Ok(Self(sender))
    }

    /// Queues a value to be dropped.
    pub(crate) fn push(&self, value: impl Send + 'static) {
        // If the thread is gone, the value is dropped here.
        let _ = self.0.send(Box::new(value));
    }
}
