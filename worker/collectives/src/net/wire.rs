//! The leader's connections, and waiting on them.
//!
//! The next frame reveals most mismatches, but not all. For example, one leader waits in a
//! reduction for its child in the tree, while the child waits in a broadcast for its parent. A
//! leader that has waited for long therefore asks all its neighbours for their operation and
//! listens to all of them. It also checks the paths to the neighbours that it waits for.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    os::fd::BorrowedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags};

use super::{
    frame::Head,
    late::{LateHost, LateHosts},
    link::{Fault, Link, Progress},
    path::PATH_CHECK_INTERVAL,
    plan::Plan,
};
use crate::{
    abort::Target,
    error::{Error, Record},
    signature::CallSignature,
};

/// How often a sleeping leader checks whether another process aborted its region, since that does
/// not end poll(2). An abort by its own process ends poll(2) at once.
const REGION_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// After this long without progress, a leader asks its neighbours for their operation.
const STALL_TIMEOUT: Duration = Duration::from_millis(100);

/// Number of recent operations that are kept.
const HISTORY_LEN: usize = 64;

/// Silence after which a neighbour is reported as not answering.
const SILENCE_THRESHOLD: Duration = Duration::from_secs(2);

/// Maximum time that a failing leader spends on sending the reason to its neighbours.
const FAILURE_SEND_TIMEOUT: Duration = Duration::from_millis(100);

/// A leader's connections to its neighbours.
#[derive(Debug)]
pub(crate) struct Net {
    pub(super) me: u32,
    pub(super) count: u32,
    rank: u32,
    links: Vec<Link>,
    target: Arc<Target>,
    /// Recent operations, to be compared with the neighbours' questions.
    history: VecDeque<CallSignature>,
    /// Buffer for received data that is not combined yet.
    pub(super) scratch: Vec<u8>,
    /// Lowest rank of each host, followed by the size of the round.
    pub(super) starts: Vec<u32>,
    /// Whether all hosts are on one machine. All leaders agree on it.
    pub(super) one_machine: bool,
    /// How long a neighbour's machine may be silent.
    timeout: Duration,
    peers: BTreeMap<u32, SocketAddr>,
    late: Arc<LateHosts>,
}

/// One operation between hosts: its signature and when to give up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetOperation<'a> {
    pub(crate) call: &'a CallSignature,
    pub(crate) deadline: Option<Instant>,
    /// The timeout from which the deadline was computed.
    pub(crate) timeout: Duration,
}

impl Net {
    pub(super) fn new(plan: &Plan<'_>, links: Vec<Link>, target: Arc<Target>) -> Self {
        let topology = plan.topology;
        Self {
            me: topology.host_index,
            count: topology.host_count,
            rank: topology.rank,
            links,
            target,
            history: VecDeque::with_capacity(HISTORY_LEN),
            scratch: Vec::new(),
            starts: Vec::new(),
            one_machine: false,
            timeout: plan.timeout,
            peers: plan.peers.clone(),
            late: Arc::default(),
        }
    }

    fn head(&mut self, operation: NetOperation<'_>, index: u32, payload: usize) -> Head {
        if self
            .history
            .back()
            .is_none_or(|last| last.seq != operation.call.seq)
        {
            if self.history.len() == HISTORY_LEN {
                self.history.pop_front();
            }
            self.history.push_back(*operation.call);
        }
        Head {
            call: *operation.call,
            index,
            payload: payload as u32,
            rank: self.rank,
        }
    }

    fn link(&mut self, peer: u32) -> &mut Link {
        let index = self.index_of(peer);
        &mut self.links[index]
    }

    fn index_of(&self, peer: u32) -> usize {
        self.links
            .binary_search_by_key(&peer, |link| link.peer)
            .expect("the algorithms use neighbours only")
    }

