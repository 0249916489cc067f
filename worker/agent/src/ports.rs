//! Ports for the coordinators of the users' libraries, and for drivers that a later one may replace.
//!
//! Minutes may pass between the offer of a port and its use, since rank 0 imports its libraries first. The kernel takes
//! ports for outgoing connections and for `bind` to port 0 from `ip_local_port_range`. On a busy machine it would give
//! an offered port of that range to another socket. So offers come from outside of that range.
//!
//! # Invariants
//! - An agent offers all other ports of its pool before it offers one again. So a library that connects late, to the
//!   port of a past round or group, does not reach a later one.
//! - No other agent of the machine offers a port that is among the last [`CLAIMS`] of this one.
//! - A port is free at every address of the machine when it is offered.
//!
//! # Not promised
//! Another program may bind the port by its number. If the kernel's range leaves too few ports, the kernel chooses the
//! port, and another socket may get it before its use. The agent does not keep the port bound, since libraries that do
//! not set `SO_REUSEADDR` could not bind it then.

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

/// The smallest pool that is used.
const MIN_POOL: usize = 512;

/// The lowest port of a pool. Well-known servers use ports below.
const MIN_PORT: u16 = 20_000;

/// How many of the last offers are claimed among agents. Before rank 0 listens, nothing else reserves a port.
const CLAIMS: usize = 16;

/// How many ports of the kernel's choice are tried, and how many offers are not repeated.
const REMEMBERED: usize = 256;

/// The ports that this agent offers.
#[derive(Debug)]
pub(crate) struct Ports {
    /// Ports outside of the kernel's range; none if that range covers nearly all.
    pool: Option<RangeInclusive<u16>>,
    /// The index of the next port in the pool, modulo its length.
    turn: usize,
    /// The last offers, the newest at the end.
    offered: VecDeque<u16>,
    /// Sockets that claim the last offers among agents, the newest at the end.
    claims: VecDeque<UnixDatagram>,
}

impl Ports {
    /// Begins at a random port of the pool.
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
    /// All ports are taken, or the process has no descriptor left.
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
            // Claim before the check, so that of two agents only one finds the port free.
            if let Ok(claim) = claim(port)
                && listen(port).is_ok()
            {
                return Some((port, claim));
            }
        }
        None
    }

    fn ask_kernel(&self) -> io::Result<(u16, UnixDatagram)> {
        // Unsuitable ports stay bound meanwhile, so that each try yields another port.
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

/// A port that no other elasticrun process of this machine offers while this exists.
#[derive(Debug)]
pub struct ReservedPort {
    /// The number of the port.
    pub port: u16,
    _claims: Ports,
}

/// A port that is free now, and that the kernel gives to no other program later, if it leaves enough ports.
///
/// # Errors
/// All ports are taken, or the process has no descriptor left.
pub fn reserve_port() -> io::Result<ReservedPort> {
    let mut ports = Ports::new();
    Ok(ReservedPort {
        port: ports.next()?,
        _claims: ports,
    })
}

/// The range of ports from which the kernel chooses in this network namespace.
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
    let below = kernel.start().checked_sub(1).map(|last| MIN_PORT..=last);
    let enough = |range: &RangeInclusive<u16>| range.len() >= MIN_POOL;
    above.filter(enough).or(below.filter(enough))
}

/// Claims a port among agents by a name in the abstract socket namespace. Like ports, these names are local to a network
/// namespace. The claim ends with the socket.
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
        // The pool is small and used by this test alone.
        let pool = Some(20_500..=20_627);
        let (mut one, mut two) = (ports(pool.clone()), ports(pool));
        let of_one: BTreeSet<_> = (0..8).map(|_| one.next().unwrap()).collect();
        let of_two: BTreeSet<_> = (0..8).map(|_| two.next().unwrap()).collect();
        assert!(of_one.is_disjoint(&of_two), "{of_one:?} {of_two:?}");
    }

    #[test]
    fn a_port_in_use_is_not_offered() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = (taken.local_addr().unwrap().port(), taken);
        let mut ports = ports(Some(taken.0..=taken.0));
        assert_ne!(ports.next().unwrap(), taken.0);
    }
}
