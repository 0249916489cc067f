//! The leader's connections, and waiting on them.
//!
//! Most mismatches are seen by the next frame. Some are not: one leader waits in a reduction for its
//! child in the tree, which waits in a broadcast for its parent. So who has waited for long asks all its
//! neighbours, and who has waited for long listens to all of them.
//!
//! Who has waited for long also looks whether the paths to those that it waits for are there.

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
    connect::Plan,
    frame::Head,
    late::{Late, LateHost},
    link::{Fault, Link, Progress},
    path::LOOK,
};
use crate::{
    abort::Target,
    call::Call,
    error::{Error, Record},
};

/// How often a sleeping leader looks whether its region was aborted by another process, which cannot
/// reach it in poll(2). Its own process's abort wakes it at once.
const REGION_LOOK: Duration = Duration::from_millis(5);

/// Waiting for so long without news, a leader asks its neighbours what they are doing.
const STALL: Duration = Duration::from_millis(100);

/// Operations that are remembered.
const HISTORY: usize = 64;

/// After which silence a neighbour that is waited for is said not to answer.
const DOUBT: Duration = Duration::from_secs(2);

/// Longest that a failing leader spends on telling its neighbours why.
const FAREWELL: Duration = Duration::from_millis(100);

/// A leader's connections to its neighbours.
#[derive(Debug)]
pub(crate) struct Net {
    pub(super) me: u32,
    pub(super) count: u32,
    rank: u32,
    links: Vec<Link>,
    target: Arc<Target>,
    /// The last operations, to compare them with what a neighbour asks.
    history: VecDeque<Call>,
    /// Room for what is received before it is combined.
    pub(super) scratch: Vec<u8>,
    /// Lowest rank of each host, and the size of the round at the end.
    pub(super) starts: Vec<u32>,
    /// Whether all hosts are on one machine. All leaders know the same.
    pub(super) one_machine: bool,
    /// How long a neighbour's machine may be silent.
    timeout: Duration,
    peers: BTreeMap<u32, SocketAddr>,
    late: Arc<Late>,
}

