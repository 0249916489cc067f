//! The thread that writes a journal, and the queue of entries that it takes.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

use super::{
    Entry, Error, Notice, Persisted,
    store::{Failure, Store},
};

/// The shortest time between two commits of entries that are written behind.
const SPACING: Duration = Duration::from_millis(20);

/// The time between two tries to write a journal that cannot be written.
const RETRY: Duration = Duration::from_secs(5);

/// Entries to write, by key. `None` removes an entry.
pub(super) type Dirty = BTreeMap<String, Option<Vec<u8>>>;

/// What waits for the disk. Its size is bounded by the number of keys, however long the disk takes.
#[derive(Debug, Default)]
struct Pending {
    dirty: Dirty,
    /// Entries that must be durable at once, with their answers.
    answers: Vec<oneshot::Sender<Persisted>>,
    /// How many times entries have come.
    writes: u64,
    /// How many of these times are durable.
    durable: u64,
    /// Mark the run as ended.
    ended: bool,
    /// No entries follow.
    closing: bool,
    /// Write nothing more, and remove the files.
    discarding: bool,
    /// The thread has closed the journal.
    closed: bool,
    /// The end of the last try, and whether it failed.
    last: Option<(Instant, bool)>,
}

/// What the thread writes at once.
#[derive(Debug)]
struct Batch {
    dirty: Dirty,
    answers: Vec<oneshot::Sender<Persisted>>,
    ended: bool,
    /// [`Pending::writes`] when it was taken.
    writes: u64,
}

/// When the thread acts next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    Now,
    At(Instant),
    /// When something comes.
    Never,
    /// The journal is closed.
    End,
}

impl Pending {
    fn fold(
        &mut self,
        entries: impl IntoIterator<Item = Entry>,
        answer: Option<oneshot::Sender<Persisted>>,
    ) {
        let entries = entries.into_iter().map(|Entry { key, value }| (key, value));
        self.writes += 1;
        self.dirty.extend(entries);
        self.answers.extend(answer);
    }

    fn due(&self, now: Instant) -> Due {
        let failed = matches!(self.last, Some((_, true)));
        let waits = !self.dirty.is_empty() || !self.answers.is_empty() || self.ended;
        match self.last {
            _ if self.discarding => Due::End,
            // One try is enough at the end.
            _ if self.closing && (!waits || failed && self.answers.is_empty()) => Due::End,
            _ if !waits => Due::Never,
            _ if self.closing || !self.answers.is_empty() => Due::Now,
            Some((at, failed)) => {
                let next = at + if failed { RETRY } else { SPACING };
                if next <= now { Due::Now } else { Due::At(next) }
            }
            None => Due::Now,
        }
    }

    /// The entries to write now. They come back by [`Pending::done`].
    fn take(&mut self) -> Batch {
        Batch {
            dirty: std::mem::take(&mut self.dirty),
            answers: std::mem::take(&mut self.answers),
            ended: std::mem::take(&mut self.ended),
            writes: self.writes,
        }
    }

    /// Ends a try. Entries that could not be written wait again, unless newer ones have come. Returns whether the journal
    /// began or ceased to work.
    fn done(&mut self, now: Instant, written: bool, batch: Batch) -> bool {
        if written {
            // What an earlier try could not write was in this one.
            self.durable = batch.writes;
        } else {
            for (key, value) in batch.dirty {
                self.dirty.entry(key).or_insert(value);
            }
            self.ended |= batch.ended;
        }
        let failed = self.last.replace((now, !written));
        matches!(failed, Some((_, true))) == written
    }
}

