//! Passes on parts of commits of other hosts, as [`elasticrun_core::agent::passing`] decides.
//!
//! A thread for each transfer receives the bytes in chunks. Those who wait for them send each chunk on as soon as it is here.
//! The answer of the agent that has the commit comes before its bytes, so they have the digest to send first.
//!
//! Not promised: that what is sent on is whole or right. A receiver that gets too few bytes, or others than the digest says,
//! asks another agent.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use elasticrun_core::agent::passing::{Asked, Failure, Forwarded, Passing};
use elasticrun_protocol::{
    Round,
    control::{MemoryAnswer, MemoryRequest, Start},
    frame,
    opening::Purpose,
};
use elasticrun_shm::available_memory;
use elasticrun_tls::Dialled;
use xxhash_rust::xxh3::Xxh3Default;

use crate::{connect::HANDSHAKE_TIMEOUT, error::PeerError, keys::Keys};

/// How long another agent may be silent. It computes a digest over all bytes before it answers.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes that are received before they are sent on, at most.
const CHUNK: usize = 1 << 20;

/// The parts of commits that this agent passes on.
#[derive(Clone, Debug)]
pub(crate) struct PassingOn(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    keys: Arc<Keys>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    machine: Passing,
    /// The transfers of the machine that have not ended.
    transfers: BTreeMap<u64, Transfer>,
}

/// Bytes that arrive, or have arrived.
#[derive(Debug, Default)]
struct Transfer {
    answer: Option<Answer>,
    /// All chunks but the last have [`CHUNK`] bytes.
    chunks: Vec<Arc<[u8]>>,
    /// Where the rest comes from.
    socket: Option<TcpStream>,
}

/// What is known of the bytes before they arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Answer {
    length: u64,
    digest: u64,
    state_version: u64,
}

