//! Connecting the leaders of a round to their neighbours.
//!
//! A leader connects to neighbours of lower host index and accepts those of higher, all at once in one
//! loop over poll(2): a host that is slow, or a stranger that says nothing, delays nobody else. A
//! neighbour that is not there yet is tried again; one that is in a newer round ends the attempt.
//! Whatever else comes to the port is dropped with a line in the log.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags, poll};

use super::{
    dial::{Dial, Dialled},
    guest::{Guest, Heard},
    link::{Link, is_pending},
    wire::Net,
};
use crate::{
    abort::Target,
    error::Error,
    topology::{Session, Topology, neighbours},
};

/// Guests whose proof is awaited at the same time; beyond it the oldest is dropped.
const MOST_GUESTS: usize = 256;
/// How often to look whether another process aborted the region.
const REGION_LOOK: Duration = Duration::from_millis(5);
/// Pause of the listener when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// What connecting needs to know.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) session: Session,
    pub(crate) listener: &'a TcpListener,
    pub(crate) peers: &'a BTreeMap<u32, SocketAddr>,
    pub(crate) key: &'a [u8; 32],
    pub(crate) timeout: Duration,
}

/// Connects to all neighbours, or fails at the deadline or an abort.
pub(crate) fn establish(plan: &Plan<'_>, target: Arc<Target>) -> Result<Net, Error> {
    let mut meeting = Meeting::new(plan)?;
    let began = Instant::now();
    let deadline = began + plan.timeout;
    plan.listener
        .set_nonblocking(true)
        .map_err(Error::io("fcntl"))?;
    loop {
        if let Err(over) = target.check() {
            // Another member has given up a moment before: who is missing here as well is worth a word.
            let long = began.elapsed() >= plan.timeout / 2;
            return Err(if long { meeting.unreachable() } else { over });
        }
        let now = Instant::now();
        meeting.step(now)?;
        if meeting.missing.is_empty() {
            break;
        }
        if now >= deadline {
            return Err(meeting.unreachable());
        }
        meeting.sleep(&target, deadline)?;
    }
    let links = std::mem::take(&mut meeting.links);
    let mut all_here = true;
    for link in links.values() {
        all_here &= link.tune(plan.timeout).map_err(Error::io("setsockopt"))?;
    }
    let mut net = Net::new(plan, links.into_values().collect(), target);
    net.meet(plan.topology, all_here, deadline, plan.timeout)?;
    Ok(net)
}

struct Meeting<'a> {
    plan: &'a Plan<'a>,
    missing: BTreeSet<u32>,
    links: BTreeMap<u32, Link>,
    dials: Vec<Dial>,
    guests: Vec<Guest>,
    accept_from: Option<Instant>,
    last_word: String,
}

impl<'a> Meeting<'a> {
    fn new(plan: &'a Plan<'a>) -> Result<Self, Error> {
        let me = plan.topology.host_index;
        let missing: BTreeSet<u32> = neighbours(me, plan.topology.host_count)
            .into_iter()
            .collect();
        let mut dials = Vec::new();
        for &peer in missing.range(..me) {
            let address = plan.peers.get(&peer).ok_or_else(|| {
                Error::Config(format!("no address of the neighbour host {peer} was given"))
            })?;
            dials.push(Dial::new(peer, *address));
        }
        Ok(Self {
            plan,
            missing,
            links: BTreeMap::new(),
            dials,
            guests: Vec::new(),
            accept_from: None,
            last_word: "nobody answered".to_owned(),
        })
    }

    /// Does all that can be done without waiting.
    fn step(&mut self, now: Instant) -> Result<(), Error> {
        self.accept(now);
        let mut dials = std::mem::take(&mut self.dials);
        for dial in &mut dials {
            match dial.step(self.plan, now) {
                Dialled::Waits => {}
                Dialled::Failed(reason) => {
                    tracing::debug!(
                        host_index = dial.peer,
                        reason,
                        "data plane connection failed"
                    );
                    self.last_word = reason;
                }
                Dialled::Stale => {
                    return Err(Error::Stale {
                        host_index: dial.peer,
                        session: self.plan.session,
                    });
                }
                Dialled::Disagrees => {
                    return Err(Error::Config(format!(
                        "host {} has another view of the round {}",
                        dial.peer, self.plan.session
                    )));
                }
                Dialled::Connected(stream) => {
                    self.missing.remove(&dial.peer);
                    self.links.insert(dial.peer, Link::new(dial.peer, stream));
                }
            }
        }
        dials.retain(|dial| self.missing.contains(&dial.peer));
        self.dials = dials;
        for mut guest in std::mem::take(&mut self.guests) {
            match guest.step(self.plan, now) {
                Heard::Waits => self.guests.push(guest),
                Heard::Gone(reason) => {
                    tracing::debug!(from = %guest.from, reason, "a connection to the data plane's port ended");
                    self.last_word = reason.to_owned();
                }
                Heard::Stranger(reason) => {
                    tracing::info!(from = %guest.from, reason, "dropped a stranger at the data plane's port");
                    self.last_word = reason.to_owned();
                }
                Heard::Proved(peer) => {
                    // The newest wins: its other end has given up any earlier one.
                    self.missing.remove(&peer);
                    self.links
                        .insert(peer, Link::new(peer, guest.into_stream()));
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self, now: Instant) {
        if self.accept_from.is_some_and(|from| now < from) {
            return;
        }
        self.accept_from = None;
        loop {
            match self.plan.listener.accept() {
                Ok((stream, from)) => {
                    if let Err(error) = stream.set_nonblocking(true) {
                        tracing::warn!(%error, "could not use an accepted connection");
                        continue;
                    }
                    if self.guests.len() == MOST_GUESTS {
                        let oldest = self.guests.remove(0);
                        tracing::info!(from = %oldest.from, "dropped the oldest of too many strangers");
                    }
                    self.guests.push(Guest::new(stream, from, now));
                }
                Err(error) if is_pending(&error) => return,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept on the data plane's port");
                    self.accept_from = Some(now + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn sleep(&self, target: &Target, deadline: Instant) -> Result<(), Error> {
        let mut fds = vec![PollFd::from_borrowed_fd(target.event(), PollFlags::IN)];
        if self.accept_from.is_none() {
            fds.push(PollFd::new(self.plan.listener, PollFlags::IN));
        }
        let dials = self.dials.iter().filter_map(Dial::wants);
        let guests = self.guests.iter().map(Guest::wants);
        fds.extend(
            dials
                .chain(guests)
                .map(|(fd, events)| PollFd::from_borrowed_fd(fd, events)),
        );
        let look = target.region.as_ref().map(|_| Instant::now() + REGION_LOOK);
        let until = self
            .dials
            .iter()
            .filter_map(Dial::wakes)
            .chain(self.guests.iter().map(|guest| guest.deadline))
            .chain(self.accept_from)
            .chain(look)
            .fold(deadline, Instant::min);
        // Rounded up, so that a deadline less than a millisecond away does not spin.
        let left = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        match poll(&mut fds, left.try_into().ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Error::System {
                call: "poll",
                errno: Errno::from_raw(error.raw_os_error()),
            }),
        }
    }

    fn unreachable(&self) -> Error {
        Error::Unreachable {
            host_indices: self.missing.iter().copied().collect(),
            waited: self.plan.timeout,
            reason: self.last_word.clone(),
        }
    }
}
