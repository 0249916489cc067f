//! The sending half of a connection.
//!
//! Whoever sends writes at once, unless another thread is writing: then that one takes the frame with it. What the socket does
//! not take is left to the sending thread. So a frame is never copied, and nobody waits for a socket but that thread.

use std::{
    io,
    sync::{
        Arc, Condvar, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    outgoing::{Batch, Outgoing},
    sender::SendThread,
    shared::Writer,
    stream::Stream,
    turn::Turns,
};
use crate::{
    core::{node::NodeId, queue::SendQueue},
    error::{Error, end_of_connection},
};

/// Whether a sender waits while too many bytes are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Waits for space, for so long.
    Wait(Duration),
    /// Never waits: the thread has other things to do.
    Now,
    /// As `Now`, and the frame may wait until the receiving thread has handled all that it has received.
    Corked,
}

/// Corked frames wait while they are less than this together. Large ones gain nothing by it, and a burst of them would not fit
/// into the socket.
const CORKED_BYTES: usize = 32 << 10;

/// A connection to another node.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Arc<Stream>,
    turns: Turns,
    peer: OnceLock<(NodeId, u16)>,
    out: Mutex<Out>,
    /// Memory for payloads, if both ends are on one host. Whoever is busy has it.
    shared: OnceLock<Mutex<Writer>>,
    /// Signalled when queued bytes were sent, and at the end.
    space: Condvar,
    sender: Arc<SendThread>,
    limit: usize,
    corked: AtomicBool,
}

#[derive(Debug, Default)]
struct Out {
    queue: SendQueue<Outgoing>,
    batch: Batch,
    /// Whether a thread is writing, or the sending thread is going to.
    busy: bool,
    waiting: usize,
    closed: Option<Error>,
}

impl Out {
    fn queued(&self) -> usize {
        self.queue.bytes() + self.batch.bytes
    }

    fn close(&mut self, error: Error) {
        if self.closed.is_none() {
            self.closed = Some(error);
        }
        self.queue.clear();
        self.batch = Batch::default();
    }
}

