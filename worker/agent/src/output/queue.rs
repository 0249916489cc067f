//! The bounded queue of pieces for the driver.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    time::Duration,
};

use elasticrun_protocol::control;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

/// Bytes that may wait before workers block.
pub(super) const CAPACITY: usize = 4 << 20;

/// Bytes beyond [`CAPACITY`] for what ended processes wrote last.
const EXTRA_FOR_ENDED: usize = 4 << 20;

/// The timeout of the last attempt to send what a driver has not taken that is gone by all evidence.
const TIMEOUT_WITHOUT_DRIVER: Duration = Duration::from_millis(500);

/// The queue. It has many producers and one consumer, all on one thread.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: RefCell<VecDeque<control::Output>>,
    bytes: Cell<usize>,
    /// When the driver last read bytes, or the queue was last empty.
    progress: Cell<Instant>,
    timeout: Cell<Duration>,
    closed: Cell<bool>,
    driver_is_gone: Cell<bool>,
    more: Notify,
    space: Notify,
    closing: Notify,
}

impl Queue {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            waiting: RefCell::default(),
            bytes: Cell::new(0),
            progress: Cell::new(Instant::now()),
            timeout: Cell::new(timeout),
            closed: Cell::new(false),
            driver_is_gone: Cell::new(false),
            more: Notify::new(),
            space: Notify::new(),
            closing: Notify::new(),
        }
    }

    /// Waits until a piece of a running process fits; `false` if the driver reads nothing for the timeout.
    pub(super) async fn wait_for_capacity(&self) -> bool {
        while self.bytes.get() >= CAPACITY {
            let deadline = self.progress.get() + self.timeout.get();
            if deadline <= Instant::now() {
                return false;
            }
            tokio::select! {
                () = self.space.notified() => {}
                () = sleep_until(deadline) => {}
            }
        }
        true
    }

    /// Whether a piece of an ended process fits. It does not wait for capacity.
    pub(super) fn has_capacity_for_ended(&self) -> bool {
        self.bytes.get() < CAPACITY + EXTRA_FOR_ENDED
    }

    /// Adds a piece, for which the caller has checked the capacity.
    pub(super) fn push(&self, piece: control::Output) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty() {
            self.progress.set(Instant::now());
        }
        self.bytes.set(self.bytes.get() + piece.as_bytes().len());
        waiting.push_back(piece);
        self.more.notify_one();
    }

    /// The next piece; none once the queue is closed and empty.
    pub(super) async fn next(&self) -> Option<control::Output> {
        loop {
            if let Some(piece) = self.waiting.borrow_mut().pop_front() {
                return Some(piece);
            }
            if self.closed.get() {
                return None;
            }
            self.more.notified().await;
        }
    }

    /// Reports that the driver has a piece from [`Queue::next`].
    pub(super) fn taken(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
        self.advanced();
        self.space.notify_waiters();
    }

    /// Reports that the driver has read some bytes.
    pub(super) fn advanced(&self) {
        self.progress.set(Instant::now());
    }

    /// Bytes that the driver has not taken.
    pub(super) fn len(&self) -> usize {
        self.bytes.get()
    }

    /// Closes the queue: no more pieces come. The time of [`Queue::wait_stalled`] begins anew.
    pub(super) fn close(&self) {
        self.closed.set(true);
        self.advanced();
        self.more.notify_one();
        self.closing.notify_one();
    }

    /// Reports that no driver is expected any more: what it does not take at once is lost.
    pub(super) fn give_up_driver(&self) {
        self.driver_is_gone.set(true);
        self.timeout
            .set(self.timeout.get().min(TIMEOUT_WITHOUT_DRIVER));
    }

    pub(super) fn has_given_up_driver(&self) -> bool {
        self.driver_is_gone.get()
    }

    /// Waits until the driver has read nothing for the timeout.
    pub(super) async fn wait_stalled(&self) {
        loop {
            let deadline = self.progress.get() + self.timeout.get();
            if deadline <= Instant::now() {
                return;
            }
            sleep_until(deadline).await;
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Waits until the queue is closed. One task may wait at a time.
    pub(super) async fn wait_closed(&self) {
        while !self.closed.get() {
            self.closing.notified().await;
        }
    }
}
