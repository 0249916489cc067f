//! Connects the leaders of a round to their neighbours.
//!
//! A leader connects to neighbours of lower host index and accepts connections of those with a
//! higher one. One loop over poll(2) drives all of them at once, so a slow host or a silent
//! stranger delays no other connection. A neighbour that is not reachable yet is tried again. A
//! neighbour in a newer round ends the attempt. All other connections to the port are dropped and
//! logged.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags, poll};

use super::{
    cipher_speed,
    dial::{Dial, DialStep},
    inbound::{InboundHandshake, InboundStep},
    link::{Link, is_pending},
    plan::Plan,
    wire::Net,
};
use crate::{abort::Target, error::Error, topology::neighbours};

/// Maximum number of unauthenticated inbound connections. Beyond it, the oldest is dropped.
const MAX_INBOUND: usize = 256;
/// How often to check whether another process aborted the region.
const REGION_CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// Pause of the listener after accept failed, for instance without a free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Connects to all neighbours, or fails at the deadline or an abort.
pub(crate) fn establish(plan: &Plan<'_>, target: Arc<Target>) -> Result<Net, Error> {
    let mut connector = Connector::new(plan)?;
    let began = Instant::now();
    let deadline = began + plan.timeout;
    plan.listener
        .set_nonblocking(true)
        .map_err(Error::io("fcntl"))?;
    loop {
        if let Err(over) = target.check() {
            // Another member may have given up just before. If much of the timeout has passed, name
            // the missing hosts.
            let long = began.elapsed() >= plan.timeout / 2;
            return Err(if long { connector.unreachable() } else { over });
        }
        let now = Instant::now();
        connector.step(now)?;
        if connector.missing.is_empty() {
            break;
        }
        if now >= deadline {
            return Err(connector.unreachable());
        }
        connector.sleep(&target, deadline)?;
    }
    let links = std::mem::take(&mut connector.links);
    if !links.is_empty() {
        cipher_speed::warn_if_slow();
    }
    let mut all_here = true;
    for link in links.values() {
        all_here &= link.tune(plan.timeout).map_err(Error::io("setsockopt"))?;
    }
    let mut net = Net::new(plan, links.into_values().collect(), target);
    net.exchange_layout(plan.topology, all_here, deadline, plan.timeout)?;
    Ok(net)
}

struct Connector<'a> {
    plan: &'a Plan<'a>,
    missing: BTreeSet<u32>,
    links: BTreeMap<u32, Link>,
    dials: Vec<Dial>,
    inbound: Vec<InboundHandshake>,
    accept_from: Option<Instant>,
    last_reason: String,
}

impl<'a> Connector<'a> {
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
            inbound: Vec::new(),
            accept_from: None,
            last_reason: "nobody answered".to_owned(),
        })
    }

    /// Makes all progress that is possible without waiting.
    fn step(&mut self, now: Instant) -> Result<(), Error> {
        self.accept(now);
        let mut dials = std::mem::take(&mut self.dials);
        for dial in &mut dials {
            match dial.step(self.plan, now) {
                DialStep::Pending => {}
                DialStep::Failed(reason) => {
                    tracing::debug!(
                        host_index = dial.peer,
                        reason,
                        "data plane connection failed"
                    );
                    self.last_reason = reason;
                }
                DialStep::Stale => {
                    return Err(Error::Stale {
                        host_index: dial.peer,
                        round_id: self.plan.round_id,
                    });
                }
                DialStep::Mismatched => {
                    return Err(Error::Config(format!(
                        "host {} has another view of the round {}",
                        dial.peer, self.plan.round_id
                    )));
                }
                DialStep::Connected(stream, session) => {
                    self.missing.remove(&dial.peer);
                    let link = Link::new(dial.peer, stream, *session);
                    self.links.insert(dial.peer, link);
                }
            }
        }
        dials.retain(|dial| self.missing.contains(&dial.peer));
        self.dials = dials;
        for mut handshake in std::mem::take(&mut self.inbound) {
            match handshake.step(self.plan, now) {
                InboundStep::Pending => self.inbound.push(handshake),
                InboundStep::Closed(reason) => {
                    tracing::debug!(from = %handshake.from, reason, "a connection to the data plane's port ended");
                    self.last_reason = reason.to_owned();
                }
                InboundStep::Rejected(reason) => {
                    tracing::info!(from = %handshake.from, reason, "dropped a stranger at the data plane's port");
                    self.last_reason = reason.to_owned();
                }
                InboundStep::Authenticated(peer, session) => {
                    // The newest connection wins: the peer has given up any earlier one.
                    self.missing.remove(&peer);
                    let link = Link::new(peer, handshake.into_stream(), *session);
                    self.links.insert(peer, link);
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
                    if self.inbound.len() == MAX_INBOUND {
                        let oldest = self.inbound.remove(0);
                        tracing::info!(from = %oldest.from, "dropped the oldest of too many strangers");
                    }
                    self.inbound.push(InboundHandshake::new(stream, from, now));
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
        let dials = self.dials.iter().filter_map(Dial::poll_interest);
        let inbound = self.inbound.iter().map(InboundHandshake::poll_interest);
        fds.extend(
            dials
                .chain(inbound)
                .map(|(fd, events)| PollFd::from_borrowed_fd(fd, events)),
        );
        let region_check = target
            .region
            .as_ref()
            .map(|_| Instant::now() + REGION_CHECK_INTERVAL);
        let until = self
            .dials
            .iter()
            .filter_map(Dial::retry_at)
            .chain(self.inbound.iter().map(|handshake| handshake.deadline))
            .chain(self.accept_from)
            .chain(region_check)
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
            reason: self.last_reason.clone(),
        }
    }
}
