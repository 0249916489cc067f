//! Resends, in a node: the state of each pair, and dropped messages for tests.

use std::{
    collections::{BTreeMap, hash_map::RandomState},
    hash::{BuildHasher, Hasher},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{Node, Process, lock};
use crate::{
    core::{
        frame::{Header, Kind},
        resend::{DuplicateFilter, Unacknowledged},
    },
    net::{Connection, Outgoing, Pace},
};

#[derive(Debug, Default)]
struct Pair {
    sent: Unacknowledged<Outgoing>,
    received: DuplicateFilter,
}

/// What was sent to and received from each process. Each numbers its messages from the start.
#[derive(Debug)]
pub(super) struct Resends {
    timeout: Duration,
    pairs: Mutex<BTreeMap<Process, Pair>>,
    /// Signalled when everything was acknowledged.
    idle: Condvar,
    dice: AtomicU64,
}

impl Resends {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            pairs: Mutex::default(),
            idle: Condvar::new(),
            dice: AtomicU64::new(RandomState::new().build_hasher().finish() | 1),
        }
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Numbers a message and keeps it until it is acknowledged.
    pub(super) fn keep(
        &self,
        to: Process,
        header: &mut Header,
        parts: [Bytes; 3],
        now: Duration,
    ) -> Outgoing {
        let mut pairs = lock(&self.pairs);
        let pair = pairs.entry(to).or_default();
        header.sequence = pair.sent.next_sequence();
        let frame = Outgoing::new(header, parts);
        pair.sent
            .keep(header.sequence, frame.clone(), now, self.timeout);
        frame
    }

    /// Notes a received number. Returns whether it is new.
    pub(super) fn admit(&self, from: Process, sequence: u64) -> bool {
        lock(&self.pairs)
            .entry(from)
            .or_default()
            .received
            .admit(sequence)
    }

    pub(super) fn acknowledge(&self, from: Process, sequence: u64) {
        let mut pairs = lock(&self.pairs);
        if let Some(pair) = pairs.get_mut(&from) {
            pair.sent.acknowledge(sequence);
        }
        if is_idle(&pairs) {
            self.idle.notify_all();
        }
    }

    /// Nothing is sent any more to the process, nor to those that had its id before.
    pub(super) fn forget(&self, (node, incarnation): Process) {
        lock(&self.pairs).retain(|of, _| of.0 != node || of.1 > incarnation);
        self.idle.notify_all();
    }

    /// The messages to send again, and when the next ones are due.
    pub(super) fn due(&self, now: Duration) -> (Vec<(Process, Outgoing)>, Option<Duration>) {
        let mut pairs = lock(&self.pairs);
        let mut due = Vec::new();
        for (&process, pair) in pairs.iter_mut() {
            let frames = pair.sent.due(now, self.timeout);
            due.extend(frames.into_iter().map(|frame| (process, frame)));
        }
        let next = pairs.values().filter_map(|pair| pair.sent.next_due()).min();
        (due, next)
    }

    /// Waits until all that was sent has arrived, at most for so long.
    pub(super) fn settle(&self, limit: Duration) {
        let start = Instant::now();
        let mut pairs = lock(&self.pairs);
        while !is_idle(&pairs)
            && let Some(rest) = limit.checked_sub(start.elapsed())
        {
            let woken = self.idle.wait_timeout(pairs, rest);
            pairs = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether to drop a received message: so many of 100.
    pub(super) fn drops(&self, percent: u32) -> bool {
        if percent == 0 {
            return false;
        }
        // SplitMix64.
        let state = self
            .dice
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mut number = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((number ^ number >> 31) % 100) < u64::from(percent)
    }
}

fn is_idle(pairs: &BTreeMap<Process, Pair>) -> bool {
    pairs.values().all(|pair| pair.sent.is_empty())
}

impl Node {
    /// Acknowledges a message.
    pub(super) fn acknowledge(&self, connection: &Arc<Connection>, sequence: u64) {
        let header = Header {
            sequence,
            ..Header::new(Kind::Acknowledgement, 0, self.id())
        };
        let frame = Outgoing::new(&header, [Bytes::new(), Bytes::new(), Bytes::new()]);
        // A broken connection is noticed by its receiving thread.
        let _ = connection.send(frame, Pace::Corked);
    }
}
