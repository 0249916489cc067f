//! Whose turn it is to read a connection: that of its receiving thread, or of a thread that waits for an answer and reads it
//! without a hop between two threads.
//!
//! The receiving thread sleeps on a set of two: the socket, which wakes it once and is then muted, and a bell. Whoever has had a
//! turn ends it in this order: it gives the lock back, and then either rings the bell, if it leaves something that no further byte
//! would announce, or listens to the socket again. So the receiving thread may find the lock taken and go back to sleep.
//!
//! Where no other thread asks for turns, the receiving thread keeps its own and waits for the socket alone. It gives the turn back
//! after the frame in which another thread asks.
//!
//! A thread that sends a request and waits for it, again and again, is often answered before it waits. A receiving thread that
//! listens would wake for nothing. So a turn may end without listening if no request is in flight. The receiving thread then
//! sleeps for [`QUIET`] at most, and listens if there was no turn meanwhile.
//!
//! # Invariants
//! - PT1 While nobody has the turn, one of these holds: the socket is listened to; the bell has been rung; the receiving thread
//!   wakes within `QUIET` and listens; somebody is just about to see to one of them.

use std::{
    io,
    ops::{Deref, DerefMut},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, Timespec, epoll, eventfd},
    fd::OwnedFd,
};

use super::{
    receiver::{Receiver, Scratch},
    stream::Stream,
};

/// What a turn is about.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) receiver: Receiver,
    pub(crate) scratch: Scratch,
}

/// The reading half of a connection.
#[derive(Debug)]
pub(crate) struct Turns {
    stream: Arc<Stream>,
    reading: Mutex<Reading>,
    /// None if the receiving thread never gives its turn away.
    shared: Option<Shared>,
    closed: AtomicBool,
    /// How often the receiving thread still shares.
    demand: AtomicU32,
    /// Whether the receiving thread wakes within `QUIET`.
    timed: AtomicBool,
    /// Whether the last turn ended without listening.
    quiet: AtomicBool,
    /// Counts the turns of other threads.
    taken: AtomicU32,
}

/// What the receiving thread sleeps on.
#[derive(Debug)]
struct Shared {
    set: OwnedFd,
    bell: OwnedFd,
}

/// So many turns of the receiving thread after the last one of another thread, it keeps the next turn.
const PATIENCE: u32 = 64;

/// How long nobody may listen.
const QUIET: Duration = Duration::from_millis(2);

const SOCKET: u64 = 0;
const BELL: u64 = 1;

impl Shared {
    fn new(stream: &Arc<Stream>) -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let listening = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        epoll::add(&set, stream, epoll::EventData::new_u64(SOCKET), listening)?;
        let bell_data = epoll::EventData::new_u64(BELL);
        epoll::add(&set, &bell, bell_data, epoll::EventFlags::IN)?;
        Ok(Self { set, bell })
    }
}

impl Turns {
    /// `shared` says whether [`wait`](Self::wait) and [`take`](Self::take) are used.
    pub(crate) fn new(stream: &Arc<Stream>, shared: bool) -> io::Result<Self> {
        let shared = match shared {
            true => Some(Shared::new(stream)?),
            false => None,
        };
        Ok(Self {
            reading: Mutex::new(Reading {
                receiver: Receiver::new(Arc::clone(stream)),
                scratch: Scratch::default(),
            }),
            stream: Arc::clone(stream),
            shared,
            closed: AtomicBool::new(false),
            demand: AtomicU32::new(0),
            timed: AtomicBool::new(false),
            quiet: AtomicBool::new(false),
            taken: AtomicU32::new(0),
        })
    }

