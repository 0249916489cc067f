//! A queue of output for a thread that writes, bounded in bytes.
//!
//! ```text
//! tasks of connections --send--> Sender | Receiver --> thread --Progress::advance, Progress::written--> the reader
//! ```
//! - Q1 Pieces are received in the order in which they were sent.
//! - Q2 At most [`CAPACITY`] bytes wait, and [`EXTRA_AT_END`] more once the job has ended, so that agents end at once.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use elasticrun_protocol::{HostId, control::Output};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, sleep_until},
};

/// Bytes that may wait for a thread while the job runs.
const CAPACITY: usize = 64 << 20;

/// Bytes that may wait in addition at the end of the job.
const EXTRA_AT_END: usize = 192 << 20;

/// What a piece costs beside its bytes.
const OVERHEAD: usize = 256;

/// Output of a worker.
#[derive(Debug)]
pub(crate) struct Piece {
    /// The host of the worker.
    pub(crate) host: HostId,
    /// The bytes and their stream.
    pub(crate) output: Output,
}

impl Piece {
    fn len(&self) -> u64 {
        self.output.as_bytes().len() as u64
    }
}

/// What a thread has done. Shared by the thread, the tasks that send to it, and the end of the job.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// When the reader last took bytes, or pieces began to wait.
    last: Instant,
    /// Bytes that wait.
    waiting: u64,
    /// Bytes dropped since the last piece that was sent.
    dropped: u64,
}

impl Progress {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            last: Instant::now(),
            waiting: 0,
            dropped: 0,
        })))
    }

    /// Reports that the reader has taken bytes.
    pub(super) fn advance(&self) {
        self.with(|state| state.last = Instant::now());
    }

    /// Reports that a piece is written.
    pub(super) fn written(&self, piece: &Piece) {
        self.with(|state| state.waiting -= piece.len());
    }

    /// When the reader last took bytes, or pieces began to wait.
    pub(super) fn last(&self) -> Instant {
        self.with(|state| state.last)
    }

    /// Bytes that are not written.
    pub(super) fn left(&self) -> u64 {
        self.with(|state| state.waiting + state.dropped)
    }

    /// Adds a piece. Returns how many bytes were dropped before it.
    fn add(&self, piece: &Piece) -> u64 {
        self.with(|state| {
            if state.waiting == 0 {
                state.last = Instant::now();
            }
            state.waiting += piece.len();
            std::mem::take(&mut state.dropped)
        })
    }

    fn drop_piece(&self, piece: &Piece) {
        self.with(|state| state.dropped += piece.len());
    }

    /// Waits until the reader has taken nothing for `limit`.
    async fn stalled(&self, limit: Duration) {
        loop {
            let due = self.last() + limit;
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A piece in the queue.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) piece: Arc<Piece>,
    /// Bytes dropped before this piece.
    pub(super) dropped: u64,
    _permit: OwnedSemaphorePermit,
}

/// The end of the queue for tasks. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    items: mpsc::UnboundedSender<Option<Item>>,
    permits: Arc<Semaphore>,
    progress: Progress,
    /// How long a piece waits for a reader that takes nothing. `None` for no limit.
    drop_after: Option<Duration>,
}

/// The end of the queue for the thread.
#[derive(Debug)]
pub(super) struct Receiver {
    items: mpsc::UnboundedReceiver<Option<Item>>,
    pub(super) progress: Progress,
}

/// A queue. With `drop_after`, pieces are dropped and counted while the reader takes nothing for so long.
pub(super) fn queue(drop_after: Option<Duration>) -> (Sender, Receiver) {
    // Permits bound the channel.
    let (sender, items) = mpsc::unbounded_channel();
    let progress = Progress::new();
    let receiver = Receiver {
        items,
        progress: progress.clone(),
    };
    let sender = Sender {
        items: sender,
        permits: Arc::new(Semaphore::new(CAPACITY)),
        progress,
        drop_after,
    };
    (sender, receiver)
}

impl Sender {
    /// Queues a piece once it fits. Cancel-safe: the piece is queued or not.
    pub(super) async fn send(&self, piece: Arc<Piece>) {
        let cost = piece.output.as_bytes().len() + OVERHEAD;
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        let stalled = async {
            match self.drop_after {
                Some(limit) => self.progress.stalled(limit).await,
                None => std::future::pending().await,
            }
        };
        let permit = tokio::select! {
            biased;
            permit = Arc::clone(&self.permits).acquire_many_owned(cost) => permit.ok(),
            () = stalled => None,
        };
        let Some(permit) = permit else {
            return self.progress.drop_piece(&piece);
        };
        let dropped = self.progress.add(&piece);
        // Fails only if the thread has panicked.
        let _ = self.items.send(Some(Item {
            piece,
            dropped,
            _permit: permit,
        }));
    }