impl PassingOn {
    pub(crate) fn new(keys: Arc<Keys>) -> Self {
        Self(Arc::new(Shared {
            keys,
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// A round begins.
    pub(crate) fn begin(&self, start: &Start) {
        let mut state = self.lock();
        let ended = state.machine.begin(start);
        state.end(&ended);
        drop(state);
        self.0.changed.notify_all();
    }

    /// A round is over, or its first commit is complete.
    pub(crate) fn end(&self, round: Round) {
        let mut state = self.lock();
        let kept = state.machine.bytes();
        let ended = state.machine.end(round);
        state.end(&ended);
        drop(state);
        self.0.changed.notify_all();
        if kept > 0 {
            tracing::debug!(%round, kept, "parts of the base that nobody asked for are freed");
        }
    }

    /// Answers a request that goes on to other agents.
    pub(crate) fn answer(
        &self,
        stream: &mut impl Write,
        request: &MemoryRequest,
    ) -> Result<(), PeerError> {
        let number = self.ask(request);
        let answered = self.send(stream, number);
        if let Some(number) = number {
            let mut state = self.lock();
            if state.machine.answered(number) {
                state.end(&[number]);
            }
        }
        answered
    }

    /// The transfer that has what is asked for. None if there is none.
    fn ask(&self, request: &MemoryRequest) -> Option<u64> {
        let available = available_memory();
        let mut state = self.lock();
        match state.machine.ask(request, available) {
            Asked::Waits(number) => Some(number),
            Asked::Begins(number, forwarded) => {
                state.transfers.insert(number, Transfer::default());
                drop(state);
                self.spawn(number, forwarded);
                Some(number)
            }
            Asked::Refused(why) => {
                tracing::debug!(?why, commit = %request.key.commit, "parts of a commit are not passed on");
                None
            }
        }
    }

    fn spawn(&self, number: u64, forwarded: Forwarded) {
        let (this, span) = (self.clone(), tracing::Span::current());
        let thread = thread::Builder::new().name("pass-on".into());
        let started = thread.spawn(move || span.in_scope(|| this.transfer(number, forwarded)));
        if let Err(error) = started {
            tracing::warn!(%error, "no thread can be started to pass on a commit");
            let mut state = self.lock();
            while state.machine.failed(number, Failure::Refused).is_some() {}
            state.end(&[number]);
        }
    }

    /// Sends what arrives in a transfer.
    fn send(&self, stream: &mut impl Write, number: Option<u64>) -> Result<(), PeerError> {
        let answer = number.and_then(|number| self.wait(number, |transfer| transfer.answer));
        let (Some(number), Some(answer)) = (number, answer) else {
            return Ok(stream.write_all(&frame::to_frame(&MemoryAnswer::Missing)?)?);
        };
        let found = MemoryAnswer::Found {
            length: answer.length,
            digest: answer.digest,
            key: None,
            state_version: answer.state_version,
        };
        stream.write_all(&frame::to_frame(&found)?)?;
        for index in 0..answer.length.div_ceil(CHUNK as u64) as usize {
            let chunk = self.wait(number, |transfer| transfer.chunks.get(index).cloned());
            // The receiver sees the end of the connection, and asks another agent.
            stream.write_all(&chunk.ok_or(PeerError::Closed)?)?;
        }
        tracing::debug!(bytes = answer.length, "parts of a commit are passed on");
        Ok(())
    }

    /// Waits for something of a transfer. None if the transfer ends without.
    fn wait<T>(&self, number: u64, part: impl Fn(&Transfer) -> Option<T>) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(part) = part(state.transfers.get(&number)?) {
                return Some(part);
            }
            let waited = self.0.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gets the bytes of a transfer from one agent after the other, until one has sent all.
    fn transfer(&self, number: u64, first: Forwarded) {
        let mut next = Some(first);
        while let Some(Forwarded { agent, request }) = next {
            let received = self.receive(number, agent, &request);
            let mut state = self.lock();
            next = match received {
                Ok(()) => {
                    if state.machine.arrived(number) {
                        state.end(&[number]);
                    }
                    None
                }
                Err((how, error)) => {
                    let next = state.machine.failed(number, how);
                    match &next {
                        Some(Forwarded { agent: next, .. }) => {
                            tracing::info!(%agent, %error, %next, "an agent passes nothing on; the next one is asked");
                        }
                        None => {
                            tracing::debug!(%agent, %error, "parts of a commit do not arrive");
                            state.end(&[number]);
                        }
                    }
                    next
                }
            };
            drop(state);
            self.0.changed.notify_all();
        }
    }

    /// Receives the bytes of a transfer from an agent. Those of an agent that has failed before are here already.
    fn receive(
        &self,
        number: u64,
        agent: SocketAddr,
        request: &MemoryRequest,
    ) -> Result<(), (Failure, io::Error)> {
        let broken = |error: io::Error| (Failure::Broken, error);
        let refused = |why: &'static str| (Failure::Refused, io::Error::other(why));
        let stream = TcpStream::connect_timeout(&agent, HANDSHAKE_TIMEOUT).map_err(broken)?;
        let copy = stream.try_clone().map_err(broken)?;
        if !self.note(number, |transfer| transfer.socket = Some(copy)) {
            return Err(broken(io::ErrorKind::ConnectionAborted.into()));
        }
        let mut source = self.open(stream).map_err(broken)?;
        source.send(request).map_err(broken)?;
        let answer = match source.receive().map_err(broken)? {
            MemoryAnswer::Found {
                length,
                digest,
                state_version,
                ..
            } => Answer {
                length,
                digest,
                state_version,
            },
            MemoryAnswer::Missing | MemoryAnswer::Overwritten => {
                return Err(refused("it does not have them"));
            }
        };
        let expected = request.ranges.iter().map(|(_, len)| len).sum::<u64>();
        let known = self.answer_of(number);
        if answer.length != expected || known.is_some_and(|known| known != answer) {
            return Err(refused("it has others"));
        }
        self.note(number, |transfer| transfer.answer = Some(answer));
        let mut hasher = Xxh3Default::new();
        let mut left = answer.length as usize;
        for index in 0.. {
            let mut chunk = vec![0; left.min(CHUNK)];
            if chunk.is_empty() {
                break;
            }
            left -= chunk.len();
            source.read_exact(&mut chunk).map_err(broken)?;
            hasher.update(&chunk);
            let is_wanted = self.note(number, |transfer| {
                if transfer.chunks.len() == index {
                    transfer.chunks.push(chunk.into());
                }
            });
            if !is_wanted {
                return Err(broken(io::ErrorKind::ConnectionAborted.into()));
            }
        }
        match hasher.digest() == answer.digest {
            true => Ok(()),
            false => {
                let error = io::Error::other("the bytes do not match their checksum");
                Err((Failure::Damaged, error))
            }
        }
    }

    fn open(&self, stream: TcpStream) -> io::Result<Dialled<TcpStream>> {
        stream.set_nodelay(true)?;
        elasticrun_collectives::watch_path(&stream, HANDSHAKE_TIMEOUT)?;
        stream.set_read_timeout(Some(SILENCE_TIMEOUT))?;
        stream.set_write_timeout(Some(SILENCE_TIMEOUT))?;
        Dialled::open(stream, &self.0.keys.to_agents, Purpose::Memory)
    }

    fn answer_of(&self, number: u64) -> Option<Answer> {
        self.lock().transfers.get(&number)?.answer
    }

    /// Notes something that has arrived. `false` if the transfer has ended.
    fn note(&self, number: u64, change: impl FnOnce(&mut Transfer)) -> bool {
        let mut state = self.lock();
        let noted = state.transfers.get_mut(&number).map(change);
        drop(state);
        self.0.changed.notify_all();
        noted.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Frees the bytes of transfers that have ended.
    fn end(&mut self, ended: &[u64]) {
        for number in ended {
            let transfer = self.transfers.remove(number);
            if let Some(socket) = transfer.and_then(|transfer| transfer.socket) {
                // Fails if the connection has ended already.
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }
}