    /// The turn of the receiving thread, once there is something to read.
    pub(crate) fn wait(&self) -> io::Result<Turn<'_>> {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(SOCKET),
        }; 2];
        let Some(shared) = &self.shared else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mut seen = self.taken.load(Ordering::SeqCst);
        loop {
            let timed = self.timed.load(Ordering::SeqCst);
            let limit = timed.then(|| Timespec::try_from(QUIET).ok()).flatten();
            let woken = match epoll::wait(&shared.set, &mut events[..], limit.as_ref()) {
                Ok(0) if timed => {
                    let taken = self.taken.load(Ordering::SeqCst);
                    if taken == seen {
                        // In this order: a turn that ends without listening has seen `timed` before.
                        self.timed.store(false, Ordering::SeqCst);
                        self.listen(epoll::EventFlags::IN);
                    }
                    seen = taken;
                    continue;
                }
                Ok(count) => &events[..count],
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if woken.iter().any(|event| event.data.u64() == BELL) {
                let _ = rustix::io::read(&shared.bell, &mut [0; 8]);
                // It is rung by those who take turns.
                self.timed.store(self.in_demand(), Ordering::SeqCst);
            }
            if let Some(turn) = self.try_lock() {
                let less = |demand: u32| demand.checked_sub(1);
                let _ = (self.demand).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
                return Ok(turn);
            }
            // Whoever has it will ring or listen. But it may be a callback that waits for the end of the receiving thread.
            if self.closed.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::NotConnected.into());
            }
        }
    }

    /// The turn of another thread, if nobody has it.
    pub(crate) fn take(&self) -> Option<Turn<'_>> {
        self.shared.as_ref()?;
        self.demand.store(PATIENCE, Ordering::Relaxed);
        let turn = self.try_lock()?;
        self.taken.fetch_add(1, Ordering::SeqCst);
        if !self.quiet.swap(false, Ordering::SeqCst) {
            self.listen(epoll::EventFlags::empty());
        }
        Some(turn)
    }

    /// The turn of a thread that never gives it back.
    pub(crate) fn keep(&self) -> Turn<'_> {
        self.turn(self.reading.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A request is sent for which nobody may wait: listens, if nobody does.
    pub(crate) fn unmute(&self) {
        if self.quiet.swap(false, Ordering::SeqCst) {
            self.listen(epoll::EventFlags::IN);
        }
    }

    /// Whether other threads take turns. If not, the receiving thread may keep its own, and wait in it: that takes fewer system
    /// calls.
    pub(crate) fn in_demand(&self) -> bool {
        self.demand.load(Ordering::Relaxed) > 0
    }

    /// The connection is closed: nothing is worth reading any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.ring();
    }

    fn ring(&self) {
        if let Some(shared) = &self.shared {
            // It fails only if the counter is full, and then it is heard anyway.
            let _ = rustix::io::write(&shared.bell, &1u64.to_ne_bytes());
        }
    }

    fn try_lock(&self) -> Option<Turn<'_>> {
        match self.reading.try_lock() {
            Ok(reading) => Some(self.turn(reading)),
            // A callback panicked, between two frames.
            Err(TryLockError::Poisoned(poisoned)) => Some(self.turn(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn turn<'a>(&'a self, reading: MutexGuard<'a, Reading>) -> Turn<'a> {
        Turn {
            turns: self,
            reading: Some(reading),
            quiet: false,
        }
    }

    fn listen(&self, to: epoll::EventFlags) {
        let flags = to | epoll::EventFlags::ONESHOT;
        let data = epoll::EventData::new_u64(SOCKET);
        if let Some(shared) = &self.shared {
            // The socket is in the set as long as both live.
            let _ = epoll::modify(&shared.set, &self.stream, data, flags);
        }
    }
}

/// The right to read a connection. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    reading: Option<MutexGuard<'a, Reading>>,
    quiet: bool,
}

impl Turn<'_> {
    pub(crate) fn stream(&self) -> &Stream {
        &self.turns.stream
    }

    /// Nothing is expected after this turn.
    pub(crate) fn end_quietly(&mut self) {
        self.quiet = true;
    }
}

impl Deref for Turn<'_> {
    type Target = Reading;

    fn deref(&self) -> &Reading {
        self.reading.as_ref().expect("it is given back by drop")
    }
}

impl DerefMut for Turn<'_> {
    fn deref_mut(&mut self) -> &mut Reading {
        self.reading.as_mut().expect("it is given back by drop")
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let left = self.receiver.has_work();
        let turns = self.turns;
        let timed = turns.timed.load(Ordering::SeqCst);
        let quiet = self.quiet && timed && !left;
        turns.quiet.store(quiet, Ordering::SeqCst);
        // First: a thread that is woken must find it.
        drop(self.reading.take());
        match left || (self.quiet && !timed) {
            true => turns.ring(),
            // The receiving thread may have begun to listen meanwhile, and have found the lock taken: it sleeps without a limit
            // now. If it begins later, it finds the lock free.
            false if quiet && turns.timed.load(Ordering::SeqCst) => {}
            false if quiet => turns.unmute(),
            false => turns.listen(epoll::EventFlags::IN),
        }
    }
}

#[cfg(test)]
mod tests;
