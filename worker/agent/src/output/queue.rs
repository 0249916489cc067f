//! Lines on their way to the driver: bounded, and patient for a while only.

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

/// Bytes that may wait before workers are blocked.
pub(super) const ROOM: usize = 4 << 20;

/// Beyond [`ROOM`], for the last lines of processes that have ended.
const ROOM_FOR_LAST: usize = 4 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: RefCell<VecDeque<control::Output>>,
    bytes: Cell<usize>,
    /// When the driver took something last, or there was nothing to take.
    progress: Cell<Instant>,
    patience: Duration,
    closed: Cell<bool>,
    more: Notify,
    room: Notify,
    closing: Notify,
}

impl Queue {
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            waiting: RefCell::default(),
            bytes: Cell::new(0),
            progress: Cell::new(Instant::now()),
            patience,
            closed: Cell::new(false),
            more: Notify::new(),
            room: Notify::new(),
            closing: Notify::new(),
        }
    }

    /// Waits until lines of a living process fit; `false` if the driver takes nothing for too long.
    pub(super) async fn wait_for_room(&self) -> bool {
        while self.bytes.get() >= ROOM {
            let patient_until = self.progress.get() + self.patience;
            if patient_until <= Instant::now() {
                return false;
            }
            tokio::select! {
                () = self.room.notified() => {}
                () = sleep_until(patient_until) => {}
            }
        }
        true
    }

    /// Whether lines of a dead process fit, for which nobody waits.
    pub(super) fn has_room_for_last(&self) -> bool {
        self.bytes.get() < ROOM + ROOM_FOR_LAST
    }

    /// Puts lines, for which there is room.
    pub(super) fn push(&self, lines: control::Output) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty() {
            self.progress.set(Instant::now());
        }
        self.bytes.set(self.bytes.get() + lines.text.len());
        waiting.push_back(lines);
        self.more.notify_one();
    }

    /// The next lines; none once the queue is closed and empty.
    pub(super) async fn next(&self) -> Option<control::Output> {
        loop {
            if let Some(lines) = self.waiting.borrow_mut().pop_front() {
                return Some(lines);
            }
            if self.closed.get() {
                return None;
            }
            self.more.notified().await;
        }
    }

    /// Lines that [`Queue::next`] gave are with the driver.
    pub(super) fn taken(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
        self.advanced();
        self.room.notify_waiters();
    }

    /// The driver has taken a part of something.
    pub(super) fn advanced(&self) {
        self.progress.set(Instant::now());
    }

    /// Nothing comes any more.
    pub(super) fn close(&self) {
        self.closed.set(true);
        self.more.notify_one();
        self.closing.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Waits until nothing comes any more. For one task.
    pub(super) async fn wait_closed(&self) {
        while !self.closed.get() {
            self.closing.notified().await;
        }
    }
}
