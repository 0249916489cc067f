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
    config::{Journal, Settings},
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
