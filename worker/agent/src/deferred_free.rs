//! Giving memory back to the system, off the way of a recovery: the kernel takes 20 ms for each GiB, and
//! lets nobody else have the processor meanwhile.

use std::{sync::mpsc, thread, time::Duration};

use crate::{Error, scheduling};

/// Memory becomes free when a round starts: by then survivors have synced and committed a step.
const LATER: Duration = Duration::from_millis(200);

/// Drops things later, on a thread of its own. Cheap to clone; the thread ends with the last one.
#[derive(Clone, Debug)]
pub(crate) struct Discard(mpsc::Sender<Box<dyn Send>>);

impl Discard {
    pub(crate) fn start() -> Result<Self, Error> {
        let (sender, things) = mpsc::channel();
        thread::Builder::new()
            .name("discard".into())
            .spawn(move || {
                scheduling::yield_to_all();
                for thing in things {
                    thread::sleep(LATER);
                    drop(thing);
                }
            })
            .map_err(Error::system("start a thread"))?;
        Ok(Self(sender))
    }

    /// Has it dropped soon.
    pub(crate) fn later(&self, thing: impl Send + 'static) {
        // Without the thread it is dropped here, later than nobody.
        let _ = self.0.send(Box::new(thing));
    }
}