impl Connection {
    pub(crate) fn new(
        stream: Stream,
        peer: Option<(NodeId, u16)>,
        sender: Arc<SendThread>,
        limit: usize,
        in_turns: bool,
    ) -> io::Result<Arc<Self>> {
        let stream = Arc::new(stream);
        let connection = Self {
            turns: Turns::new(&stream, in_turns)?,
            stream,
            peer: OnceLock::new(),
            out: Mutex::default(),
            shared: OnceLock::new(),
            space: Condvar::new(),
            sender,
            limit,
            corked: AtomicBool::new(false),
        };
        if let Some((peer, incarnation)) = peer {
            connection.set_peer(peer, incarnation);
        }
        Ok(Arc::new(connection))
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Whose turn it is to read.
    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// The other end. `None` until it has registered.
    pub(crate) fn peer(&self) -> Option<NodeId> {
        self.peer.get().map(|(peer, _)| *peer)
    }

    /// The other end, and how many processes have had its id before.
    pub(crate) fn process(&self) -> Option<(NodeId, u16)> {
        self.peer.get().copied()
    }

    pub(crate) fn set_peer(&self, peer: NodeId, incarnation: u16) {
        // The id of a connection never changes.
        let _ = self.peer.set((peer, incarnation));
    }

    /// From now on, payloads go through shared memory.
    pub(crate) fn share(&self, writer: Writer) {
        // A connection gets memory once.
        let _ = self.shared.set(Mutex::new(writer));
    }

    fn name(&self) -> NodeId {
        self.peer().unwrap_or(NodeId(0))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a frame, or queues it.
    pub(crate) fn send(self: &Arc<Self>, frame: Outgoing, pace: Pace) -> Result<(), Error> {
        if let Pace::Wait(limit) = pace {
            self.wait_for_space(limit)?;
        }
        let mut out = self.lock();
        if let Some(error) = &out.closed {
            return Err(error.clone());
        }
        let len = frame.len();
        out.queue.push(frame.priority, frame, len);
        let waits = pace == Pace::Corked
            && self.corked.load(Ordering::Relaxed)
            && out.queued() < CORKED_BYTES;
        if out.busy || waits {
            return Ok(());
        }
        out.busy = true;
        self.write(out);
        Ok(())
    }

    /// Waits until less than the limit of bytes is queued.
    pub(crate) fn wait_for_space(&self, limit: Duration) -> Result<(), Error> {
        let mut out = self.lock();
        if out.queued() <= self.limit {
            return Ok(());
        }
        let start = Instant::now();
        out.waiting += 1;
        let result = loop {
            if let Some(error) = &out.closed {
                break Err(error.clone());
            }
            if out.queued() <= self.limit {
                break Ok(());
            }
            let waited = start.elapsed();
            let Some(rest) = limit.checked_sub(waited) else {
                break Err(Error::BackPressure {
                    node: self.name(),
                    queued: out.queued(),
                    waited,
                });
            };
            let woken = self.space.wait_timeout(out, rest);
            out = woken.unwrap_or_else(PoisonError::into_inner).0;
        };
        out.waiting -= 1;
        result
    }

    /// Lets corked frames wait, or sends them.
    pub(crate) fn cork(self: &Arc<Self>, corked: bool) {
        if self.corked.swap(corked, Ordering::Relaxed) && !corked {
            let mut out = self.lock();
            if !out.busy && out.closed.is_none() && !out.queue.is_empty() {
                out.busy = true;
                self.write(out);
            }
        }
    }

    /// Writes what the socket takes. Only the thread that has set `busy` calls it.
    fn write(self: &Arc<Self>, out: std::sync::MutexGuard<'_, Out>) {
        if !self.write_some(out) {
            self.sender.add(Arc::clone(self));
        }
    }

    /// Writes until nothing is queued or the socket takes no more. Returns whether nothing is queued; the connection is not
    /// busy then.
    fn write_some(&self, out: std::sync::MutexGuard<'_, Out>) -> bool {
        let mut out = out;
        let mut batch = std::mem::take(&mut out.batch);
        loop {
            while !batch.is_full() {
                match out.queue.pop() {
                    Some(frame) => batch.push(frame),
                    None => break,
                }
            }
            if batch.is_empty() || out.closed.is_some() {
                out.busy = false;
                out.batch = Batch::default();
                if out.waiting > 0 {
                    self.space.notify_all();
                }
                return true;
            }
            // What is being written counts as queued.
            let writing = batch.bytes;
            out.batch.bytes = writing;
            drop(out);
            if let Some(writer) = self.shared.get() {
                batch.share(&mut writer.lock().unwrap_or_else(PoisonError::into_inner));
            }
            let sent = batch.send(&self.stream);
            out = self.lock();
            if out.waiting > 0 {
                self.space.notify_all();
            }
            match sent {
                Ok(true) => out.batch.bytes = 0,
                Ok(false) if out.closed.is_none() => {
                    out.batch = batch;
                    return false;
                }
                Ok(false) => {}
                Err(error) => {
                    let node = self.name();
                    let reason = end_of_connection(&error);
                    out.close(Error::NodeLost { node, reason });
                    self.space.notify_all();
                    // The receiving thread sees the end and tells the node.
                    self.stream.shutdown();
                }
            }
        }
    }

    /// Goes on writing, on the sending thread.
    pub(super) fn resume(&self) -> bool {
        self.write_some(self.lock())
    }

    /// Waits until everything is sent.
    pub(crate) fn flush(&self, limit: Duration) {
        let start = Instant::now();
        let mut out = self.lock();
        out.waiting += 1;
        while out.closed.is_none() && (out.busy || !out.queue.is_empty()) {
            let Some(rest) = limit.checked_sub(start.elapsed()) else {
                break;
            };
            let woken = self.space.wait_timeout(out, rest);
            out = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        out.waiting -= 1;
    }

    /// Ends the connection: all that wait for it get the error.
    pub(crate) fn close(&self, error: Error) {
        self.lock().close(error);
        self.space.notify_all();
        self.stream.shutdown();
        self.turns.close();
    }
}