    /// Sends as much of a frame as possible now.
    pub(super) fn push(
        &mut self,
        operation: NetOperation<'_>,
        peer: u32,
        index: u32,
        payload: &[u8],
    ) -> Result<Progress, Error> {
        let head = self.head(operation, index, payload.len());
        let pushed = self.link(peer).push(&head, payload);
        pushed.map_err(|fault| self.error(operation, peer, fault))
    }

    /// Receives as much of a frame as possible now.
    pub(super) fn pull(
        &mut self,
        operation: NetOperation<'_>,
        peer: u32,
        index: u32,
        payload: &mut [u8],
    ) -> Result<Progress, Error> {
        let head = self.head(operation, index, payload.len());
        let pulled = self.link(peer).pull(&head, payload);
        if let Some(question) = self.link(peer).take_question() {
            self.compare(&question)?;
        }
        pulled.map_err(|fault| self.error(operation, peer, fault))
    }

    /// Sends a frame, waiting for space in the socket.
    pub(super) fn send(
        &mut self,
        operation: NetOperation<'_>,
        peer: u32,
        index: u32,
        payload: &[u8],
    ) -> Result<(), Error> {
        while self.push(operation, peer, index, payload)? == Progress::Stuck {
            self.wait(operation, &[(peer, PollFlags::OUT)])?;
        }
        Ok(())
    }

    /// Receives a frame, waiting for it.
    pub(super) fn receive(
        &mut self,
        operation: NetOperation<'_>,
        peer: u32,
        index: u32,
        payload: &mut [u8],
    ) -> Result<(), Error> {
        while self.pull(operation, peer, index, payload)? == Progress::Stuck {
            self.wait(operation, &[(peer, PollFlags::IN)])?;
        }
        Ok(())
    }

    /// Sleeps until one of the links is ready, or returns the reason to stop.
    pub(super) fn wait(
        &mut self,
        operation: NetOperation<'_>,
        wanted: &[(u32, PollFlags)],
    ) -> Result<(), Error> {
        let mut slept = Duration::ZERO;
        while slept < STALL_TIMEOUT {
            let timeout = self.poll_timeout(operation)?;
            let event = || poll_entry(self.target.event(), PollFlags::IN);
            let mut fds = [event(), event(), event()];
            for (slot, (peer, events)) in fds[1..].iter_mut().zip(wanted) {
                *slot = poll_entry(self.links[self.index_of(*peer)].fd(), *events);
            }
            if self.poll(&mut fds[..=wanted.len()], timeout)? {
                return match first_closed(&fds[1..=wanted.len()], wanted) {
                    Some(peer) => Err(self.closed_by_peer(operation, peer)),
                    None => Ok(()),
                };
            }
            slept += timeout;
        }
        let waited = self.wait_stalled(operation, wanted);
        self.late.set(Vec::new());
        waited
    }

    /// Like [`Net::wait`], after a long time without progress. A neighbour is late, or called
    /// another operation and waits for this leader on another link. So this asks all neighbours and
    /// listens to all of them.
    fn wait_stalled(
        &mut self,
        operation: NetOperation<'_>,
        wanted: &[(u32, PollFlags)],
    ) -> Result<(), Error> {
        let head = self.head(operation, 0, 0);
        self.links.iter_mut().for_each(|link| link.ask(&head));
        let mut listen = vec![true; self.links.len()];
        let mut next_check = Instant::now();
        loop {
            self.check_paths(operation, wanted, &mut next_check)?;
            for (index, listen) in listen.iter_mut().enumerate() {
                let link = &mut self.links[index];
                let expected = wanted
                    .iter()
                    .any(|(peer, events)| *peer == link.peer && events.contains(PollFlags::IN));
                if *listen && !expected {
                    let (peer, peeked) = (link.peer, link.peek_question());
                    *listen = peeked.map_err(|fault| self.error(operation, peer, fault))?;
                } else {
                    *listen = false;
                }
                if let Some(question) = self.links[index].take_question() {
                    self.compare(&question)?;
                }
            }
            let timeout = self.poll_timeout(operation)?;
            let mut fds = vec![poll_entry(self.target.event(), PollFlags::IN)];
            for (peer, events) in wanted {
                fds.push(poll_entry(self.links[self.index_of(*peer)].fd(), *events));
            }
            for (link, listen) in self.links.iter().zip(&listen) {
                if *listen {
                    fds.push(poll_entry(link.fd(), PollFlags::IN));
                }
            }
            if self.poll(&mut fds, timeout)? {
                if let Some(peer) = first_closed(&fds[1..=wanted.len()], wanted) {
                    return Err(self.closed_by_peer(operation, peer));
                }
                if fds[1..=wanted.len()]
                    .iter()
                    .any(|fd| !fd.revents().is_empty())
                {
                    return Ok(());
                }
            }
        }
    }

