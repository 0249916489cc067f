//! The port at which the driver listens for agents.
//!
//! A later driver of the same run listens at the same port. So a job with a journal takes a port outside of the range from
//! which the kernel chooses: in that range, the kernel could give the port to another program between the two drivers.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use anyhow::Context as _;
use elasticrun_agent::{ReservedPort, reserve_port};
use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;

use crate::{
    config::{Journal, Settings, interface_addresses},
    start::is_local,
};

/// Connections of agents that the kernel accepts before the driver does, at most.
const BACKLOG: i32 = 1024;

/// Ports outside of the kernel's range that are tried, before the kernel chooses one.
const TRIES: usize = 16;

/// A port of this process, to which nothing can connect yet.
#[derive(Debug)]
pub(crate) struct ControlPort {
    socket: Socket,
    address: SocketAddr,
    /// Keeps other processes of elasticrun from the port until it is open.
    _reserved: Option<ReservedPort>,
}

impl ControlPort {
    /// Takes the port: at `listen`, else on loopback if all hosts are local, else at all addresses of both families.
    ///
    /// # Errors
    /// The port is in use, or the address is not of this machine.
    pub(crate) fn bind(settings: &Settings, listen: Option<SocketAddr>) -> anyhow::Result<Self> {
        let (address, fallback) = match listen {
            Some(address) => (address, None),
            None if is_local(settings) => ((Ipv4Addr::LOCALHOST, 0).into(), None),
            // A kernel may be without IPv6, and a container without an address of it.
            None => (
                SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
                Some((Ipv4Addr::UNSPECIFIED, 0).into()),
            ),
        };
        let bind = |address: SocketAddr| match settings.journal {
            Journal::None => Self::at(address, None),
            _ if address.port() != 0 => Self::at(address, None),
            _ => Self::outside_of_the_kernels_range(address),
        };
        let bound = match (bind(address), fallback) {
            (Err(_), Some(fallback)) => bind(fallback),
            (bound, _) => bound,
        };
        bound.with_context(|| format!("cannot listen at {address}"))
    }

    fn outside_of_the_kernels_range(address: SocketAddr) -> io::Result<Self> {
        for _ in 0..TRIES {
            let reserved = reserve_port()?;
            let chosen = SocketAddr::new(address.ip(), reserved.port);
            if let Ok(port) = Self::at(chosen, Some(reserved)) {
                return Ok(port);
            }
        }
        Self::at(address, None)
    }

    /// Binds a socket to an address. `[::]` takes connections of IPv4, too.
    fn at(address: SocketAddr, reserved: Option<ReservedPort>) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        if address.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED) {
            socket.set_only_v6(false)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        let bound = socket.local_addr()?.as_socket();
        Ok(Self {
            address: bound.ok_or(io::ErrorKind::AddrNotAvailable)?,
            socket,
            _reserved: reserved,
        })
    }

    /// The address and the port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The addresses at which agents reach the port, best first.
    pub(crate) fn reachable_at(&self) -> Vec<String> {
        reachable_at(self.address, interface_addresses())
    }

    /// Lets agents connect.
    ///
    /// # Errors
    /// Another program listens at the port.
    pub(crate) fn open(self) -> anyhow::Result<TcpListener> {
        let address = self.address;
        let open = || {
            self.socket.listen(BACKLOG)?;
            TcpListener::from_std(self.socket.into())
        };
        open().with_context(|| format!("cannot listen at {address}"))
    }
}

/// The addresses at which agents reach a socket on a machine with these interfaces. Loopback addresses are the last resort: agents
/// of this machine reach the others as well.
fn reachable_at(bound: SocketAddr, interfaces: impl Iterator<Item = IpAddr>) -> Vec<String> {
    if !bound.ip().is_unspecified() {
        return vec![bound.to_string()];
    }
    let is_usable = |ip: &IpAddr| match ip {
        IpAddr::V4(_) => true,
        IpAddr::V6(ip) => bound.is_ipv6() && !ip.is_unicast_link_local(),
    };
    let (local, mut all): (Vec<_>, Vec<_>) =
        (interfaces.filter(is_usable)).partition(|ip: &IpAddr| ip.is_loopback());
    if all.is_empty() {
        all = local;
    }
    let at = |ip| SocketAddr::new(ip, bound.port()).to_string();
    all.into_iter().map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_at_all_addresses_is_reached_at_those_of_the_machine() {
        let interfaces = ["127.0.0.1", "::1", "10.0.0.1", "fe80::1", "fd00::1"];
        let interfaces = interfaces.map(|ip| ip.parse::<IpAddr>().expect("an address"));
        let at = |bound: &str, interfaces: &[IpAddr]| {
            reachable_at(bound.parse().expect("sound"), interfaces.iter().copied())
        };
        assert_eq!(at("[::]:7", &interfaces), ["10.0.0.1:7", "[fd00::1]:7"]);
        assert_eq!(at("0.0.0.0:7", &interfaces), ["10.0.0.1:7"]);
        assert_eq!(at("0.0.0.0:7", &interfaces[..2]), ["127.0.0.1:7"]);
        assert_eq!(at("127.0.0.1:7", &interfaces), ["127.0.0.1:7"]);
    }
}
