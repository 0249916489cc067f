//! Frees memory outside of the recovery path. The kernel takes 20 ms for each GiB, and occupies a processor meanwhile.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::{Error, scheduling};

/// The delay before a value is dropped. Memory becomes free when a round starts; after the delay the survivors have
/// synced and committed a step.
const DELAY: Duration = Duration::from_millis(200);

/// Drops values later, on a thread of its own. Cheap to clone; the thread ends with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct DeferredFree(mpsc::Sender<(Instant, Box<dyn Send>)>);

impl DeferredFree {
    pub(crate) fn start() -> Result<Self, Error> {
        let (sender, values) = mpsc::channel();
        thread::Builder::new()
            .name("deferred-free".into())
            .spawn(move || {
                scheduling::run_at_lowest_priority();
                for (queued, value) in values {
                    thread::sleep(rest(queued, Instant::now()));
                    drop(value);
                }
            })
            .map_err(Error::system("start a thread"))?;
        Ok(Self(sender))
    }

    /// Queues a value to be dropped.
    pub(crate) fn push(&self, value: impl Send + 'static) {
        // If the thread is gone, the value is dropped here.
        let _ = self.0.send((Instant::now(), Box::new(value)));
    }
}

/// What is left of the delay of a value. Values that were queued together are dropped together.
fn rest(queued: Instant, now: Instant) -> Duration {
    DELAY.saturating_sub(now.saturating_duration_since(queued))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_counts_from_the_time_when_a_value_was_queued() {
        let queued = Instant::now();
        assert_eq!(rest(queued, queued), DELAY);
        assert_eq!(rest(queued, queued + DELAY / 2), DELAY / 2);
        assert_eq!(rest(queued, queued + 3 * DELAY), Duration::ZERO);
    }
}