    /// Fails if the path to a neighbour that is waited for is cut.
    fn check_paths(
        &mut self,
        operation: NetOperation<'_>,
        wanted: &[(u32, PollFlags)],
        next: &mut Instant,
    ) -> Result<(), Error> {
        let now = Instant::now();
        if now < *next {
            return Ok(());
        }
        *next = now + PATH_CHECK_INTERVAL;
        self.late
            .set(wanted.iter().map(|(peer, _)| self.late(*peer)).collect());
        for (peer, _) in wanted {
            let timeout = self.timeout;
            let checked = self.link(*peer).check_path(timeout, now);
            checked.map_err(|fault| self.error(operation, *peer, fault))?;
        }
        Ok(())
    }

    fn late(&self, peer: u32) -> LateHost {
        LateHost {
            host_index: peer,
            address: self.peers.get(&peer).copied(),
            answers: !self.links[self.index_of(peer)].is_silent(SILENCE_THRESHOLD),
        }
    }

    /// The hosts that this leader waits for, for other threads.
    pub(crate) fn late_hosts(&self) -> Arc<LateHosts> {
        self.late.clone()
    }

    /// The neighbours whose silence is long enough to be reported when the round ends for another
    /// reason.
    pub(crate) fn silent_hosts(&self) -> Vec<u32> {
        let at_least = self.timeout / 2;
        let silent = |link: &&Link| link.is_silent(at_least);
        self.links
            .iter()
            .filter(silent)
            .map(|link| link.peer)
            .collect()
    }

    /// The error for neighbours that do not answer.
    pub(crate) fn unreachable(&self, host_indices: Vec<u32>) -> Error {
        Error::Unreachable {
            host_indices,
            waited: self.timeout,
            reason: "nothing that was sent there was acknowledged".to_owned(),
        }
    }

    /// Compares a neighbour's operation with this leader's operation of the same number.
    fn compare(&self, question: &Head) -> Result<(), Error> {
        let mine = self
            .history
            .iter()
            .find(|call| call.seq == question.call.seq);
        match mine {
            Some(mine) if *mine != question.call => Err(Error::Mismatch {
                rank: self.rank,
                call: *mine,
                other_rank: question.rank,
                other_call: question.call,
            }),
            _ => Ok(()),
        }
    }