    /// Makes room for all that agents still have.
    pub(super) fn job_ended(&self) {
        self.permits.add_permits(EXTRA_AT_END);
    }

    /// Ends the queue. The thread ends when it has written all pieces. Later pieces are dropped.
    pub(super) fn close(&self) {
        self.permits.close();
        let _ = self.items.send(None);
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }
}

impl Receiver {
    /// The next piece. Blocks. `None` at the end of the queue.
    pub(super) fn next(&mut self) -> Option<Item> {
        self.items.blocking_recv().flatten()
    }

    /// The next piece, if one waits. The end of the queue is left to [`Receiver::next`].
    pub(super) fn try_next(&mut self) -> Option<Item> {
        let next = self.items.try_recv().ok()?;
        if next.is_none() {
            self.items.close();
        }
        next
    }
}

#[cfg(test)]
pub(super) mod tests {
    use elasticrun_protocol::{Generation, LocalRank, Process, Rank};

    use super::*;

    /// A piece of rank 1.
    pub(in crate::console) fn piece(generation: u32, stderr: bool, bytes: &[u8]) -> Piece {
        let process = Process {
            local_rank: LocalRank(0),
            generation: Generation(generation),
        };
        Piece {
            host: "a".into(),
            output: Output::new(process, Some(Rank(1)), stderr, bytes.to_vec()),
        }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    #[test]
    fn a_full_queue_holds_up_its_sender_until_bytes_are_written() {
        runtime().block_on(async {
            let (sender, mut receiver) = queue(None);
            let large = Arc::new(piece(1, false, &vec![b'x'; CAPACITY - OVERHEAD]));
            sender.send(large).await;
            let small = Arc::new(piece(1, false, b"y"));
            let mut second = std::pin::pin!(sender.send(small));
            tokio::select! {
                biased;
                () = &mut second => panic!("it does not fit"),
                () = std::future::ready(()) => {}
            }
            drop(receiver.try_next().unwrap());
            second.await;
            assert_eq!(receiver.try_next().unwrap().piece.output.as_bytes(), b"y");
        });
    }

    #[test]
    fn at_the_end_of_the_job_there_is_room_for_more() {
        runtime().block_on(async {
            let (sender, _receiver) = queue(None);
            sender
                .send(Arc::new(piece(1, false, &vec![0; CAPACITY - OVERHEAD])))
                .await;
            sender.job_ended();
            sender
                .send(Arc::new(piece(1, false, &vec![0; CAPACITY])))
                .await;
            assert_eq!(sender.progress().left(), (2 * CAPACITY - OVERHEAD) as u64);
        });
    }

    #[test]
    fn pieces_that_a_stalled_reader_does_not_take_are_counted() {
        runtime().block_on(async {
            // No time passes: the reader is stalled as soon as the queue is full.
            let (sender, mut receiver) = queue(Some(Duration::ZERO));
            let full = Arc::new(piece(1, false, &vec![0; CAPACITY - OVERHEAD]));
            sender.send(full).await;
            for _ in 0..3 {
                sender.send(Arc::new(piece(1, false, b"lost"))).await;
            }
            let first = receiver.try_next().unwrap();
            assert_eq!(first.dropped, 0);
            receiver.progress.written(&first.piece);
            assert_eq!(sender.progress().left(), 12);
            drop(first);
            sender.send(Arc::new(piece(1, false, b"kept"))).await;
            let kept = receiver.try_next().unwrap();
            assert_eq!(
                (kept.dropped, kept.piece.output.as_bytes()),
                (12, &b"kept"[..])
            );
        });
    }

    #[test]
    fn a_closed_queue_ends_behind_its_pieces() {
        runtime().block_on(async {
            let (sender, mut receiver) = queue(None);
            sender.send(Arc::new(piece(1, false, b"last"))).await;
            sender.close();
            sender.send(Arc::new(piece(1, false, b"late"))).await;
            assert!(receiver.try_next().is_some());
            assert!(receiver.try_next().is_none());
            assert_eq!(sender.progress().left(), 8);
            let ended = tokio::task::spawn_blocking(move || receiver.next().is_none());
            assert!(ended.await.unwrap());
        });
    }
}