/// Entries on their way to the thread.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pending: Mutex<Pending>,
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds entries. With an answer, they are written at once.
    pub(super) fn fold(
        &self,
        entries: impl IntoIterator<Item = Entry>,
        answer: Option<oneshot::Sender<Persisted>>,
    ) {
        self.lock().fold(entries, answer);
        self.changed.notify_one();
    }

    /// How many times entries have come.
    pub(super) fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// How many of these times are durable.
    pub(super) fn durable(&self) -> u64 {
        self.lock().durable
    }

    /// Adds the last entries, marks the run as ended with them, and ends the thread once they are written, or could not be.
    pub(super) fn end(
        &self,
        entries: impl IntoIterator<Item = Entry>,
        answer: oneshot::Sender<Persisted>,
    ) {
        let mut pending = self.lock();
        pending.fold(entries, Some(answer));
        pending.ended = true;
        pending.closing = true;
        drop(pending);
        self.changed.notify_one();
    }

    /// Ends the thread once it has written, or tried to write, what waits.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.changed.notify_one();
    }

    /// Ends the thread, which removes the files of the journal. Blocks until it has, for this long at most.
    pub(super) fn discard(&self, limit: Duration) {
        let mut pending = self.lock();
        pending.discarding = true;
        self.changed.notify_all();
        let until_closed =
            (self.changed).wait_timeout_while(pending, limit, |pending| !pending.closed);
        drop(until_closed);
    }

    /// Closes the journal at the end of the thread.
    fn finish(&self, store: Store) {
        let discarding = self.lock().discarding;
        match discarding {
            true => store.discard(),
            false => store.close(),
        }
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits until something is to be written, and takes it. `None` at the end.
    fn next(&self) -> Option<Batch> {
        let mut pending = self.lock();
        loop {
            let now = Instant::now();
            pending = match pending.due(now) {
                Due::Now => return Some(pending.take()),
                Due::End => return None,
                Due::Never => {
                    let waited = self.changed.wait(pending);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
                Due::At(at) => {
                    let waited = self.changed.wait_timeout(pending, at - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// Starts the thread of a journal. The second value ends when the thread has closed it.
///
/// # Errors
/// The system starts no thread.
pub(super) fn start(
    store: Store,
    notices: mpsc::Sender<Notice>,
) -> Result<(Arc<Queue>, oneshot::Receiver<()>), Error> {
    let queue = Arc::new(Queue::default());
    let (closing, closed) = oneshot::channel::<()>();
    let shared = Arc::clone(&queue);
    let write_all = move || {
        write(store, &shared, &notices);
        drop(closing);
    };
    (thread::Builder::new().name("journal".to_owned()))
        .spawn(write_all)
        .map_err(|error: io::Error| Error::io("a thread of the journal")(error))?;
    Ok((queue, closed))
}

fn write(mut store: Store, queue: &Queue, notices: &mpsc::Sender<Notice>) {
    let mut is_replaced = false;
    while let Some(mut batch) = queue.next() {
        let result = store.commit(&batch.dirty, batch.ended);
        let answers = std::mem::take(&mut batch.answers);
        let changed = (queue.lock()).done(Instant::now(), result.is_ok(), batch);
        // Before the answers: a run loop that is replaced must not carry out what waits for them.
        let notice = notice(&result, changed, &mut is_replaced);
        let untold = notice.and_then(|notice| match notices.try_send(notice) {
            Err(TrySendError::Full(notice @ Notice::Replaced(_))) => Some(notice),
            // A loop that has ended, or takes nothing, misses no decision.
            _ => None,
        });
        for answer in answers {
            // The job may have ended.
            let _ = answer.send(result.clone().map_err(|failure| failure.to_string()));
        }
        if let Some(notice) = untold {
            // It has ended.
            let _ = notices.blocking_send(notice);
        }
    }
    queue.finish(store);
}

/// What to report of a try. `changed`: the journal began or ceased to work. A replacement is reported once, also after a failure.
fn notice(result: &Result<(), Failure>, changed: bool, is_replaced: &mut bool) -> Option<Notice> {
    match result {
        Err(Failure::Replaced(by)) => {
            let is_known = std::mem::replace(is_replaced, true);
            (!is_known).then(|| Notice::Replaced(by.clone()))
        }
        Ok(()) => changed.then_some(Notice::Works),
        Err(Failure::Now(why)) => changed.then(|| Notice::Failed(why.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(keys: &[(&str, u8)]) -> Pending {
        Pending {
            dirty: dirty(keys),
            ..Pending::default()
        }
    }

    fn dirty(keys: &[(&str, u8)]) -> Dirty {
        let entry = |(key, value): &(&str, u8)| ((*key).to_owned(), Some(vec![*value]));
        keys.iter().map(entry).collect()
    }

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn entries_are_written_at_once_and_then_every_20_ms() {
        let start = Instant::now();
        let mut pending = pending(&[("a", 1)]);
        assert_eq!(pending.due(start), Due::Now);
        let batch = pending.take();
        assert_eq!(pending.due(start), Due::Never);
        assert!(!pending.done(start, true, batch));
        pending.dirty = dirty(&[("b", 1)]);
        assert_eq!(pending.due(start + millis(5)), Due::At(start + SPACING));
        assert_eq!(pending.due(start + millis(20)), Due::Now);
    }

    #[test]
    fn durable_entries_do_not_wait() {
        let start = Instant::now();
        let mut pending = pending(&[("a", 1)]);
        pending.last = Some((start, true));
        assert_eq!(pending.due(start), Due::At(start + RETRY));
        pending.answers.push(oneshot::channel().0);
        assert_eq!(pending.due(start), Due::Now);
    }

    #[test]
    fn a_failure_is_told_once_and_keeps_the_newest_value_of_each_key() {
        let start = Instant::now();
        let mut pending = pending(&[("a", 1), ("b", 1)]);
        pending.ended = true;
        pending.writes = 1;
        let batch = pending.take();
        pending.writes = 2;
        pending.dirty = dirty(&[("b", 2), ("c", 2)]);
        assert!(pending.done(start, false, batch));
        assert_eq!(pending.dirty, dirty(&[("a", 1), ("b", 2), ("c", 2)]));
        assert!(pending.ended);
        assert_eq!(pending.due(start + SPACING), Due::At(start + RETRY));
        let batch = pending.take();
        assert!(!pending.done(start, false, batch), "told before");
        assert_eq!(pending.durable, 0);
        let batch = pending.take();
        assert_eq!(batch.dirty.len(), 3);
        assert!(pending.done(start, true, batch), "works again");
        assert_eq!(pending.durable, 2);
        assert_eq!(pending.due(start), Due::Never);
    }

    #[test]
    fn a_replacement_is_told_once_whatever_failed_before() {
        let failed = Err(Failure::Now("full".to_owned()));
        let replaced = Err(Failure::Replaced(None));
        for first in [Ok(()), failed] {
            let (start, mut pending, mut is_replaced) = (Instant::now(), Pending::default(), false);
            let mut told = Vec::new();
            for result in [&first, &replaced, &replaced] {
                pending.dirty = dirty(&[("a", 1)]);
                let batch = pending.take();
                let changed = pending.done(start, result.is_ok(), batch);
                told.extend(notice(result, changed, &mut is_replaced));
            }
            told.retain(|notice| !matches!(notice, Notice::Failed(_)));
            assert_eq!(told, [Notice::Replaced(None)], "{first:?}");
        }
    }

    #[test]
    fn a_queue_that_is_not_written_holds_one_value_for_each_key() {
        let queue = Queue::default();
        for round in 0..10_000_u32 {
            let value = round.to_le_bytes().to_vec();
            queue.fold([Entry::new("rounds", value)], None);
        }
        assert_eq!(queue.lock().dirty.len(), 1);
    }

    #[test]
    fn the_end_waits_for_one_try() {
        let start = Instant::now();
        let mut pending = pending(&[("a", 1)]);
        pending.last = Some((start, false));
        pending.closing = true;
        assert_eq!(pending.due(start), Due::Now);
        let batch = pending.take();
        assert_eq!(pending.due(start), Due::End);
        pending.done(start, false, batch);
        assert_eq!(pending.due(start), Due::End, "the disk is full");
    }
}