    /// Maximum time to sleep before the next check.
    fn poll_timeout(&self, operation: NetOperation<'_>) -> Result<Duration, Error> {
        self.target.check()?;
        let max = self
            .target
            .region
            .as_ref()
            .map_or(STALL_TIMEOUT, |_| REGION_CHECK_INTERVAL);
        let Some(deadline) = operation.deadline else {
            return Ok(max);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::TimedOut {
                waited: operation.timeout,
                missing: Vec::new(),
                call: *operation.call,
            });
        }
        // Rounded up, so that a deadline less than a millisecond away does not spin.
        Ok(max.min(left + Duration::from_millis(1)))
    }

    /// Whether a descriptor is ready.
    fn poll(&self, fds: &mut [PollFd<'_>], timeout: Duration) -> Result<bool, Error> {
        match rustix::event::poll(fds, timeout.try_into().ok().as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
            Ok(_) => self.target.check().map(|()| true),
            Err(error) => Err(Error::System {
                call: "poll",
                errno: Errno::from_raw(error.raw_os_error()),
            }),
        }
    }

    /// The error for a neighbour that closed its side while this leader still has data to send.
    fn closed_by_peer(&mut self, operation: NetOperation<'_>, peer: u32) -> Error {
        let fault = self.link(peer).peer_closed("it closed the connection");
        self.error(operation, peer, fault)
    }

    fn error(&self, operation: NetOperation<'_>, peer: u32, fault: Fault) -> Error {
        // An abort closes connections everywhere, so it is the cause and not the connection.
        if let Err(error) = self.target.check() {
            return error;
        }
        match fault {
            Fault::Lost(reason) => Error::PeerLost {
                host_index: peer,
                reason,
            },
            Fault::Altered => Error::PeerLost {
                host_index: peer,
                reason: self.altered(peer),
            },
            Fault::Silent => {
                let mut silent = self.silent_hosts();
                if let Err(index) = silent.binary_search(&peer) {
                    silent.insert(index, peer);
                }
                self.unreachable(silent)
            }
            Fault::Failed(record) => match record.to_error(self.target.round_id) {
                Error::Aborted { .. } => Error::PeerLost {
                    host_index: peer,
                    reason: "its round was aborted".to_owned(),
                },
                error => error,
            },
            Fault::Other(found) => Error::Mismatch {
                rank: self.rank,
                call: *operation.call,
                other_rank: found.rank,
                other_call: found.call,
            },
        }
    }

    fn altered(&self, peer: u32) -> String {
        let address = self.peers.get(&peer);
        let from = address.map_or(String::new(), |address| format!(" from {}", address.ip()));
        format!(
            "a message{from} has a wrong authentication tag: something on the network changed, repeated or dropped it"
        )
    }

    /// Closes all connections gracefully: what was sent still arrives, and behind it that this rank
    /// has left.
    pub(crate) fn leave(&mut self) {
        let record = Record::from_error(&Error::PeerLeft { rank: self.rank });
        self.links.iter().for_each(|link| link.leave(&record));
    }

    /// Closes all connections. A mismatch, or the rank that left, is sent to the neighbours first.
    /// A frame in flight is completed for a mismatch only, since then no rank uses its data.
    pub(crate) fn close(&mut self, why: Option<&Error>) {
        match why {
            Some(error @ Error::Mismatch { .. }) => {
                let record = Record::from_error(error);
                let deadline = Instant::now() + FAILURE_SEND_TIMEOUT;
                for link in &mut self.links {
                    link.close_with_failure(&record, deadline);
                }
            }
            Some(error @ Error::PeerLeft { .. }) => {
                let record = Record::from_error(error);
                for link in &self.links {
                    link.leave(&record);
                    link.close();
                }
            }
            _ => self.links.iter().for_each(Link::close),
        }
        // Drops unread data too, so that no sender waits for space.
        self.links.clear();
    }
}

/// The first neighbour that closed its side while this leader only waits to send to it. A leader
/// that receives finds the end by reading. One that waits for space would not notice, since a full
/// window stays full.
fn first_closed(fds: &[PollFd<'_>], wanted: &[(u32, PollFlags)]) -> Option<u32> {
    fds.iter().zip(wanted).find_map(|(fd, (peer, events))| {
        let sends_only = !events.contains(PollFlags::IN);
        (sends_only && fd.revents().contains(PollFlags::RDHUP)).then_some(*peer)
    })
}

/// An entry for poll(2) that also reports when the peer closed its side.
fn poll_entry(fd: BorrowedFd<'_>, events: PollFlags) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, events | PollFlags::RDHUP)
}