/// One operation on the wire: what is compared and when to give up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    pub(crate) call: &'a Call,
    pub(crate) deadline: Option<Instant>,
    /// The timeout that the deadline came from.
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
            history: VecDeque::with_capacity(HISTORY),
            scratch: Vec::new(),
            starts: Vec::new(),
            one_machine: false,
            timeout: plan.timeout,
            peers: plan.peers.clone(),
            late: Arc::default(),
        }
    }

    fn head(&mut self, order: Order<'_>, index: u32, payload: usize) -> Head {
        if self
            .history
            .back()
            .is_none_or(|last| last.seq != order.call.seq)
        {
            if self.history.len() == HISTORY {
                self.history.pop_front();
            }
            self.history.push_back(*order.call);
        }
        Head {
            call: *order.call,
            index,
            payload: payload as u32,
            rank: self.rank,
        }
    }

    fn link(&mut self, peer: u32) -> &mut Link {
        let at = self.at(peer);
        &mut self.links[at]
    }

    fn at(&self, peer: u32) -> usize {
        self.links
            .binary_search_by_key(&peer, |link| link.peer)
            .expect("the algorithms use neighbours only")
    }

    /// Pushes a frame as far as it goes.
    pub(super) fn push(
        &mut self,
        order: Order<'_>,
        peer: u32,
        index: u32,
        payload: &[u8],
    ) -> Result<Progress, Error> {
        let head = self.head(order, index, payload.len());
        let pushed = self.link(peer).push(&head, payload);
        pushed.map_err(|fault| self.error(order, peer, fault))
    }

    /// Pulls a frame as far as it came.
    pub(super) fn pull(
        &mut self,
        order: Order<'_>,
        peer: u32,
        index: u32,
        payload: &mut [u8],
    ) -> Result<Progress, Error> {
        let head = self.head(order, index, payload.len());
        let pulled = self.link(peer).pull(&head, payload);
        if let Some(asked) = self.link(peer).take_question() {
            self.compare(&asked)?;
        }
        pulled.map_err(|fault| self.error(order, peer, fault))
    }

    /// Sends a frame, waiting for room.
    pub(super) fn send(
        &mut self,
        order: Order<'_>,
        peer: u32,
        index: u32,
        payload: &[u8],
    ) -> Result<(), Error> {
        while self.push(order, peer, index, payload)? == Progress::Stuck {
            self.wait(order, &[(peer, PollFlags::OUT)])?;
        }
        Ok(())
    }

    /// Receives a frame, waiting for it.
    pub(super) fn receive(
        &mut self,
        order: Order<'_>,
        peer: u32,
        index: u32,
        payload: &mut [u8],
    ) -> Result<(), Error> {
        while self.pull(order, peer, index, payload)? == Progress::Stuck {
            self.wait(order, &[(peer, PollFlags::IN)])?;
        }
        Ok(())
    }

    /// Sleeps until one of the links is ready, or returns the reason to stop.
    pub(super) fn wait(
        &mut self,
        order: Order<'_>,
        wanted: &[(u32, PollFlags)],
    ) -> Result<(), Error> {
        let mut slept = Duration::ZERO;
        while slept < STALL {
            let timeout = self.pause(order)?;
            let event = || entry(self.target.event(), PollFlags::IN);
            let mut fds = [event(), event(), event()];
            for (slot, (peer, events)) in fds[1..].iter_mut().zip(wanted) {
                *slot = entry(self.links[self.at(*peer)].fd(), *events);
            }
            if self.poll(&mut fds[..=wanted.len()], timeout)? {
                return match gone(&fds[1..=wanted.len()], wanted) {
                    Some(peer) => Err(self.went(order, peer)),
                    None => Ok(()),
                };
            }
            slept += timeout;
        }
        let waited = self.wait_stalled(order, wanted);
        self.late.set(Vec::new());
        waited
    }

    /// As [`Net::wait`], after a long time without news: somebody is late, or called something else and
    /// waits for us on another link. So all neighbours are asked, and listened to.
    fn wait_stalled(&mut self, order: Order<'_>, wanted: &[(u32, PollFlags)]) -> Result<(), Error> {
        let head = self.head(order, 0, 0);
        self.links.iter_mut().for_each(|link| link.ask(&head));
        let mut listen = vec![true; self.links.len()];
        let mut next_look = Instant::now();
        loop {
            self.look(order, wanted, &mut next_look)?;
            for (at, listen) in listen.iter_mut().enumerate() {
                let link = &mut self.links[at];
                let expected = wanted
                    .iter()
                    .any(|(peer, events)| *peer == link.peer && events.contains(PollFlags::IN));
                if *listen && !expected {
                    let (peer, heard) = (link.peer, link.glance());
                    *listen = heard.map_err(|fault| self.error(order, peer, fault))?;
                } else {
                    *listen = false;
                }
                if let Some(asked) = self.links[at].take_question() {
                    self.compare(&asked)?;
                }
            }
            let timeout = self.pause(order)?;
            let mut fds = vec![entry(self.target.event(), PollFlags::IN)];
            for (peer, events) in wanted {
                fds.push(entry(self.links[self.at(*peer)].fd(), *events));
            }
            for (link, listen) in self.links.iter().zip(&listen) {
                if *listen {
                    fds.push(entry(link.fd(), PollFlags::IN));
                }
            }
            if self.poll(&mut fds, timeout)? {
                if let Some(peer) = gone(&fds[1..=wanted.len()], wanted) {
                    return Err(self.went(order, peer));
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

    /// Fails if the path to one of those that are waited for is cut.
    fn look(
        &mut self,
        order: Order<'_>,
        wanted: &[(u32, PollFlags)],
        next: &mut Instant,
    ) -> Result<(), Error> {
        let now = Instant::now();
        if now < *next {
            return Ok(());
        }
        *next = now + LOOK;
        self.late
            .set(wanted.iter().map(|(peer, _)| self.late(*peer)).collect());
        for (peer, _) in wanted {
            let timeout = self.timeout;
            let looked = self.link(*peer).look(timeout, now);
            looked.map_err(|fault| self.error(order, *peer, fault))?;
        }
        Ok(())
    }

    fn late(&self, peer: u32) -> LateHost {
        LateHost {
            host_index: peer,
            address: self.peers.get(&peer).copied(),
            answers: !self.links[self.at(peer)].is_silent(DOUBT),
        }
    }

    /// For whom this leader waits, for other threads.
    pub(crate) fn lateness(&self) -> Arc<Late> {
        self.late.clone()
    }

    /// The neighbours that have been silent for so long that this is worth a word, when all ends for another reason.
    pub(crate) fn silent(&self) -> Vec<u32> {
        let at_least = self.timeout / 2;
        let silent = |link: &&Link| link.is_silent(at_least);
        self.links
            .iter()
            .filter(silent)
            .map(|link| link.peer)
            .collect()
    }

    /// The error of neighbours that do not answer.
    pub(crate) fn silence(&self, host_indices: Vec<u32>) -> Error {
        Error::Unreachable {
            host_indices,
            waited: self.timeout,
            reason: "nothing that was sent there was acknowledged".to_owned(),
        }
    }

    /// Compares a neighbour's operation with what was called here under the same number.
    fn compare(&self, asked: &Head) -> Result<(), Error> {
        let mine = self.history.iter().find(|call| call.seq == asked.call.seq);
        match mine {
            Some(mine) if *mine != asked.call => Err(Error::Mismatch {
                rank: self.rank,
                call: *mine,
                other_rank: asked.rank,
                other_call: asked.call,
            }),
            _ => Ok(()),
        }
    }

    /// How long to sleep at most before looking around.
    fn pause(&self, order: Order<'_>) -> Result<Duration, Error> {
        self.target.check()?;
        let look = self.target.region.as_ref().map_or(STALL, |_| REGION_LOOK);
        let Some(deadline) = order.deadline else {
            return Ok(look);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::TimedOut {
                waited: order.timeout,
                missing: Vec::new(),
                call: *order.call,
            });
        }
        // Rounded up, so that a deadline less than a millisecond away does not spin.
        Ok(look.min(left + Duration::from_millis(1)))
    }

    /// Whether something is ready.
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

    /// The error for a neighbour that closed its side while this one has still to send.
    fn went(&mut self, order: Order<'_>, peer: u32) -> Error {
        let fault = self.link(peer).lost("it closed the connection");
        self.error(order, peer, fault)
    }

    fn error(&self, order: Order<'_>, peer: u32, fault: Fault) -> Error {
        // An abort closes connections everywhere: it is the cause, not the connection.
        if let Err(error) = self.target.check() {
            return error;
        }
        match fault {
            Fault::Lost(reason) => Error::PeerLost {
                host_index: peer,
                reason,
            },
            Fault::Silent => {
                let mut silent = self.silent();
                if let Err(at) = silent.binary_search(&peer) {
                    silent.insert(at, peer);
                }
                self.silence(silent)
            }
            Fault::Failed(record) => match record.error(self.target.session) {
                Error::Aborted { .. } => Error::PeerLost {
                    host_index: peer,
                    reason: "its round was aborted".to_owned(),
                },
                error => error,
            },
            Fault::Other(found) => Error::Mismatch {
                rank: self.rank,
                call: *order.call,
                other_rank: found.rank,
                other_call: found.call,
            },
        }
    }

    /// Closes all connections after what was sent.
    pub(crate) fn leave(&mut self) {
        self.links.iter().for_each(Link::leave);
    }

    /// Closes all connections; a failure other than an abort is told to the neighbours before.
    pub(crate) fn close(&mut self, why: Option<&Error>) {
        match why {
            Some(error @ Error::Mismatch { .. }) => {
                let record = Record::of(error);
                let deadline = Instant::now() + FAREWELL;
                for link in &mut self.links {
                    link.farewell(&record, deadline);
                }
            }
            _ => self.links.iter().for_each(Link::close),
        }
        // With them goes what nobody will read any more, so that no sender waits for room.
        self.links.clear();
    }
}

/// The first neighbour that closed its side although this one waits for room to send to it. Who only
/// receives finds the end by reading; who waits for room would find nothing, since a full window stays
/// full.
fn gone(fds: &[PollFd<'_>], wanted: &[(u32, PollFlags)]) -> Option<u32> {
    fds.iter().zip(wanted).find_map(|(fd, (peer, events))| {
        let sends_only = !events.contains(PollFlags::IN);
        (sends_only && fd.revents().contains(PollFlags::RDHUP)).then_some(*peer)
    })
}

/// An entry for poll(2), which also tells when the other end has closed its side.
fn entry(fd: BorrowedFd<'_>, events: PollFlags) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, events | PollFlags::RDHUP)
}
