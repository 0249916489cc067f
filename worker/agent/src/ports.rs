//! Ports for the coordinators of the users' libraries.
//!
//! Minutes may pass between the offer of a port and its use: rank 0 imports its libraries first. A port of the range
//! from which the kernel serves outgoing connections and `bind` to port 0 (`ip_local_port_range`) would be another's by
//! then on a busy machine. So offers come from outside of that range.
//!
//! # Invariants
//! - An agent offers no port twice before it has offered all others: a library that comes late to the port of a round or
//!   group that is over does not meet the next one there.
//! - No other agent of the machine offers a port that is among the last [`CLAIMS`] of this one.
//! - A port is free at every address of the machine when it is offered.
//!
//! Not promised: that no other program binds the port by its number. Where the kernel's range leaves no room, it chooses,
//! and the first paragraph's warning holds. (A socket of ours that keeps the port bound would shut out libraries that do
//! not set `SO_REUSEADDR`.)

use std::{
    collections::VecDeque,
    fs, io,
    net::{Ipv4Addr, Ipv6Addr, TcpListener},
    ops::RangeInclusive,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
};

/// Fewer ports than these are no choice.
const LEAST: usize = 512;

/// Below are the ports of well-known servers.
const LOWEST: u16 = 20_000;

/// So many of the last offers are kept from other agents: until rank 0 listens, the kernel does not keep them.
const CLAIMS: usize = 16;

/// So many ports of the kernel's choice are tried, and so many are not offered again.
const REMEMBERED: usize = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct Ports {
    /// Outside of the kernel's range; none if it has taken nearly all.
    pool: Option<RangeInclusive<u16>>,
    /// How many of the pool were looked at.
    turn: usize,
    /// The last offers, the newest at the end.
    offered: VecDeque<u16>,
    /// Sockets that say to other agents which ports are taken, the newest at the end.
    claims: VecDeque<UnixDatagram>,
}

impl Ports {
    /// Nothing is offered yet. Each begins at another port.
    pub(crate) fn new() -> Self {
        Self {
            pool: kernel_range().and_then(|range| pool_beside(&range)),
            turn: getrandom::u32().unwrap_or_else(|_| std::process::id()) as usize,
            offered: VecDeque::new(),
            claims: VecDeque::new(),
        }
    }

    /// A port that is free now.
    ///
    /// # Errors
    /// All are taken, or the process has no descriptor left.
    pub(crate) fn next(&mut self) -> io::Result<u16> {
        let (port, claim) = match self.take_from_pool() {
            Some(found) => found,
            None => self.ask_kernel()?,
        };
        self.offered.push_back(port);
        self.claims.push_back(claim);
        if self.offered.len() > REMEMBERED {
            self.offered.pop_front();
        }
        if self.claims.len() > CLAIMS {
            self.claims.pop_front();
        }
        Ok(port)
    }

    fn take_from_pool(&mut self) -> Option<(u16, UnixDatagram)> {
        let pool = self.pool.clone()?;
        for _ in 0..pool.len() {
            let port = pool.clone().nth(self.turn % pool.len())?;
            self.turn = self.turn.wrapping_add(1);
            // The claim first: two agents that look at once do not both find it free.
            if let Ok(claim) = claim(port)
                && listen(port).is_ok()
            {
                return Some((port, claim));
            }
        }
        None
    }

    fn ask_kernel(&self) -> io::Result<(u16, UnixDatagram)> {
        // Those that do not fit stay bound meanwhile, so that each try gives another one.
        let mut tried = Vec::new();
        loop {
            let listener = listen(0)?;
            let port = listener.local_addr()?.port();
            let late = tried.len() > REMEMBERED;
            match claim(port) {
                Ok(claim) if late || !self.offered.contains(&port) => return Ok((port, claim)),
                Err(error) if late => return Err(error),
                _ => tried.push(listener),
            }
        }
    }
}

/// From which range the kernel takes ports in this network namespace.
fn kernel_range() -> Option<RangeInclusive<u16>> {
    parse_range(&fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?)
}

fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let mut words = text.split_whitespace().map(|word| word.parse().ok());
    Some(words.next()??..=words.next()??)
}

/// The ports above the kernel's range, or else those below it.
fn pool_beside(kernel: &RangeInclusive<u16>) -> Option<RangeInclusive<u16>> {
    let above = kernel.end().checked_add(1).map(|first| first..=u16::MAX);
    let below = kernel.start().checked_sub(1).map(|last| LOWEST..=last);
    let enough = |range: &RangeInclusive<u16>| range.len() >= LEAST;
    above.filter(enough).or(below.filter(enough))
}

/// Takes a port among agents, by a name in the abstract namespace, which is the network's as ports are. It ends with the
/// socket.
fn claim(port: u16) -> io::Result<UnixDatagram> {
    let name = SocketAddr::from_abstract_name(format!("elasticrun-port-{port}"))?;
    UnixDatagram::bind_addr(&name)
}

/// Listens at all addresses of the machine.
fn listen(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            // A machine without IPv6.
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
        }
        listening => listening,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn ports(pool: Option<RangeInclusive<u16>>) -> Ports {
        Ports {
            pool,
            turn: 0,
            ..Ports::new()
        }
    }

    #[test]
    fn no_port_is_offered_again_soon() {
        for mut ports in [Ports::new(), ports(None)] {
            let mut offered = BTreeSet::new();
            for _ in 0..REMEMBERED {
                let port = ports.next().unwrap();
                assert!(offered.insert(port), "{port} is offered again");
            }
        }
    }

    #[test]
    fn offers_are_outside_of_the_range_that_the_kernel_gives_away() {
        let Some(kernel) = kernel_range() else { return };
        let mut ports = Ports::new();
        if ports.pool.is_some() {
            let port = ports.next().unwrap();
            assert!(!kernel.contains(&port), "{port} is in {kernel:?}");
        }
    }

    #[test]
    fn the_pool_lies_beside_the_range_of_the_kernel() {
        assert_eq!(pool_beside(&(32_768..=60_999)), Some(61_000..=65_535));
        assert_eq!(pool_beside(&(32_768..=65_535)), Some(20_000..=32_767));
        assert_eq!(pool_beside(&(20_100..=65_300)), None);
        assert_eq!(pool_beside(&(1_024..=65_535)), None);
        assert_eq!(parse_range("32768\t60999\n"), Some(32_768..=60_999));
        assert_eq!(parse_range(""), None);
    }

    #[test]
    fn two_agents_that_begin_alike_offer_different_ports() {
        // In a small pool of their own, so that other tests do not come between.
        let pool = Some(20_500..=20_627);
        let (mut one, mut two) = (ports(pool.clone()), ports(pool));
        let of_one: BTreeSet<_> = (0..8).map(|_| one.next().unwrap()).collect();
        let of_two: BTreeSet<_> = (0..8).map(|_| two.next().unwrap()).collect();
        assert!(of_one.is_disjoint(&of_two), "{of_one:?} {of_two:?}");
    }

    #[test]
    fn a_port_that_somebody_listens_at_is_not_offered() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = (taken.local_addr().unwrap().port(), taken);
        let mut ports = ports(Some(taken.0..=taken.0));
        assert_ne!(ports.next().unwrap(), taken.0);
    }
}
